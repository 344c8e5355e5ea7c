"""Pareto fronts: what quality each architecture reaches for what cost, and which one leads where.

Records become candidates (one network, its learning rate chosen on validation data, averaged over seeds), candidates
become fronts, and two sets of candidates become a comparison. Everything is selected on validation data and compared on
test data. All results are plain data. Areas of fronts and distances between them are in `volumes.py`.
"""

from __future__ import annotations

import json
import math
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from isthmus.core.costs import CostKind
from isthmus.core.errors import UserError, nearest
from isthmus.core.record import RunRecord
from isthmus.core.registry import find
from isthmus.core.titles import architecture_of
from isthmus.studies.statistics import Interval, Noise, Sample, decide_together, fit_noise
from isthmus.studies.statistics import compare as intervals_between

COSTS = ("params", "trainable_params", "macs")
"""The costs that a candidate always has."""
BUDGET_TOLERANCE = 1.02
_LESS, _MORE = ("loss", "mse"), ("psnr", "psnr_pooled", "ssim", "accuracy", "top_5", "r2", "cell_accuracy",
                                 "board_accuracy", "masked_accuracy")  # fmt: skip
DIRECTIONS = dict.fromkeys(_LESS, False) | dict.fromkeys(_MORE, True)
"""Whether more is better, for metrics of older records, which do not say it."""


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
    costs: Mapping[str, float] = field(default_factory=dict)  # further ones, each the mean over the runs that have it
    precision: str = "float32"  # of the weights; other versions of a network have the same runs

    @property
    def identity(self) -> tuple[str, ...]:
        return (*self.run_ids, self.precision)

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
class GapPoint:
    """The best candidates of two architectures from this cost to that of the next point, and their difference."""

    cost: float
    first: Candidate
    second: Candidate
    difference: Interval


@dataclass(frozen=True)
class Stretch:
    """A range of cost with one answer. Without a ``leader`` the difference is within the noise of the seeds."""

    start: float
    stop: float
    leader: str | None
    lead: float  # the largest difference in the stretch, never negative
    at: float  # the cost at which it occurs


@dataclass(frozen=True)
class Alone:
    """A range of cost in which only one architecture was tried."""

    architecture: str
    start: float
    stop: float


@dataclass(frozen=True)
class Comparison:
    """Which of two architectures leads where. Without ``stretches`` they have no cost in common."""

    architectures: tuple[str, str]
    cost: str
    objective: str
    stretches: tuple[Stretch, ...]
    alone: tuple[Alone, ...]
    can_decide: bool
    """False where there is one seed only, so that the noise is unknown."""


def upper_bound(metric: str) -> float:
    """The largest value that a metric can have."""
    return 1.0 if metric in ("r2", "ssim", "top_5") or metric.endswith("accuracy") else math.inf


def sample_std(values: Sequence[float]) -> float | None:
    """None for a single value, whose spread is unknown."""
    return statistics.stdev(values) if len(values) > 1 else None


def is_outdated(record: RunRecord) -> bool:
    """Whether its objective was measured in another way than today, so that it is not comparable."""
    return record.objective in record.outdated_metrics


def is_measured(record: RunRecord) -> bool:
    """Whether it finished with a finite objective on validation and test data."""
    return record.status == "finished" and None not in (record.quality("validation"), record.quality("test"))


def is_refit(record: RunRecord) -> bool:
    """Whether it finished without validation rows, so that it has test figures only and competes with no other run."""
    return record.status == "finished" and not record.metrics.get("validation") and record.quality("test") is not None


def summarise(
    records: Iterable[RunRecord],
    costs: Mapping[str, Mapping[str, float]] | None = None,
    quality: str | None = None,
    refits: bool = False,
) -> list[Candidate]:
    """Candidates from records, grouped by everything but the seed and the learning rate. Failed runs are counted, not
    averaged; runs whose quality is not comparable with today's are left out.

    ``costs`` maps further costs, such as latency, to values of run ids. ``quality`` names the metric to
    select and to compare by, instead of the records' objective. With ``refits``, networks that were trained on the
    validation rows too, at one learning rate, count as well; their test mean stands for the validation value.
    """
    groups: dict[str, list[RunRecord]] = defaultdict(list)
    for record in {record.id: record for record in records}.values():
        if is_outdated(judged := judge_by(record, quality) if quality else record):
            continue
        # Equal settings over other data are another experiment.
        key = json.dumps([settings_of(record), record.fingerprint], sort_keys=True)
        groups[key].append(judged)
    known = costs or {}
    candidates = [_candidate(group, known) for group in groups.values() if any(map(is_measured, group))]
    if refits:
        alone = [group for group in groups.values() if any(map(is_refit, group)) and not any(map(is_measured, group))]
        alone = [group for group in alone if len({record.config["train"]["learning_rate"] for record in group}) == 1]
        candidates += [_candidate([_judge_by_test(record) for record in group], known) for group in alone]
    return sorted(candidates, key=lambda item: (item.source, item.task, item.architecture, item.params, item.run_ids))


