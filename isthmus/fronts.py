"""Pareto fronts: what quality each architecture reaches for what cost, and which one leads where.

Records become candidates (one network, its learning rate chosen on validation data, its seeds averaged), candidates
become fronts, and two sets of candidates become a comparison. Everything is plain data; who prints it finds the words.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.errors import UserError
from isthmus.record import RunRecord

COSTS = ("params", "trainable_params", "macs")


@dataclass(frozen=True)
class Candidate:
    """One network with the learning rate that was best on validation data, over its seeds.

    ``metrics`` holds the test metrics, one value per seed in the order of ``seeds`` and ``run_ids``.
    """

    source: str
    task: str
    architecture: str
    settings: dict[str, Any]  # the config without seed and learning rate
    learning_rate: float
    objective: str
    maximise: bool
    params: int
    trainable_params: int
    macs: int
    seeds: tuple[int, ...]
    run_ids: tuple[str, ...]
    metrics: dict[str, tuple[float, ...]]
    validation: float  # mean objective
    wall_seconds: float  # mean
    failed: int = 0  # runs of this network that failed, at any learning rate

    @property
    def test(self) -> tuple[float, ...]:
        return self.metrics[self.objective]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.test)

    @property
    def std(self) -> float | None:
        return sample_std(self.test)


@dataclass(frozen=True)
class Stretch:
    """A range of cost with one answer. Without a ``leader`` the difference is within the seeds' spread: undecided."""

    start: int
    stop: int
    leader: str | None
    lead: float  # the largest difference in the stretch, never negative
    at: int  # the cost at which it occurs


@dataclass(frozen=True)
class Alone:
    """A range of cost in which only one architecture was tried."""

    architecture: str
    start: int
    stop: int


@dataclass(frozen=True)
class Comparison:
    """Which of two architectures leads where. No ``stretches``: they were tried at no common cost."""

    architectures: tuple[str, str]
    cost: str
    objective: str
    stretches: tuple[Stretch, ...]
    alone: tuple[Alone, ...]
    spread_known: bool  # every candidate has at least two seeds


def sample_std(values: Sequence[float]) -> float | None:
    """Unknown for one value, which is something else than zero."""
    return statistics.stdev(values) if len(values) > 1 else None


def is_measured(record: RunRecord) -> bool:
    """Finished, and with a finite objective on validation and test data."""
    return record.status == "finished" and None not in (record.quality("validation"), record.quality("test"))


def summarise(records: Iterable[RunRecord]) -> list[Candidate]:
    """Finished records, grouped by all but the seed and the learning rate. Failed ones are counted, not averaged."""
    groups: dict[str, list[RunRecord]] = defaultdict(list)
    for record in {record.id: record for record in records}.values():
        # Equal settings over other data are another experiment.
        groups[json.dumps([_settings(record), record.fingerprint], sort_keys=True)].append(record)
    candidates = [_candidate(group) for group in groups.values() if any(map(is_measured, group))]
    return sorted(candidates, key=lambda item: (item.source, item.task, item.architecture, item.params, item.run_ids))


def front(
    candidates: Iterable[Candidate], cost: str = "params", maximise: bool | None = None, metric: str | None = None
) -> list[Candidate]:
    """The candidates that no other of their architecture dominates on the test mean, sorted by cost.

    One dominates another when it is at least as cheap and as good, and cheaper or better. ``metric`` and ``maximise``
    are the candidates' objective and its direction unless given.
    """
    groups: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.architecture].append(candidate)
    members: list[Candidate] = []
    for group in groups.values():
        best: tuple[float, float] | None = None
        for candidate in sorted(group, key=lambda item: _point(item, cost, maximise, metric)):
            point = _point(candidate, cost, maximise, metric)
            # The order is by cost, and the best first among equal costs; equal points stay together.
            if best is None or point[1] < best[1] or point == best:
                best = point
                members.append(candidate)
    return sorted(members, key=lambda item: (getattr(item, cost), item.architecture, item.run_ids))


