"""What a search by model sees of its candidates, what it learns of their recipes, and how it is configured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from isthmus.core.config import study_config
from isthmus.studies import decisions
from isthmus.studies.decisions import describe_settings, to_columns
from isthmus.studies.estimate import Pace, estimate
from isthmus.studies.plan import Plan
from isthmus.studies.proposals import Trial
from isthmus.studies.surrogate import Observations, Surrogate
from isthmus.training.prepare import Options
from tests.studies.spaces import BASE, HOURGLASS

RECIPES: list[dict[str, Any]] = [
    {
        "model": {"name": "hourglass_mlp", "depth": 1, "d_z": 80},
        "vary": {
            "d_h": [4, 16], "w_in": ["trainable", "gaussian"], "train.batch_size": [32, 64, 128, 256],
            "train.warmup_epochs": [0.0, 0.5, 1.0], "train.learning_rate": [1e-3, 3e-3, 1e-2],
        },
    },
    {
        "model": {"name": "mlp_mixer", "patch": 4, "token_hidden": 8, "channel_hidden": 16, "depth": 2},
        "vary": {
            "C": [8, 12], "drop_path": [0.0, 0.1, 0.2], "train.batch_size": [32, 128],
            "train.learning_rate": [1e-3, 3e-3, 1e-2],
        },
    },
]  # fmt: skip
"""Numbers, kinds, and fields that only one architecture has."""


def plan(spaces: list[dict[str, Any]] = [HOURGLASS], **more: Any) -> Plan:  # noqa: B006
    settings = {"name": "recipes", "base": BASE, "spaces": spaces, "sampling": {"name": "model"}} | more
    return Plan.of(study_config(settings), Options())


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([0.0, 0.01, 0.1], [0, 0.5, 1]),
        ([0.1, 0, 0.001, 0.01], [1, 0, 1 / 3, 2 / 3]),
        ([0, 1], [0, 1]),
        ([1, 10, 100], [0, 0.5, 1]),
        ([-1.0, 0.0, 3.0], [0, 0.25, 1]),
        ([0.0, None, 0.1], [0, 0.5, 1]),
    ],
)
def test_numbers_keep_their_order_whatever_their_sign(values: list[Any], column: list[float]) -> None:
    found = to_columns([describe_settings({}, {"train.weight_decay": value}) for value in values])
    assert found[:, 0] == pytest.approx(column)
    assert found.shape[1] == 1


def test_ratios_of_sizes_are_features_and_equal_values_are_none() -> None:
    rows = [describe_settings({}, {"d_z": 4, "d_h": d_h, "depth": 2}) for d_h in (2, 4, 8)]
    found = to_columns(rows).T
    assert found == pytest.approx(np.array([[0, 0.5, 1], [1, 0.5, 0], [0, 0.5, 1]]))  # d_h, d_z / d_h and d_h / depth


@pytest.mark.parametrize("values", [[None, None], [0.0, 0.0], ["relu", "relu"]])
def test_what_all_have_in_common_is_no_feature(values: list[Any]) -> None:
    assert to_columns([{"field": value} for value in values]).shape == (2, 0)


def test_recipes_of_all_kinds_teach_the_surrogate() -> None:
    """Fitted to a quarter of the networks, it ranks the others by a quality that depends on their recipes alone."""
    pool = plan(RECIPES).pool
    assert len(pool.proposals) == 144 + 36
    qualities = np.array([_rate(proposal.varied) for proposal in pool.proposals])
    order = np.random.default_rng(0).permutation(len(qualities))
    seen, rest = np.split(order, [len(order) // 4])
    epochs = np.zeros(len(seen))
    surrogate = Surrogate(Observations(pool.features[seen], epochs, qualities[seen]))
    expected, deviation = surrogate.predict(pool.features[rest], np.zeros(len(rest)))
    assert np.corrcoef(expected, qualities[rest])[0, 1] > 0.9
    assert np.mean(np.abs(expected - qualities[rest]) < 3 * deviation) > 0.8


def _rate(varied: Mapping[str, Any]) -> float:
    """A number, a kind, a field that only one architecture has, and an interaction of two numbers."""
    rate = np.log(varied["train.learning_rate"] / 3e-3)
    quality = -((rate - 0.5 * np.log(varied["train.batch_size"] / 64)) ** 2) - 4 * varied.get("drop_path", 0.1)
    return float(quality - (varied.get("w_in") == "gaussian") + varied.get("train.warmup_epochs", 0.5))


def test_time_is_predicted_from_operations_and_steps() -> None:
    """A search by model compares candidates by the expected gain per operation, with a constant for every step."""
    vary = {"d_z": [65], "d_h": [8, 16], "depth": [1], "train.batch_size": [32, 64]}
    spaces = [{"model": {"name": "hourglass_mlp"}, "vary": vary}]
    pool = plan(spaces, sampling={"name": "model", "step_flops": 6.4e6}).pool
    work = dict(
        zip(((item.varied["d_h"], item.recipe["batch_size"]) for item in pool.proposals), pool.work, strict=True)
    )
    flops = {item.varied["d_h"]: item.cost["training_flops"] for item in pool.proposals}
    assert flops[8] < flops[16]
    assert work == {(d_h, size): flops[d_h] + 6.4e6 / size for d_h in (8, 16) for size in (32, 64)}


def test_of_equal_gains_the_search_takes_the_quick_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plan()
    monkeypatch.setattr(decisions, "_expect_gains", lambda pool, *_: np.ones(len(pool.proposals)))
    pool = whole.pool
    found = decisions.choose(pool, [], len(pool.starts))
    assert found is not None
    assert pool.places[found.proposal.key] == int(pool.work.argmin())


def test_the_costliest_candidate_may_gain() -> None:
    pool = plan().pool
    cheap, dear = (pool.proposals[place] for place in (int(pool.costs.argmin()), int(pool.costs.argmax())))
    known = Trial(0, 0, cheap.key, 0, {}, {}, {}, state="finished", quality=20.0)
    gains = decisions._expect_gains(pool, [known], 1, 1)
    assert gains[pool.places[dear.key]] > 0


@pytest.mark.parametrize("pool", [1, 3, 8])
@pytest.mark.parametrize("generation", [1, 2, 4, 8])
def test_a_search_uses_its_budget_whatever_the_generation_and_the_workers(pool: int, generation: int) -> None:
    """Candidates that paused continue when nothing else is possible. One of eight fails at its second rung."""
    vary = {"d_z": [65], "d_h": [4 * place for place in range(1, pool + 1)], "depth": [1]}
    spaces = [{"model": {"name": "hourglass_mlp"}, "vary": vary}]
    last = 9
    for whole_trainings in {pool, (pool + 1) // 2}:
        sampling = {"name": "model", "candidates": whole_trainings, "generation": generation}
        settings = {"sampling": sampling, "pruning": {"rungs": [1, 2, 4]}}
        whole = plan(spaces, base=BASE | {"train": {"epochs": last}}, **settings)
        (trials, made), (_, others) = (simulate(whole, workers) for workers in (1, 4))
        assert made == others
        left = decisions.count_left(whole.config, trials)
        paused = [max(trial.decisions.values()) for trial in trials if trial.state == "open"]
        assert left >= 0
        assert all(last - epoch > left for epoch in paused), "one that fits into the budget does not continue"
        assert left < last or len(trials) == pool, "one that fits into the budget is not started"
        if whole_trainings == pool:
            assert [trial.state for trial in trials].count("finished") == pool - (pool == 8)
            assert left == (last - 2 if pool == 8 else 0)
        else:
            assert any(trial.state == "finished" for trial in trials)


def simulate(whole: Plan, workers: int) -> tuple[list[Trial], list[tuple[int, str, int]]]:
    """What a search does whose trainings take random times. Results that are awaited may be known before."""
    pool, lag, last = whole.pool, whole.config.sampling.generation_size, whole.config.base.train.last_epoch
    draw = np.random.default_rng(workers)
    trials, now, free = list[Trial](), 0.0, [0.0] * workers
    ends: dict[int, tuple[float, Trial, int]] = {}
    made: list[tuple[int, str, int]] = []
    for number in itertools.count():
        now = max(now, ends[number - lag][0] if number - lag in ends else 0.0)
        for end, trial, epoch in ends.values():
            if end <= now:
                note_result(trial, epoch, pool.places[trial.key], last)
        found = decisions.choose(pool, trials, number, whole.maximise)
        if found is None and decisions.is_over(pool, trials, number):
            for _, trial, epoch in ends.values():
                note_result(trial, epoch, pool.places[trial.key], last)
            return trials, made
        if found is None:
            continue
        if found.trial is None:
            trials.append(Trial.of(found.proposal, len(trials)))
        trial = found.trial or trials[-1]
        assert all(ends[decision][0] <= now for decision in trial.decisions), "it is being trained"
        trial.decisions = {**trial.decisions, number: found.epoch}
        made.append((number, trial.key, found.epoch))
        worker = int(np.argmin(free))
        free[worker] = max(now, free[worker]) + float(draw.exponential())
        ends[number] = free[worker], trial, found.epoch
    raise AssertionError


def note_result(trial: Trial, epoch: int, place: int, last: int) -> None:
    quality = float(np.sin(place) + np.log(epoch))
    if trial.state != "open" or epoch in trial.rungs:
        return
    if place == 7 and epoch == 2:
        trial.state = "failed"
    elif epoch == last:
        trial.state, trial.quality = "finished", quality
    else:
        trial.rungs = {**trial.rungs, epoch: quality}


def test_the_estimate_counts_the_steps_of_each_recipe() -> None:
    """Half the batch takes twice the steps."""
    paces = {"hourglass_mlp": Pace(per_step=1.0, per_flop=0.0)}
    seconds = {}
    for size in (32, 64):
        vary = {"d_z": [65], "d_h": [8], "depth": [1], "train.batch_size": [size]}
        candidates = {"name": "model", "candidates": 1}
        whole = plan([{"model": {"name": "hourglass_mlp"}, "vary": vary}], sampling=candidates)
        seconds[size] = estimate(whole, paces, 1).seconds
    rows = len(whole.data.train)
    assert seconds == {size: 4 * -(-rows // size) for size in (32, 64)}


def test_the_model_decides_one_by_one_and_may_pause_unless_told_otherwise() -> None:
    whole = plan(base=BASE | {"train": {"epochs": 50, "evaluate_every": 5}})
    assert whole.config.sampling.generation_size == 1
    assert whole.config.stopping is not None
    assert whole.config.stopping.rungs == (5, 10, 20)
    assert whole.runs_at_once == 1
    assert plan(sampling={"name": "model", "generation": 4}, seeds=[0, 1]).runs_at_once == 8
    assert plan(pruning={"rungs": []}).config.stopping is None
    assert plan(base=BASE | {"train": {"epochs": 1}}).config.stopping is None, "nowhere to pause"
    other = plan(sampling={"name": "tpe"})
    assert (other.config.sampling.generation_size, other.config.stopping) == (8, None)
    pruned = plan(sampling={"name": "tpe"}, pruning={"rungs": [2]}).config
    assert pruned.stopping == pruned.pruning


@pytest.mark.parametrize("name", ["tpe", "model"])
@pytest.mark.parametrize("more", [{}, {"generation": 8}, {"generation": 1}, {"generation": 3}])
def test_a_config_survives_a_round_trip_and_stored_studies_keep_their_identity(name: str, more: dict[str, int]) -> None:
    one = plan(sampling={"name": name} | more)
    again = study_config(one.config.model_dump(mode="json", exclude_defaults=True))
    assert again == one.config
    size = more.get("generation", 1 if name == "model" else 8)
    stored = {"name": name} | ({} if size == 8 else {"generation": size})  # as written when 8 was every default
    assert one.identity["sampling"] == stored
    assert one.identity.get("pruning") == ({"rungs": [1, 2]} if name == "model" else None)
    unpaused = plan(sampling={"name": "model", "generation": 8}, pruning={"rungs": []}).identity
    assert {"sampling", "pruning"} & unpaused.keys() == {"sampling"}
    assert unpaused["sampling"] == {"name": "model"}
