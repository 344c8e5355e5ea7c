"""Runs, studies and answers of ISTHMUS_HOME, each read once and again when its file has changed.

Records are the only source, so a run is followed alike if this application, a terminal or another machine trains it.
A look at the home costs one ``stat`` of each folder and two of each unfinished run: no inotify, which does not see what
other machines write.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from isthmus.core.errors import UserError
from isthmus.core.files import digest, read_sealed
from isthmus.core.record import CONFIG, LOCK, METRICS, RECORD, RunRecord, read_open_config, read_record
from isthmus.core.titles import model_title
from isthmus.reports.sections import SPLITTING, name_problem
from isthmus.search.answer import ANSWER, Answer

_FRESH = 2.0
"""Seconds after a change of a folder during which another one may have the same time stamp."""
_RECENT = 3600.0
"""Unfinished runs that were written to within so many seconds are looked at every time, others now and then."""
_SELDOM = 20
_SILENCE = 60.0
"""Seconds without a new line after which a run counts as stopped, where locks cannot be seen."""
_LOCKS = Path("/proc/locks")
Content = TypeVar("Content")


class Log:
    """The lines of a log that grows. They are read when somebody asks for them, and then only what is new."""

    def __init__(self, path: Path) -> None:
        self.path, self.written = path, 0.0
        self._found = self._seen = (0, 0)  # inode and bytes
        self._lines = list[dict[str, Any]]()
        self._lock = threading.Lock()

    def look(self) -> bool:
        """Whether the file has changed since the last look."""
        try:
            facts = self.path.stat()
        except OSError:
            return False
        before, self._found, self.written = self._found, (facts.st_ino, facts.st_size), facts.st_mtime
        return before != self._found

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All lines up to the last look."""
        with self._lock:
            if self._seen != self._found:
                self._read(*self._found)
            return self._lines

    def _read(self, inode: int, size: int) -> None:
        place = self._seen[1] if self._seen[0] == inode and self._seen[1] <= size else 0
        if not place:  # a run that is resumed replaces its log
            self._lines = []
        try:
            with self.path.open("rb") as file:
                file.seek(place)
                text = file.read(size - place)
        except OSError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.splitlines():
            with suppress(ValueError, RecursionError):
                content = json.loads(line)
                if isinstance(content, dict) and {"step", "epoch", "split"} <= content.keys():
                    self._lines.append(content)
        self._seen = inode, place + len(whole)

    def last(self, split: str) -> dict[str, Any] | None:
        return next((line for line in reversed(self.lines) if line["split"] == split), None)


def problem_key(config: Mapping[str, Any]) -> str:
    """The same for all runs on the same data for the same task, whichever rows validate."""
    source = {name: value for name, value in config["source"].items() if name not in SPLITTING}
    return digest([source, config["task"]], 12)


@dataclass(eq=False)
class Run:
    """A run folder. Its record or its config is read when it is needed."""

    folder: Path
    has_ended: bool
    changed: float
    """When its record, its log or its config was last written."""
    readings: int = 0
    """Grows when its record or its config is to be read again."""
    has_hidden_leases: bool = False
    """Whether a study needs it whose leases cannot be read here, so that a process elsewhere may be training it."""
    id: str = field(init=False)
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.id, self.log = self.folder.name, Log(self.folder / METRICS)

    @cached_property
    def _content(self) -> tuple[RunRecord | None, Mapping[str, Any], str, str]:
        try:
            record = read_record(self.folder) if self.has_ended else None
            config = record.config if record else read_open_config(self.folder)
            _ = name_problem(config), model_title(config["model"])  # a config without such parts is damaged
            return record, config, problem_key(config), ""
        except (UserError, KeyError, TypeError, AttributeError, ValueError) as error:
            return None, {}, "", str(error) or type(error).__name__

    @property
    def record(self) -> RunRecord | None:
        return self._content[0]

    @property
    def config(self) -> Mapping[str, Any]:
        return self._content[1]

    @property
    def problem(self) -> str:
        """The key of its data and its task; empty if it is damaged."""
        return self._content[2]

    @property
    def damage(self) -> str:
        return self._content[3]

    @cached_property
    def words(self) -> str:
        """What it is found by, in lower case."""
        status = self.record.status if self.record else "damaged" if self.damage else "unfinished"
        about = f"{name_problem(self.config)} {model_title(self.config['model'])}" if self.config else ""
        return f"{self.id} {status} {about}".lower()

    @property
    def epochs(self) -> float:
        train = self.config.get("train", {})
        return float(train.get("stop_epoch") or train.get("epochs") or 0)

    def update(self) -> bool:
        """Look whether an unfinished run went on or ended."""
        has_news = self.log.look()
        self.changed = max(self.changed, self.log.written)
        with suppress(OSError):
            self.changed = (self.folder / RECORD).stat().st_mtime
            self.has_ended = has_news = True
        if has_news and (self.has_ended or self.damage):
            self.readings += 1
            for name in ("_content", "words"):
                self.__dict__.pop(name, None)
        return has_news


