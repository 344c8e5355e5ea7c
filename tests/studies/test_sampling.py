"""Samplers keep no state: what they propose follows from the study's seed, the number and the past alone."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.core.config import study_config
from isthmus.studies.judging import Judge
from isthmus.studies.sampling import Tried, draw
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
    past: list[Tried] = []
    found: dict[str, Any] = {}
    for place in range(number):
        new = draw(config, 0, place, past, Judge(config, SIGNATURE), found)
        assert new is not None
        found[new[0].key] = new[0]
        past.append(Tried(new[0].varied, quality(new[0]), new[0].cost["params"], new[1]))
    return list(found.values())


@pytest.mark.parametrize("sampler", ["random", "tpe", "nsga2", "gp"])
def test_every_sampler_proposes_new_fitting_candidates_and_again_the_same(sampler: str) -> None:
    number = 8 if sampler == "gp" else 18
    first = drawn(study(sampler), number)
    assert len({item.key for item in first}) == number
    assert all(item.model.d_h < item.model.d_z and item.model.d_z in (65, 96, 128, 192) for item in first)
    assert [item.key for item in drawn(study(sampler), number)] == [item.key for item in first]
    assert [item.key for item in drawn(study(sampler, seed=1), number)] != [item.key for item in first]


@pytest.mark.parametrize(("sampler", "number"), [("tpe", 14), ("nsga2", 14), ("gp", 10)])
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
    while new := draw(config, 0, len(past), past, judge, found):
        found[new[0].key] = new[0]
        past.append(Tried(new[0].varied, 1.0, 1.0, new[1]))
    assert len(found) == 4


def test_a_failed_or_running_candidate_does_not_stop_a_sampler() -> None:
    config = study("tpe")
    past = [
        Tried({"d_z": 65, "d_h": 8, "depth": 1}, None, 100, {}, failed=True),
        Tried({"d_z": 96, "d_h": 8, "depth": 1}, None, 100, {}),
        *(Tried({"d_z": 128, "d_h": 8 + i, "depth": 1}, 1.0 + i, 100 + i, {}) for i in range(8)),
    ]
    assert draw(config, 0, 10, past, Judge(config, SIGNATURE), {}) is not None
