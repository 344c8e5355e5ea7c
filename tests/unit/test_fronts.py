"""Candidates, fronts and comparisons, against their definitions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import UserError
from isthmus.fronts import Alone, Candidate, Stretch, compare, front, summarise
from isthmus.record import RunRecord


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


def make_candidate(
    cost: int, quality: float, architecture: str = "a", identity: str = "0", spread: float = 0.0
) -> Candidate:
    return Candidate(
        source="digits",
        task="denoise",
        architecture=architecture,
        settings={},
        learning_rate=1e-3,
        objective="psnr",
        maximise=True,
        params=cost,
        trainable_params=cost,
        macs=cost,
        seeds=(0, 1),
        run_ids=(identity,),
        metrics={"psnr": (quality - spread, quality + spread)},
        validation=quality,
        wall_seconds=1.0,
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


points = st.lists(
    st.builds(
        make_candidate,
        cost=st.integers(1, 12),
        quality=st.integers(0, 12).map(float),
        architecture=st.sampled_from("ab"),
        identity=st.uuids().map(str),
        spread=st.sampled_from((0.0, 0.5, 2.0)),
    ),
    max_size=14,
)


def dominates(one: Candidate, other: Candidate, maximise: bool = True) -> bool:
    gain = (one.mean - other.mean) * (1 if maximise else -1)
    return one.params <= other.params and gain >= 0 and (one.params < other.params or gain > 0)


def identities(candidates):
    return [candidate.run_ids for candidate in candidates]


@given(points, st.booleans())
def test_front_is_what_no_other_of_its_architecture_dominates(candidates, maximise):
    expected = {
        candidate.run_ids
        for candidate in candidates
        if not any(
            dominates(other, candidate, maximise)
            for other in candidates
            if other.architecture == candidate.architecture
        )
    }
    members = front(candidates, maximise=maximise)
    assert set(identities(members)) == expected
    assert [member.params for member in members] == sorted(member.params for member in members)


@given(points, st.data())
def test_front_ignores_dominated_points_and_order(candidates, data):
    members = front(candidates)
    assert identities(front(data.draw(st.permutations(candidates)))) == identities(members)
    if members:
        model = data.draw(st.sampled_from(members))
        worse = make_candidate(model.params + 1, model.mean - 1, model.architecture, "worse")
        assert identities(front([*candidates, worse])) == identities(members)


def test_front_over_another_metric_and_cost():
    one = replace(make_candidate(1, 1.0), macs=9, metrics={"psnr": (1.0,), "loss": (0.1,)})
    two = replace(make_candidate(2, 2.0), macs=3, metrics={"psnr": (2.0,), "loss": (0.3,)})
    assert front([one, two]) == [one, two]
    assert front([one, two], cost="macs") == [two]
    assert front([one, two], metric="loss", maximise=False) == [one]


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
    for budget in range(low, high + 1):
        best = [max(item.mean for item in items if item.params <= budget) for items in (first, second)]
        stretch = [item for item in comparison.stretches if item.start <= budget][-1]
        assert abs(best[0] - best[1]) <= stretch.lead
        if stretch.leader:
            assert (best[0] > best[1]) == (stretch.leader == "a")
    leaders = [stretch.leader for stretch in comparison.stretches]
    assert all(one != other for one, other in pairwise(leaders))
    mirrored = compare(second, first)
    assert mirrored.stretches == comparison.stretches


def test_comparison_names_leads_noise_and_ranges_that_only_one_has():
    first = [make_candidate(10, 20.0), make_candidate(30, 24.0, spread=0.125), make_candidate(60, 25.0)]
    second = [
        make_candidate(20, 23.0, "b"),
        make_candidate(40, 24.125, "b", spread=0.125),
        make_candidate(50, 26.0, "b"),
    ]
    comparison = compare(first, second)
    assert comparison.stretches == (
        Stretch(20, 30, "b", 3.0, 20),
        Stretch(30, 40, "a", 1.0, 30),
        Stretch(40, 50, None, 0.125, 40),
        Stretch(50, 50, "b", 2.0, 50),
    )
    assert comparison.alone == (Alone("a", 10, 20), Alone("a", 50, 60))
    assert comparison.spread_known


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
