"""Samplers keep no state: what they propose follows from the study's seed, the number and the past alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from isthmus.core.config import study_config
from isthmus.studies.proposals import Judge, State, Trial
from isthmus.studies.sampling import draw
from tests.studies.spaces import BASE, SIGNATURE

SPACE = {
    "model": {"name": "hourglass_mlp"},
    "vary": {"d_z": [65, 96, 128, 192], "d_h": {"low": 4, "high": 64, "log": True}, "depth": {"low": 1, "high": 6}},
    "where": ["d_h < d_z"],
}


def study(sampler: str, **more: Any) -> Any:
    sampling = {"name": sampler, "generation": 6} | more
    return study_config({"name": "test", "base": BASE, "spaces": [SPACE], "sampling": sampling})


def drawn(config: Any, number: int, quality: Any = lambda item: float(item.varied["d_z"])) -> list[Any]:
    """A search whose candidates are never trained: their quality is a formula."""
    past: list[Trial] = []
    found: dict[str, Any] = {}
    for place in range(number):
        new = draw(Judge(config, SIGNATURE), 0, place, found, past)
        assert new is not None
        found[new[0].key] = new[0]
        trial = Trial.of(new[0], place, memory=new[1])
        past.append(replace(trial, state="finished", quality=quality(new[0])))
    return list(found.values())


@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2", pytest.param("gp", marks=pytest.mark.slow)])
def test_every_sampler_proposes_new_fitting_candidates_and_again_the_same(sampler: str) -> None:
    number = 8 if sampler == "gp" else 18
    first = drawn(study(sampler), number)
    assert len({item.key for item in first}) == number
    assert all(item.model.d_h < item.model.d_z and item.model.d_z in (65, 96, 128, 192) for item in first)
    assert [item.key for item in drawn(study(sampler), number)] == [item.key for item in first]
    assert [item.key for item in drawn(study(sampler, seed=1), number)] != [item.key for item in first]


@pytest.mark.parametrize(
    ("sampler", "number"), [("tpe", 14), ("nsga2", 14), pytest.param("gp", 10, marks=pytest.mark.slow)]
)
def test_the_unit_of_an_error_changes_no_proposal(sampler: str, number: int) -> None:
    plain, small, large = (
        drawn(study(sampler), number, lambda item, unit=unit: -unit / item.varied["d_z"])
        for unit in (1.0, 2.0**-100, 2.0**100)
    )
    assert [item.key for item in small] == [item.key for item in large] == [item.key for item in plain]


@pytest.mark.parametrize(("sampler", "number"), [("tpe", 40), ("nsga2", 72)])
def test_adaptive_samplers_learn_from_the_past(sampler: str, number: int) -> None:
    """Depth costs and gains nothing here: later generations are shallower than random draws from 1 to 6, mean 3.5."""
    depths = [item.model.depth for item in drawn(study(sampler), number, lambda item: float(item.varied["d_z"]))]
    assert sum(depths[-20:]) / 20 < 2.8


def test_a_small_space_is_exhausted_and_not_repeated() -> None:
    config = study_config(
        {
            "name": "test",
            "base": BASE,
            "spaces": [{"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": [65, 96], "d_h": [4, 8]}}],
            "sampling": {"name": "tpe"},
        }
    )
    judge, found, past = Judge(config, SIGNATURE), {}, []  # type: ignore[var-annotated]
    while new := draw(judge, 0, len(past), found, past):
        found[new[0].key] = new[0]
        past.append(replace(Trial.of(new[0], 0, memory=new[1]), state="finished", quality=1.0))
    assert len(found) == 4


def test_a_failed_or_running_candidate_does_not_stop_a_sampler() -> None:
    config = study("tpe")
    past = [
        trial(65, 8, "failed"),
        trial(96, 8, "open"),
        *(trial(128, 8 + i, "finished", 1.0 + i) for i in range(8)),
    ]
    assert draw(Judge(config, SIGNATURE), 0, 10, {}, past) is not None


def trial(d_z: int, d_h: int, state: State, quality: float | None = None) -> Trial:
    varied = {"d_z": d_z, "d_h": d_h, "depth": 1}
    return Trial(0, 0, "", 0, {}, varied, {"params": 92.0 + d_h}, state=state, quality=quality)
