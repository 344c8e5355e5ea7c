"""The run record, the isthmus of the library: what is before it is expensive and writes it, what is after it reads.

A run folder holds

    config.json          the complete config that re-creates the run
    metrics.jsonl        one JSON object per line: training loss, and metrics of every validation; with checksums
    task.safetensors     what the task learned from the training rows (scaling, class targets)
    model.safetensors    the selected weights
    samples.png          input, output and target of a few test rows, where they are images
    record.json          written last: a folder without it is an unfinished run
    state.safetensors, state.json     only while the run is unfinished: where to go on
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from isthmus.errors import UserError
from isthmus.files import home, read_sealed, sha256, write_sealed

SCHEMA = "isthmus.run/1"
RECORD = "record.json"
CONFIG = "config.json"
METRICS = "metrics.jsonl"
MODEL = "model.safetensors"
TASK = "task.safetensors"
SAMPLES = "samples.png"
_EXPORT = "export.json"  # what an export has instead of a record: see exported.py, which must not be imported here


@dataclass(frozen=True)
class RunRecord:
    """One finished run, as plain JSON. ``metrics`` maps splits to metrics, ``files`` maps names to their SHA-256."""

    id: str
    status: str  # "finished", or "failed" with the reason
    config: dict[str, Any]
    seed: int
    fingerprint: str
    objective: str
    maximise: bool
    code: dict[str, str]
    machine: dict[str, Any]
    versions: dict[str, str]
    data: dict[str, Any] = field(default_factory=dict)  # rows of each split, and the names of classes and columns
    cost: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    selected: dict[str, Any] = field(default_factory=dict)  # step and epoch whose weights were kept, and why
    steps: int = 0
    wall_seconds: float = 0.0
    samples_per_second: float = 0.0
    started: str = ""
    finished: str = ""
    reason: str = ""
    command: str = ""
    files: dict[str, str] = field(default_factory=dict)
    schema: str = SCHEMA

    @property
    def task(self) -> str:
        return str(self.config["task"]["name"])

    def quality(self, split: str = "test") -> float | None:
        """The task's objective on a split, or None where the run failed before it was measured."""
        return self.metrics.get(split, {}).get(self.objective)


def write_record(folder: Path, record: RunRecord) -> None:
    write_sealed(folder / RECORD, asdict(record))


def read_record(folder: Path) -> RunRecord:
    """The record of a finished run. A record that was altered or cut short is named, never used."""
    path = folder / RECORD
    if not path.exists() and (folder / _EXPORT).is_file():
        run = read_sealed(folder / _EXPORT).get("run")
        raise UserError(f"{folder} is an export and no run; give the run that it was made of, {run}")
    if not path.exists() and (folder / CONFIG).exists():
        raise UserError(f"the run in {folder} has not finished; `isthmus train {folder / CONFIG}` goes on with it")
    content = read_sealed(path)
    if content.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {content.get('schema')!r}; this version reads {SCHEMA!r}")
    known = {item.name for item in fields(RunRecord)}
    return RunRecord(**{name: value for name, value in content.items() if name in known})


def verify_file(folder: Path, name: str, record: RunRecord) -> Path:
    """The path of a file of a finished run, after comparing it with the record's checksum."""
    path = folder / name
    if name not in record.files:
        raise UserError(f"run {record.id} has no file {name}")
    if not path.is_file():
        raise UserError(f"{path} is missing; `isthmus runs clean {record.id}` and train the run again to restore it")
    if sha256(path) != record.files[name]:
        raise UserError(f"{path} is damaged or was altered: its checksum is not the one in {RECORD}")
    return path


class LogChecks:
    """Checksums for the lines of a run's log, each over all lines so far: one changed, lost or moved is noticed."""

    def __init__(self, run: str) -> None:
        self._hash = hashlib.sha256(run.encode())

    def add(self, line: Mapping[str, Any]) -> str:
        self._hash.update(json.dumps(line).encode() + b"\n")
        return self._hash.hexdigest()[:16]


@dataclass(frozen=True)
class LogLine:
    text: str
    content: dict[str, Any]
    """Without the checksum."""
    is_sealed: bool
    """Whether a checksum covers it, its own or that of a later line; logs of older versions have none."""


def read_log(folder: Path, run: str = "") -> list[LogLine]:
    """The lines of ``metrics.jsonl``. A last line that a kill cut short is left out; other damage is an error.

    ``run`` is the id of the run, where the folder may have another name.
    """
    path = folder / METRICS
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    complete = text[: text.rfind("\n") + 1]
    checks, lines, sealed = LogChecks(run or folder.name), [], 0
    for number, line in enumerate(complete.splitlines(), start=1):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or "step" not in content:
            raise UserError(f"{path} is damaged at line {number}")
        check, expected = content.pop("check", None), checks.add(content)
        if check not in (None, expected):
            raise UserError(f"{path} is damaged at or before line {number}: its checksum does not match")
        sealed = sealed if check is None else number
        lines.append((line, content))
    return [LogLine(line, content, place < sealed) for place, (line, content) in enumerate(lines)]


def read_metrics(folder: Path, *, sealed: bool = False) -> list[dict[str, Any]]:
    """What a run logged, compared with its record if it has finished, with the checksums of its lines if not.

    ``sealed`` leaves out, and of a finished run refuses, what nothing vouches for: a decision rests on the rest alone.
    """
    if (folder / RECORD).exists():
        record = read_record(folder)
        if sealed or (METRICS in record.files and (folder / METRICS).is_file()):
            verify_file(folder, METRICS, record)
        return [line.content for line in read_log(folder, record.id)]
    return [line.content for line in read_log(folder) if line.is_sealed or not sealed]


def runs_folder() -> Path:
    return home() / "runs"


def run_folders(root: Path | None = None) -> Iterator[Path]:
    """Every run folder below ``root`` (default: the runs of ``ISTHMUS_HOME``), finished or not."""
    root = root or runs_folder()
    if (root / CONFIG).is_file():
        yield root
    elif root.is_dir():
        yield from sorted(path.parent for path in root.glob(f"*/{CONFIG}"))


def find_run(reference: str | Path) -> Path:
    """A run folder from its path, its id, or an unambiguous beginning of its id."""
    path = Path(reference).expanduser()
    if (path / CONFIG).is_file():
        return path
    matches = [folder for folder in run_folders() if reference and folder.name.startswith(str(reference))]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(
            f"{str(reference)!r} fits {len(matches)} runs: {', '.join(folder.name for folder in matches[:4])} …"
        )
    raise UserError(f"there is no run {str(reference)!r} in {runs_folder()}; `isthmus runs list` shows the runs")


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys, as the command line writes them."""
    result: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            result |= flat(item, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = item
    return result
