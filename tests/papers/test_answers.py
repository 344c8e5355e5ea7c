"""Every rule by which a difference is judged, with numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from isthmus.papers.engine.claims import Finding, Rule, agreement, all_of, any_leads, combine, exact, judge, set_aside
from isthmus.studies.statistics import Interval, Sample, compare, compare_shares, compare_with, seeds_to_clear


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
    assert interval.text("dB") == "-4.000 dB (no spread, 1 seed)"


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
    assert agreement(Sample.of([1, 2, 3]), published, same_setup=True, tolerance=3.0)[0] == word


def test_a_wide_interval_does_not_make_two_values_agree():
    measured, published = Sample.of([1, 2, 3]), Sample(2.1, 0.5, 5)
    assert agreement(measured, published, same_setup=True, tolerance=1.0)[0] == "undecided"


def test_another_set_up_neither_agrees_nor_contradicts():
    assert agreement(Sample.of([1, 2, 3]), Sample(9.0, 0.5, 5), same_setup=False, tolerance=1.0) == (
        "other set-up",
        None,
    )
    assert agreement(Sample.of([1]), Sample(9.0, None, 5), same_setup=True, tolerance=1.0)[0] == "undecided"


def test_at_least_a_bound_is_answered_where_the_interval_lies_on_one_side():
    interval = Interval(0.0, -0.5, 0.5, 4, "")
    assert [interval.above(bound) for bound in (-0.5, 0.0, 0.6)] == ["yes", "undecided", "no"]


def test_all_of_several_answers():
    assert all_of(["yes", "undecided", "no"]) == "no"
    assert all_of(["yes", "undecided"]) == "undecided"
    assert all_of(["yes", "not addressed"]) == "yes"
    assert all_of(["not addressed"]) == all_of([]) == "not addressed"


def gap(difference: float, half_width: float = 1.0) -> Interval:
    return Interval(difference, difference - half_width, difference + half_width, 4, "", 3)


def test_a_wider_interval_never_turns_an_answer_into_yes_or_no():
    """Whatever the rule, a wider interval of the same difference is as decided or less."""
    rules = [Rule.leads(), Rule.trails(), Rule.at_least(-0.5), Rule.less_than(0.5), Rule.within(2.0)]
    for rule in rules:
        for difference in (-3.0, -0.7, 0.0, 0.7, 3.0):
            answers = [judge(gap(difference, width), rule)[0] for width in (0.01, 0.3, 1.0, 2.5, 9.0)]
            decided = [answer for answer in answers if answer != "undecided"]
            assert answers == decided + ["undecided"] * (5 - len(decided))
            assert len(set(decided)) <= 1


def test_one_case_of_many_refutes_only_after_a_correction_for_their_number():
    behind = judge(gap(-1.01))
    assert behind[0] == "no"
    assert behind[1]["p_of_no"] == pytest.approx(0.049, abs=0.001)
    ahead = {f"case {number}": judge(gap(2.0)) for number in range(9)}
    assert combine({"behind": behind})[0] == "no"
    assert combine({"behind": behind, **ahead})[0] == "undecided", "one of ten is expected by chance"
    assert combine({"behind": judge(gap(-5.0)), **ahead})[0] == "no"
    assert combine({"nested": combine({"behind": behind, **ahead}), "more": judge(gap(2.0))})[0] == "undecided"
    assert combine({"behind": behind, "elsewhere": set_aside("other data", judge(gap(2.0)))})[0] == "no"
    assert combine(ahead)[0] == "yes", "a claim about all cases needs no correction to hold"


def test_a_refutation_that_the_correction_undoes_says_how_many_seeds_would_keep_it():
    def seen(difference: float, runs: int) -> Finding:
        return judge(compare_with(list(difference + np.linspace(-1, 1, runs)), 0.0))

    alone, others = seen(-1.4, 4), {f"case {number}": seen(9.0, 4) for number in range(3)}
    assert alone[0] == "no"
    answer, numbers = combine({"behind": alone, **others})
    assert answer == "undecided"
    assert (
        f"not refuted after the correction for 4 cases, which about {numbers['seeds_to_decide']} seeds"
        in numbers["said"]
    )
    more = seen(-1.4, numbers["seeds_to_decide"])
    assert combine({"behind": more, **others})[0] == "no"
    assert "seeds_to_decide" not in combine({"behind": seen(-9.0, 4), **others})[1]


def test_false_refutations_of_many_true_cases_are_rare():
    """Ten cases that are exactly at the bound: at most one claim in twenty is refuted."""
    generator, trials = np.random.default_rng(0), 400
    refuted = 0
    for _ in range(trials):
        cases = {str(case): judge(compare_with(generator.normal(size=3).tolist(), 0.0)) for case in range(10)}
        refuted += combine(cases)[0] == "no"
    assert refuted / trials <= 0.06


def test_an_answer_needs_an_interval_or_is_exact():
    with pytest.raises(ValueError, match="needs an interval"):
        combine({"bare": ("yes", {"said": "because I say so"})})
    assert combine({"counted": exact(False, "3 of 4"), "measured": judge(gap(2.0))})[0] == "no"
    assert combine({"counted": exact(True, "4 of 4")})[0] == "yes"


def test_one_of_many_cases_leads_only_after_a_correction():
    assert any_leads([gap(1.01)], "budgets")[0] == "yes"
    assert any_leads([gap(1.01), gap(-0.5), gap(0.1)], "budgets")[0] == "undecided"
    assert any_leads([gap(5.0), gap(-0.5)], "budgets")[0] == "yes"
    assert any_leads([gap(-2.0), gap(-1.5)], "budgets")[0] == "no"


def test_what_is_set_aside_keeps_what_was_found():
    answer, numbers = set_aside("the claim is about 55 M parameters", judge(gap(2.0)))
    assert answer == "not addressed"
    assert numbers["said"] == "the claim is about 55 M parameters; here yes: +2.000 (+1.000 to +3.000, 3 seeds)"
    assert numbers["here"]["seeds"] == 3


def test_shares_are_compared_by_newcombes_interval():
    """His example: 56 of 70 and 48 of 80 differ by 0.2, from 0.0524 to 0.3339 (Newcombe 1998, Table II, method 10)."""
    interval = compare_shares((56, 70), (48, 80))
    assert interval.bounds == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert interval.decision == "ahead"
    assert compare_shares((1, 9), (0, 9)).decision == "undecided"


def test_the_seeds_that_clear_a_bound_are_the_fewest_with_the_asked_power():
    """Three runs around 0.5 with a deviation of 1: 34 runs decide a mean of 0.5 in four of five cases."""
    generator = np.random.default_rng(0)
    interval = compare_with([-0.5, 0.5, 1.5], 0.0)
    seeds = seeds_to_clear(interval, 0.0)
    assert seeds == 34
    runs = generator.normal(0.5, 1.0, size=(4000, seeds))
    t = runs.mean(1) / (runs.std(1, ddof=1) / math.sqrt(seeds))
    assert np.mean(t > 2.0345) == pytest.approx(0.8, abs=0.02)
    assert judge(interval)[1]["seeds_to_decide"] == 34
    assert "about 34 seeds would decide" in judge(interval)[1]["said"]
    assert seeds_to_clear(compare_with([1.0], 0.0), 0.0) is None
