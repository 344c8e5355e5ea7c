"""Pareto fronts: what quality each architecture reaches for what cost, and which one leads where.

Records become candidates (one network, its learning rate chosen on validation data, its seeds averaged), candidates
become fronts, and two sets of candidates become a comparison. Everything is selected on validation data, and what was
selected is compared on test data. Everything is plain data; who prints it finds the words. What a front is worth, and
how far two fronts are apart, is in `volumes.py`.
"""

from __future__ import annotations

import json
import math
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from isthmus.errors import UserError, nearest
from isthmus.record import RunRecord

COSTS = ("params", "trainable_params", "macs")
LATENCY = "latency"  # a cost too, where it was measured for every candidate
MINIMISED = {"loss", "mse", "rmse", "mae"}


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
    latency: float | None = None  # milliseconds per batch, mean over the runs that were timed

    @property
    def test(self) -> tuple[float, ...]:
        return self.metrics[self.objective]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.test)

    @property
    def std(self) -> float | None:
        return sample_std(self.test)

    @property
    def five_sigma(self) -> float | None:
        """The spread as the papers print it."""
        return None if self.std is None else 5 * self.std


@dataclass(frozen=True)
class Stretch:
    """A range of cost with one answer. Without a ``leader`` the seeds can explain the difference: undecided."""

    start: float
    stop: float
    leader: str | None
    lead: float  # the largest difference in the stretch, never negative
    at: float  # the cost at which it occurs
    ahead: str | None  # who is better there, decided or not


@dataclass(frozen=True)
class Alone:
    """A range of cost in which only one architecture was tried."""

    architecture: str
    start: float
    stop: float


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


def is_outdated(record: RunRecord) -> bool:
    """Finished, but with an objective that was measured in another way than today: not comparable."""
    return record.objective in record.outdated


def is_measured(record: RunRecord) -> bool:
    """Finished, and with a finite objective on validation and test data."""
    return record.status == "finished" and None not in (record.quality("validation"), record.quality("test"))


def summarise(
    records: Iterable[RunRecord], latencies: Mapping[str, float] | None = None, quality: str | None = None
) -> list[Candidate]:
    """Finished records, grouped by all but the seed and the learning rate. Failed ones are counted, not averaged, and
    those whose quality is not comparable with today's are left out.

    ``latencies`` maps run ids to milliseconds per batch. ``quality`` names the metric to select and to compare by,
    instead of the records' objective.
    """
    groups: dict[str, list[RunRecord]] = defaultdict(list)
    for record in {record.id: record for record in records}.values():
        if is_outdated(judged := judged_by(record, quality) if quality else record):
            continue
        # Equal settings over other data are another experiment.
        key = json.dumps([_settings(record), record.fingerprint], sort_keys=True)
        groups[key].append(judged)
    candidates = [_candidate(group, latencies or {}) for group in groups.values() if any(map(is_measured, group))]
    return sorted(candidates, key=lambda item: (item.source, item.task, item.architecture, item.params, item.run_ids))


def cost_of(candidate: Candidate, cost: str) -> float:
    if cost not in (*COSTS, LATENCY):
        raise UserError(f"there is no cost {cost!r}; {nearest(cost, (*COSTS, LATENCY))}")
    value: float | None = getattr(candidate, cost)
    if value is None:
        raise UserError(f"run {candidate.run_ids[0]} has no measured latency; give one for every candidate")
    return value


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
    return sorted(members, key=lambda item: (cost_of(item, cost), item.architecture, item.run_ids))


def ladder(candidates: Iterable[Candidate], cost: str = "params") -> list[Candidate]:
    """Who is best on validation data as the budget grows, by rising cost: the front of all given, without ties."""
    rungs: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda item: (_point(item, cost), item.run_ids)):
        if not rungs or _point(candidate, cost)[1] < _point(rungs[-1], cost)[1]:
            rungs.append(candidate)
    return rungs


def at_budget(rungs: Sequence[Candidate], budget: float, cost: str = "params") -> Candidate:
    """The highest rung of a ladder that costs at most ``budget``."""
    return rungs[bisect_right(rungs, budget, key=lambda item: cost_of(item, cost)) - 1]


def shared_costs(first: Iterable[Candidate], second: Iterable[Candidate], cost: str = "params") -> list[float]:
    """The costs of all candidates within the range in which both architectures were tried; none: no such range."""
    costs = [sorted({cost_of(item, cost) for item in items}) for items in (first, second)]
    low, high = max(costs[0][0], costs[1][0]), min(costs[0][-1], costs[1][-1])
    return sorted({value for values in costs for value in values if low <= value <= high})


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
    ladders = [ladder(items, cost) for items in (first, second)]
    steps = shared_costs(first, second, cost)
    stretches: list[Stretch] = []
    for start, stop in zip(steps, [*steps[1:], *steps[-1:]], strict=True):
        chosen = [at_budget(rungs, start, cost) for rungs in ladders]
        better, worse = sorted(chosen, key=lambda item: item.mean, reverse=chosen[0].maximise)
        lead = abs(better.mean - worse.mean)
        ahead = better.architecture if lead else None
        decided = seed_std is not None and lead > margin(better, worse, seed_std, freedom)
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
        alone=_alone(first, second, cost),
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


def margin(first: Candidate, second: Candidate, seed_std: float, freedom: int) -> float:
    """What the seeds can explain of a difference of two means."""
    return t_quantile(freedom) * seed_std * math.sqrt(1 / len(first.test) + 1 / len(second.test))


def judged_by(record: RunRecord, quality: str) -> RunRecord:
    """The record as if ``quality`` were its objective."""
    if quality == record.objective:
        return record
    if record.status == "finished" and quality not in record.outdated:
        names = set(record.metrics["validation"]) & set(record.metrics["test"])
        if quality not in names:
            where = f"run {record.id} has no {quality!r} on validation and test data"
            raise UserError(f"{where}; {nearest(quality, names)}")
    return replace(record, objective=quality, maximise=quality not in MINIMISED)


def _settings(record: RunRecord) -> dict[str, Any]:
    """The config without the seed, what follows from the seed, and the learning rate."""
    config = {name: value for name, value in record.config.items() if name != "seed"}
    config["model"] = {name: value for name, value in config["model"].items() if not name.endswith("_seed")}
    config["train"] = {name: value for name, value in config["train"].items() if name != "learning_rate"}
    return config


def _candidate(group: list[RunRecord], latencies: Mapping[str, float]) -> Candidate:
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
    timed = [latencies[run.id] for run in runs if run.id in latencies]
    return Candidate(
        source=runs[0].config["source"]["name"],
        task=runs[0].task,
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
        latency=statistics.fmean(timed) if timed else None,
    )


def _validation(runs: list[RunRecord]) -> float:
    return statistics.fmean(run.metrics["validation"][run.objective] for run in runs)


def _point(candidate: Candidate, cost: str) -> tuple[float, float]:
    """Cost and quality on validation data, both to be made small."""
    return cost_of(candidate, cost), -candidate.validation if candidate.maximise else candidate.validation


def _alone(first: Sequence[Candidate], second: Sequence[Candidate], cost: str) -> tuple[Alone, ...]:
    tried = []
    for items in (first, second):
        costs = [cost_of(item, cost) for item in items]
        tried.append(Alone(items[0].architecture, min(costs), max(costs)))
    low, high = max(item.start for item in tried), min(item.stop for item in tried)
    if low > high:
        return tuple(tried)
    below = [replace(item, stop=low) for item in tried if item.start < low]
    above = [replace(item, start=high) for item in tried if item.stop > high]
    return (*below, *above)
