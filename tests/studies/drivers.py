"""Small studies, and programs of their own that carry them out, to be killed and started again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from isthmus.core.config import study_config
from isthmus.core.files import home
from isthmus.core.record import MODEL, read_record, run_folders
from isthmus.studies.database import default_url
from isthmus.studies.executors import Ended, Event, ThisProcess
from isthmus.studies.plan import Plan
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.prepare import Options

BASE: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "train": {"epochs": 2}, "threads": 1}
SPACES = [
    {"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": [65, 80], "d_h": [4, 8]}},
    {"model": {"name": "conventional_mlp", "depth": 1}, "vary": {"d_z": [8, 16], "d_h": [32, 64]}},
]
SAMPLED: dict[str, dict[str, Any]] = {
    "grid": {"seeds": [0, 1]},
    "random": {"sampling": {"name": "random", "candidates": 5, "generation": 4}},
    "tpe": {
        "sampling": {"name": "tpe", "candidates": 6, "generation": 3},
        "pruning": {"rungs": [1], "keep": 0.4, "margin": 0.0, "across_architectures": True},
    },
    "model": {"sampling": {"name": "model", "candidates": 6, "generation": 2}, "pruning": {"rungs": [1]}},
}


def settings(**changes: Any) -> dict[str, Any]:
    return {"name": "small", "base": BASE, "spaces": SPACES} | changes


def opened(given: dict[str, Any], url: str | None = None, **options: Any) -> Study:
    """The study of these settings, in the home that the environment names."""
    plan = Plan.of(study_config(given), Options(**options))
    return Study(
        plan, Storage(url or default_url(home() / "studies" / plan.config.name), plan.config.name, plan.maximise)
    )


def result(study: Study) -> dict[str, Any]:
    """What must be the same, whoever carried the study out: its trials, and the bits of every model."""
    return {"trials": study.outcomes(), "models": models()}


def models() -> dict[str, str]:
    records = [read_record(folder) for folder in run_folders() if (folder / "record.json").exists()]
    return {record.id: record.files.get(MODEL, record.reason) for record in records}


DRIVER = """
import itertools, json, os, signal, sys
from isthmus.core.config import study_config
from isthmus.training.prepare import Options
from isthmus.studies import leases, study as studies
from isthmus.studies.executors import Ended, LocalWorkers, ThisProcess
from isthmus.studies.plan import Plan
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study

given = json.loads(sys.argv[1])
leases.LEASE = given["lease"] or leases.LEASE
asked, ended, draw = itertools.count(1), itertools.count(1), studies.draw


