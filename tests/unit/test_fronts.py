"""Candidates, fronts and comparisons, against their definitions."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from isthmus.core.errors import UserError
from isthmus.core.record import RunRecord
from isthmus.studies.fronts import (
    Alone,
    Candidate,
    Stretch,
    at_budget,
    best,
    budgets,
    compare,
    front,
    ladder,
    summarise,
)
from tests.unit.candidates import make_candidate, points


def make_record(
    identity: str,
    d_h: int = 64,
    rate: float = 1e-3,
    seed: int = 0,
    validation: float = 20.0,
    test: float = 19.0,
    status: str = "finished",
    maximise: bool = True,
    fingerprint: str = "data",
) -> RunRecord:
    objective = "psnr" if maximise else "mse"
    return RunRecord(
        id=identity,
        status=status,
        config={
            "schema_version": 1,
            "source": {"name": "digits"},
            "task": {"name": "denoise", "noise_std": 0.25},
            "model": {"name": "hourglass_mlp", "d_z": 100, "d_h": d_h, "depth": 2, "w_in_seed": seed},
            "train": {"epochs": 2, "learning_rate": rate},
            "seed": seed,
            "threads": 2,
        },
        seed=seed,
        fingerprint=fingerprint,
        objective=objective,
        maximise=maximise,
        code={},
        machine={},
        versions={},
        cost={"params": 1000 + d_h, "trainable_params": 900 + d_h, "macs": 1000 + d_h},
        metrics={"validation": {objective: validation}, "test": {objective: test, "ssim": 0.5}}
        if status == "finished"
        else {},
        wall_seconds=2.0 + seed,
        reason="" if status == "finished" else "the loss became infinite",
    )


def test_the_learning_rate_is_chosen_on_validation_never_on_test():
    records = [
        make_record("a", rate=1e-3, seed=0, validation=21.0, test=10.0),
        make_record("b", rate=1e-3, seed=1, validation=23.0, test=12.0),
        make_record("c", rate=5e-3, seed=0, validation=20.0, test=30.0),
        make_record("d", rate=5e-3, seed=1, validation=23.5, test=30.0),
    ]
    (candidate,) = summarise(records)
    assert candidate.learning_rate == 1e-3
    assert candidate.run_ids == ("a", "b")
    assert candidate.seeds == (0, 1)
    assert candidate.test == (10.0, 12.0)
    assert candidate.mean == 11.0
    assert candidate.std == pytest.approx(2**0.5)
    assert candidate.validation == 22.0
    assert candidate.wall_seconds == 2.5
    assert (candidate.params, candidate.trainable_params, candidate.macs) == (1064, 964, 1064)
    assert candidate.settings["model"] == {"name": "hourglass_mlp", "d_z": 100, "d_h": 64, "depth": 2}


def test_a_smaller_error_is_better_where_the_record_says_so():
    records = [
        make_record("a", rate=1e-3, validation=0.3, maximise=False),
        make_record("b", rate=5e-3, validation=0.2, maximise=False),
    ]
    (candidate,) = summarise(records)
    assert candidate.learning_rate == 5e-3
    assert candidate.std is None


def test_failed_runs_are_counted_and_do_not_flatter_their_learning_rate():
    records = [
        make_record("a", rate=1e-3, seed=0, validation=20.0),
        make_record("b", rate=1e-3, seed=1, validation=20.0),
        make_record("c", rate=5e-3, seed=0, validation=25.0),
        make_record("d", rate=5e-3, seed=1, status="failed"),
        make_record("e", d_h=8, status="failed"),
    ]
    (candidate,) = summarise(records)
    assert candidate.learning_rate == 1e-3
    assert candidate.failed == 1


def test_other_networks_and_other_data_are_other_candidates_and_a_run_counts_once():
    records = [make_record("a"), make_record("a"), make_record("b", d_h=8), make_record("c", fingerprint="other")]
    assert [candidate.run_ids for candidate in summarise(records)] == [("b",), ("a",), ("c",)]


def test_a_metric_that_is_not_finite_is_left_out_and_an_objective_that_is_not_counts_as_a_failure():
    good, other = make_record("a"), make_record("b", seed=1)
    without_ssim = replace(other, metrics={**other.metrics, "test": {"psnr": 19.0, "ssim": None}})  # type: ignore[dict-item]
    (candidate,) = summarise([good, without_ssim])
    assert set(candidate.metrics) == {"psnr"}
    without_psnr = replace(other, metrics={**other.metrics, "test": {"psnr": None}})  # type: ignore[dict-item]
    (candidate,) = summarise([good, without_psnr])
    assert (candidate.run_ids, candidate.failed) == (("a",), 1)


def test_another_quality_selects_and_judges_and_has_its_own_direction():
    def both(record: RunRecord, mse: float) -> RunRecord:
        metrics = {split: {**values, "mse": mse, "r2": -mse} for split, values in record.metrics.items()}
        return replace(record, metrics=metrics)

    records = [
        make_record("z", rate=2e-3, status="failed"),
        both(make_record("a", rate=1e-3, validation=21.0), 0.3),
        both(make_record("b", rate=5e-3, validation=20.0), 0.2),
    ]
    (usual,), (by_error,), (by_r2,) = (summarise(records, quality=name) for name in (None, "mse", "r2"))
    assert (usual.learning_rate, usual.objective, usual.maximise) == (1e-3, "psnr", True)
    assert (by_error.learning_rate, by_error.objective, by_error.maximise) == (5e-3, "mse", False)
    assert (by_error.test, by_error.validation, by_error.failed) == ((0.2,), 0.2, 1)
    assert (by_r2.learning_rate, by_r2.maximise) == (5e-3, True)
    assert summarise(records, quality="psnr") == [usual]
    # The record's own objective keeps the record's direction, whatever its name.
    odd = [replace(record, objective="mse", maximise=True) for record in records]
    assert summarise(odd, quality="mse")[0].learning_rate == 1e-3
    with pytest.raises(UserError, match=r"run a has no 'ssim' on validation and test data; choose from: mse, psnr, r2"):
        summarise(records, quality="ssim")


def test_whether_more_is_better_is_said_by_the_record_and_not_guessed_from_a_name():
    values = {"psnr": 1.0, "ece": 2.0, "odd": 3.0}
    directions = {"psnr": True, "ece": False}
    record = replace(make_record("a"), directions=directions, metrics={"validation": values, "test": values})
    assert not summarise([record], quality="ece")[0].maximise
    with pytest.raises(UserError, match="does not say whether more 'odd' is better"):
        summarise([record], quality="odd")


def test_latency_is_the_mean_of_the_timed_runs_and_a_cost_where_every_candidate_has_it():
    records = [make_record("a"), make_record("b", seed=1), make_record("c", seed=2), make_record("d", d_h=8)]
    small, large = summarise(records, costs={"latency": {"a": 1.0, "b": 2.0, "other": 9.0}})
    assert (small.costs, large.costs) == ({}, {"latency": 1.5})
    with pytest.raises(UserError, match="run d has no known latency"):
        front([small, large], cost="latency")
    small, large = summarise(records, costs={"latency": {"a": 1.0, "d": 3.0}})
    assert front([small, large], cost="latency") == [large]
    assert compare([small], [large], cost="latency").alone == (
        Alone("hourglass_mlp", 3.0, 3.0),
        Alone("hourglass_mlp", 1.0, 1.0),
    )
    with pytest.raises(UserError, match="unknown cost 'param'; did you mean 'params'"):
        front([small], cost="param")


def test_five_sigma_is_known_where_sigma_is():
    assert make_candidate(1, 20.0, spread=0.1).five_sigma == pytest.approx(5 * 0.1 * 2**0.5)
    assert summarise([make_record("a")])[0].five_sigma is None


def dominates(one: Candidate, other: Candidate) -> bool:
    gain = (one.validation - other.validation) * (1 if one.maximise else -1)
    return one.params <= other.params and gain >= 0 and (one.params < other.params or gain > 0)


def identities(candidates):
    return [candidate.run_ids for candidate in candidates]


@given(points, st.booleans())
def test_front_is_what_no_other_of_its_architecture_dominates_on_validation(candidates, maximise):
    candidates = [replace(candidate, maximise=maximise) for candidate in candidates]
    expected = {
        candidate.run_ids
        for candidate in candidates
        if not any(dominates(other, candidate) for other in candidates if other.architecture == candidate.architecture)
    }
    members = front(candidates)
    assert set(identities(members)) == expected
    assert [member.params for member in members] == sorted(member.params for member in members)


@given(points, st.data())
def test_front_ignores_dominated_points_and_order(candidates, data):
    members = front(candidates)
    assert identities(front(data.draw(st.permutations(candidates)))) == identities(members)
    if members:
        model = data.draw(st.sampled_from(members))
        worse = make_candidate(model.params + 1, 99.0, model.architecture, "worse", validation=model.validation - 1)
        assert identities(front([*candidates, worse])) == identities(members)


@given(points, st.integers(1, 12))
def test_a_ladder_holds_the_best_for_every_budget(candidates, budget):
    affordable = [candidate for candidate in candidates if candidate.params <= budget]
    if affordable:
        assert at_budget(ladder(candidates), budget) == best(affordable)


def test_front_over_another_cost():
    one, two = replace(make_candidate(1, 1.0), macs=9), replace(make_candidate(2, 2.0), macs=3)
    assert front([one, two]) == [one, two]
    assert front([one, two], cost="macs") == [two]


def test_test_data_choose_neither_a_front_nor_the_best_nor_who_is_compared():
    lucky = make_candidate(10, 30.0, identity="lucky", validation=20.0)
    chosen = make_candidate(10, 22.0, identity="chosen", validation=21.0)
    dearer = make_candidate(20, 40.0, identity="dearer", validation=20.5)
    falling = make_candidate(20, 19.0, identity="falling", validation=21.5)
    assert front([lucky, chosen, dearer, falling]) == [chosen, falling]
    assert best([lucky, chosen, dearer, falling]) == falling
    assert best([chosen, replace(chosen, params=9, run_ids=("z",))]).params == 9
    rival = [make_candidate(10, 25.0, "b"), make_candidate(20, 18.0, "b", validation=26.0)]
    assert compare([lucky, chosen, dearer, falling], rival).stretches == (
        Stretch(10, 20, "b", 3.0, 10),
        Stretch(20, 20, "a", 1.0, 20),
    )


def test_comparison_where_a_smaller_error_is_better():
    first, second = make_candidate(5, 2.0, maximise=False), make_candidate(5, 3.0, "b", maximise=False)
    assert compare([first], [second]).stretches == (Stretch(5, 5, "a", 1.0, 5),)
    worse = make_candidate(5, 1.0, identity="worse", validation=9.0, maximise=False)
    assert compare([worse, first], [second]).stretches == (Stretch(5, 5, "a", 1.0, 5),)


def decide_by_hand(pairs, candidates):
    """Whether each pair differs: two-way analysis of variance of two seeds each, t tests, Holm's correction."""
    values = np.array([item.test for item in candidates])
    rest = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
    freedom = len(candidates) - 1
    error = math.sqrt((rest**2).sum() / freedom)  # of a difference of two means of two seeds
    chances = {}
    for one, other in pairs:
        difference = abs(one.mean - other.mean)
        small = error < 1e-9
        chance = float(difference < 1e-9) if small else 2 * student.sf(difference / error, freedom)
        chances[one.run_ids, other.run_ids] = chance
    decided = dict.fromkeys(chances, False)
    for rank, key in enumerate(sorted(chances, key=chances.__getitem__)):
        if chances[key] > 0.05 / (len(chances) - rank):
            break
        decided[key] = True
    return decided


