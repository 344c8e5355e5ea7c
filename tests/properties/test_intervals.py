"""Intervals cover what they promise, and every rule is the textbook's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from isthmus.studies.statistics import (
    Interval,
    Noise,
    Sample,
    combine,
    compare,
    compare_with,
    decide_together,
    fit_noise,
)


def draw_studies(generator, studies, candidates, seeds):
    """Runs of many studies: network effects, seed effects five times as large as the noise, and noise."""
    effects = generator.normal(size=(studies, candidates, 1)) * 3
    shared = generator.normal(size=(studies, 1, seeds)) * 5
    return effects[..., 0], effects + shared + generator.normal(size=(studies, candidates, seeds))


def standard_errors(values):
    """Of a difference of two networks in each study, where no run is missing; and the degrees of freedom."""
    _, candidates, seeds = values.shape
    rest = values - values.mean(2, keepdims=True) - values.mean(1, keepdims=True) + values.mean((1, 2), keepdims=True)
    freedom = (candidates - 1) * (seeds - 1)
    return np.sqrt((rest**2).sum((1, 2)) / freedom * 2 / seeds), freedom


def samples(values, missing=()):
    groups = [
        {seed: float(value) for seed, value in enumerate(line) if (number, seed) not in missing}
        for number, line in enumerate(values)
    ]
    noise = fit_noise(groups)
    return [Sample.of(list(group.values()), list(group), noise) for group in groups]


@pytest.mark.parametrize(("candidates", "seeds"), [(2, 3), (6, 3), (12, 2)])
def test_intervals_cover_the_difference_as_often_as_they_say(candidates, seeds):
    """The closed form over many studies, and the module against it over some of them."""
    effects, values = draw_studies(np.random.default_rng(1), 20_000, candidates, seeds)
    errors, freedom = standard_errors(values)
    found = values[:, 0].mean(1) - values[:, 1].mean(1)
    margins = stats.t.ppf(0.975, freedom) * errors
    assert 0.945 <= np.mean(abs(found - (effects[:, 0] - effects[:, 1])) <= margins) <= 0.955
    for study, difference, margin in zip(values[:100], found, margins, strict=False):
        one, other, *_ = samples(study)
        assert compare(one, other).bounds == pytest.approx((difference - margin, difference + margin))


def test_intervals_cover_the_difference_where_runs_are_missing():
    trials, missing = 2000, ((0, 2), (3, 0), (4, 1))
    effects, values = draw_studies(np.random.default_rng(1), trials, 5, 3)
    covered = 0
    for study, (first, second, *_) in zip(values, effects, strict=True):
        one, other, *_ = samples(study, missing)
        low, high = compare(one, other).bounds or (math.inf, -math.inf)
        covered += low <= first - second <= high
    assert 0.94 <= covered / trials <= 0.96


NOISY = (1000.0, 1.0, 1.0, 1000.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("factors", [(1.0,) * 7, NOISY, (1e-4, *NOISY[1:])], ids=["alike", "two failed", "one quiet"])
def test_intervals_cover_the_difference_where_some_networks_failed(factors):
    """Coverage of a difference of two ordinary networks, and of an ordinary one and the first."""
    trials = 1000
    generator = np.random.default_rng(4)
    noise = generator.normal(size=(trials, len(factors), 3)) * np.array(factors)[:, None]
    covered, widths = np.zeros(2), []
    for study in noise + generator.normal(size=(trials, 1, 3)):
        first, one, other, *_ = samples(study)
        intervals = [compare(one, other), compare(one, first)]
        covered += [each.low <= 0 <= each.high for each in intervals if each.low is not None and each.high is not None]
        widths.append(intervals[0].half_width or math.inf)
    assert 0.93 <= covered[0] / trials <= 0.97
    assert covered[1] / trials >= 0.93
    assert np.median(widths) < 2.5, "failed networks do not widen the intervals of the others"


def test_a_network_that_varies_far_more_is_compared_by_its_own_spread():
    ordinary = [[1.0, 2.0, 4.0], [1.1, 2.2, 3.9], [0.9, 2.1, 4.2], [1.2, 1.9, 4.1]]
    failed = [[-90.0, 20.0, 400.0], [500.0, 70.0, -300.0]]
    one, other, *_, wild = samples([*ordinary, *failed])
    assert one.noise == samples(ordinary)[0].noise, "two large spreads do not hide each other"
    assert wild.noise is None
    assert compare(one, wild).rule == "Welch's t interval"
    assert compare(one, other).rule == "paired over 3 seeds"
    quiet, *_ = samples([[5.0, 5.0001, 5.0], *ordinary])
    assert quiet.noise == one.noise, "it is compared by the others' noise and adds nothing to it"
    constant, *_ = samples([[5.0, 5.0, 5.0], *ordinary])
    assert constant.noise is not None
    assert constant.noise.freedom == one.noise.freedom + 2, "equal runs stay in the pool"


def test_an_interval_says_over_how_many_seeds():
    one, other, _ = samples([[1.0, 2.0, 4.0], [1.1, 2.5, 3.9], [0.9, 2.1, 4.2]])
    assert compare(one, other).seeds == 3
    assert compare(one, other).text("dB").endswith(", 3 seeds)")
    assert compare(Sample.of([1.0, 2.0, 3.0]), Sample.of([5.0])).seeds == 1
    assert compare_with([1.0, 2.0, 4.0], 0.5).seeds == 3
    expected = stats.ttest_1samp([1.0, 2.0, 4.0], 0.5).confidence_interval()
    assert compare_with([1.0, 2.0, 4.0], 0.5).bounds == pytest.approx((expected.low - 0.5, expected.high - 0.5))


def test_two_networks_alone_are_the_paired_t_test():
    values = np.array([[1.0, 4.0, 6.0, 3.0], [0.5, 3.0, 6.5, 2.0]])
    one, other = samples(values)
    interval, expected = compare(one, other), stats.ttest_rel(*values)
    assert interval.rule.startswith("paired")
    assert (interval.low, interval.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert interval.p == pytest.approx(expected.pvalue)


def test_noise_is_the_residual_of_a_two_way_analysis_of_variance():
    values = np.random.default_rng(0).normal(size=(4, 3))
    rest = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    found = fit_noise([dict(enumerate(map(float, line))) for line in values])
    assert found is not None
    assert found.std == pytest.approx(math.sqrt((rest**2).sum() / 6))
    assert found.freedom == 6
    assert fit_noise([{0: 1.0}, {0: 2.0}]) is None, "one seed says nothing of the noise"
    assert fit_noise([]) is None


def test_without_a_common_seed_it_is_welchs_test():
    first, second = [1.0, 2.0, 4.0], [2.5, 2.0, 9.0, 7.0]
    noise = Noise(1.0, 9)
    interval = compare(Sample.of(first, (0, 1, 2), noise), Sample.of(second, (3, 4, 5, 6), noise))
    expected = stats.ttest_ind(first, second, equal_var=False)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert interval.freedom == pytest.approx(expected.df)


def test_a_weighted_sum_of_networks_pairs_all_of_them():
    values = np.array([[1.0, 4.0, 6.5], [0.5, 3.0, 6.0], [2.0, 4.5, 7.5]])
    one, two, three = samples(values)
    interval = combine([(1.0, one), (-0.5, two), (-0.5, three)])
    noise = one.noise
    assert noise is not None
    half = stats.t.ppf(0.975, noise.freedom) * noise.std * math.sqrt(1.5 / 3)
    assert interval.difference == pytest.approx((values[0] - values[1:].mean(0)).mean())
    assert interval.half_width == pytest.approx(half)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.1, 3)), min_size=1, max_size=8))
def test_deciding_together_never_decides_more_than_one_by_one(pairs):
    pairs = [(value, width) for value, width in pairs if abs(abs(value) - width) > 1e-6]  # a bound at 0 is a tie
    intervals = [Interval(value, value - width, value + width, 8, "") for value, width in pairs]
    together, alone = decide_together(intervals), [interval.decision for interval in intervals]
    assert all(decision in ("undecided", single) for decision, single in zip(together, alone, strict=True))


def test_no_false_lead_in_nineteen_studies_of_twenty():
    """Ten budgets of networks that are all alike: a lead anywhere is an error of the whole line."""
    generator, trials = np.random.default_rng(2), 20_000
    values = generator.normal(size=(trials, 20, 3)) + generator.normal(size=(trials, 1, 3))
    errors, freedom = standard_errors(values)
    largest = abs(values[:, :10].mean(2) - values[:, 10:].mean(2)).max(1) / errors
    leads = 2 * stats.t.sf(largest, freedom) <= 0.05 / 10  # Holm's first step
    assert 0.03 < leads.mean() < 0.055
    for study, lead in zip(values[:200], leads, strict=False):
        found = samples(study)
        pairs = [compare(one, other) for one, other in zip(found[:10], found[10:], strict=True)]
        assert (set(decide_together(pairs)) != {"undecided"}) == lead


def test_equivalence_needs_the_whole_interval():
    assert Interval(0.1, -0.2, 0.4, 5, "").within(0.5) == "yes"
    assert Interval(0.1, -0.9, 1.1, 5, "").within(0.5) == "undecided", "a wider interval proves nothing"
    assert Interval(0.9, 0.6, 1.2, 5, "").within(0.5) == "no"


@pytest.mark.parametrize("scale", [2.0**-300, 1e-12, 1e12])
def test_units_do_not_matter(scale):
    values = np.random.default_rng(3).normal(size=(3, 3)) / 4 + np.array([[0.0], [4.0], [8.0]])
    ordinary, scaled = (compare(*samples(values * factor)[:2]) for factor in (1.0, scale))
    assert scaled.decision == ordinary.decision == "behind"
    assert scaled.p == pytest.approx(ordinary.p, rel=1e-6)