def compare(
    first: Sequence[Candidate], second: Sequence[Candidate], cost: str = "params", maximise: bool | None = None
) -> Comparison:
    """Who leads where, over the costs that both have: at each, the best mean reachable with at most that much.

    Fronts and complete lists of candidates give the same leads. Complete lists also know how far each architecture was
    tried, so that an end of a front is not taken for an end of the experiment.
    """
    if not first or not second:
        raise UserError("two architectures are compared; one of them has no finished run")
    names = (first[0].architecture, second[0].architecture)
    costs = [sorted({getattr(item, cost) for item in items}) for items in (first, second)]
    low, high = max(costs[0][0], costs[1][0]), min(costs[0][-1], costs[1][-1])
    steps = sorted({value for values in costs for value in values if low <= value <= high})
    stretches: list[Stretch] = []
    for start, stop in zip(steps, [*steps[1:], high], strict=False):
        leader, lead = _leader(_best(first, start, cost, maximise), _best(second, start, cost, maximise), maximise)
        if stretches and stretches[-1].leader == leader:
            last = stretches.pop()
            lead, at = max((last.lead, last.at), (lead, start), key=lambda pair: pair[0])
            stretches.append(Stretch(last.start, stop, leader, lead, at))
        else:
            stretches.append(Stretch(start, stop, leader, lead, start))
    return Comparison(
        architectures=names,
        cost=cost,
        objective=first[0].objective,
        stretches=tuple(stretches),
        alone=_alone(names, costs, low, high),
        spread_known=all(item.std is not None for item in (*first, *second)),
    )


def _settings(record: RunRecord) -> dict[str, Any]:
    """The config without the seed, what follows from the seed, and the learning rate."""
    config = {name: value for name, value in record.config.items() if name != "seed"}
    config["model"] = {name: value for name, value in config["model"].items() if name != "w_in_seed"}
    config["train"] = {name: value for name, value in config["train"].items() if name != "learning_rate"}
    return config


def _candidate(group: list[RunRecord]) -> Candidate:
    rates: dict[float, list[RunRecord]] = defaultdict(list)
    for record in sorted(filter(is_measured, group), key=lambda record: (record.seed, record.id)):
        rates[record.config["train"]["learning_rate"]].append(record)
    # Only the rates with the most seeds compete: the survivors of a rate that diverged would flatter it.
    most = max(map(len, rates.values()))
    sign = 1 if group[0].maximise else -1
    rate = max(
        sorted(rate for rate in rates if len(rates[rate]) == most), key=lambda rate: sign * _validation(rates[rate])
    )
    runs = rates[rate]
    model = runs[0].config["model"]
    return Candidate(
        source=runs[0].config["source"]["name"],
        task=runs[0].config["task"]["name"],
        architecture=model["name"],
        settings=_settings(runs[0]),
        learning_rate=rate,
        objective=runs[0].objective,
        maximise=runs[0].maximise,
        params=runs[0].cost["params"],
        trainable_params=runs[0].cost["trainable_params"],
        macs=runs[0].cost["macs"],
        seeds=tuple(run.seed for run in runs),
        run_ids=tuple(run.id for run in runs),
        metrics={
            name: tuple(run.metrics["test"][name] for run in runs)
            for name in runs[0].metrics["test"]
            if all(run.metrics["test"].get(name) is not None for run in runs)
        },
        validation=_validation(runs),
        wall_seconds=statistics.fmean(run.wall_seconds for run in runs),
        failed=sum(not is_measured(record) for record in group),
    )


def _validation(runs: list[RunRecord]) -> float:
    return statistics.fmean(run.metrics["validation"][run.objective] for run in runs)


def _point(candidate: Candidate, cost: str, maximise: bool | None, metric: str | None = None) -> tuple[float, float]:
    """Cost and quality, both to be made small."""
    sign = -1 if (candidate.maximise if maximise is None else maximise) else 1
    return getattr(candidate, cost), sign * statistics.fmean(candidate.metrics[metric or candidate.objective])


def _best(candidates: Sequence[Candidate], budget: int, cost: str, maximise: bool | None) -> Candidate:
    affordable = [item for item in candidates if getattr(item, cost) <= budget]
    return min(affordable, key=lambda item: (_point(item, cost, maximise)[::-1], item.run_ids))


def _leader(first: Candidate, second: Candidate, maximise: bool | None) -> tuple[str | None, float]:
    sign = 1 if (first.maximise if maximise is None else maximise) else -1
    difference = sign * (first.mean - second.mean)
    if difference == 0 or abs(difference) < math.hypot(first.std or 0.0, second.std or 0.0):
        return None, abs(difference)
    return (first if difference > 0 else second).architecture, abs(difference)


def _alone(names: tuple[str, str], costs: list[list[int]], low: int, high: int) -> tuple[Alone, ...]:
    if low > high:
        return tuple(Alone(name, values[0], values[-1]) for name, values in zip(names, costs, strict=True))
    below = [Alone(name, values[0], low) for name, values in zip(names, costs, strict=True) if values[0] < low]
    above = [Alone(name, high, values[-1]) for name, values in zip(names, costs, strict=True) if values[-1] > high]
    return (*below, *above)
