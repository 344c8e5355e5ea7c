"""Whether one network is better than another: one rule for the terminal, the page, the tables and the claims.

    both were trained with the same seeds   the difference is paired by seed, and its error is what candidate and seed
                                            leave unexplained, pooled over the candidates of the study
    no seed in common, or one varies far    Welch's interval: unequal variances, degrees of freedom by Satterthwaite
    more than the others (`fit_noise`)
    one side is a single run                a prediction interval: the run is one more draw from the other side's spread
    one side is a printed mean              a one-sample t interval: the mean, printed without a spread, counts as exact
    neither has a spread                    undecided

All intervals are at 95 %. Several budgets are decided together, by Holm's method. Plain numbers, no torch.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

LEVEL = 0.95
OUTLIER = 0.01
"""The level of the test that leaves a network's spread out of the pool, as for outlying laboratories in ISO 5725-2."""
POWER = 0.8
MANY = 1_000_000
RULE = (
    "Differences are paired by seed, with the variance that network and seed leave unexplained pooled over the study "
    "(Welch’s interval where no seed is shared, or where one network varies far more than the others); intervals are "
    "at 95 %, and the budgets of one line are decided together by Holm’s method."
)
"""Printed on every page."""

Decision = Literal["ahead", "behind", "undecided"]
Answer = Literal["yes", "no", "undecided", "not addressed"]


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a run once the effects of its network and of its seed are taken out."""

    std: float
    freedom: int
    most: float = math.inf
    """The largest standard deviation of a network in the pool. It says nothing about networks that vary more."""


@dataclass(frozen=True)
class Sample:
    """Runs of one network: their mean, their standard deviation (None: unknown, which is not zero), how many.

    ``by_seed`` and the study's ``noise`` are known of runs that were trained here.
    """

    mean: float
    std: float | None
    runs: int
    by_seed: Mapping[int, float] = field(default_factory=dict, compare=False)
    noise: Noise | None = field(default=None, compare=False)

    @classmethod
    def of(cls, values: Sequence[float], seeds: Sequence[int] = (), noise: Noise | None = None) -> Sample:
        spread = statistics.stdev(values) if len(values) > 1 else None
        if noise is not None and spread is not None and spread > noise.most:
            noise = None
        return cls(statistics.fmean(values), spread, len(values), dict(zip(seeds, values, strict=False)), noise)

    @classmethod
    def exact(cls, value: float) -> Sample:
        """A bound, or a constant that is known without error."""
        return cls(value, None, MANY)


@dataclass(frozen=True)
class Interval:
    """The 95 % confidence interval of a difference of two means; without bounds if no spread is known."""

    difference: float
    low: float | None
    high: float | None
    freedom: float | None
    rule: str
    seeds: int | None = None
    """Runs of the network that has fewer; of a paired difference, the shared seeds."""

    @property
    def decision(self) -> Decision:
        """Whether the first is ahead of the second."""
        if self.low is not None and self.low > 0:
            return "ahead"
        return "behind" if self.high is not None and self.high < 0 else "undecided"

    @property
    def bounds(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def p(self) -> float:
        """The two-sided p-value: how often noise alone gives so large a difference."""
        if not self.half_width or self.freedom is None:
            return 1.0 if self.half_width is None or self.difference == 0 else 0.0
        from scipy.special import stdtr, stdtrit

        error = self.half_width / stdtrit(self.freedom, (1 + LEVEL) / 2)
        return float(2 * stdtr(self.freedom, -abs(self.difference) / error))

    def swap(self) -> Interval:
        """The interval of second − first."""
        low, high = (None if bound is None else -bound for bound in (self.high, self.low))
        return replace(self, difference=-self.difference, low=low, high=high)

    def less(self, bound: float) -> Interval:
        """The interval of the difference less a bound."""
        low, high = (None if end is None else end - bound for end in (self.low, self.high))
        return replace(self, difference=self.difference - bound, low=low, high=high)

    def text(self, unit: str = "") -> str:
        """+0.031 dB (+0.010 to +0.052, 3 seeds)."""
        value = f"{self.difference:+.3f} {unit}".strip()
        bounds = "no spread" if self.low is None or self.high is None else f"{self.low:+.3f} to {self.high:+.3f}"
        seeds = "" if self.seeds is None else f", {self.seeds} seed{'s' * (self.seeds != 1)}"
        return f"{value} ({bounds}{seeds})"

    def above(self, bound: float) -> Answer:
        """Whether the difference is at least ``bound``."""
        if self.low is None or self.high is None:
            return "undecided"
        return "yes" if self.low >= bound else "no" if self.high < bound else "undecided"

    def within(self, tolerance: float) -> Answer:
        """Whether the two are equivalent: the whole interval lies within the tolerance."""
        if self.low is None or self.high is None:
            return "undecided"
        if -tolerance <= self.low and self.high <= tolerance:
            return "yes"
        return "no" if self.low > tolerance or self.high < -tolerance else "undecided"


def fit_noise(networks: Iterable[Mapping[int, float]]) -> Noise | None:
    """The residual spread of the runs of a study, given by seed for each network; None where it has no freedom left.

    Least squares with an effect for each network and each seed. The networks' effects are taken out first, as means.
    Networks whose own spread is an outlier, such as those that failed to learn, are left out. A network with a larger
    spread is compared by its own spread; one with a smaller spread by the pooled noise, which is too large for it.
    Networks whose runs are all equal stay in the pool.
    """
    import numpy as np

    groups = [group for group in networks if len(group) > 1]
    spreads = [statistics.stdev(group.values()) for group in groups]
    varied = [(spread, len(group) - 1) for spread, group in zip(spreads, groups, strict=True) if spread > 0]
    least, most = _usual_spreads(varied)
    groups = [group for spread, group in zip(spreads, groups, strict=True) if spread == 0 or least <= spread <= most]
    seeds = sorted(set().union(*groups))
    places = {seed: place for place, seed in enumerate(seeds)}
    values, design = [], []
    for group in groups:
        own = np.array(list(group.values()))
        indicators = np.eye(len(seeds))[[places[seed] for seed in group]]
        values.append(own - own.mean())
        design.append(indicators - indicators.mean(axis=0))
    if not groups:
        return None
    y, x = np.concatenate(values), np.concatenate(design)
    effects, _, rank, _ = np.linalg.lstsq(x, y, rcond=None)
    freedom = len(y) - len(groups) - int(rank)
    if freedom < 1:
        return None
    return Noise(math.sqrt(float(np.square(y - x @ effects).sum()) / freedom), freedom, most)


def _usual_spreads(spreads: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """The smallest and the largest standard deviation that are no outliers, of (deviation, degrees of freedom) pairs,
    all above 0.

    Cochran's test for an outlying variance, in its form for samples of any size and for both ends ('t Lam 2010): an F
    test of one variance against the pooled others, at α / 2 divided by the number of variances. Up to half of them are
    removed one after the other from an end, and all up to the last significant one count as outliers (as in Rosner's
    test, 1983), because two large variances would hide each other. Two networks alone need no pool: their paired
    difference has its own variance.
    """
    from scipy.special import fdtr

    kept = sorted(spreads)
    for largest in (True, False):
        rest, outliers = list(kept), 0
        for removed in range(1, len(kept) // 2 + 1 if len(kept) > 2 else 1):
            spread, freedom = rest.pop(-1 if largest else 0)
            others = sum(own for _, own in rest)
            pooled = math.fsum(own * other**2 for other, own in rest) / others
            if largest:
                p = float(fdtr(others, freedom, pooled / spread**2))
            else:
                p = float(fdtr(freedom, others, spread**2 / pooled))
            if p * (len(rest) + 1) < OUTLIER / 2:
                outliers = removed
        kept = kept[: len(kept) - outliers] if largest else kept[outliers:]
    return (kept[0][0], kept[-1][0]) if kept else (0.0, math.inf)


def compare_runs(first: Sequence[float], second: Sequence[float]) -> Interval:
    """The interval of mean(first) − mean(second), of runs in the order of their seeds; of unequally many, unpaired."""
    seeds = range(len(first)) if len(first) == len(second) else ()
    noise = fit_noise([dict(zip(seeds, values, strict=False)) for values in (first, second)])
    return compare(*(Sample.of(values, seeds, noise) for values in (first, second)))


def compare(first: Sample, second: Sample) -> Interval:
    """The interval of first − second, by the rule that their seeds and spreads allow."""
    return contrast([first], [second])


def contrast(plus: Sequence[Sample], minus: Sequence[Sample]) -> Interval:
    """The interval of a sum of means less a sum of as many others, such as a gain less another gain."""
    return combine([(1.0, sample) for sample in plus] + [(-1.0, sample) for sample in minus])


def combine(terms: Sequence[tuple[float, Sample]]) -> Interval:
    """The interval of a weighted sum of means whose weights add up to nothing."""
    samples = [sample for _, sample in terms]
    noise = samples[0].noise
    seeds = set(samples[0].by_seed).intersection(*(sample.by_seed for sample in samples))
    if seeds and noise is not None and all(sample.noise == noise for sample in samples):
        means = [statistics.fmean(sample.by_seed[seed] for seed in sorted(seeds)) for sample in samples]
        difference = math.fsum(weight * mean for (weight, _), mean in zip(terms, means, strict=True))
        variance = noise.std**2 * math.fsum(weight**2 for weight, _ in terms) / len(seeds)
        rule = f"paired over {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        return _interval(difference, variance, noise.freedom, rule, len(seeds))
    difference, runs = math.fsum(weight * sample.mean for weight, sample in terms), min(each.runs for each in samples)
    known = [(weight**2 * sample.std**2 / sample.runs, sample) for weight, sample in terms if sample.std is not None]
    if len(known) == len(terms):
        variance = math.fsum(part for part, _ in known)
        squares = math.fsum((part / variance) ** 2 / (sample.runs - 1) for part, sample in known) if variance else 0.0
        return _interval(difference, variance, 1 / squares if squares else math.inf, "Welch's t interval", runs)
    if len(terms) == 2 and known:
        part, sample = known[0]
        other = next(sample for sample in samples if sample.std is None)
        rule = "prediction t interval for a single run" if other.runs == 1 else "one-sample t interval"
        return _interval(difference, part * (1 + sample.runs * (other.runs == 1)), sample.runs - 1, rule, runs)
    return Interval(difference, None, None, None, "no spread: undecided", runs)


def compare_with(values: Sequence[float], bound: float) -> Interval:
    """The interval of a mean over seeds less a bound that is known exactly."""
    return compare(Sample.of(values), Sample.exact(bound))


def compare_shares(first: tuple[int, int], second: tuple[int, int]) -> Interval:
    """The interval of a difference of two shares, each (how many, of how many), from Wilson's (Newcombe 1998)."""
    from scipy.special import ndtri

    z, ends = float(ndtri((1 + LEVEL) / 2)), []
    for number, of in (first, second):
        share, middle = number / of, (number + z**2 / 2) / (of + z**2)
        reach = z * math.sqrt(share * (1 - share) / of + z**2 / (4 * of**2)) / (1 + z**2 / of)
        ends.append((share, share - (middle - reach), middle + reach - share))
    (one, below, above), (other, under, over) = ends
    low, high = one - other - math.hypot(below, over), one - other + math.hypot(above, under)
    return Interval(one - other, low, high, float(MANY), "Newcombe's interval of shares", min(first[1], second[1]))


