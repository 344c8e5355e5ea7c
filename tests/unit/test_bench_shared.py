"""`isthmus bench shared`: what it says of a ranking, on a grid that is small enough to check by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.grids import Grid
from benchmarks.shared import agree, agree_at_equal_cost, describe, summarise
from isthmus.core.config import study_config
from isthmus.studies.plan import Plan
from isthmus.training.prepare import Options
from tests.studies.drivers import settings

SPACE = {"model": {"name": "hourglass_mlp"}, "vary": {"d_z": [65, 80], "d_h": [4, 8], "init": ["zero_w2", "pytorch"]}}


@pytest.fixture(scope="module")
def plan() -> Plan:
    space = SPACE | {"model": {"name": "hourglass_mlp", "depth": 1}}
    return Plan.of(study_config(settings(spaces=[space], shared={"epochs": 1, "slices": 3, "first": 3})), Options())


def make_grid(plan: Plan) -> Grid:
    """Larger networks are better, and each is as good with either init."""
    cost = {proposal.key: float(proposal.cost["params"]) for proposal in plan.candidates}
    return Grid({}, dict(cost), cost, 10)


@pytest.mark.slow
def test_a_perfect_ranking_and_its_steps(plan: Plan) -> None:
    grid = make_grid(plan)
    order = sorted(grid.quality, key=lambda key: -grid.quality[key])
    found: dict[str, Any] = describe(plan, {key: grid.quality[key] for key in order}, grid)
    assert found["tau"] == 1
    assert found["tau by group"] == {"init=zero_w2": 1, "init=pytorch": 1}
    assert found["ranking"] == pytest.approx(2 * 3 * 1 / (8 * 10))  # groups, slices, epochs
    needed = found["trained alone to the goal"]
    assert grid.volume(order[:needed]) >= 0.99 * grid.volume(order) > grid.volume(order[: needed - 1])
    assert found["steps to the goal"] == pytest.approx(found["ranking"] + needed / 8)
    assert found["trained alone within the budget"] == 0  # the super-networks alone take more


def test_agreement_at_equal_cost_leaves_out_pairs_of_other_sizes() -> None:
    cost = {"small": 100.0, "other small": 105.0, "large": 200.0, "other large": 210.0}
    quality = {"small": 1.0, "other small": 2.0, "large": 3.0, "other large": 4.0}
    grid = Grid({}, quality, cost, 1)
    by_size = {"small": 2.0, "other small": 1.0, "large": 4.0, "other large": 3.0}
    assert agree(by_size, quality) == pytest.approx(0.333, abs=1e-3)
    assert agree_at_equal_cost(by_size, grid) == -1


def test_a_goal_that_one_seed_misses_is_the_worst() -> None:
    row: dict[str, Any] = {
        "tau": 0.8, "tau at equal cost": 0.7, "tau of the first": 0.9, "volume within the budget": 0.9,
        "steps to the goal": 0.08,
    }  # fmt: skip
    lines = {line["over seeds"]: line for line in summarise([row, row | {"tau": 0.6, "steps to the goal": None}])}
    assert lines["tau"] == {"over seeds": "tau", "median": 0.7, "worst": 0.6, "best": 0.8}
    assert lines["steps to the goal"]["worst"] is None
    assert lines["steps to the goal"]["best"] == 0.08
