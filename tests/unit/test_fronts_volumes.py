"""Areas, gaps and savings of fronts, against their definitions and against SciPy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from scipy.stats import ttest_ind, ttest_rel

from isthmus.core.errors import UserError
from isthmus.studies.fronts import Candidate, best, compare, front, noise_of
from isthmus.studies.statistics import Interval
from isthmus.studies.volumes import Reference, Saving, area, gap, hypervolume, measure_savings, reference_point
from tests.unit.candidates import make_candidate, points

pairs = st.lists(st.tuples(st.floats(1e-3, 1e9), st.floats(-50, 50)), max_size=12)
references = st.builds(Reference, st.floats(1e-3, 1e9), st.floats(-50, 50))


def seeded(candidate: Candidate, values: dict[int, float]) -> Candidate:
    return replace(candidate, seeds=tuple(values), metrics={"psnr": tuple(values.values())})


def of(candidates: list[Candidate], architecture: str) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.architecture == architecture]


def grid_area(points: list[tuple[float, float]], reference: Reference, maximise: bool, steps: int = 400) -> float:
    """The share of a fine grid's cells whose middle some point dominates, times the box."""
    low = min(cost for cost, _ in points)
    top = max(abs(quality - reference.quality) for _, quality in points)
    costs = low * (reference.cost / low) ** ((np.arange(steps) + 0.5) / steps)
    heights = top * (np.arange(steps) + 0.5) / steps
    covered = np.zeros((steps, steps), bool)
    for cost, quality in points:
        height = quality - reference.quality if maximise else reference.quality - quality
        covered |= (costs >= cost)[:, None] & (heights <= height)[None, :]
    return float(covered.mean() * math.log(reference.cost / low) * top)


