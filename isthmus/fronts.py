"""Pareto fronts: what quality each architecture reaches for what cost, and which one leads where.

Records become candidates (one network, its learning rate chosen on validation data, its seeds averaged), candidates
become fronts, and two sets of candidates become a comparison. Everything is selected on validation data, and what was
selected is compared on test data. Everything is plain data; who prints it finds the words.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
    """A range of cost with one answer. Without a ``leader`` the seeds can explain the difference: undecided."""

    start: int
    stop: int
    leader: str | None
    lead: float  # the largest difference in the stretch, never negative
    at: int  # the cost at which it occurs
    ahead: str | None  # who is better there, decided or not


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
    seed_std: float | None  # pooled over all candidates; unknown if each has one seed, and then nothing is decided
    degrees_of_freedom: int  # of it


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


def best(candidates: Iterable[Candidate], cost: str = "params") -> Candidate:
    """The best on validation data, and the cheapest among equals."""
    return min(candidates, key=lambda item: (_point(item, cost)[::-1], item.run_ids))


def front(candidates: Iterable[Candidate], cost: str = "params") -> list[Candidate]:
    """The candidates that no other of their architecture dominates on validation data, sorted by cost.

    One dominates another when it is at least as cheap and as good, and cheaper or better. On test data, which has no
    say in this, a member may be worse than a cheaper one.
    """
    groups: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.architecture].append(candidate)
    members: list[Candidate] = []
    for group in groups.values():
        last: tuple[float, float] | None = None
        for candidate in sorted(group, key=lambda item: _point(item, cost)):
            point = _point(candidate, cost)
            # The order is by cost, and the best first among equal costs; equal points stay together.
            if last is None or point[1] < last[1] or point == last:
                last = point
                members.append(candidate)
    return sorted(members, key=lambda item: (getattr(item, cost), item.architecture, item.run_ids))


def compare(first: Sequence[Candidate], second: Sequence[Candidate], cost: str = "params") -> Comparison:
    """Who leads where, over the costs that both have: at each, the best on validation data that costs at most that much
    stands for its architecture, and the two are compared on test data.

    A lead is a difference that Student's t test at 5 % does not leave to the seeds, whose variance is pooled over all
    candidates given: two or three seeds alone tell little about their own. So give all candidates, not fronts. They
    also show how far each architecture was tried; an end of a front is no end of the experiment.
    """
    if not first or not second:
        raise UserError("two architectures are compared; one of them has no finished run")
    names = (first[0].architecture, second[0].architecture)
    seed_std, freedom = pooled_std([item.test for item in (*first, *second)])
    costs = [sorted({getattr(item, cost) for item in items}) for items in (first, second)]
    low, high = max(costs[0][0], costs[1][0]), min(costs[0][-1], costs[1][-1])
    steps = sorted({value for values in costs for value in values if low <= value <= high})
    stretches: list[Stretch] = []
    for start, stop in zip(steps, [*steps[1:], high], strict=False):
        chosen = [best((item for item in items if getattr(item, cost) <= start), cost) for items in (first, second)]
        better, worse = sorted(chosen, key=lambda item: item.mean, reverse=chosen[0].maximise)
        lead = abs(better.mean - worse.mean)
        ahead = better.architecture if lead else None
        decided = seed_std is not None and lead > _margin(better, worse, seed_std, freedom)
        stretch = Stretch(start, stop, ahead if decided else None, lead, start, ahead)
        if stretches and stretches[-1].leader == stretch.leader:
            previous = stretches.pop()
            largest = max(previous, stretch, key=lambda item: item.lead)
            stretch = replace(largest, start=previous.start, stop=stop)
        stretches.append(stretch)
    return Comparison(
        architectures=names,
        cost=cost,
        objective=first[0].objective,
        stretches=tuple(stretches),
        alone=_alone(names, costs, low, high),
        seed_std=seed_std,
        degrees_of_freedom=freedom,
    )


def pooled_std(groups: Iterable[Sequence[float]]) -> tuple[float | None, int]:
    """The standard deviation within the groups, taken to be the same in all, and its degrees of freedom."""
    groups = [values for values in groups if len(values) > 1]
    freedom = sum(len(values) - 1 for values in groups)
    squares = math.fsum((len(values) - 1) * statistics.variance(values) for values in groups)
    return (math.sqrt(squares / freedom) if freedom else None), freedom


def t_quantile(freedom: int) -> float:
    """The 0.975 quantile of Student's t: between minus and plus it lie 95 %. To 0.004; needs no SciPy."""
    if freedom < 3:
        return {1: 12.706, 2: 4.303}[freedom]
    # Abramowitz and Stegun, Eq. 26.7.5, at the normal quantile 1.95996.
    return sum(term / freedom**power for power, term in enumerate((1.95996, 2.37227, 2.82250, 2.55585, 1.58953)))


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


def _point(candidate: Candidate, cost: str) -> tuple[float, float]:
    """Cost and quality on validation data, both to be made small."""
    return getattr(candidate, cost), -candidate.validation if candidate.maximise else candidate.validation


def _margin(first: Candidate, second: Candidate, seed_std: float, freedom: int) -> float:
    """What the seeds can explain of a difference of two means."""
    return t_quantile(freedom) * seed_std * math.sqrt(1 / len(first.test) + 1 / len(second.test))


def _alone(names: tuple[str, str], costs: list[list[int]], low: int, high: int) -> tuple[Alone, ...]:
    if low > high:
        return tuple(Alone(name, values[0], values[-1]) for name, values in zip(names, costs, strict=True))
    below = [Alone(name, values[0], low) for name, values in zip(names, costs, strict=True) if values[0] < low]
    above = [Alone(name, high, values[-1]) for name, values in zip(names, costs, strict=True) if values[-1] > high]
    return (*below, *above)
