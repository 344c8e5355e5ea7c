"""Commands that the studio started: each is a process of its own, which outlives the server and every browser.

A job is a folder of ISTHMUS_HOME/studio/jobs: ``job.json`` with the command, ``output`` and ``errors``. Its signals go
only to a process that it started: its id and its time of birth must be those that were written down.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.files import data_dir, make_folder, read_json, write_json

JOB = "job.json"
_LONGEST = 20_000
"""Characters of an output that are read."""
_LEAST = 10.0
"""Seconds that a paused job gets when it is resumed, even if less was left."""


_CHILDREN: dict[str, subprocess.Popen[bytes]] = {}
"""The processes that this one started, by job. They are kept, because Python warns of those that are forgotten."""


@dataclass(frozen=True)
class Job:
    """A command, as it was started the last time."""

    id: str
    words: tuple[str, ...]
    """The command line after ``isthmus``."""
    title: str
    pid: int
    born: str
    """When the process began, by the system's clock; with its id, this tells it from all others."""
    started: float
    seconds: float | None = None
    """The time that it may take."""
    left: float | None = None
    """What is left of that time if it was paused."""
    problem: str = ""
    """The key of the data and the task of its runs."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    asked_to_stop: bool = False
    """Whether it was paused, so that it saves its state and ends."""

    @property
    def ends(self) -> float | None:
        """When its time is over."""
        seconds = self.seconds if self.left is None else self.left
        return None if seconds is None else self.started + seconds

    @property
    def command(self) -> str:
        return shlex.join(["isthmus", *self.words])


class Jobs:
    """The jobs of a home."""

    def __init__(self, home: Path) -> None:
        self.home, self.root = home, home / "studio" / "jobs"
        self._known = dict[str, tuple[int, Job]]()

    def newest(self) -> list[Job]:
        """All jobs, the latest first."""
        jobs, names = [], []
        with suppress(OSError):
            names = [entry.name for entry in os.scandir(self.root)]
        for name in names:
            with suppress(UserError, OSError, TypeError, KeyError):
                jobs.append(self._read(name))
        return sorted(jobs, key=lambda job: -job.started)

    def _read(self, name: str) -> Job:
        path = self.root / name / JOB
        changed = path.stat().st_mtime_ns
        if self._known.get(name, (0,))[0] != changed:
            content = read_json(path)
            self._known[name] = changed, Job(**content | {"words": tuple(content["words"])})
        return self._known[name][1]

    def find(self, name: str) -> Job:
        job = next((job for job in self.newest() if job.id == name), None)
        if job is None:
            raise UserError(f"there is no job {name!r}")
        return job

    def start(
        self, words: Sequence[str], title: str, *, seconds: float | None = None, problem: str = "", **facts: Any
    ) -> Job:
        """Start a command of Isthmus in a session of its own."""
        job = Job(
            uuid.uuid4().hex[:12], tuple(words), title, 0, "", time.time(), seconds=seconds, problem=problem,
            facts=facts,
        )  # fmt: skip
        return self._launch(job)

    def resume(self, name: str) -> Job:
        """Start the same command again, which goes on where it stopped."""
        job = self.find(name)
        if self.is_running(job):
            raise UserError(f"{job.title} is running already")
        return self._launch(job if job.asked_to_stop else replace(job, left=None))

    def _launch(self, job: Job) -> Job:
        words = list(job.words)
        if job.left is not None:
            words = [f"--within={job.left:.0f}s" if word.startswith("--within=") else word for word in words]
        folder = make_folder(self.root / job.id)
        with (folder / "output").open("wb") as output, (folder / "errors").open("wb") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "isthmus", *words, "--json"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True, cwd=folder,
                env=self._environment(),
            )  # fmt: skip
        _CHILDREN[job.id] = child
        begun = asdict(job) | {"pid": child.pid, "born": _birth(child.pid), "started": time.time()}
        write_json(folder / JOB, begun | {"asked_to_stop": False})
        return self._read(job.id)

    def _environment(self) -> dict[str, str]:
        """The command works in another folder than this process, so that its folders have absolute paths."""
        ours = {"ISTHMUS_HOME": str(self.home.absolute()), "PYTHONPATH": _import_path()}
        if os.environ.get("ISTHMUS_DATA"):
            ours["ISTHMUS_DATA"] = str(data_dir().absolute())
        return {**os.environ, **ours, "NO_COLOR": "1", "COLUMNS": "120"}

    def is_running(self, job: Job) -> bool:
        child = _CHILDREN.get(job.id)
        if child is not None and child.pid == job.pid:
            return child.poll() is None
        return bool(job.born) and _birth(job.pid) == job.born

    def code(self, job: Job) -> int | None:
        """The exit code; None while it runs, and of a job whose server was ended."""
        child = _CHILDREN.get(job.id)
        return child.poll() if child is not None and child.pid == job.pid else None

    def stop(self, name: str) -> None:
        """Ask a job to save and end, as Ctrl-C does; the second time, end it and its workers at once.

        Only its first process is asked, which ends its workers. What it had saved by then is never lost.
        """
        job = self.find(name)
        if not self.is_running(job):
            raise UserError(f"{job.title} is not running")
        with suppress(ProcessLookupError):
            if job.asked_to_stop:
                os.killpg(job.pid, signal.SIGKILL)  # a job leads a session of its own
            else:
                os.kill(job.pid, signal.SIGINT)
        if not job.asked_to_stop:
            known = asdict(job) | {"asked_to_stop": True}
            if job.ends is not None:
                known["left"] = max(_LEAST, job.ends - time.time())
            write_json(self.root / job.id / JOB, known)

    def said(self, job: Job) -> list[str]:
        """The lines that it printed for a person."""
        return _tail(self.root / job.id / "errors")

    def result(self, job: Job) -> Any:
        """The JSON that it printed, if it has ended well."""
        with suppress(OSError, ValueError, RecursionError):
            return json.loads((self.root / job.id / "output").read_text(encoding="utf-8"))
        return None


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LONGEST))
            text = file.read(_LONGEST).decode("utf-8", "replace")
    except OSError:
        return []
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [line.rstrip() for line in plain.replace("\r", "\n").splitlines() if line.strip()]


def _import_path() -> str:
    """The command imports what this process imports, also if that is a checkout that is not installed."""
    root, given = Path(__file__).parents[2], os.environ.get("PYTHONPATH", "")
    parts = [part for part in given.split(os.pathsep) if part]
    is_found = root.name.endswith("-packages") or str(root) in parts
    return os.pathsep.join(parts if is_found else [str(root), *parts])


def _birth(pid: int) -> str:
    """When a process began, in clock ticks since the machine's start; empty if it has ended or cannot be told."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    words = text.rpartition(")")[2].split()  # the name of the program may contain spaces and brackets
    return "" if words[0] == "Z" else words[19]