@pytest.mark.parametrize("maximise", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_an_area_is_what_a_fine_grid_counts(seed: int, maximise: bool):
    draws = np.random.default_rng(seed)
    reference = Reference(80.0, 21.0)
    points = [(float(c), float(q)) for c, q in zip(draws.uniform(1, 100, 9), draws.normal(21, 2, 9), strict=True)]
    expected = grid_area(points, reference, maximise)
    box = math.log(80 / min(points)[0]) * max(abs(quality - 21) for _, quality in points)
    assert area(points, reference, maximise) == pytest.approx(expected, abs=0.01 * box)


def test_an_area_in_numbers():
    reference = Reference(math.e**2, 20.0)
    assert area([], reference) == 0
    assert area([(1, 21.0)], reference) == pytest.approx(2.0)
    assert area([(1, 21.0), (math.e, 23.0)], reference) == pytest.approx(1 + 3)
    assert area([(1, 19.0)], reference, maximise=False) == pytest.approx(2.0)
    with pytest.raises(UserError, match="costs above 0"):
        area([(0, 21.0)], reference)


@given(pairs, st.tuples(st.floats(1e-3, 1e9), st.floats(-50, 50)), references, st.booleans())
def test_a_further_point_never_shrinks_an_area(points, point, reference, maximise):
    before, after = area(points, reference, maximise), area([*points, point], reference, maximise)
    assert 0 <= before <= after + 1e-9 * (1 + after)


@given(pairs.filter(bool), st.floats(1, 100), st.floats(0, 50), references, st.booleans(), st.data())
def test_dominated_points_and_order_change_no_area(points, factor, loss, reference, maximise, data):
    cost, quality = data.draw(st.sampled_from(points))
    dominated = (cost * factor, quality - loss if maximise else quality + loss)
    shuffled = data.draw(st.permutations([*points, dominated]))
    expected = area(points, reference, maximise)
    assert area(shuffled, reference, maximise) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(references, st.floats(1e-3, 1), st.floats(0, 50), st.booleans())
def test_the_reference_and_what_is_costlier_or_worse_has_no_area(reference, factor, loss, maximise):
    worse = reference.quality - loss if maximise else reference.quality + loss
    for point in (
        (reference.cost, reference.quality),
        (reference.cost * factor, worse),
        (reference.cost / factor, -worse),
    ):
        assert area([point], reference, maximise) == 0


@given(pairs, references)
def test_a_mirrored_quality_has_the_same_area(points, reference):
    mirrored = [(cost, -quality) for cost, quality in points]
    expected = area(points, reference)
    assert area(mirrored, Reference(reference.cost, -reference.quality), maximise=False) == pytest.approx(expected)


def test_the_reference_is_the_worst_of_the_whole_grid_on_validation_data():
    grid = [
        make_candidate(10, 3.0, validation=21.0),
        make_candidate(40, 99.0, validation=24.0),
        make_candidate(90, 22.0, "b", validation=20.5),
    ]
    assert reference_point(grid) == Reference(90, 20.5)
    assert reference_point([replace(item, maximise=False) for item in grid]) == Reference(90, 24.0)
    assert reference_point([replace(item, costs={"latency": item.params / 10}) for item in grid], "latency").cost == 9.0
    with pytest.raises(UserError, match="no finished run"):
        reference_point([])


@given(points.filter(bool), st.booleans())
def test_a_front_has_the_area_of_all_its_candidates_on_validation_data(candidates, maximise):
    candidates = [replace(candidate, maximise=maximise) for candidate in candidates]
    reference = reference_point(candidates)
    for name in "ab":
        items = of(candidates, name)
        plain = area([(item.params, item.validation) for item in items], reference, maximise)
        assert hypervolume(items, reference) == pytest.approx(plain)
        assert hypervolume(front(items), reference) == pytest.approx(plain)


@given(points.filter(bool), st.booleans())
def test_on_test_data_the_area_is_below_what_validation_data_choose(candidates, maximise):
    candidates = [replace(candidate, maximise=maximise) for candidate in candidates]
    reference = Reference(13, 6.0)
    total = 0.0
    for budget in range(1, 13):  # all costs are whole numbers
        affordable = [item for item in candidates if item.params <= budget]
        if affordable:
            height = best(affordable).mean - 6.0
            total += max(0.0, height if maximise else -height) * math.log((budget + 1) / budget)
    assert hypervolume(candidates, reference, split="test") == pytest.approx(total)


def test_an_area_is_on_validation_or_test_data():
    with pytest.raises(UserError, match="not on 'train'"):
        hypervolume([make_candidate(1, 20.0)], Reference(2, 19.0), split="train")


def test_a_gap_is_paired_by_seed_as_scipy_pairs():
    first = seeded(make_candidate(5, 21.0), {0: 21.0, 1: 21.3, 2: 22.0, 7: 40.0})
    second = seeded(make_candidate(5, 20.0, "b"), {2: 21.6, 0: 20.7, 1: 20.9, 9: 0.0})
    (point,) = gap([first], [second]).points
    result = ttest_rel([21.0, 21.3, 22.0], [20.7, 20.9, 21.6])
    assert point.difference.rule == "paired over 3 seeds"
    assert point.difference.difference == pytest.approx(1.1 / 3)
    assert point.difference.bounds == pytest.approx(tuple(result.confidence_interval(0.95)), abs=1e-3)
    (mirrored,) = gap([second], [first]).points
    assert mirrored.difference.difference == pytest.approx(-point.difference.difference)
    assert mirrored.difference.half_width == pytest.approx(point.difference.half_width)
    smaller = gap([replace(first, maximise=False)], [replace(second, maximise=False)])
    assert smaller.points[0].difference.difference == pytest.approx(-point.difference.difference)


def test_without_shared_noise_welch_judges_and_with_one_seed_nothing_does():
    first = seeded(make_candidate(5, 21.0), {0: 21.0, 1: 21.4})
    second = seeded(make_candidate(5, 20.0, "b"), {1: 20.0, 2: 20.1, 3: 20.2})
    (point,) = gap([first], [second]).points
    expected = ttest_ind(first.test, second.test, equal_var=False).confidence_interval()
    assert point.difference.difference == pytest.approx(1.1)
    assert point.difference.bounds == pytest.approx(tuple(expected))
    single = gap([seeded(first, {0: 21.0})], [seeded(second, {0: 20.0})])
    assert single.points[0].difference == single.mean
    assert single.mean is not None
    assert (single.mean.difference, single.mean.bounds) == (1.0, None)


def test_the_mean_gap_is_over_the_logarithm_of_the_cost_and_pairs_the_seeds_that_all_share():
    first = [
        seeded(make_candidate(1, 20.0), {0: 20.0, 1: 20.2}),
        seeded(make_candidate(100, 23.0), {0: 23.0, 1: 23.4}),
    ]
    second = [
        seeded(make_candidate(10, 19.0, "b"), {0: 19.0, 1: 19.1}),
        seeded(make_candidate(1000, 19.5, "b"), {0: 19.5, 1: 19.5, 2: 19.5}),
    ]
    result = gap(first, second)
    assert [point.cost for point in result.points] == [10, 100]
    assert [point.difference.difference for point in result.points] == pytest.approx([1.05, 4.15])
    # Shared are 10 to 100; the step at 100 has no width.
    assert result.mean == result.points[0].difference
    third = [*first, seeded(make_candidate(10_000, 10.0), {0: 10.0})]
    wide = gap(third, second)
    # From 10 to 100 it is 1.05, from 100 to 1000 it is 4.15, in equal shares.
    noise = noise_of([*third, *second])
    assert noise is not None
    assert wide.mean is not None
    assert wide.mean.difference == pytest.approx(2.6)
    assert wide.mean.rule == "paired over 2 seeds"
    half = student.ppf(0.975, noise.freedom) * noise.std * math.sqrt((0.25 + 0.25 + 1) / 2)
    assert wide.mean.half_width == pytest.approx(half)


def test_the_mean_gap_without_shared_seeds_counts_each_candidate_by_its_share():
    draws = np.random.default_rng(3)

    def trial() -> Interval:
        noise = draws.normal(0, 1, (3, 3))
        first = [seeded(make_candidate(10, 5.0, identity="f"), dict(enumerate(noise[0] + 5, start=3)))]
        first.append(seeded(make_candidate(10_000, 4.0, identity="far"), {30: 4.0}))  # dominated
        second = [
            seeded(make_candidate(10, 3.0, "b"), dict(enumerate(noise[1] + 3))),
            seeded(make_candidate(100, 4.0, "b"), dict(enumerate(noise[2] + 4, start=6))),
            seeded(make_candidate(1000, 3.0, "b"), {40: 3.0}),
        ]
        mean = gap(first, second).mean
        assert mean is not None
        return mean

    means = [trial() for _ in range(2000)]
    assert not any(mean.rule.startswith("paired") for mean in means)
    values = [mean.difference for mean in means]
    assert np.mean(values) == pytest.approx(1.5, abs=0.05)
    # The first stands over the whole range, each of the second's over half of it.
    assert np.std(values) == pytest.approx((1 / 3 + 2 * 0.25 / 3) ** 0.5, rel=0.05)
    covered = [mean.bounds is not None and mean.bounds[0] <= 1.5 <= mean.bounds[1] for mean in means]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


@given(points)
def test_gap_points_agree_with_the_comparison(candidates):
    first, second = of(candidates, "a"), of(candidates, "b")
    if not first or not second:
        return
    result, comparison = gap(first, second), compare(first, second)
    assert bool(result.points) == bool(comparison.stretches) == (result.mean is not None)
    for point in result.points:
        pair = [best(item for item in items if item.params <= point.cost) for items in (first, second)]
        assert [point.first, point.second] == pair
        assert point.difference.difference == pytest.approx(pair[0].mean - pair[1].mean)
    if result.mean and len(result.points) > 1:
        costs = [point.cost for point in result.points]
        widths = np.diff(np.log(costs))
        values = [point.difference.difference for point in result.points[:-1]]
        assert result.mean.difference == pytest.approx(np.average(values, weights=widths), abs=1e-9)


def test_a_gap_and_a_saving_need_two_architectures():
    for measure in (gap, measure_savings):
        with pytest.raises(UserError, match="no finished run"):
            measure([], [make_candidate(1, 20.0)])


def test_parameters_saved_at_equal_quality():
    first = [make_candidate(10, 20.0, spread=0.1), make_candidate(30, 22.0, spread=0.1), make_candidate(90, 23.0)]
    second = [make_candidate(20, 19.0, "b"), make_candidate(60, 21.9, "b", spread=0.1), make_candidate(80, 24.0, "b")]
    result = measure_savings(first, second)
    assert result.architectures == ("a", "b")
    clear, narrow, never = result.savings
    assert clear == Saving(19.0, 10, 20, 10, smallest=True)
    assert (clear.fraction, clear.sure_fraction) == (0.5, 0.5)
    # 0.1 is within what seeds explain (0.24); the next larger network is clear of it, but saves nothing.
    assert narrow == Saving(21.9, 30, 60, 90)
    assert (narrow.fraction, narrow.sure_fraction) == (0.5, -0.5)
    assert never == Saving(24.0, None, 80, None)
    assert (never.fraction, never.sure_fraction) == (None, None)
    assert measure_savings([make_candidate(50, 30.0)], second[:1]).savings[0].fraction == -1.5
    assert all(saving.fraction is None for saving in measure_savings([make_candidate(50, 10.0)], second).savings)
    smaller = measure_savings([make_candidate(10, 0.1, maximise=False)], [make_candidate(20, 0.2, "b", maximise=False)])
    assert smaller.savings == (Saving(0.2, 10, 20, 10, smallest=True),)


def test_with_one_seed_a_saving_is_stated_and_not_decided():
    first, second = seeded(make_candidate(10, 21.0), {0: 21.0}), seeded(make_candidate(20, 20.0, "b"), {0: 20.0})
    (saving,) = measure_savings([first], [second]).savings
    assert (saving.fraction, saving.sure_fraction) == (0.5, None)


def test_test_data_do_not_choose_who_saves_and_the_rival_pays_no_more_than_it_must():
    first = [make_candidate(5, 25.0, validation=18.0, identity="lucky"), make_candidate(4, 19.0, validation=20.0)]
    first.append(make_candidate(30, 22.0, validation=22.0))
    second = [make_candidate(20, 21.0, "b"), make_candidate(90, 20.0, "b", validation=23.0)]
    assert [(saving.first_cost, saving.second_cost) for saving in measure_savings(first, second).savings] == [(30, 20)]
