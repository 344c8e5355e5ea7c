"""A run is a pure function of its config: killed at any moment and started again, it ends with the same bits."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus.core.config import run_config
from isthmus.core.files import write_text
from isthmus.core.record import METRICS, read_metrics, read_record
from isthmus.training.journal import Journal, Overtaken
from isthmus.training.loop import Stopped
from isthmus.training.prepare import Options, prepare, starting_model
from isthmus.training.run import run
from tests.listeners import StopWhen, stop_after
from tests.training.bits import weights, without_time

SAVE_AT_THE_END = Options(save_every=1e9)

SETTINGS: dict[str, Any] = {
    "source": {"name": "digits"},
    "task": {"name": "denoise", "flips": True},
    "model": {"name": "hourglass_mlp", "d_z": 96, "d_h": 24, "depth": 2, "w_in": "gaussian"},
    "train": {"epochs": 3, "batch_size": 64, "average": 0.9, "clip_norm": 1.0},
    "threads": 1,
}

CHILD = """
import json, sys
from isthmus.core.config import run_config
from isthmus.training.prepare import Options
from isthmus.training.run import run
run(run_config(json.loads(sys.argv[1])), Options(save_every=0.0))
"""


def undisturbed(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    monkeypatch.setenv("ISTHMUS_HOME", str(home))
    run(run_config(settings))
    return prepare(run_config(settings)).folder


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"optimizer": "sgd", "nesterov": True, "learning_rate": 0.05},
        {"accumulate": 3, "average": None, "clip_norm": None},
        pytest.param({"select": "last", "schedule": "cosine", "warmup_epochs": 1}, marks=pytest.mark.slow),
    ],
    ids=["adamw", "sgd", "accumulate", "cosine"],
)
def test_a_stopped_run_goes_on_to_the_same_bits(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS | {"train": SETTINGS["train"] | change}
    whole = undisturbed(settings, monkeypatch, tmp_path / "whole")
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "parts"))
    config = run_config(settings)
    for steps in (1, 30, 50, 100):  # one after another, 181 of 225
        with pytest.raises(Stopped):
            run(config, SAVE_AT_THE_END, stop_after(steps))
    run(config)
    parts = prepare(config).folder
    assert weights(parts) == weights(whole)
    assert without_time(parts) == without_time(whole)
    assert read_record(parts).metrics == read_record(whole).metrics


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL at random moments, while states are written after every step."""
    import json

    whole = undisturbed(SETTINGS, monkeypatch, tmp_path / "whole")
    pause = read_record(whole).wall_seconds / len(read_metrics(whole))  # the time between two lines of the log
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "killed"))
    config = run_config(SETTINGS)
    folder = prepare(config).folder
    draw = random.Random(0)
    kills = 0
    while not (folder / "record.json").exists():
        child = subprocess.Popen([sys.executable, "-c", CHILD, json.dumps(SETTINGS)], env=os.environ.copy())
        before = len(read_metrics(folder))
        while child.poll() is None and len(read_metrics(folder)) == before and not (folder / "record.json").exists():
            time.sleep(0.002)
        time.sleep(draw.random() * pause)
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            kills += 1
        child.wait()
    assert kills >= 3
    assert weights(folder) == weights(whole)
    assert without_time(folder) == without_time(whole)


def test_threads_and_seed_name_another_run() -> None:
    ids = {prepare(run_config(SETTINGS | change)).id for change in ({}, {"seed": 1}, {"threads": 2})}
    assert len(ids) == 3


def test_a_finished_run_is_answered_from_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_config(SETTINGS)
    first = run(config)
    monkeypatch.setattr("isthmus.training.run._train", lambda *arguments: pytest.fail("trained again"))
    assert run(config) == first
    assert not list(prepare(config).folder.glob("state*")), "a finished run keeps no training state"


def test_other_code_does_not_go_on_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.core.errors import UserError

    config = run_config(SETTINGS)
    with pytest.raises(Stopped):
        run(config, SAVE_AT_THE_END, stop_after(5))
    monkeypatch.setattr("isthmus.training.prepare.code_version", lambda *modules: {"version": "0", "digest": "other"})
    with pytest.raises(UserError, match="begun by other code"):
        run(config)
    assert run(config, Options(other_code=True)).status == "finished"