def find_holders(runs: Iterable[Run]) -> dict[str, int]:
    """The processes of this machine that hold the locks of unfinished runs, by run id."""
    with suppress(OSError):
        held = {}
        for line in _LOCKS.read_text().splitlines():
            words = line.split()  # 1: FLOCK ADVISORY WRITE 1234 fd:01:5678 0 EOF
            if len(words) > 5 and words[1] == "FLOCK":
                held[words[5].rpartition(":")[2]] = int(words[4])
        found = {}
        for run in runs:
            with suppress(OSError):
                if (holder := held.get(str((run.folder / LOCK).stat().st_ino))) is not None:
                    found[run.id] = holder
        return found
    return {}


@dataclass(frozen=True)
class Study:
    """A study as its summary describes it."""

    name: str
    content: Mapping[str, Any]
    changed: float

    @property
    def run_ids(self) -> list[str]:
        ended = [run for trial in self.content.get("trials", ()) for run in trial["runs"]]
        return list(dict.fromkeys([*ended, *self.content.get("needs", ())]))

    @property
    def states(self) -> list[str]:
        return [trial["state"] for trial in self.content.get("trials", ())]


class Files:
    """The contents of files by folder name, each read again when its modification time differs."""

    def __init__(self, root: Path, file: str, read: Callable[[Path, float], Any]) -> None:
        self.root, self.file, self.read = root, file, read
        self.contents = dict[str, Any]()
        self._times = dict[str, int]()

    def update(self) -> bool:
        times = {}
        with suppress(OSError), os.scandir(self.root) as entries:
            for entry in entries:
                with suppress(OSError):
                    times[entry.name] = Path(entry.path, self.file).stat().st_mtime_ns
        if times == self._times:
            return False
        for name in times.keys() - {name for name in times if times[name] == self._times.get(name)}:
            self.contents.pop(name, None)
            with suppress(UserError, KeyError, TypeError):
                self.contents[name] = self.read(self.root / name, times[name] / 1e9)
        for name in self.contents.keys() - times.keys():
            del self.contents[name]
        self._times = times
        return True


def _read_study(folder: Path, changed: float) -> Study:
    content = read_sealed(folder / "study.json")
    study = Study(folder.name, content, changed)
    _ = study.run_ids, study.states, content["config"]["name"]
    return study


def _read_answer(folder: Path, changed: float) -> tuple[Answer, float]:
    answer = Answer.read(folder)
    answer.sentences()  # an answer of another version may lack a part of them
    return answer, changed


