"""What may be said of a difference: intervals at 95 %, and the words for them. Plain numbers, no torch.

    both sides have a spread     Welch's interval: unequal variances, degrees of freedom by Satterthwaite
    one side is a single run     a prediction interval: the run is one more draw from the other side's spread
    one side is a printed mean   a one-sample t interval: the mean, printed without a spread, is taken as exact
    neither has one              nothing is decided

Printed numbers are taken as they stand; that their last digit is rounded is no part of an interval.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LEVEL = 0.95
POWER = 0.8
MANY = 1_000_000
Decision = Literal["ahead", "behind", "undecided"]
Agreement = Literal["agrees", "higher", "lower", "undecided", "other set-up"]
Answer = Literal["yes", "no", "undecided", "not addressed"]


@dataclass(frozen=True)
class Sample:
    """Runs of one network: their mean, their standard deviation (None: unknown, which is not zero), how many."""

    mean: float
    std: float | None
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Interval:
    """Where a difference of two means lies with 95 % confidence; without bounds, nobody can tell."""

    difference: float
    low: float | None
    high: float | None
    freedom: float | None
    rule: str

    @property
    def decision(self) -> Decision:
        """Whether the first is ahead of the second."""
        if self.low is not None and self.low > 0:
            return "ahead"
        return "behind" if self.high is not None and self.high < 0 else "undecided"

    def text(self, unit: str = "") -> str:
        """+0.031 dB (+0.010 to +0.052)."""
        value = f"{self.difference:+.3f} {unit}".strip()
        bounds = "no spread" if self.low is None or self.high is None else f"{self.low:+.3f} to {self.high:+.3f}"
        return f"{value} ({bounds})"

    def above(self, bound: float) -> Answer:
        """Whether the difference is at least ``bound``."""
        if self.low is None or self.high is None:
            return "undecided"
        return "yes" if self.low >= bound else "no" if self.high < bound else "undecided"


def welch(first: Sequence[float], second: Sequence[float]) -> Interval:
    """The interval of mean(first) − mean(second) from the values of the runs."""
    return compare(Sample.of(first), Sample.of(second))


def compare(first: Sample, second: Sample) -> Interval:
    """The interval of first − second, by the rule that their spreads allow."""
    difference = first.mean - second.mean
    if first.std is None and second.std is None:
        return Interval(difference, None, None, None, "no spread on either side: undecided")
    if first.std is None or second.std is None:
        known, other = (first, second) if first.std is not None else (second, first)
        assert known.std is not None
        variance = known.std**2 * (1 / known.runs + (1 if other.runs == 1 else 0))
        rule = "prediction t interval for a single run" if other.runs == 1 else "one-sample t interval"
        return _interval(difference, variance, known.runs - 1, rule)
    parts = first.std**2 / first.runs, second.std**2 / second.runs
    variance = sum(parts)
    shares = [part / variance for part in parts] if variance else [0.5, 0.5]
    freedom = 1 / (shares[0] ** 2 / (first.runs - 1) + shares[1] ** 2 / (second.runs - 1))
    return _interval(difference, variance, freedom, "Welch's t interval")


def contrast(plus: Sequence[Sample], minus: Sequence[Sample]) -> Interval:
    """The interval of a sum of means less a sum of others, such as a gain less another gain; all need a spread."""
    terms = [*plus, *minus]
    difference = sum(term.mean for term in plus) - sum(term.mean for term in minus)
    if any(term.std is None for term in terms):
        return Interval(difference, None, None, None, "a side has no spread: undecided")
    parts = [(term.std or 0.0) ** 2 / term.runs for term in terms]
    variance = sum(parts)
    squares = sum(part**2 / (term.runs - 1) for part, term in zip(parts, terms, strict=True))
    return _interval(difference, variance, variance**2 / squares if squares else math.inf, "Welch's t interval")


def _interval(difference: float, variance: float, freedom: float, rule: str) -> Interval:
    if variance == 0:  # runs that came out equal to the last bit
        return Interval(difference, difference, difference, None, rule)
    from scipy.stats import t

    margin = float(t.ppf((1 + LEVEL) / 2, freedom)) * math.sqrt(variance)
    return Interval(difference, difference - margin, difference + margin, freedom, rule)


def seeds_to_decide(first: Sample, second: Sample, difference: float | None = None) -> int | None:
    """How many runs of each would decide that they differ, with a chance of 80 %, if the spreads are the measured ones
    and the difference is the measured one (or the one given). None where no number below a million would."""
    if first.std is None or second.std is None:
        return None
    gap = abs(first.mean - second.mean if difference is None else difference)
    variance = first.std**2 + second.std**2
    if gap == 0:
        return None

    def decides(runs: int) -> bool:
        from scipy.stats import t

        reach = float(t.ppf((1 + LEVEL) / 2, 2 * runs - 2) + t.ppf(POWER, 2 * runs - 2))
        return gap >= reach * math.sqrt(variance / runs)

    low, high = 1, 2
    while high < MANY and not decides(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high if high < MANY else None


def agreement(measured: Sample, published: Sample, same_setup: bool) -> tuple[Agreement, Interval | None]:
    """A measured value against the published one. Other data or another protocol can neither agree nor contradict."""
    if not same_setup:
        return "other set-up", None
    interval = compare(measured, published)
    if interval.low is None:
        return "undecided", interval
    words: dict[Decision, Agreement] = {"ahead": "higher", "behind": "lower", "undecided": "agrees"}
    return words[interval.decision], interval


def all_of(answers: Sequence[Answer]) -> Answer:
    """A statement about all cases: one counter-example refutes it; what was not addressed has no say."""
    asked = [answer for answer in answers if answer != "not addressed"]
    if not asked:
        return "not addressed"
    return "no" if "no" in asked else "yes" if set(asked) == {"yes"} else "undecided"


def any_of(answers: Sequence[Answer]) -> Answer:
    """A statement that something happens somewhere: one case shows it; only all cases together refute it."""
    asked = [answer for answer in answers if answer != "not addressed"]
    if not asked:
        return "not addressed"
    return "yes" if "yes" in asked else "no" if set(asked) == {"no"} else "undecided"