def _interval(difference: float, variance: float, freedom: float, rule: str, seeds: int | None = None) -> Interval:
    if variance == 0:  # runs that came out equal to the last bit
        return Interval(difference, difference, difference, None, rule, seeds)
    from scipy.special import stdtrit

    margin = float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(variance)
    return Interval(difference, difference - margin, difference + margin, freedom, rule, seeds)


def decide_together(intervals: Sequence[Interval]) -> list[Decision]:
    """The decision on each, such that with 95 % confidence none of those made is wrong (Holm 1979)."""
    order = sorted(range(len(intervals)), key=lambda place: intervals[place].p)
    decisions: list[Decision] = ["undecided"] * len(intervals)
    for rank, place in enumerate(order):
        if intervals[place].p > (1 - LEVEL) / (len(intervals) - rank):
            break
        decisions[place] = "ahead" if intervals[place].difference > 0 else "behind"
    return decisions


def seeds_to_decide(first: Sample, second: Sample, difference: float | None = None) -> int | None:
    """How many runs of each would decide that they differ, with a chance of 80 %, if the noise is the measured one and
    the difference is the measured one (or the one given). None where no number below a million would."""
    gap = abs(first.mean - second.mean if difference is None else difference)
    if first.noise is not None and first.noise == second.noise:
        variance = 2 * first.noise.std**2
    elif first.std is not None and second.std is not None:
        variance = first.std**2 + second.std**2
    else:
        return None
    return _fewest_seeds(gap, variance, lambda runs: 2 * runs - 2)