@given(points)
def test_comparison_agrees_with_the_definition_at_every_cost(candidates):
    first, second = ([item for item in candidates if item.architecture == name] for name in "ab")
    if not first or not second:
        return
    comparison = compare(first, second)
    low = max(min(item.params for item in items) for items in (first, second))
    high = min(max(item.params for item in items) for items in (first, second))
    assert bool(comparison.stretches) == (low <= high)
    if comparison.stretches:
        assert (comparison.stretches[0].start, comparison.stretches[-1].stop) == (low, high)
    pairs = [
        tuple(best(item for item in items if item.params <= budget) for items in (first, second))
        for budget in range(low, high + 1)
    ]
    decided = decide_by_hand(pairs, [*first, *second])
    for budget, pair in zip(range(low, high + 1), pairs, strict=True):
        difference = pair[0].mean - pair[1].mean
        stretch = [item for item in comparison.stretches if item.start <= budget][-1]
        assert abs(difference) <= stretch.lead
        assert (stretch.leader is not None) == decided[pair[0].run_ids, pair[1].run_ids]
        if stretch.leader:
            assert (difference > 0) == (stretch.leader == "a")
        if budget == stretch.at:
            assert abs(difference) == stretch.lead
    leaders = [stretch.leader for stretch in comparison.stretches]
    assert all(one != other for one, other in pairwise(leaders))
    mirrored = compare(second, first)
    assert mirrored.stretches == comparison.stretches


