"""The bench of searches counts what a study would train: it decides as the study does, candidate by candidate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.search import Curve, Grid, compare, draw_curves, searched, summary
from isthmus.core.config import Pruning, Sampling, study_config
from isthmus.studies.executors import ThisProcess
from isthmus.studies.plan import Plan
from isthmus.studies.proposals import State, Trial
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.run import Options
from tests.studies.spaces import BASE

SPACE = {
    "model": {"name": "hourglass_mlp"},
    "vary": {"d_z": [65, 96], "d_h": [4, 16], "depth": [1, 2], "init": ["zero_w2", "pytorch"]},
}


def plan(**changes: Any) -> Plan:
    return Plan.of(study_config({"name": "grid", "base": BASE, "spaces": [SPACE]} | changes), Options())


def studied(given: Plan, tmp_path: Path) -> Study:
    study = Study(given, Storage(f"sqlite:///{tmp_path / given.config.name}.db", given.config.name, True))
    study.carry_out(ThisProcess(), lambda trial, run, event: None)
    return study


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which every network of the grid is on record."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(folder))
        studied(plan(), folder)
    return folder


@pytest.mark.parametrize(
    "sampler",
    ["tpe", "model", pytest.param("grid", marks=pytest.mark.slow), pytest.param("nsga2", marks=pytest.mark.slow)],
)
def test_a_counted_search_is_the_study(
    sampler: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(trained))
    whole = plan()
    sampling = Sampling.model_validate(
        {"name": sampler, "candidates": None if sampler == "grid" else 6 if sampler == "model" else 9, "generation": 3}
    )
    changes = {"name": "search", "sampling": sampling, "pruning": Pruning(rungs=(1, 2), margin=0.05, keep=0.0)}
    smaller = replace(whole, config=whole.config.model_copy(update=changes))
    counted = searched(smaller, Grid.of(whole))
    real = studied(smaller, tmp_path)
    assert [item.key for item in counted] == [trial.key for trial in real.trials]
    assert [item.state == "pruned" for item in counted] == [trial.state == "pruned" for trial in real.trials]
    assert [item.rungs for item in counted] == [pytest.approx(trial.rungs) for trial in real.trials]
    assert any(item.state == "pruned" for item in counted)


def test_progress_counts_rungs_first_and_pruned_candidates_up_to_theirs() -> None:
    known = Grid({}, {"a": 10.0, "b": 14.0, "c": 5.0}, {"a": 1, "b": 2, "c": 2}, epochs=10)
    search = [
        _ended("a", 0, "finished", {1: 1.0, 4: 2.0}),
        _ended("c", 0, "pruned", {1: 0.0}),
        _ended("b", 1, "finished", {1: 1.0, 4: 3.0}),
    ]
    steps, volume = known.progress(search)
    # a and c to their rungs (4 + 1), a to its end (6); then b to its rung and its end (10).
    assert steps == pytest.approx((11 / 30, 21 / 30))
    assert volume[-1] == pytest.approx(1.0)


def _ended(key: str, generation: int, state: State, rungs: dict[int, float]) -> Trial:
    return Trial(0, generation, key, 0, {}, {}, {}, state=state, rungs=rungs)


def test_the_goal_is_the_first_time_above_it(tmp_path: Path) -> None:
    curves = [
        Curve("digits-shapes", "tpe", True, seed, (0.1, 0.2, 0.3), (0.5, 0.992 - 0.01 * seed, 1.0)) for seed in (0, 1)
    ]
    assert [curve.to_goal for curve in curves] == [0.2, 0.3]
    (line,) = summary(curves)
    assert (line["reached"], line["steps to 99 %"], line["worst seed"]) == ("2 of 2", "25.0 %", "30.0 %")
    draw_curves(curves, tmp_path / "search.png")
    assert (tmp_path / "search.png").stat().st_size > 10_000


def test_our_sampler_is_compared_with_every_other_method() -> None:
    def curve(sampler: str, seed: int, early: float) -> Curve:
        return Curve("digits-shapes", sampler, True, seed, (0.02, 0.08), (early + 0.001 * seed, 0.995))

    ours = [curve("model", seed, 0.6) for seed in range(4)]
    (worse,) = compare([*ours, *(curve("tpe", seed, 0.9) for seed in range(4))])
    assert worse["behind at"].startswith("3.0 %, 3.5 %")
    assert worse["behind at"].endswith("7.5 %"), "level from 8 % on"
    (better,) = compare([*ours, *(curve("random", seed, 0.3) for seed in range(4))])
    assert better == {
        "study": "digits-shapes", "rival": "random, pruned", "ours to 99 %": "8.0 %", "rival's to 99 %": "8.0 %",
        "behind at": "nowhere",
    }  # fmt: skip