def _judge_by_test(record: RunRecord) -> RunRecord:
    metrics = record.metrics
    return replace(record, metrics=metrics | {"validation": metrics["test"]}) if is_refit(record) else record


def cost_of(candidate: Candidate, cost: str) -> float:
    value: float | None = getattr(candidate, cost) if cost in COSTS else candidate.costs.get(cost)
    if value is None:
        kind: CostKind = find("costs", cost)
        raise UserError(f"run {candidate.run_ids[0]} has no known {kind.noun}; give one for every candidate")
    return value


def best(candidates: Iterable[Candidate], cost: str = "params") -> Candidate:
    """The best on validation data, and the cheapest among equals."""
    return min(candidates, key=lambda item: (_point(item, cost)[::-1], item.run_ids))


def front(candidates: Iterable[Candidate], cost: str = "params") -> list[Candidate]:
    """The candidates that no other of their architecture dominates on validation data, sorted by cost.

    One dominates another when it is at least as cheap and as good, and cheaper or better. On test data, which selects
    nothing, a member may be worse than a cheaper one.
    """
    groups: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.architecture].append(candidate)
    members: list[Candidate] = []
    for group in groups.values():
        points = {_point(item, cost) for item in ladder(group, cost)}
        members += [item for item in group if _point(item, cost) in points]  # equal ones stay together
    return sorted(members, key=lambda item: (cost_of(item, cost), item.architecture, item.run_ids))


def ladder(candidates: Iterable[Candidate], cost: str = "params") -> list[Candidate]:
    """The best candidate on validation data for every budget, by rising cost: the front of all given, without ties."""
    rungs: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda item: (_point(item, cost), item.run_ids)):
        if not rungs or _point(candidate, cost)[1] < _point(rungs[-1], cost)[1]:
            rungs.append(candidate)
    return rungs


def at_budget(rungs: Sequence[Candidate], budget: float, cost: str = "params") -> Candidate:
    """The highest rung of a ladder that costs at most ``budget``."""
    return rungs[bisect_right(rungs, budget, key=lambda item: cost_of(item, cost)) - 1]


def budgets(first: Iterable[Candidate], second: Iterable[Candidate], cost: str = "params") -> list[float]:
    """The costs at which two architectures can be compared: those in the range of both, which may be empty.

    Costs within 2 % of each other are one budget, the largest of them, because two shapes hardly ever cost the same.
    """
    costs = [sorted({cost_of(item, cost) for item in items}) for items in (first, second)]
    low, high = max(costs[0][0], costs[1][0]), min(costs[0][-1], costs[1][-1])
    groups: list[list[float]] = []
    for value in sorted({*costs[0], *costs[1]}):
        if groups and value <= BUDGET_TOLERANCE * groups[-1][0]:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [group[-1] for group in groups if group[-1] >= low and group[0] <= high]


def compare_at_budgets(
    first: Sequence[Candidate], second: Sequence[Candidate], cost: str, noise: Noise | None
) -> list[GapPoint]:
    """At every shared budget, the best candidates on validation data within it, and their difference on test data."""
    ladders, points = (ladder(first, cost), ladder(second, cost)), []
    for budget in budgets(first, second, cost):
        one, other = (at_budget(rungs, budget, cost) for rungs in ladders)
        difference = intervals_between(sample_of(one, noise), sample_of(other, noise))
        points.append(GapPoint(budget, one, other, difference))
    return points


def sample_of(candidate: Candidate, noise: Noise | None) -> Sample:
    """Its test qualities, larger being better."""
    sign = 1 if candidate.maximise else -1
    return Sample.of([sign * value for value in candidate.test], candidate.seeds, noise)


