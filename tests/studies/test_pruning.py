"""Pruning with two objectives: the dominated stop, the front goes on, and how often that is wrong is known."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.config import Pruning
from isthmus.studies.pruning import prune, rank_by_dominance

RECORDED = Path(__file__).parents[2] / "results" / "bench"
RISK = 0.05
"""The stated probability that a member of the final front is pruned, with the default margin."""

Points = dict[str, tuple[str, float, float]]
numbers = st.integers(0, 20).map(float)
studies = st.dictionaries(
    st.uuids().map(str),
    st.tuples(st.sampled_from("ab"), numbers.map(lambda n: n + 1), numbers),
    min_size=1,
    max_size=25,
)
judged = st.sets(st.integers(0, 24))
"""Places of those that are compared; the others are of an earlier generation."""


def rule(**fields: Any) -> Pruning:
    return Pruning.model_validate({"rungs": (1,), "keep": 0.0, "margin": 0.0} | fields)


def pruned(points: Mapping[str, tuple[float, float]], how: Pruning) -> set[str]:
    """Those of one architecture that stop."""
    return prune({key: ("a", *point) for key, point in points.items()}, points, how)


def test_a_dearer_and_worse_candidate_stops() -> None:
    assert pruned({"cheap": (1, 5.0), "good": (3, 9.0), "bad": (2, 4.0)}, rule()) == {"bad"}


def test_equal_cost_is_judged_by_quality_and_ties_go_on() -> None:
    assert pruned({"x": (1, 5.0), "y": (1, 4.0), "z": (1, 5.0)}, rule()) == {"y"}


def test_the_margin_is_a_part_of_best_minus_median() -> None:
    four = {"best": (1, 10.0), "near": (2, 9.0), "mid": (3, 6.0), "far": (4, 0.0)}
    # Best 10, median 7.5: a margin of 0.5 is 1.25.
    assert pruned(four, rule(margin=0.5)) == {"mid", "far"}
    assert pruned(four, rule(margin=2.0)) == {"far"}


def test_a_part_goes_on_by_rank_although_it_is_dominated() -> None:
    chain = {str(i): (float(i), 10.0 - i) for i in range(10)}
    assert pruned(chain, rule(keep=0.3)) == {str(i) for i in range(3, 10)}


def test_another_architecture_prunes_only_where_that_is_asked_for() -> None:
    two = {"h": ("hourglass", 1.0, 9.0), "c": ("conventional", 2.0, 5.0)}
    assert prune(two, two, rule()) == set()
    assert prune(two, two, rule(across_architectures=True)) == {"c"}


@given(studies, judged, st.floats(0, 1), st.floats(0, 2))
def test_only_the_dominated_and_the_judged_stop(points: Points, places: set[int], keep: float, margin: float) -> None:
    chosen = {key for place, key in enumerate(points) if place in places}
    stopped = prune(points, chosen, rule(keep=keep, margin=margin))
    assert stopped <= chosen
    for architecture, cost, quality in (points[key] for key in stopped):
        assert any(one[0] == architecture and one[1] <= cost and one[2] > quality for one in points.values())


@given(studies, judged, st.floats(0, 2))
def test_a_larger_margin_or_part_never_stops_more(points: Points, places: set[int], margin: float) -> None:
    chosen = {key for place, key in enumerate(points) if place in places}
    stopped = prune(points, chosen, rule(margin=margin))
    assert prune(points, chosen, rule(margin=margin + 0.5)) <= stopped
    assert prune(points, chosen, rule(margin=margin, keep=0.5)) <= stopped
    assert prune(points, chosen, rule(margin=margin, keep=1.0)) == set()


@given(studies)
def test_rank_0_is_the_pareto_front(points: Points) -> None:
    items = {key: (cost, quality) for key, (_, cost, quality) in points.items()}
    front = {key for key, a in items.items() if not any(b[0] <= a[0] and b[1] > a[1] for b in items.values())}
    assert {key for key, rank in rank_by_dominance(items, 0.0).items() if rank == 0} == front


def curves(name: str) -> list[dict[str, Any]]:
    path = RECORDED / f"{name}.json"
    if not path.exists():
        pytest.skip(f"{path} is not here; `isthmus bench search --out results/bench` records it")
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def front_of(networks: list[dict[str, Any]]) -> set[int]:
    """Places of those that no other dominates after the last epoch."""
    ends = [(item["cost"], item["quality"][-1]) for item in networks]
    return {
        place
        for place, (cost, quality) in enumerate(ends)
        if not any((c <= cost and q > quality) or (c < cost and q >= quality) for c, q in ends)
    }


def pruned_of(networks: list[dict[str, Any]], how: Pruning) -> dict[int, int]:
    """Who would have been stopped, and after how many epochs."""
    stopped: dict[int, int] = {}
    for rung in how.rungs:
        left = [place for place in range(len(networks)) if place not in stopped]
        here = {str(i): (networks[i]["cost"], max(networks[i]["quality"][:rung])) for i in left}
        stopped |= {int(key): rung for key in pruned(here, how)}
    return stopped


@pytest.mark.parametrize("name", ["digits-shapes", "mnist5k-shapes"])
@pytest.mark.parametrize("rungs", [(1, 3, 8), (2, 6), (4,)])
def test_a_member_of_the_final_front_is_seldom_pruned(name: str, rungs: tuple[int, ...]) -> None:
    """On recorded curves, over 200 random studies of 24 candidates, with the defaults: fewer than one in twenty."""
    networks, how, draw = curves(name), Pruning(rungs=rungs), random.Random(0)
    lost = members = trained = 0
    for _ in range(200):
        some = draw.sample(networks, 24)
        front, stopped = front_of(some), pruned_of(some, how)
        lost += len(front & stopped.keys())
        members += len(front)
        trained += sum(stopped.get(place, 20) for place in range(24))
    assert lost / members < RISK
    assert trained / (200 * 24 * 20) < 0.95, "and it saves something"