def seeds_to_clear(interval: Interval, bound: float, level: float = LEVEL) -> int | None:
    """Likewise of a difference that is known by its interval, to decide on which side of a bound it lies."""
    if not interval.half_width or not interval.seeds or not interval.freedom:
        return None
    from scipy.special import stdtrit

    error = interval.half_width / float(stdtrit(interval.freedom, (1 + LEVEL) / 2))
    return _fewest_seeds(abs(interval.difference - bound), error**2 * interval.seeds, lambda runs: runs - 1, level)


def _fewest_seeds(gap: float, variance: float, freedom: Callable[[int], int], level: float = LEVEL) -> int | None:
    """The fewest runs with which a gap is decided; ``variance`` is that of one run."""
    if gap == 0:
        return None

    def decides(runs: int) -> bool:
        from scipy.special import stdtrit

        reach = float(stdtrit(freedom(runs), (1 + level) / 2) + stdtrit(freedom(runs), POWER))
        return gap >= reach * math.sqrt(variance / runs)

    runs = 2 + bisect_left(range(2, MANY), True, key=decides)
    return runs if runs < MANY else None


def compare_folds(differences: Sequence[float], ratio: float) -> Interval:
    """The interval of a mean difference over folds, whose training rows overlap (Nadeau and Bengio 2003).

    ``ratio`` is validation rows by training rows. Each fold is a paired difference.
    """
    mean, folds = statistics.fmean(differences), len(differences)
    variance = statistics.variance(differences) * (1 / folds + ratio)
    return _interval(mean, variance, folds - 1, "paired over folds")
