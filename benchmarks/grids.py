"""Grids of which every network was trained once: searches among them are counted and not trained again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from isthmus.cli.complete import complete_study
from isthmus.core.config import StudyConfig
from isthmus.core.files import write_json
from isthmus.core.record import read_metrics, read_record
from isthmus.core.registry import find
from isthmus.studies.plan import Plan
from isthmus.studies.proposals import Proposal, Trial
from isthmus.studies.volumes import Reference, area
from isthmus.training.prepare import Options


def find_grid(recipe: str, workers: int, folder: Path | None = None) -> tuple[Plan, Grid]:
    """A recorded grid; one that the folder lacks is trained first, or found among the records of this machine."""
    config: StudyConfig = find("recipes", recipe)()
    path = None if folder is None else folder / f"{recipe}.json"
    if path is None or not path.exists():
        complete_study(config, Options(command=f"isthmus study {recipe}"), workers)
    plan = Plan.of(config, Options())
    if path is None:
        return plan, Grid.of(plan)
    if not path.exists():
        write_json(path, recorded_curves(plan))
    return plan, Grid.recorded(plan, json.loads(path.read_text()))


@dataclass(frozen=True)
class Grid:
    """Every network of a grid as recorded: quality after each epoch, and that of the weights that were kept."""

    curves: dict[str, list[float]]
    quality: dict[str, float]
    cost: dict[str, float]
    epochs: int
    maximise: bool = True

    @classmethod
    def of(cls, plan: Plan) -> Grid:
        curves, quality = {}, {}
        for proposal in plan.candidates:
            folder = plan.run(proposal.model, plan.config.rates[0], plan.config.seeds[0], proposal.recipe).folder
            lines = [line for line in read_metrics(folder, sealed=True) if line["split"] == "validation"]
            curves[proposal.key] = [line[plan.quality] for line in lines]
            quality[proposal.key] = read_record(folder).metrics["validation"][plan.quality]
        cost = {proposal.key: proposal.cost["params"] for proposal in plan.candidates}
        return cls(curves, quality, cost, plan.config.base.train.epochs, plan.maximise)

    @classmethod
    def recorded(cls, plan: Plan, lines: Sequence[Mapping[str, Any]]) -> Grid:
        """The grid as :func:`recorded_curves` wrote it."""
        known = {json.dumps(line["model"]): line["quality"] for line in lines}
        curves = {proposal.key: known[json.dumps(settings_of(plan, proposal))] for proposal in plan.candidates}
        best = max if plan.maximise else min
        cost = {proposal.key: proposal.cost["params"] for proposal in plan.candidates}
        quality = {key: best(curve) for key, curve in curves.items()}
        return cls(curves, quality, cost, plan.config.base.train.epochs, plan.maximise)

    def best(self, key: str, epoch: int) -> float:
        """The best quality up to an epoch."""
        return (max if self.maximise else min)(self.curves[key][:epoch])

    def points(self, keys: Iterable[str]) -> list[tuple[float, float]]:
        return [(self.cost[key], self.quality[key]) for key in keys]

    def volume(self, keys: Iterable[str]) -> float:
        return area(self.points(keys), self.reference, self.maximise)

    @property
    def reference(self) -> Reference:
        """The worst of the grid in both respects: from 0 dB, any point would look good."""
        return Reference(max(self.cost.values()), (min if self.maximise else max)(self.quality.values()))

    @property
    def steps(self) -> int:
        """The epochs of all networks."""
        return self.epochs * len(self.quality)

    @cached_property
    def target(self) -> float:
        return self.volume(self.quality)

    def progress(self, search: Sequence[Trial]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Parts of the grid's training steps, and of its hypervolume, whenever a candidate has been trained to its end.

        Within a generation the rungs come first: all that reach one are trained to it before any goes on.
        """
        decisions = {number: (trial.key, epoch) for trial in search for number, epoch in trial.decisions.items()}
        return self.follow(self._trained(decisions) if decisions else self._trained_by_generation(search))

    def follow(self, ends: Iterable[tuple[int, str]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Likewise, of networks that were trained to their ends, each with the epochs that all had used by then."""
        ended, steps, volumes = list[str](), list[float](), list[float]()
        for used, key in ends:
            ended.append(key)
            steps.append(used / self.steps)
            volumes.append(self.volume(ended) / self.target)
        return tuple(steps), tuple(volumes)

    def _trained(self, decisions: Mapping[int, tuple[str, int]]) -> Iterable[tuple[int, str]]:
        used, reached = 0, dict[str, int]()
        for _, (key, epoch) in sorted(decisions.items()):
            used += epoch - reached.get(key, 0)
            reached[key] = epoch
            if epoch == self.epochs:
                yield used, key

    def _trained_by_generation(self, search: Sequence[Trial]) -> Iterable[tuple[int, str]]:
        used = 0
        for _, members in itertools.groupby(search, key=lambda outcome: outcome.generation):
            generation = list(members)
            used += sum(max(outcome.rungs, default=0) for outcome in generation)
            for outcome in (outcome for outcome in generation if outcome.state != "pruned"):
                used += self.epochs - max(outcome.rungs, default=0)
                yield used, outcome.key


def settings_of(plan: Plan, proposal: Proposal) -> dict[str, Any]:
    """The fields in which the networks of a grid differ."""
    return ({"name": proposal.architecture} if len(plan.config.spaces) > 1 else {}) | dict(proposal.varied)


def recorded_curves(plan: Plan) -> list[dict[str, Any]]:
    """Cost and validation quality per epoch of every network of a grid that is on record."""
    known = Grid.of(plan)
    return [
        {
            "model": settings_of(plan, proposal),
            "cost": known.cost[proposal.key],
            "quality": [round(value, 4) for value in known.curves[proposal.key]],
        }
        for proposal in plan.candidates
    ]
