"""How well a super-network ranks a grid whose networks were all trained alone, and what the search costs with it.

Only the super-networks are trained; stand-alone qualities are those on record (`results/bench/mnist5k-shapes.json`, one
seed, validation data). A step is one network's pass over one batch, so a step of a super-network counts once for each
of its slices. The study then trains candidates alone in the order of the ranking. The seconds of a ranking are those
in which all candidates are evaluated with inherited weights, without the training of the super-networks. Repeating the
command resumes: a super-network that is on record in ISTHMUS_HOME is not trained again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.curves import GOAL
from benchmarks.grids import Grid, find_grid
from isthmus.core.config import Shared
from isthmus.studies.plan import Plan
from isthmus.studies.shared import (
    LEAST_AGREEMENT,
    group_candidates,
    measure_agreement,
    rank_candidates,
    read_ranking_seconds,
)
from isthmus.training.prepare import Options

RECIPE = "mnist5k-shapes"
BUDGET = 0.06
"""Of the grid's steps, super-networks included."""
EQUAL_COST = 1.1
"""The ratio up to which two costs count as equal."""
Qualities = Mapping[str, float]


def measure(seeds: int, shared: Shared, folder: Path, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    plan, known = find_grid(RECIPE, 1, folder)
    rows = []
    for seed in range(seeds):
        heard = partial(_tell, tell, seed)
        name = f"bench-shared-{seed}"
        config = plan.config.model_copy(update={"name": name, "seeds": (seed,), "shared": shared})
        ranked = Plan.of(config, Options(command="isthmus bench shared"))
        inherited = rank_candidates(ranked, heard)
        seconds = {"ranking seconds": read_ranking_seconds(ranked)}
        rows.append({"seed": seed} | seconds | describe(ranked, inherited, known))
    return rows


def _tell(tell: Callable[[str], None], seed: int, text: str, fraction: float) -> None:
    if fraction == 1:
        tell(f"seed {seed}: {text}")


def describe(plan: Plan, inherited: Qualities, known: Grid) -> dict[str, Any]:
    """Agreement with the stand-alone qualities, and the hypervolume over the grid's steps."""
    assert plan.config.shared is not None
    groups, whole = group_candidates(plan), known.epochs * len(known.quality)
    ranking = sum(group.run.train.epochs * len(group.choose(0, plan.config.shared.slices)) for group in groups) / whole
    order, target = list(inherited), known.volume(known.quality)
    volumes = [known.volume(order[:number]) / target for number in range(1, len(order) + 1)]
    needed = next((number for number, volume in enumerate(volumes, start=1) if volume >= GOAL), None)
    affordable = max(0, math.floor((BUDGET - ranking) * len(known.quality) + 1e-9))
    first = agree(inherited, known.quality, order[: plan.config.shared.first])
    return {
        "tau": agree(inherited, known.quality),
        "tau at equal cost": agree_at_equal_cost(inherited, known),
        "tau of size alone": agree(known.cost, known.quality),
        "tau by group": {
            describe_group(plan, keys): agree(inherited, known.quality, keys)
            for keys in (group.keys for group in groups)
        },
        "tau of the first": first,
        "falls back": first is None or first < LEAST_AGREEMENT,
        "ranking": round(ranking, 4),
        "trained alone within the budget": affordable,
        "volume within the budget": round(volumes[affordable - 1], 4) if affordable else 0.0,
        "trained alone to the goal": needed,
        "steps to the goal": None if needed is None else round(ranking + needed / len(known.quality), 4),
    }


def describe_group(plan: Plan, keys: Sequence[str]) -> str:
    """The varied fields that all of a group have in common."""
    varied = [dict(proposal.varied) for proposal in plan.candidates if proposal.key in keys]
    return " ".join(f"{name}={value}" for name, value in varied[0].items() if all(v[name] == value for v in varied))


def agree(inherited: Qualities, quality: Qualities, keys: Sequence[str] = ()) -> float | None:
    """Kendall's τ over these candidates, or all that have an inherited quality."""
    tau = measure_agreement([(inherited[key], quality[key]) for key in keys or inherited if key in inherited])
    return None if tau is None else round(tau, 3)


def agree_at_equal_cost(inherited: Qualities, known: Grid) -> float | None:
    """The same over the pairs of candidates whose costs differ by at most a tenth."""
    keys = sorted(inherited, key=lambda key: known.cost[key])
    signs = [
        math.copysign(1, inherited[one] - inherited[two]) * math.copysign(1, known.quality[one] - known.quality[two])
        for place, one in enumerate(keys)
        for two in keys[place + 1 :]
        if known.cost[two] <= EQUAL_COST * known.cost[one]
    ]
    return round(statistics.fmean(signs), 3) if signs else None


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Median, worst and best over the seeds; a goal that was not reached is worst."""
    lines = []
    for name in ("tau", "tau at equal cost", "tau of the first", "volume within the budget", "steps to the goal"):
        found = sorted(
            (math.inf if row[name] is None else row[name] for row in rows), reverse=name != "steps to the goal"
        )
        shown = [
            None if math.isinf(value) else round(value, 4) for value in (statistics.median(found), found[-1], found[0])
        ]
        lines.append({"over seeds": name, "median": shown[0], "worst": shown[1], "best": shown[2]})
    return lines
