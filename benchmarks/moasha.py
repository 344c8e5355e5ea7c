"""Syne Tune's MOASHA on the recorded grids, for the table of `isthmus bench search`.

It needs an environment of its own, with no part of Isthmus in it:

    python3 -m venv moasha && moasha/bin/pip install syne-tune
    isthmus bench search --out results/bench --syne-tune moasha/bin/python

The scheduler has its default settings, draws from all networks of the grid and sees after every epoch the quality and
the logarithm of the cost. Trials run one after the other, which gives it the most information. A network that was drawn
before is drawn again at no cost.
"""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

LOSSES = ("mnist5k-families",)
"""Grids whose quality is a loss."""


def area(points: list[tuple[float, float]], reference: tuple[float, float]) -> float:
    """The hypervolume of (log cost, quality) points, larger quality being better."""
    total, height, start = 0.0, reference[1], reference[0]
    for cost, quality in [*sorted(points), (reference[0], reference[1])]:
        total += (height - reference[1]) * max(0.0, cost - start)
        start, height = cost, max(height, quality)
    return total


def search(recipe: str, grid: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    from syne_tune.backend.trial_status import Trial
    from syne_tune.config_space import choice
    from syne_tune.optimizer.scheduler import SchedulerDecision
    from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA

    sign = -1 if recipe in LOSSES else 1
    costs = [math.log(line["cost"]) for line in grid]
    best = [max(sign * value for value in line["quality"]) for line in grid]
    corner, epochs = (max(costs), min(best)), len(grid[0]["quality"])
    whole = area(list(zip(costs, best, strict=True)), corner)
    space = {"network": choice(list(range(len(grid))))}
    scheduler = MOASHA(space, ["error", "cost"], time_attr="epoch", max_t=epochs, random_seed=seed)
    used, seen, ended, steps, volume = 0, set[int](), list[int](), list[float](), list[float]()
    while used < epochs * len(grid) / 3 and len(seen) < len(grid):
        place = scheduler.suggest().config["network"]
        if place in seen:
            continue
        seen.add(place)
        trial = Trial(len(seen), {"network": place}, datetime(2026, 1, 1))
        scheduler.on_trial_add(trial)
        for epoch, value in enumerate(grid[place]["quality"], 1):
            used += 1
            result = {"epoch": epoch, "error": -sign * value, "cost": costs[place]}
            if epoch == epochs:
                scheduler.on_trial_complete(trial, result)
                ended.append(place)
                steps.append(used / (epochs * len(grid)))
                volume.append(area([(costs[each], best[each]) for each in ended], corner) / whole)
            elif scheduler.on_trial_result(trial, result) == SchedulerDecision.STOP:
                scheduler.on_trial_remove(trial)
                break
    spent = round(used / (epochs * len(grid)), 4)
    named = {"recipe": recipe, "sampler": "moasha", "pruned": True, "seed": seed}
    return named | {"steps": steps, "volume": volume, "spent": spent}


def main(folder: Path, first: int, number: int) -> None:
    curves = []
    for recipe in ("digits-shapes", "mnist5k-shapes", "mnist5k-families"):
        grid = json.loads((folder / f"{recipe}.json").read_text())
        curves += [search(recipe, grid, seed) for seed in range(first, first + number)]
    for curve in curves:
        for name in ("steps", "volume"):
            curve[name] = [round(value, 4) for value in curve[name]]
    content = {"syne-tune": version("syne-tune"), "curves": curves}
    (folder / "moasha.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
