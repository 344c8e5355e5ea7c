"""The bench of searches counts what a study would train: it decides as the study does, candidate by candidate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from optuna.trial import FixedTrial

from benchmarks import search
from benchmarks.curves import Curve, compare, draw_curves, read_curves, summary
from benchmarks.grids import Grid
from benchmarks.rivals import ask_optuna, list_choices, name_parameters, suggest
from benchmarks.search import searched
from isthmus.core.config import Pruning, Sampling, study_config
from isthmus.studies.executors import ThisProcess
from isthmus.studies.plan import Plan
from isthmus.studies.proposals import State, Trial
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.prepare import Options
from tests.studies.spaces import BASE

if TYPE_CHECKING:
    import optuna

SPACE = {
    "model": {"name": "hourglass_mlp"},
    "vary": {"d_z": [65, 96], "d_h": [4, 16], "depth": [1, 2], "init": ["zero_w2", "pytorch"]},
}

RESULTS = Path(__file__).parents[2] / "results" / "bench"


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
    ended = [
        _ended("a", 0, "finished", {1: 1.0, 4: 2.0}),
        _ended("c", 0, "pruned", {1: 0.0}),
        _ended("b", 1, "finished", {1: 1.0, 4: 3.0}),
    ]
    steps, volume = known.progress(ended)
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
    assert worse["behind together"] == "yes"
    (better,) = compare([*ours, *(curve("random", seed, 0.3) for seed in range(4))])
    assert better == {
        "study": "digits-shapes", "rival": "random, pruned", "ours to 99 %": "8.0 %", "rival's to 99 %": "8.0 %",
        "saved": "0.0 (0.0 to 0.0)", "behind at": "nowhere", "behind together": "no",
    }  # fmt: skip


def test_a_search_that_never_reaches_the_goal_counts_against_ours_and_for_a_rival() -> None:
    def curve(sampler: str, seed: int, end: float) -> Curve:
        return Curve("digits-shapes", sampler, True, seed, (0.05, 0.3), (0.6, end))

    ours = [curve("model", seed, 0.995) for seed in range(4)]
    (line,) = compare([*ours, *(curve("tpe", seed, 0.9) for seed in range(4))])
    assert (line["rival's to 99 %"], line["saved"]) == ("–", "0.0 (0.0 to 0.0)"), "as if it did with its last step"
    ours = [curve("model", seed, 0.9) for seed in range(4)]
    (line,) = compare([*ours, *(curve("tpe", seed, 0.995) for seed in range(4))])
    assert (line["ours to 99 %"], line["saved"]) == ("–", "-70.0 (-70.0 to -70.0)")


def made_up(whole: Plan) -> Grid:
    """A grid that nobody trained."""
    costs = {proposal.key: proposal.cost["params"] for proposal in whole.candidates}
    quality = {key: float(place % 7) + place / 100 for place, key in enumerate(costs)}
    return Grid({key: [value - 1, value - 0.5, value] for key, value in quality.items()}, quality, costs, epochs=3)


@pytest.mark.parametrize(
    ("name", "number"),
    [("optuna-tpe", 16), ("optuna-nsga2", 16), pytest.param("optuna-gp", 12, marks=pytest.mark.slow)],
)
def test_optunas_own_loops_train_each_network_once(name: str, number: int) -> None:
    whole = plan()
    trained = ask_optuna(name, whole, made_up(whole), number, seed=1)
    assert len(set(trained)) == number
    assert set(trained) <= {proposal.key for proposal in whole.candidates}
    assert trained == ask_optuna(name, whole, made_up(whole), number, seed=1)
    assert trained != ask_optuna(name, whole, made_up(whole), number, seed=2)


def test_families_share_the_parameters_that_all_have() -> None:
    families = list_choices(
        [{"name": "a", "depth": depth, "d_h": d_h} for depth, d_h in [(1, 4), (3, 8)]]
        + [{"name": "b", "depth": depth, "d_h": d_h} for depth, d_h in [(3, 16), (1, 4)]]
    )
    network = {"name": "b", "depth": 3, "d_h": 16}
    parameters = name_parameters(network, families)
    assert parameters == {"name": "b", "depth": 1, "b.d_h": 1}
    assert suggest(cast("optuna.Trial", FixedTrial(parameters)), families) == network


def test_a_measurement_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plan()
    monkeypatch.setattr(search, "RECIPES", ("digits-shapes",))
    monkeypatch.setattr(search, "SAMPLERS", ("optuna-tpe", "optuna-nsga2"))
    monkeypatch.setattr(search, "find_grid", lambda *_: (whole, made_up(whole)))
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.measure(2, 1, stop, tmp_path)
    curves = search.measure(2, 1, told.append, tmp_path)
    assert len(told) == 3 + 2, "two of four searches had ended"
    whole_again = search.measure(2, 1, told.append, tmp_path, only=["optuna-nsga2"])
    assert len(told) == 3 + 2 + 2
    assert [(c.method, c.seed, c.steps) for c in whole_again] == [(c.method, c.seed, c.steps) for c in curves]


def test_the_stored_curves_can_be_read_and_make_the_stored_table() -> None:
    """The command resumes from them."""
    stored = json.loads((RESULTS / "search.json").read_text())
    curves = read_curves(RESULTS)
    assert summary(curves) == stored["summary"]
    assert compare(curves) == stored["comparisons"]
