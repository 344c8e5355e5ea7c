"""Every rule by which a difference is judged, with numbers computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from isthmus.papers.engine.claims import agreement, all_of, any_of
from isthmus.studies.statistics import Interval, Sample, compare


def welch(first, second):
    """Runs without a common seed."""
    return compare(Sample.of(first), Sample.of(second))


# Quantiles of Student's t at 0.975, from printed tables.
T2, T4 = 4.302653, 2.776445
PRINTED = Sample(5.0, None, 5)


def test_equal_spreads_have_the_degrees_of_freedom_of_both_together():
    """Means 2 and 5, variance 1, three runs each: the error is √(2/3), with four degrees of freedom."""
    interval = welch([1, 2, 3], [4, 5, 6])
    margin = T4 * math.sqrt(2 / 3)
    assert interval.freedom == pytest.approx(4)
    assert (interval.low, interval.high) == pytest.approx((-3 - margin, -3 + margin), abs=1e-5)
    assert interval.decision == "behind"
    assert welch([4, 5, 6], [1, 2, 3]).decision == "ahead"


def test_unequal_spreads_have_fewer_degrees_of_freedom():
    """Variances 1 and 4 over three runs: (5/3)² / ((1/3)²/2 + (4/3)²/2) = 50/17."""
    interval = welch([1, 2, 3], [2, 4, 6])
    assert interval.freedom == pytest.approx(50 / 17)
    assert interval.decision == "undecided"


def test_a_printed_spread_is_five_standard_deviations_over_five_runs():
    """Table 8: 22.307 ± 0.003 against 22.313 ± 0.004. The error is √((0.0006² + 0.0008²) / 5) = 0.000447."""
    interval = compare(Sample(22.307, 0.003 / 5, 5), Sample(22.313, 0.004 / 5, 5))
    assert interval.freedom == pytest.approx(4e-14 / ((7.2e-8**2 + 1.28e-7**2) / 4))
    assert interval.difference == pytest.approx(-0.006)
    assert interval.high is not None
    assert (interval.high - interval.difference) / math.sqrt(2e-7) == pytest.approx(2.338, abs=0.002)  # t at 7.42
    assert interval.decision == "behind"
    assert interval.above(-0.01) == "yes"


def test_a_mean_printed_without_a_spread_is_taken_as_exact():
    interval = compare(Sample.of([1, 2, 3]), PRINTED)
    margin = T2 * math.sqrt(1 / 3)
    assert (interval.low, interval.high) == pytest.approx((-3 - margin, -3 + margin), abs=1e-5)
    assert interval.decision == "behind"
    assert interval.rule == "one-sample t interval"
    assert compare(PRINTED, Sample.of([1, 2, 3])).decision == "ahead"


def test_a_single_run_is_one_more_draw_and_not_exact():
    """The same numbers decide nothing where the other side is one run: its own noise counts as well."""
    interval = compare(Sample.of([1, 2, 3]), Sample.of([5]))
    assert interval.high == pytest.approx(-3 + T2 * math.sqrt(1 + 1 / 3), abs=1e-5)
    assert interval.decision == "undecided"
    assert "single run" in interval.rule


def test_without_any_spread_nothing_is_decided():
    interval = compare(Sample.of([1]), PRINTED)
    assert (interval.low, interval.high, interval.decision, interval.above(-9)) == (
        None,
        None,
        "undecided",
        "undecided",
    )
    assert interval.text("dB") == "-4.000 dB (no spread)"


def test_runs_that_came_out_equal_leave_no_doubt():
    assert welch([2, 2], [1, 1]).decision == "ahead"
    assert welch([1, 1], [1, 1]).decision == "undecided"
    assert welch([2, 2], [1, 1]).freedom is None


values = st.lists(st.integers(-(10**5), 10**5).map(lambda x: x / 1000), min_size=2, max_size=6, unique=True)


@given(values, values)
def test_the_interval_is_that_of_scipy(first, second):
    interval = welch(first, second)
    expected = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("published", "word"),
    [(Sample(2.1, 0.5, 5), "agrees"), (Sample(9.0, 0.5, 5), "lower"), (Sample(-9.0, 0.5, 5), "higher")],
)
def test_a_measured_value_agrees_with_the_published_one_or_is_higher_or_lower(published, word):
    assert agreement(Sample.of([1, 2, 3]), published, same_setup=True)[0] == word


def test_another_set_up_neither_agrees_nor_contradicts():
    assert agreement(Sample.of([1, 2, 3]), Sample(9.0, 0.5, 5), same_setup=False) == ("other set-up", None)
    assert agreement(Sample.of([1]), Sample(9.0, None, 5), same_setup=True)[0] == "undecided"


def test_at_least_a_bound_is_answered_where_the_interval_lies_on_one_side():
    interval = Interval(0.0, -0.5, 0.5, 4, "")
    assert [interval.above(bound) for bound in (-0.5, 0.0, 0.6)] == ["yes", "undecided", "no"]


def test_all_and_any():
    assert all_of(["yes", "undecided", "no"]) == "no"
    assert all_of(["yes", "undecided"]) == "undecided"
    assert all_of(["yes", "not addressed"]) == "yes"
    assert all_of(["not addressed"]) == all_of([]) == any_of([]) == "not addressed"
    assert any_of(["no", "yes"]) == "yes"
    assert any_of(["no", "undecided"]) == "undecided"
    assert any_of(["no", "no", "not addressed"]) == "no"
