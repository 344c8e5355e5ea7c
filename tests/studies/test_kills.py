"""Twenty random SIGKILLs over a study of forty trials, and it ends as if there had been none."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import optuna
import pytest

from isthmus.core.files import home, write_json
from isthmus.studies.database import default_url
from isthmus.studies.executors import LocalWorkers
from isthmus.studies.storage import Storage
from tests.studies.drivers import (
    BASE,
    Command,
    RecordWatch,
    disturb,
    eventually,
    is_running,
    opened,
    progress,
    result,
    settings,
)

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


class TrialWatch(RecordWatch):
    """Sees that whatever is finished stays as it is: the records, and the trials in the database."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.storage = url, Storage(url, "killed", True)
        self.ended: dict[int, Any] = {}

    def look_at_trials(self) -> None:
        now = {trial.number: (trial.state, trial.quality, trial.key) for trial in self.storage.trials()}
        assert {number: now.get(number) for number in self.ended} == self.ended, "a finished trial was lost"
        self.ended = {number: entry for number, entry in now.items() if entry[0] != "open"}


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

    watch = TrialWatch(default_url(home() / "studies" / "killed"))
    write_json(tmp_path / "killed.json", given)
    command = Command(["study", str(tmp_path / "killed.json"), "--workers", "2"], tmp_path / "log")
    try:
        disturb(command, KILLS, whole, watch.look, watch.look_at_trials)
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