def draw_or_stop(*arguments, **more):
    if next(asked) == given["stops_at"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    return draw(*arguments, **more)


studies.draw = draw_or_stop
plan = Plan.of(study_config(given["settings"]), Options(command=given["name"]))
study = Study(plan, Storage(given["url"], plan.config.name, plan.maximise))
if given["cluster"]:
    from isthmus.studies.cluster import RayCluster
    executor = RayCluster(given["cluster"])
else:
    executor = LocalWorkers(given["workers"]) if given["workers"] > 1 else ThisProcess()


def tell(trial, run, event):
    if isinstance(event, Ended):
        print(json.dumps([event.id, event.how, event.reason]), flush=True)
        if given["waits"] and next(ended) == 1:
            sys.stdin.readline()


assert plan.preview  # what is slow the first time comes before the start
print(json.dumps(["ready", executor.slots, ""]), flush=True)
if given["waits"]:
    sys.stdin.readline()
study.carry_out(executor, tell)
"""


class Driver:
    """A process that carries a study out, alone or with others. It writes a line for every run that ended.

    With ``waits`` it needs a `go` to start, and another one after its first run.
    """

    def __init__(
        self,
        given: dict[str, Any],
        url: str,
        workers: int = 1,
        *,
        name: str = "",
        cluster: str = "",
        waits: bool = False,
        lease: float = 0.0,
        stops_at: int = 0,
    ) -> None:
        told = {
            "settings": given, "url": url, "workers": workers, "name": name, "cluster": cluster, "waits": waits,
            "lease": lease, "stops_at": stops_at,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", DRIVER, json.dumps(told)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ.copy(),
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def line(self) -> list[Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, f"the driver ended with {self.process.wait()}"
        return list(json.loads(text))

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def lines(self) -> list[list[Any]]:
        """Everything until its end, which must be a good one."""
        out, _ = self.process.communicate()
        assert self.process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Command:
    """A command of isthmus, started again whenever it was killed."""

    def __init__(self, words: list[str], log: Path) -> None:
        self.words, self.log = [sys.executable, "-m", "isthmus", *words], log
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


def progress() -> int:
    """Grows with every line that a run writes into its log."""
    return sum(path.stat().st_size for path in (home() / "runs").glob("*/metrics.jsonl"))


class RecordWatch:
    """Sees that no record is written twice."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[int, int]] = {}

    def look(self) -> None:
        for path in (home() / "runs").glob("*/record.json"):
            written = (path.stat().st_ino, path.stat().st_mtime_ns)
            assert self.records.setdefault(path.parent.name, written) == written, "a record was written twice"


def disturb(
    command: Command, kills: int, whole: int, look: Callable[[], None], look_after_kill: Callable[[], None]
) -> None:
    """Kill the driver or one of its workers, most often while runs are trained, and the driver also while it begins.

    ``whole`` is the progress of the undisturbed command. The kills are spread over it, so that a fast machine cannot
    finish the work before the last one.
    """
    draw, victims = random.Random(0), ["driver", "worker"] * (kills // 2)
    draw.shuffle(victims)
    share = whole / (kills + 5)  # a run that is killed writes no line for a while, and others do
    for number, victim in enumerate(victims):
        moment, goal = float("inf"), (number + draw.random()) * share
        if victim == "driver" and (number < 5 or draw.random() < 0.3):
            moment, goal = time.monotonic() + draw.uniform(1.0, 6.0), (number + 1) * share
        else:
            eventually(partial(_trains, command, progress()), 400)
        while time.monotonic() < moment and progress() < goal and command.is_running():
            look()
            time.sleep(0.01)
        assert command.is_running(), f"it ended after {number} kills: {command.said()}"
        if victim == "driver":
            command.kill()
            look_after_kill()
            command.start()
        else:
            os.kill(draw.choice(eventually(partial(workers_of, command.process.pid))), signal.SIGKILL)


def _trains(command: Command, before: int) -> bool:
    """By workers of its own, not by those that a killed driver left for a moment."""
    return bool(progress() != before and workers_of(command.process.pid)) or not command.is_running()


def workers_of(process: int) -> list[int]:
    """The processes on which a driver's runs are trained."""
    found = []
    for child in children_of(process):
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:  # it has just ended
            continue
        if b"spawn_main" in command:
            found.append(child)
    return found


def children_of(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def is_running(process: int) -> bool:
    """Not gone, and not a corpse that nobody has fetched yet."""
    return _state(process) not in ("", "Z")


def is_stopped(process: int) -> bool:
    return _state(process) == "T"


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def eventually(what: Callable[[], Any], seconds: float = 240.0) -> Any:
    """What becomes true, waited for, also where other work slows this one down."""
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, f"not within {seconds:.0f} s"
        time.sleep(0.02)
    return found


def carry_out(study: Study) -> list[str]:
    """The runs that were trained, in this process."""
    ended: list[str] = []

    def tell(trial: Any, run: Any, event: Event) -> None:
        if isinstance(event, Ended):
            ended.append(event.id)

    study.carry_out(ThisProcess(), tell)
    return ended


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.training.run._train", lambda *arguments: pytest.fail("trained again"))


def undisturbed(given: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What one process finds, in a home of its own."""
    with monkeypatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(folder))
        study = opened(given)
        study.carry_out(ThisProcess(), lambda trial, run, event: None)
        return result(study)
