"""`isthmus study shape` as it was at 4dad795, stopped after a given time.

It has no time limit, so it is interrupted, and its answer is the network that its command recommends of the runs that
ended. If none has ended by then, the best one so far is trained to its end, beyond the time, which is in its favour;
without a run, or if this run does not end in `GRACE`, the answer is the constant. The facts say how late it was.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

COMMIT = "4dad795"
GRACE = 600.0
"""Seconds beyond its time in which it may end the run in flight."""
_SAVING = 3.0
"""Seconds before the end at which it is interrupted; it gets `_STOPPING` to save and to end."""
_STOPPING = 20.0
_CHOOSE = """
import json
import sys
from pathlib import Path
import numpy as np
from isthmus.fronts import best, summarise
from isthmus.prediction import Predictor
from isthmus.record import read_metrics, read_record

home, test, out = map(Path, sys.argv[1:])
folders = [path.parent for path in home.glob("runs/*/config.json")]
records = {folder: read_record(folder) for folder in folders if (folder / "record.json").exists()}
finished = {record.id: record for record in records.values() if record.status == "finished"}
started = [folder for folder in folders if folder not in records]
if finished:
    run = max(best(summarise(finished.values())).run_ids, key=lambda run: finished[run].quality("validation"))
    with np.load(test) as rows:
        np.save(out, np.asarray(Predictor(home / "runs" / run).rows(rows["x"])))
    print(json.dumps({"runs": len(finished), "network": finished[run].config["model"]}))
elif started:
    def reached(folder):
        lines = [line for line in read_metrics(folder) if line["split"] == "validation"]
        return max((line.get("accuracy", line.get("r2", -1e9)) for line in lines), default=-1e9)
    print(json.dumps({"unfinished": str(max(started, key=reached) / "config.json")}))
else:
    print("{}")
"""
"""With the older package: predictions of its best network, or the run that is to be trained to its end, or nothing."""


def study_shape(folder: Path, task: str, budget: int, ends: float) -> tuple[np.ndarray, dict[str, Any]]:
    """Predictions of the rows in ``test.npz`` by a search on ``train.npz``, and facts about it."""
    root, old = Path(__file__).parent.parent, folder / "old"
    old.mkdir()
    archive = subprocess.run(["git", "archive", COMMIT, "isthmus"], cwd=root, check=True, capture_output=True)
    subprocess.run(["tar", "x", "-C", str(old)], input=archive.stdout, check=True)
    environment = os.environ | {"PYTHONPATH": str(old)}

    def call(*arguments: object, timeout: float | None = None) -> str:
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=old, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=timeout
        )
        return done.stdout.strip()

    command = [
        sys.executable, "-m", "isthmus.cli", "study", "shape", "--data", str(folder / "train.npz"), "--task", task,
        "--target", "y", "--budget", str(budget), "--workers", "2", f"base.source.test_path={folder / 'test.npz'}",
        f"base.source.kind={task}",
    ]  # fmt: skip
    ended = _run_until(command, old, environment, ends - _SAVING)
    choose = ("-c", _CHOOSE, folder / "home", folder / "test.npz", folder / "old.npy")
    found = json.loads(call(*choose))
    if "unfinished" in found:
        with suppress(subprocess.TimeoutExpired, subprocess.CalledProcessError):
            call("-m", "isthmus.cli", "train", found["unfinished"], timeout=max(1.0, ends + GRACE - time.monotonic()))
        found = {"trained beyond the time": True} | json.loads(call(*choose))
    if "network" in found:
        predicted = np.load(folder / "old.npy")
    else:
        found = {"runs": 0, "network": "constant"}
        predicted = _predict_constant(folder, task)
    late = round(max(0.0, time.monotonic() - ends), 1)
    return predicted, {"ended by itself": ended, **found, "seconds beyond the time": late}


def _run_until(command: list[str], folder: Path, environment: dict[str, str], ends: float) -> bool:
    """Run a command, interrupt it at the end of its time; returns whether it ended by itself and well."""
    study = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    with suppress(subprocess.TimeoutExpired):
        return study.wait(max(0.0, ends - time.monotonic())) == 0
    study.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        study.wait(_STOPPING)
    with suppress(ProcessLookupError):
        os.killpg(study.pid, signal.SIGKILL)  # also workers that it left behind
    study.wait()
    return False


def _predict_constant(folder: Path, task: str) -> np.ndarray:
    """The commonest class or the mean of the training rows, for every test row."""
    with np.load(folder / "train.npz") as train, np.load(folder / "test.npz") as test:
        y, rows = train["y"], len(test["x"])
    if task == "classification":
        return np.full(rows, np.bincount(y).argmax())
    return np.repeat(y.mean(axis=0, keepdims=True), rows, axis=0)
