"""Fronts in numbers: the area of one, and the gap at equal cost and the saving at equal quality between two.

Members are chosen on validation data, as in `fronts.py`; the gap and the saving are measured on test data. A difference
is positive where the first architecture is better, also where smaller quality is better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from isthmus.core.errors import UserError
from isthmus.studies.fronts import Candidate, GapPoint, compare_at_budgets, cost_of, ladder, noise_of, sample_of
from isthmus.studies.statistics import Interval, Noise, combine, compare


@dataclass(frozen=True)
class Reference:
    """The corner from which an area is measured: the highest cost and the worst quality that count."""

    cost: float
    quality: float


@dataclass(frozen=True)
class Gap:
    """The distance of two fronts over their shared costs. Without ``points`` they share none."""

    architectures: tuple[str, str]
    cost: str
    objective: str
    maximise: bool
    points: tuple[GapPoint, ...]
    mean: Interval | None  # over the logarithm of the cost


@dataclass(frozen=True)
class Saving:
    """The cost of each architecture at a quality of the second's front."""

    quality: float
    first_cost: float | None  # None: the first never reaches it
    second_cost: float
    sure_cost: float | None  # of the first, if its quality must exceed the noise of the seeds
    smallest: bool = False  # the first's cheapest candidate: a cheaper one might also reach it

    @property
    def fraction(self) -> float | None:
        """Of the second's cost. Negative: the first needs more."""
        return None if self.first_cost is None else 1 - self.first_cost / self.second_cost

    @property
    def sure_fraction(self) -> float | None:
        return None if self.sure_cost is None else 1 - self.sure_cost / self.second_cost


@dataclass(frozen=True)
class Savings:
    architectures: tuple[str, str]
    cost: str
    objective: str
    savings: tuple[Saving, ...]  # by rising cost of the second


def reference_point(candidates: Sequence[Candidate], cost: str = "params") -> Reference:
    """The largest cost and the worst quality on validation data, of all candidates of all architectures.

    So one study has one reference. From 0 dB, the area of any front would be almost the whole box.
    """
    if not candidates:
        raise UserError("a reference point needs candidates; there is no finished run")
    worst = min if candidates[0].maximise else max
    return Reference(max(cost_of(item, cost) for item in candidates), worst(item.validation for item in candidates))


def open_corner(points: Collection[tuple[float, float]], maximise: bool = True) -> Reference:
    """The corner from which searches measure what (cost, quality) points add: twice the largest cost, worst quality.

    From the largest cost itself, the costliest point, which may be the best, could add nothing.
    """
    worst = min if maximise else max
    return Reference(2 * max(cost for cost, _ in points), worst(quality for _, quality in points))


def area(points: Sequence[tuple[float, float]], reference: Reference, maximise: bool = True) -> float:
    """The hypervolume of (cost, quality) points: the area in (natural logarithm of cost, quality) that they dominate.

    Points need not be a front. One that is as costly as the reference, or as bad, adds nothing.

    >>> round(area([(1, 20.0), (math.e, 22.0)], Reference(math.e**3, 19.0)), 6)  # 1 × 1 + 2 × 3
    7.0
    """
    steps, height = [], 0.0
    for cost, quality in sorted(points):
        height = max(height, _height(quality, reference, maximise))
        steps.append((cost, height))
    return _integral(steps, reference.cost)


def hypervolume(
    candidates: Sequence[Candidate], reference: Reference, cost: str = "params", split: str = "validation"
) -> float:
    """The area that the front of these candidates dominates.

    On test data the members are still those chosen on validation data, so that the curve is what a user would get for
    each budget. It may step down, and counts as 0 below the reference.
    """
    if split not in ("validation", "test"):
        raise UserError(f"an area is measured on 'validation' or on 'test' data, not on {split!r}")
    steps = []
    for item in ladder(candidates, cost):
        quality = item.mean if split == "test" else item.validation
        steps.append((cost_of(item, cost), _height(quality, reference, item.maximise)))
    return _integral(steps, reference.cost)


def gap(
    first: Sequence[Candidate], second: Sequence[Candidate], cost: str = "params", noise: Noise | None = None
) -> Gap:
    """How much better the first front is at equal cost: at every shared budget, and on average.

    At each budget, the best candidate on validation data within the budget represents its architecture. Intervals are
    those of `statistics.py`; ``noise`` is that of the whole study, or by default of the candidates given.
    """
    if not first or not second:
        raise UserError("a gap is between two architectures; one of them has no finished run")
    noise = noise or noise_of([*first, *second])
    points = compare_at_budgets(first, second, cost, noise)
    mean = points[0].difference if points else None
    if len(points) > 1:
        terms = [
            (side * share, sample_of(item, noise))
            for side, candidates in ((1, first), (-1, second))
            for share, item in _shares(ladder(candidates, cost), points[0].cost, points[-1].cost, cost)
        ]
        mean = combine(terms)
    names = (first[0].architecture, second[0].architecture)
    return Gap(names, cost, first[0].objective, first[0].maximise, tuple(points), mean)


def measure_savings(
    first: Sequence[Candidate], second: Sequence[Candidate], cost: str = "params", noise: Noise | None = None
) -> Savings:
    """What the first architecture saves at equal quality: for each quality of the second's front, the cheapest member
    of the first's that is at least as good.

    Both fronts are chosen on validation data and measured on test data: a candidate that is good on test data only
    would not have been found. A member of the second's front that a cheaper one matches is left out; otherwise the
    first would be credited with what the second saves by itself.
    """
    if not first or not second:
        raise UserError("a saving is between two architectures; one of them has no finished run")
    sign = 1 if first[0].maximise else -1
    noise = noise or noise_of([*first, *second])
    rungs = ladder(first, cost)
    cheapest = min(cost_of(item, cost) for item in first)
    savings: list[Saving] = []
    for rival in ladder(second, cost):
        if any(sign * (rival.mean - saving.quality) <= 0 for saving in savings):
            continue
        leads = [(compare(sample_of(item, noise), sample_of(rival, noise)), item) for item in rungs]
        reached = [cost_of(item, cost) for lead, item in leads if sign * (item.mean - rival.mean) >= 0]
        sure = [cost_of(item, cost) for lead, item in leads if lead.low is not None and lead.low >= 0]
        paid = min(reached, default=None)
        savings.append(Saving(rival.mean, paid, cost_of(rival, cost), min(sure, default=None), paid == cheapest))
    names = (first[0].architecture, second[0].architecture)
    return Savings(names, cost, first[0].objective, tuple(savings))


def _height(quality: float, reference: Reference, maximise: bool) -> float:
    return max(0.0, quality - reference.quality if maximise else reference.quality - quality)


def _integral(steps: Sequence[tuple[float, float]], stop: float) -> float:
    """The integral of a step function over the logarithm of the cost."""
    if any(cost <= 0 for cost, _ in steps):
        raise UserError("an area over the logarithm of the cost needs costs above 0")
    ends = [min(cost, stop) for cost, _ in steps] + [stop]
    return math.fsum(
        height * math.log(end / start) for (_, height), (start, end) in zip(steps, pairwise(ends), strict=True)
    )


def _shares(rungs: Sequence[Candidate], low: float, high: float, cost: str) -> list[tuple[float, Candidate]]:
    """Each rung with the share of the logarithmic range in which it represents its architecture."""
    edges = [min(max(cost_of(item, cost), low), high) for item in rungs] + [high]
    shares = [math.log(stop / start) / math.log(high / low) for start, stop in pairwise(edges)]
    return [(share, item) for share, item in zip(shares, rungs, strict=True) if share > 0]