class Index:
    """What a home holds. Its methods may be called by several threads."""

    def __init__(self, home: Path) -> None:
        self.home, self.runs = home, dict[str, Run]()
        self._studies = Files(home / "studies", "study.json", _read_study)
        self._answers = Files(home / "finds", ANSWER, _read_answer)
        self.version = 0
        """Grows with every change."""
        self.revision = 0
        """Grows with every change but a new line of an unfinished run."""
        self._lock = threading.Lock()
        self._listed, self._looks = 0, 0
        self.update()

    @property
    def studies(self) -> dict[str, Study]:
        return dict(self._studies.contents)

    @property
    def answers(self) -> list[tuple[Answer, float]]:
        """What searches found, and when, the latest first."""
        return sorted(self._answers.contents.values(), key=lambda pair: -pair[1])

    def update(self) -> bool:
        """Look what changed since the last time; returns whether anything did."""
        with self._lock:
            is_revised, has_news = self._list(), False
            now, self._looks = time.time(), self._looks + 1
            for run in [run for run in self.runs.values() if not run.has_ended]:
                if self._looks % _SELDOM == 0 or now - run.changed < _RECENT:
                    before = run.readings
                    has_news |= run.update()
                    is_revised |= run.readings > before
            is_revised |= self._studies.update()
            is_revised |= self._answers.update()
            has_news |= is_revised
            self.revision += is_revised
            self.version += has_news
            return has_news

    def _list(self) -> bool:
        """Find new and removed run folders."""
        root = self.home / "runs"
        try:
            listed = root.stat().st_mtime_ns
        except OSError:
            removed, self.runs = bool(self.runs), {}
            return removed
        if listed == self._listed and time.time() - listed / 1e9 > _FRESH:
            return False
        self._listed = listed
        with suppress(OSError), os.scandir(root) as entries:
            names = {entry.name for entry in entries if not entry.name.startswith(".")}
            added = [run for name in names - self.runs.keys() if (run := _find_run(root / name))]
            kept = {name: run for name, run in self.runs.items() if name in names}
            has_news = bool(added) or len(kept) < len(self.runs)
            self.runs = kept | {run.id: run for run in added}
            return has_news
        return False

    def newest(self) -> list[Run]:
        return _sort(self.runs.values())

    def open_runs(self) -> list[Run]:
        return _sort(run for run in self.runs.values() if not run.has_ended)

    def read_all(self) -> None:
        """Read every record, so that runs of the same data and task are known."""
        for run in list(self.runs.values()):
            _ = run.problem

    def of_problem(self, key: str) -> list[Run]:
        return _sort(run for run in self.runs.values() if run.problem == key)

    def find_workers(self, runs: Iterable[Run]) -> dict[str, str]:
        """Who trains each unfinished run now; runs that nobody trains, as far as is known here, are left out."""
        candidates = [run for run in runs if not run.has_ended]
        held, (leased, hidden), now = find_holders(candidates), self._read_leases(), time.time()
        found = {run.id: f"process {held[run.id]}" for run in candidates if run.id in held}
        for run in candidates:
            run.has_hidden_leases = run.id in hidden
            if run.id in leased:
                found.setdefault(run.id, leased[run.id])
            elif now - run.log.written < _SILENCE and run.id not in held and not _LOCKS.exists():
                found[run.id] = "a process"
        return found

    def _read_leases(self) -> tuple[dict[str, str], set[str]]:
        """Who holds a lease of a study in its SQLite file, also on other machines, by run id.

        Secondly the runs of studies whose leases cannot be read here.
        """
        found, hidden = dict[str, str](), set[str]()
        for study in self.studies.values():
            path = self.home / "studies" / study.name / "study.db"
            try:
                if time.time() - path.stat().st_mtime <= 4 * _SILENCE:
                    found |= {run: owner for run, owner in _read_owners(path).items() if run in self.runs}
            except (OSError, sqlite3.Error, ValueError):  # it is in another database, or another process is writing
                hidden.update(study.content.get("needs", ()))
        return found, hidden


def _read_owners(path: Path) -> dict[str, str]:
    """The processes that hold leases in a database, by run id."""
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=0.2)) as database:
        rows = database.execute("SELECT name, owner, expires FROM isthmus_leases WHERE owner != ''").fetchall()
    found = {}
    for lease, owner, expires in rows:
        host, _, rest = str(owner).partition(" ")
        if float(expires) > time.time():
            found[str(lease).rpartition("/")[2]] = f"process {rest.partition(' ')[0]} on {host}"
    return found


def _sort(runs: Iterable[Run]) -> list[Run]:
    """The newest first."""
    return sorted(runs, key=attrgetter("changed"), reverse=True)


def _find_run(folder: Path) -> Run | None:
    """The run in a folder, by its files only."""
    for name in (RECORD, CONFIG, METRICS):
        with suppress(OSError):
            run = Run(folder, name == RECORD, (folder / name).stat().st_mtime)
            if not run.has_ended:
                run.update()
            return run
    return None
