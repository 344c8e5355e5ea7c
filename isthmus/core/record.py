"""The run record, the isthmus of the library: what is before it is expensive and writes it, what is after it reads.

A run folder holds

    config.json          the complete config that re-creates the run
    metrics.jsonl        one JSON object per line: training loss, and metrics of every validation; with checksums
    task.safetensors     what the task learned from the training rows (scaling, class targets)
    model.safetensors    the selected weights
    samples.png          input, output and target of a few test rows, where they are images
    record.json          written last: a folder without it is an unfinished run
    remeasured.json      only of older runs: metrics that were measured again, from the stored weights, in another way
    state.safetensors, state.json     only while the run is unfinished: where to go on
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from isthmus.core.errors import UserError
from isthmus.core.files import expand_user, home, read_sealed, sha256, write_sealed

SCHEMA = "isthmus.run/1"
RECORD = "record.json"
REMEASURED = "remeasured.json"
CONFIG = "config.json"
METRICS = "metrics.jsonl"
MODEL = "model.safetensors"
TASK = "task.safetensors"
SAMPLES = "samples.png"
LOCK = ".lock"
METRIC_VERSIONS: Mapping[str, Mapping[str, int]] = {"regression": {"r2": 2}}
"""Of each task, the metrics that are not measured as they once were. Tasks declare the same, but they need torch, and
whoever reads records does without it."""
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
    directions: dict[str, bool] = field(default_factory=dict)  # whether more is better, of each metric that says so
    metric_versions: dict[str, int] = field(default_factory=dict)  # those that are not 1
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

    @property
    def outdated(self) -> frozenset[str]:
        """Metrics that were measured in another way than today and are not comparable. `read_record` drops them."""
        if self.status != "finished":
            return frozenset()
        return outdated_metrics(str(self.config.get("task", {}).get("name")), self.metric_versions)

    def quality(self, split: str = "test") -> float | None:
        """The task's objective on a split, or None where it was not measured, or is not comparable."""
        return None if self.objective in self.outdated else self.metrics.get(split, {}).get(self.objective)


def outdated_metrics(task: str, versions: Mapping[str, int]) -> frozenset[str]:
    """The metrics of a task of which ``versions`` are not today's."""
    today = METRIC_VERSIONS.get(task, {})
    return frozenset(name for name, version in today.items() if versions.get(name, 1) != version)


def drop_stale(line: Mapping[str, Any], task: str) -> dict[str, Any]:
    """A line of the log without the metrics that are measured in another way today."""
    outdated = outdated_metrics(task, line.get("metric_versions", {}))
    return {name: value for name, value in line.items() if name not in outdated}


def write_record(folder: Path, record: RunRecord) -> None:
    write_sealed(folder / RECORD, asdict(record))


def read_record(folder: Path) -> RunRecord:
    """The record of a finished run, without metrics that are not comparable with today's, or with what they are today
    where they were measured again. A record that was altered or cut short is named, never used."""
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
    record = RunRecord(**{name: value for name, value in content.items() if name in known})
    record = replace(record, **_read_remeasured(folder, record))
    kept = {
        split: {name: value for name, value in values.items() if name not in record.outdated}
        for split, values in record.metrics.items()
    }
    return replace(record, metrics=kept)


def _read_remeasured(folder: Path, record: RunRecord) -> dict[str, Any]:
    """The fields that `write_remeasured` kept, if they are of these weights and not damaged."""
    path = folder / REMEASURED
    if not path.is_file():
        return {}
    try:
        content = read_sealed(path)
    except UserError:  # the next run of this config measures again
        return {}
    if (content.get("run"), content.get("model")) != (record.id, record.files.get(MODEL)):
        return {}
    return {name: content[name] for name in ("metrics", "metric_versions") if isinstance(content.get(name), dict)}


def write_remeasured(
    folder: Path, record: RunRecord, metrics: dict[str, dict[str, float]], versions: Mapping[str, int]
) -> None:
    """Beside the record, which never changes."""
    content = {"run": record.id, "model": record.files[MODEL], "metrics": metrics, "metric_versions": dict(versions)}
    write_sealed(folder / REMEASURED, content)


def list_temporary(folder: Path) -> list[Path]:
    """Temporary files in a run's folder, ours and those of safetensors: whatever is hidden but the lock."""
    return [path for path in folder.iterdir() if path.name.startswith(".") and path.name != LOCK]


def remove_leftovers(folder: Path) -> None:
    """Remove what a process left behind that was killed after it wrote the record: states and temporary files.

    A folder in use by another process stays as it is, and so does one whose record cannot be read.
    """
    if not (folder / RECORD).exists():
        return
    left = [*list_temporary(folder), *folder.glob("state*")]
    if left:
        with contextlib.suppress(OSError, UserError), FileLock(folder / LOCK, timeout=0):  # Timeout is an OSError
            read_record(folder)
            for path in left:
                path.unlink(missing_ok=True)


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
        if sealed or METRICS in record.files:
            verify_file(folder, METRICS, record)
        return [line.content for line in read_log(folder, record.id)]
    return [line.content for line in read_log(folder) if line.is_sealed or not sealed]


def runs_folder() -> Path:
    return home() / "runs"


def run_folders(root: Path | None = None) -> Iterator[Path]:
    """Every run folder below ``root`` (default: the runs of ``ISTHMUS_HOME``), finished or not."""
    root = root or runs_folder()
    if is_run(root):
        yield root
    elif root.is_dir():
        yield from sorted(filter(is_run, root.iterdir()))


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, also one whose config is lost."""
    return any((folder / name).is_file() for name in (CONFIG, RECORD, METRICS))


def find_run(reference: str | Path) -> Path:
    """A run folder from its path, its id, or an unambiguous beginning of its id."""
    path = expand_user(reference)
    if is_run(path):
        return path
    matches = [folder for folder in run_folders() if reference and folder.name.startswith(str(reference))]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(
            f"{str(reference)!r} fits {len(matches)} runs: {', '.join(folder.name for folder in matches[:4])} …"
        )
    raise UserError(f"there is no run {str(reference)!r} in {runs_folder()}; `isthmus runs list` shows the runs")


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys, as the command line writes them."""
    result: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            result |= flatten(item, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = item
    return result