def test_a_state_of_older_code_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which knew one sum of losses, and not one of every process."""
    save = Journal.save

    def older(journal: Journal, tensors: Any, values: Any) -> None:
        save(journal, tensors, {name: value for name, value in values.items() if name != "loss_sums"})

    monkeypatch.setattr(Journal, "save", older)
    config = run_config(SETTINGS)
    with pytest.raises(Stopped):
        run(config, SAVE_AT_THE_END, stop_after(5))
    assert run(config).status == "finished"


def test_every_line_of_the_log_is_sealed_also_after_a_stop() -> None:
    config = run_config(SETTINGS)
    with pytest.raises(Stopped):
        run(config, SAVE_AT_THE_END, stop_after(60))
    folder = prepare(config).folder
    before = read_metrics(folder, sealed=True)
    assert before == read_metrics(folder)
    run(config)
    (folder / "record.json").unlink()  # so that nothing but the lines themselves vouches for them
    assert read_metrics(folder, sealed=True)[: len(before)] == before
    assert len(read_metrics(folder, sealed=True)) == len(read_metrics(folder)) > len(before)


def test_a_run_that_another_process_has_taken_over_leaves_no_record() -> None:
    """As on a machine that was suspended, and lost the lock of a folder that it shares with others."""
    config, steps = run_config(SETTINGS), iter(range(10**9))
    folder = prepare(config).folder

    def take_over() -> bool:
        if next(steps) == 10:
            write_text(folder / METRICS, "")
        return False

    with pytest.raises(Overtaken):
        run(config, listener=StopWhen(take_over))
    assert not (folder / "record.json").exists()
    assert (folder / METRICS).read_text() == ""
    assert run(config).status == "finished"


def test_metrics_outlive_a_cut_last_line(tmp_path: Path) -> None:
    config = run_config(SETTINGS)
    with pytest.raises(Stopped):
        run(config, SAVE_AT_THE_END, stop_after(60))
    folder = prepare(config).folder
    with (folder / METRICS).open("a") as file:
        file.write('{"step": 61, "spl')
    assert run(config).status == "finished"
    assert all(line["step"] <= 10**6 for line in read_metrics(folder))


@pytest.mark.parametrize("change", [{"init": "orthogonal"}, {"w_in": "orthogonal"}])
def test_threads_outside_the_config_change_nothing(change: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A factorisation has other bits with other threads: what the process was given must not reach the weights."""
    settings = SETTINGS | {"model": SETTINGS["model"] | {"d_z": 300, "w_in": "trainable"} | change}
    drawn = set()
    for ambient in (1, 2):
        torch.set_num_threads(ambient)
        model, _ = starting_model(prepare(run_config(settings)).config, Options())
        drawn.add(hashlib.sha256(b"".join(t.numpy().tobytes() for t in everything(model))).hexdigest())
    assert len(drawn) == 1


def everything(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*(parameter.detach() for parameter in model.parameters()), *model.buffers()]


def test_a_run_that_starts_from_another_keeps_its_frozen_projection() -> None:
    """Trained weights mean nothing behind another random projection."""
    first = run(run_config(SETTINGS))
    still = SETTINGS["train"] | {"epochs": 1, "learning_rate": 1e-12, "select": "last", "average": None}
    second = run(run_config(SETTINGS | {"init": first.id, "seed": 1, "train": still}))
    assert second.metrics["test"]["psnr"] == pytest.approx(first.metrics["test"]["psnr"], abs=1e-4)
    assert "not_initialised_from_run" not in second.selected
    third = run(
        run_config(SETTINGS | {"init": first.id, "model": SETTINGS["model"] | {"w_in_seed": 5}, "train": still})
    )
    assert third.selected["not_initialised_from_run"] == ["W_in"]


def test_a_record_written_under_other_defaults_is_no_answer() -> None:
    from dataclasses import replace

    from isthmus.core.errors import UserError
    from isthmus.core.record import write_record

    config = run_config(SETTINGS)
    record = run(config)
    train = record.config["train"] | {"betas": [0.9, 0.5]}
    write_record(prepare(config).folder, replace(record, config=record.config | {"train": train}))
    with pytest.raises(UserError, match=r"another run.*train\.betas"):
        run(config)


@pytest.mark.slow
def test_two_runs_in_threads_of_one_process_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share torch's generator and its number of threads, so they take turns."""
    several = [SETTINGS | {"seed": seed} for seed in range(4)]
    alone = [weights(undisturbed(settings, monkeypatch, tmp_path / "alone")) for settings in several]
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "together"))
    together = [threading.Thread(target=run, args=(run_config(settings),)) for settings in several]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert [weights(prepare(run_config(settings)).folder) for settings in several] == alone