def test_comparison_names_leads_noise_and_ranges_that_only_one_has():
    first = [make_candidate(10, 20.0), make_candidate(30, 24.0, spread=0.25), make_candidate(60, 25.0)]
    second = [
        make_candidate(20, 23.0, "b"),
        make_candidate(40, 24.25, "b", spread=0.25),
        make_candidate(50, 26.0, "b"),
    ]
    comparison = compare(first, second)
    assert comparison.stretches == (
        Stretch(20, 30, "b", 3.0, 20),
        Stretch(30, 40, "a", 1.0, 30),
        Stretch(40, 50, None, 0.25, 40),
        Stretch(50, 50, "b", 2.0, 50),
    )
    assert comparison.alone == (Alone("a", 10, 20), Alone("a", 50, 60))
    assert comparison.can_decide


def test_with_one_seed_everywhere_nothing_is_decided_and_the_difference_is_stated():
    first = replace(make_candidate(5, 1.0), seeds=(0,), metrics={"psnr": (1.0,)})
    second = replace(make_candidate(5, 9.0, "b"), seeds=(0,), metrics={"psnr": (9.0,)})
    comparison = compare([first], [second])
    assert comparison.stretches == (Stretch(5, 5, None, 8.0, 5),)
    assert not comparison.can_decide
    others = [make_candidate(4, 1.0, "b", "x", spread=0.1), make_candidate(3, 1.0, "b", "y")]  # their noise judges
    assert compare([first], [*others, second]).stretches == (Stretch(5, 5, "b", 8.0, 5),)


