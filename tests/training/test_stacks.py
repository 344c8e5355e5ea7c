"""A run of a stack has the same bits at every place and with any neighbours, and also if it is stopped or killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import isthmus
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.protocols import Batch, Data, Split
from isthmus.core.record import read_record
from isthmus.core.registry import component, find
from isthmus.core.train_config import TrainConfig
from isthmus.training.devices import OneDevice
from isthmus.training.listener import Listener
from isthmus.training.loop import NoJournal, Outcome, Rows, Stopped, Training
from isthmus.training.prepare import Options, Prepared, prepare
from isthmus.training.run import run, run_together
from isthmus.training.stacks import Member, train_together
from tests.listeners import stop_after
from tests.training.bits import weights, without_time

CPU = torch.device("cpu")
DRAW = np.random.default_rng(0)
FEATURES = DRAW.normal(size=(300, 10)).astype(np.float32)
VALUES = (np.sin(FEATURES[:, :1]) + FEATURES[:, 1:2] * FEATURES[:, 2:3]).astype(np.float32)
SHAPE = {"d_z": 32, "d_h": 8, "depth": 1}


class Log(NoJournal):
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def log(self, line: Any) -> None:
        self.lines.append({name: value for name, value in line.items() if name != "seconds"})


def make_training(
    seed: int = 0,
    shape: dict[str, Any] | None = None,
    rows: int = 200,
    task: str = "regression",
    double: bool = False,
    model: nn.Module | None = None,
    **settings: Any,
) -> Training:
    config = TrainConfig.model_validate({"epochs": 2, "batch_size": 64, "learning_rate": 1e-2} | settings)
    labels = np.digitize(VALUES[:, 0], [-0.5, 0.5]).astype(np.int64)
    targets, outputs = (VALUES, 1) if task == "regression" else (labels, 3)
    train, held_out = Split(FEATURES[:rows], targets[:rows]), Split(FEATURES[240:], targets[240:])
    learned: Any = find("tasks", task)(component("tasks", {"name": task}))
    learned.learn(Data(train, held_out, held_out, "f" * 64, ("a", "b", "c") if task == "classification" else ()))
    if double:
        make = learned.evaluation_batch
        learned.evaluation_batch = lambda *given: Batch(*(part.double() for part in make(*given)))
    torch.manual_seed(seed)
    fields: dict[str, Any] = {"d_in": 10, "d_out": outputs, "allow_any_shape": True} | (shape or SHAPE)
    model = model or isthmus.create_model("hourglass_mlp", **fields)
    model = model.double() if double else model
    return Training(model, learned, Rows.of(train, CPU), Rows.of(held_out, CPU), config, seed, OneDevice(config))


def train_stack(trainings: Sequence[Training]) -> list[tuple[Outcome, list[dict[str, Any]]]]:
    """Train them together; returns for each its outcome and its log."""
    members, ends = [Member(training, Log(), Listener()) for training in trainings], dict[int, Any]()
    train_together(members, lambda member, outcome: ends.update({id(member): outcome}))
    for ended in ends.values():
        if isinstance(ended, Exception):
            raise ended
    return [(ends[id(member)], member.journal.lines) for member in members]  # type: ignore[attr-defined]


def are_equal(one: Outcome, other: Outcome) -> bool:
    return one.step == other.step and all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)


@pytest.mark.parametrize(
    "settings",
    [
        {"weight_decay": 0.1},
        {"optimizer": "adam", "weight_decay": 0.1, "batch_size": 4096, "epochs": 20, "schedule": "cosine"},
        {"decayed": "matrices", "weight_decay": 1.0, "select": "last", "warmup_epochs": 1, "betas": (0.8, 0.95)},
    ],
    ids=["adamw", "one batch", "matrices"],
)
def test_a_stack_computes_what_runs_alone_compute(settings: dict[str, Any]) -> None:
    shape = SHAPE | {"w_in": "gaussian", "w_in_seed": 1} if settings.get("decayed") else SHAPE
    members: list[dict[str, Any]] = [
        {"seed": 0},
        {"seed": 1, "learning_rate": 3e-3},
        {"seed": 2, "rows": 199, "epochs": 3},
    ]
    alone, logs = [], []
    for each in members:
        log = Log()
        alone.append(make_training(**{"shape": shape, "double": True} | settings | each).run(log, Listener()))
        logs.append(log.lines)
    together = train_stack(
        [make_training(**{"shape": shape, "double": True, "stack": 4} | settings | each) for each in members]
    )
    for expected, lines, (found, written) in zip(alone, logs, together, strict=True):
        assert found.step == expected.step
        for name, weight in expected.weights.items():
            assert (found.weights[name] - weight).abs().max() < 1e-10
        assert [line["loss"] for line in written] == pytest.approx([line["loss"] for line in lines], abs=1e-6)
        assert [sorted(line) for line in written] == [sorted(line) for line in lines]


def need_same_bits(settings: dict[str, Any], size: int) -> None:
    """One run, alone in its stack and at every place among others."""
    own = settings | {"stack": size}
    ((expected, lines),) = train_stack([make_training(**own)])
    others = [own | {"seed": 9 + place, "learning_rate": 10.0 ** -(place % 4)} for place in range(size - 1)]
    for place in range(size):
        members = [*others[:place], own, *others[place:]]
        found, log = train_stack([make_training(**each) for each in members])[place]
        assert are_equal(found, expected), f"place {place}"
        assert log == lines, f"place {place}"


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"shape": SHAPE}, 4),
        ({"shape": {"d_z": 7, "d_h": 3, "depth": 2, "activation": "silu"}, "batch_size": 33}, 3),
        ({"shape": {"d_z": 21, "d_h": 40, "depth": 1, "norm": "rms"}, "task": "classification"}, 3),
        ({"shape": {"d_z": 2, "d_h": 1, "depth": 0}, "batch_size": 4096, "rows": 177, "epochs": 5}, 5),
    ],
    ids=["aligned", "odd", "classes", "linear"],
)
def test_neither_its_place_nor_its_neighbours_change_a_run(settings: dict[str, Any], size: int) -> None:
    """Products of matrices at other offsets have other bits, and so have the last elements of a tensor."""
    need_same_bits(settings, size)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(60))
def test_no_shape_depends_on_its_place(number: int) -> None:
    draw = random.Random(number)
    shape = {
        "d_z": draw.randint(1, 70), "d_h": draw.randint(1, 70), "depth": draw.randint(0, 3),
        "norm": draw.choice(["none", "layer", "rms"]), "activation": draw.choice(["gelu", "relu", "silu"]),
        "init": draw.choice(["zero_w2", "pytorch"]), "w_in": draw.choice(["trainable", "gaussian"]), "w_in_seed": 3,
    }  # fmt: skip
    rows, batch, task = (
        draw.randint(150, 240),
        draw.choice([5, 32, 33, 100, 4096]),
        draw.choice(["regression", "classification"]),
    )
    need_same_bits({"shape": shape, "rows": rows, "batch_size": batch, "task": task}, draw.choice([2, 3, 4, 5, 8]))


class Random(nn.Module):
    """A network that draws, or whose state changes while it trains."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.map, self.own = nn.Linear(10, 1), nn.Dropout(0.5) if kind == "dropout" else nn.BatchNorm1d(10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.map(self.own(x))


