"""Twenty random SIGKILLs over a study of forty trials, and it ends as if there had been none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest

from isthmus.core.files import home, write_json
from isthmus.studies.database import default_url
from isthmus.studies.executors import LocalWorkers
from isthmus.studies.storage import Storage
from tests.studies.drivers import BASE, children_of, eventually, is_running, opened, result, settings, workers_of

KILLS, TRIALS = 20, 40
GIVEN = settings(
    name="killed",
    base=BASE | {"train": {"epochs": 9, "batch_size": 64}},
    spaces=[
        {
            "model": {"name": "hourglass_mlp"},
            "vary": {"d_z": {"low": 65, "high": 96}, "d_h": {"low": 4, "high": 24}, "depth": [1, 2]},
        },
        {"model": {"name": "conventional_mlp", "depth": 1}, "vary": {"d_z": {"low": 8, "high": 40}, "d_h": [64, 96]}},
    ],
    pruning={"rungs": [3], "keep": 0.6},
)
SAMPLING: dict[str, dict[str, Any]] = {
    "tpe": {"name": "tpe", "candidates": TRIALS, "generation": 8},
    "model": {"name": "model", "candidates": TRIALS // 2, "generation": 4},
}


class Watch:
    """Sees that whatever is finished stays as it is: the records, and the trials in the database."""

    def __init__(self, url: str) -> None:
        self.url, self.storage = url, Storage(url, "killed", True)
        self.records: dict[str, tuple[int, int]] = {}
        self.ended: dict[int, Any] = {}

    def look(self) -> None:
        for path in (home() / "runs").glob("*/record.json"):
            written = (path.stat().st_ino, path.stat().st_mtime_ns)
            assert self.records.setdefault(path.parent.name, written) == written, "a record was written twice"

    def look_at_trials(self) -> None:
        now = {trial.number: (trial.state, trial.quality, trial.key) for trial in self.storage.trials()}
        assert {number: now.get(number) for number in self.ended} == self.ended, "a finished trial was lost"
        self.ended = {number: entry for number, entry in now.items() if entry[0] != "open"}


def progress() -> int:
    """Grows with every line that a run writes into its log."""
    return sum(path.stat().st_size for path in (home() / "runs").glob("*/metrics.jsonl"))


class Command:
    """`isthmus study`, started again whenever it was killed."""

    def __init__(self, folder: Path, given: dict[str, Any]) -> None:
        write_json(folder / "killed.json", given)
        self.words = [sys.executable, "-m", "isthmus", "study", str(folder / "killed.json"), "--workers", "2"]
        self.log = folder / "log"
        self.orphans: set[int] = set()
        self.start()

    def start(self) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.words, env=os.environ.copy(), stdout=log, stderr=log)

    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.orphans |= set(children_of(self.process.pid))
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def said(self) -> str:
        return self.log.read_text()[-2000:]


def disturb(command: Command, draw: random.Random, watch: Watch, whole: int) -> None:
    """Kill the driver or one of its workers, most often while runs are trained, and the driver also while it begins.

    ``whole`` is the progress of the undisturbed study. The kills are spread over it, so that a fast machine cannot
    finish the study before the last one.
    """
    victims = ["driver", "worker"] * (KILLS // 2)
    draw.shuffle(victims)
    share = whole / (KILLS + 2)
    for number, victim in enumerate(victims):
        moment, goal = float("inf"), (number + draw.random()) * share
        if victim == "driver" and (number < 5 or draw.random() < 0.3):
            moment, goal = time.monotonic() + draw.uniform(1.0, 6.0), (number + 1) * share
        else:
            eventually(partial(_trains, command, progress()), 400)
        while time.monotonic() < moment and progress() < goal and command.is_running():
            watch.look()
            time.sleep(0.01)
        assert command.is_running(), f"it ended after {number} kills: {command.said()}"
        if victim == "driver":
            command.kill()
            watch.look_at_trials()
            command.start()
        else:
            os.kill(draw.choice(eventually(partial(workers_of, command.process.pid))), signal.SIGKILL)


def _trains(command: Command, before: int) -> bool:
    """By workers of its own, not by those that a killed driver left for a moment."""
    return bool(progress() != before and workers_of(command.process.pid)) or not command.is_running()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sampler", ["tpe", "model"])
def test_twenty_kills_change_nothing(sampler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = GIVEN | {"sampling": SAMPLING[sampler]}
    with monkeypatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(tmp_path / "undisturbed"))
        study = opened(given)
        study.carry_out(LocalWorkers(2), lambda trial, run, event: None)
        expected, whole = result(study), progress()
    assert {trial["state"] for trial in expected["trials"]} == {"finished", "pruned"}

    watch = Watch(default_url(home() / "studies" / "killed"))
    command = Command(tmp_path, given)
    try:
        disturb(command, random.Random(0), watch, whole)
        while command.is_running():
            watch.look()
            time.sleep(0.05)
    finally:
        command.kill()
    assert command.process.returncode == 0, command.said()
    watch.look()
    watch.look_at_trials()
    eventually(lambda: not any(map(is_running, command.orphans)))

    trials = optuna.load_study(study_name="killed", storage=watch.url).trials
    assert len(trials) == len({trial.user_attrs["key"] for trial in trials}) == len(expected["trials"])
    study = opened(given)
    assert study.is_complete
    found = result(study)
    assert found["models"].keys() == watch.records.keys()
    assert found == expected
