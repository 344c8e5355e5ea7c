"""Pruning with two objectives: the dominated stop, the front goes on, and how often that is wrong is known."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.config import Pruning
from isthmus.studies.pruning import Standing, dominance_ranks, pruned

RECORDED = Path(__file__).parents[2] / "results" / "bench"
RISK = 0.05
"""The stated probability that a member of the final front is pruned, with the default margin."""

standings = st.lists(
    st.builds(
        Standing,
        key=st.uuids().map(str),
        architecture=st.sampled_from("ab"),
        cost=st.integers(1, 20).map(float),
        quality=st.integers(0, 20).map(float),
        judged=st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


def rule(**fields: Any) -> Pruning:
    return Pruning.model_validate({"rungs": (1,), "keep": 0.0, "margin": 0.0} | fields)


def standing(key: str, cost: float, quality: float, architecture: str = "a") -> Standing:
    return Standing(key, architecture, cost, quality)


def test_a_dearer_and_worse_candidate_stops() -> None:
    three = [standing("cheap", 1, 5.0), standing("good", 3, 9.0), standing("bad", 2, 4.0)]
    assert pruned(three, rule()) == {"bad"}


def test_equal_cost_is_judged_by_quality_and_ties_go_on() -> None:
    assert pruned([standing("x", 1, 5.0), standing("y", 1, 4.0), standing("z", 1, 5.0)], rule()) == {"y"}


def test_the_margin_is_a_part_of_best_minus_median() -> None:
    four = [standing("best", 1, 10.0), standing("near", 2, 9.0), standing("mid", 3, 6.0), standing("far", 4, 0.0)]
    # Best 10, median 7.5: a margin of 0.5 is 1.25.
    assert pruned(four, rule(margin=0.5)) == {"mid", "far"}
    assert pruned(four, rule(margin=2.0)) == {"far"}


def test_a_part_goes_on_by_rank_although_it_is_dominated() -> None:
    chain = [standing(str(i), float(i), 10.0 - i) for i in range(10)]
    assert pruned(chain, rule(keep=0.3)) == {str(i) for i in range(3, 10)}


def test_another_architecture_prunes_only_where_that_is_asked_for() -> None:
    two = [standing("h", 1, 9.0, "hourglass"), standing("c", 2, 5.0, "conventional")]
    assert pruned(two, rule()) == set()
    assert pruned(two, rule(across_architectures=True)) == {"c"}


@given(standings, st.floats(0, 1), st.floats(0, 2))
def test_only_the_dominated_and_the_judged_stop(items: list[Standing], keep: float, margin: float) -> None:
    stopped = pruned(items, rule(keep=keep, margin=margin))
    for item in items:
        rivals = [one for one in items if one.architecture == item.architecture and one.cost <= item.cost]
        if item.key in stopped:
            assert item.judged
            assert max(one.quality for one in rivals) > item.quality


@given(standings, st.floats(0, 2))
def test_a_larger_margin_or_part_never_stops_more(items: list[Standing], margin: float) -> None:
    assert pruned(items, rule(margin=margin + 0.5)) <= pruned(items, rule(margin=margin))
    assert pruned(items, rule(margin=margin, keep=0.5)) <= pruned(items, rule(margin=margin))
    assert pruned(items, rule(margin=margin, keep=1.0)) == set()


@given(standings)
def test_rank_0_is_the_pareto_front(items: list[Standing]) -> None:
    ranks = dominance_ranks(items, 0.0)
    front = {a.key for a in items if not any(b.cost <= a.cost and b.quality > a.quality for b in items)}
    assert {key for key, rank in ranks.items() if rank == 0} == front


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
        here = [Standing(str(i), "a", networks[i]["cost"], max(networks[i]["quality"][:rung])) for i in left]
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