@pytest.mark.parametrize("kind", ["dropout", "statistics"])
def test_a_network_that_draws_or_counts_is_refused_in_one_line(kind: str) -> None:
    with pytest.raises(UserError, match=r"train\.stack=2: Random cannot be stacked: .*leave train\.stack out") as told:
        train_stack([make_training(model=Random(kind), stack=2)])
    assert "\n" not in str(told.value)


# Runs

SETTINGS: dict[str, Any] = {
    "source": {"name": "bikes", "folds": 5},
    "task": {"name": "regression"},
    "model": {"name": "hourglass_mlp", **SHAPE},
    "train": {"epochs": 6, "batch_size": 128, "stack": 4},
    "threads": 1,
}


def make_runs(number: int = 3, **train: Any) -> list[Prepared]:
    """Runs that differ in seed, learning rate and fold."""
    return [
        prepare(
            run_config(
                SETTINGS
                | {"seed": place, "source": SETTINGS["source"] | {"fold": place % 5}}
                | {"train": SETTINGS["train"] | {"learning_rate": 10 ** -(2 + place % 2)} | train}
            )
        )
        for place in range(number)
    ]


def results(runs: Sequence[Prepared]) -> list[Any]:
    return [(weights(run.folder), without_time(run.folder), read_record(run.folder).metrics) for run in runs]


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each run gives alone in its stack, in a home of its own."""
    with monkeypatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(tmp_path / "alone"))
        runs = make_runs()
        for each in runs:
            run(each)
        return results(runs)


def test_every_member_has_a_record_of_its_own(expected: list[Any]) -> None:
    runs = make_runs()
    assert len({each.stack_key for each in runs}) == 1
    assert run_together(runs, Options(), [Listener()] * 3) == [None] * 3
    assert results(runs) == expected
    records = [read_record(each.folder) for each in runs]
    assert [record.id for record in records] == [each.id for each in runs]
    assert [record.config["seed"] for record in records] == [0, 1, 2]
    assert not [path for each in runs for path in each.folder.glob("state*")]
    assert run_together(runs, Options(), [Listener()] * 3) == [None] * 3, "nothing is left to do"


def test_a_stack_goes_on_with_some_of_its_members(expected: list[Any]) -> None:
    """Each stopped elsewhere, then resumed with others."""
    runs, never = make_runs(), Options(save_every=1e9)
    stopped = run_together(runs, never, [stop_after(5), stop_after(11), stop_after(3)])
    assert [type(each) for each in stopped] == [Stopped] * 3
    assert run_together(runs[1:], never, [stop_after(4), Listener()])[1] is None
    assert not runs[1].has_ended
    assert run_together(runs[::-1], never, [Listener()] * 3) == [None] * 3
    assert results(runs) == expected


def test_a_member_that_diverges_leaves_the_others_alone(expected: list[Any]) -> None:
    runs = make_runs()
    wild = prepare(
        run_config(
            runs[0].config.model_dump()
            | {"train": {**SETTINGS["train"], "learning_rate": 1e3, "weight_decay": 10.0}, "seed": 7}
        )
    )
    assert run_together([runs[0], wild, *runs[1:]], Options(), [Listener()] * 4) == [None] * 4
    assert read_record(wild.folder).status == "failed"
    assert "not finite" in read_record(wild.folder).reason
    assert results(runs) == expected


def test_a_run_that_is_in_use_is_left_to_its_owner(expected: list[Any]) -> None:
    from isthmus.training.run import InUse, _lock

    runs = make_runs()
    runs[1].folder.mkdir(parents=True)
    with _lock(runs[1].folder):
        errors = run_together(runs, Options(), [Listener()] * 3)
    assert [type(error) for error in errors] == [type(None), InUse, type(None)]
    assert results(runs[::2]) == expected[::2]


def test_the_settings_of_a_run_without_a_stack_are_written_as_before() -> None:
    alone = run_config(SETTINGS | {"train": {"epochs": 6}})
    assert "stack" not in alone.model_dump()["train"]
    assert alone.run_id("f") != run_config(SETTINGS | {"train": {"epochs": 6, "stack": 8}}).run_id("f")
    assert prepare(alone).stack_key is None


def test_only_runs_of_one_shape_have_one_key() -> None:
    base = make_runs(1)[0]
    changes: list[dict[str, Any]] = [{"stack": 8}, {"betas": (0.9, 0.99)}, {"batch_size": 64}]
    others = [{"train": SETTINGS["train"] | change} for change in changes]
    for change in [*others, {"model": SETTINGS["model"] | {"d_h": 4}}]:
        assert prepare(run_config(SETTINGS | change)).stack_key != base.stack_key
    longer = SETTINGS["train"] | {"epochs": 9, "weight_decay": 0.1, "schedule": "cosine", "learning_rate": 0.1}
    assert prepare(run_config(SETTINGS | {"train": longer, "seed": 5})).stack_key == base.stack_key


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"train": {"stack": 4, "clip_norm": 1.0}}, "stack=4 does not work with clip_norm=1.0; leave stack out"),
        ({"train": {"stack": 4, "optimizer": "sgd"}}, "stack=4 does not work with optimizer=sgd"),
        ({"threads": 2}, "train.stack=4 needs threads=1, not threads=2"),
        ({"source": {"name": "digits"}, "task": {"name": "denoise"}}, "train.stack=4 needs batches that draw nothing"),
    ],
)
def test_what_cannot_be_stacked_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        run(run_config(SETTINGS | change))


CHILD = """
import json, sys
from isthmus.core.config import run_config
from isthmus.training.listener import Listener
from isthmus.training.prepare import Options, prepare
from isthmus.training.run import run_together
runs = [prepare(run_config(settings)) for settings in json.loads(sys.argv[1])]
run_together(runs, Options(save_every=0.0), [Listener()] * len(runs))
"""


@pytest.mark.slow
def test_a_killed_stack_goes_on_to_the_same_bits(expected: list[Any]) -> None:
    """SIGKILL at random moments, while states are written after every step, of one member after the other."""
    runs, draw, kills = make_runs(), random.Random(0), 0

    def progress() -> int:
        return sum(path.stat().st_size for each in runs for path in each.folder.glob("metrics.jsonl"))

    while not all(each.has_ended for each in runs):
        settings = json.dumps([each.config.model_dump(mode="json") for each in runs if not each.has_ended])
        child = subprocess.Popen([sys.executable, "-c", CHILD, settings], env=os.environ.copy())
        before = progress()
        while child.poll() is None and progress() <= before:
            time.sleep(0.002)
        time.sleep(draw.random() * 0.05)
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            kills += 1
        child.wait()
    assert kills >= 3
    assert results(runs) == expected