def test_costs_within_two_percent_are_one_budget():
    first = [make_candidate(224, 20.0, identity="s"), make_candidate(361, 22.0)]
    second = [make_candidate(225, 19.0, "b", "s"), make_candidate(362, 21.0, "b")]
    assert budgets(first, second) == [225, 362]
    (stretch,) = compare(first, second).stretches
    assert (stretch.start, stretch.stop, stretch.leader) == (225, 362, "a")


def share_of_leads(gain: float, shared: float, draws: int = 1000) -> float:
    """How often shape a, better by ``gain`` σ, leads or trails b at a fixed budget: 6 candidates × 2 seeds each.

    A seed that is good on validation data may be so on test data: ``shared`` is that part of its deviation.
    """
    noise = random.Random(7)

    def shape(name: str, quality: float) -> list[Candidate]:
        made = []
        for cost in range(1, 7):
            common = [noise.gauss() for _ in range(2)]
            test, validation = (
                [quality + shared * value + (1 - shared**2) ** 0.5 * noise.gauss() for value in common]
                for _ in range(2)
            )
            candidate = make_candidate(cost, 0.0, name, str(cost), validation=sum(validation) / 2)
            made.append(replace(candidate, metrics={"psnr": tuple(test)}))
        return made

    leaders = [compare(shape("a", gain), shape("b", 0.0)).stretches[-1].leader for _ in range(draws)]
    return sum(leader is not None for leader in leaders) / draws


@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_equal_shapes_are_rarely_called_different_and_a_difference_of_five_sigma_is_found(shared):
    assert share_of_leads(0.0, shared) <= 0.08
    assert share_of_leads(5.0, shared, draws=200) >= 0.97


def test_a_dominated_large_candidate_still_shows_how_far_its_architecture_was_tried():
    first = [make_candidate(10, 20.0), make_candidate(50, 19.0)]
    second = [make_candidate(10, 18.0, "b"), make_candidate(50, 19.5, "b")]
    assert compare(first, second).stretches == (Stretch(10, 50, "a", 2.0, 10),)
    assert compare(front(first), second).alone == (Alone("b", 10, 50),)


def test_architectures_without_a_common_cost_are_not_compared():
    comparison = compare([make_candidate(1, 20.0)], [make_candidate(2, 21.0, "b")])
    assert comparison.stretches == ()
    assert comparison.alone == (Alone("a", 1, 1), Alone("b", 2, 2))
    with pytest.raises(UserError, match="no finished run"):
        compare([], [make_candidate(2, 21.0)])