def noise_of(candidates: Iterable[Candidate]) -> Noise | None:
    """The residual spread of all test qualities after the effects of network and seed."""
    return fit_noise(dict(zip(item.seeds, item.test, strict=True)) for item in candidates)


def compare(
    first: Sequence[Candidate], second: Sequence[Candidate], cost: str = "params", noise: Noise | None = None
) -> Comparison:
    """Which architecture leads at which cost. At each shared budget, each is represented by its best candidate on
    validation data within the budget, and the two are compared on test data by the rule of `statistics.py`.

    ``noise`` is that of the whole study, or by default of the candidates given. Give all candidates, not only fronts:
    they also show in which range of cost each architecture was tried.
    """
    if not first or not second:
        raise UserError("a comparison needs two architectures; one of them has no finished run")
    points = compare_at_budgets(first, second, cost, noise or noise_of([*first, *second]))
    # A pair that meets at several budgets is decided once.
    intervals = {(id(point.first), id(point.second)): point.difference for point in points}
    decisions = dict(zip(intervals, decide_together(list(intervals.values())), strict=True))
    names = {"ahead": first[0].architecture, "behind": second[0].architecture}
    stretches: list[Stretch] = []
    for point, stop in zip(points, [point.cost for point in [*points[1:], *points[-1:]]], strict=True):
        leader = names.get(decisions[id(point.first), id(point.second)])
        stretch = Stretch(point.cost, stop, leader, abs(point.difference.difference), point.cost)
        if stretches and stretches[-1].leader == stretch.leader:
            previous = stretches.pop()
            largest = max(previous, stretch, key=lambda item: item.lead)
            stretch = replace(largest, start=previous.start, stop=stop)
        stretches.append(stretch)
    return Comparison(
        architectures=(names["ahead"], names["behind"]),
        cost=cost,
        objective=first[0].objective,
        stretches=tuple(stretches),
        alone=_alone(first, second, cost),
        can_decide=any(point.difference.low is not None for point in points),
    )


def judge_by(record: RunRecord, quality: str) -> RunRecord:
    """The record as if ``quality`` were its objective."""
    if quality == record.objective:
        return record
    if record.status == "finished" and quality not in record.outdated_metrics:
        names = set(record.metrics["validation"] or record.metrics["test"]) & set(record.metrics["test"])
        if quality not in names:
            where = f"run {record.id} has no {quality!r} on validation and test data"
            raise UserError(f"{where}; {nearest(quality, names)}")
    directions = record.directions or DIRECTIONS
    if quality not in directions:
        raise UserError(f"run {record.id} does not say whether more {quality!r} is better")
    return replace(record, objective=quality, maximise=directions[quality])


def settings_of(record: RunRecord) -> dict[str, Any]:
    """The config without seeds, fold and learning rate."""
    config = {name: value for name, value in record.config.items() if name != "seed"}
    config["source"] = {name: value for name, value in config["source"].items() if name != "fold"}
    config["model"] = {name: value for name, value in config["model"].items() if not name.endswith("_seed")}
    config["train"] = {name: value for name, value in config["train"].items() if name != "learning_rate"}
    return config


def _candidate(group: list[RunRecord], costs: Mapping[str, Mapping[str, float]]) -> Candidate:
    rates: dict[float, list[RunRecord]] = defaultdict(list)
    for record in sorted(filter(is_measured, group), key=lambda record: (record.seed, record.id)):
        rates[record.config["train"]["learning_rate"]].append(record)
    # Only rates with the most seeds compete: the surviving runs of a rate that diverged would flatter it.
    most = max(map(len, rates.values()))
    sign = 1 if group[0].maximise else -1
    rate = max(
        sorted(rate for rate in rates if len(rates[rate]) == most), key=lambda rate: sign * _validation(rates[rate])
    )
    runs = rates[rate]
    model = runs[0].config["model"]
    known = {name: [values[run.id] for run in runs if run.id in values] for name, values in costs.items()}
    return Candidate(
        source=runs[0].config["source"]["name"],
        task=runs[0].task,
        architecture=architecture_of(model),
        settings=settings_of(runs[0]),
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
        costs={name: statistics.fmean(values) for name, values in known.items() if values},
    )


def _validation(runs: list[RunRecord]) -> float:
    return statistics.fmean(run.metrics["validation"][run.objective] for run in runs)


def _point(candidate: Candidate, cost: str) -> tuple[float, float]:
    """Cost and quality on validation data; smaller is better in both."""
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
