"""The run record: training writes it, and studies, reports and analyses only read it.

A run folder contains

    config.json          the complete config
    metrics.jsonl        one JSON object per line: training loss, and metrics of every validation; with checksums
    task.safetensors     the state of the task (scaling, class targets)
    model.safetensors    the selected weights
    samples.png          input, output and target of a few test rows, if they are images
    record.json          written last: a folder without it is an unfinished run
    remeasured.json      only of older runs: metrics computed again by a newer version
    state.safetensors, state.json     only while the run is unfinished: the checkpoint
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from isthmus.core.errors import UserError
from isthmus.core.files import digest, expand_user, home, read_json, read_sealed, sha256, write_sealed

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
"""Per task, the metrics whose computation changed. Tasks declare the same, but importing them needs torch."""
_EXPORT = "export.json"  # the record of an export, see training/exported.py


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
    directions: dict[str, bool] = field(default_factory=dict)  # whether higher is better, where a metric says so
    metric_versions: dict[str, int] = field(default_factory=dict)  # those that are not 1
    selected: dict[str, Any] = field(default_factory=dict)  # step and epoch of the saved weights, and the criterion
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
    def outdated_metrics(self) -> frozenset[str]:
        """Metrics that an earlier version computed differently. `read_record` drops them."""
        if self.status != "finished":
            return frozenset()
        return find_outdated(str(self.config.get("task", {}).get("name")), self.metric_versions)

    def quality(self, split: str = "test") -> float | None:
        """The task's objective on a split, or None if it was not measured or is outdated."""
        return None if self.objective in self.outdated_metrics else self.metrics.get(split, {}).get(self.objective)


def find_outdated(task: str, versions: Mapping[str, int]) -> frozenset[str]:
    """The metrics of a task whose ``versions`` are not the current ones."""
    today = METRIC_VERSIONS.get(task, {})
    return frozenset(name for name, version in today.items() if versions.get(name, 1) != version)


def drop_stale(line: Mapping[str, Any], task: str) -> dict[str, Any]:
    """A line of the log without outdated metrics."""
    outdated = find_outdated(task, line.get("metric_versions", {}))
    return {name: value for name, value in line.items() if name not in outdated}


def write_record(folder: Path, record: RunRecord) -> None:
    write_sealed(folder / RECORD, asdict(record))


def read_record(folder: Path) -> RunRecord:
    """The record of a finished run; outdated metrics are dropped, or replaced if they were computed again.

    An altered or truncated record is an error.
    """
    path = folder / RECORD
    if not path.exists() and (folder / _EXPORT).is_file():
        run = read_sealed(folder / _EXPORT).get("run")
        raise UserError(f"{folder} is an export, not a run; give the run that it was made from, {run}")
    if not path.exists() and (folder / CONFIG).exists():
        raise UserError(f"the run in {folder} has not finished; `isthmus train {folder / CONFIG}` resumes it")
    content = read_sealed(path)
    if content.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {content.get('schema')!r}; this version reads {SCHEMA!r}")
    known = {item.name for item in fields(RunRecord)}
    record = RunRecord(**{name: value for name, value in content.items() if name in known})
    record = replace(record, **_read_remeasured(folder, record))
    kept = {
        split: {name: value for name, value in values.items() if name not in record.outdated_metrics}
        for split, values in record.metrics.items()
    }
    return replace(record, metrics=kept)


def read_open_config(folder: Path) -> dict[str, Any]:
    """The config of a run that has no record; it is compared with its digest, which the file of the task holds."""
    from safetensors import SafetensorError, safe_open

    config: dict[str, Any] = read_json(folder / CONFIG)
    try:
        with safe_open(folder / TASK, framework="numpy") as file:
            known = json.loads(file.metadata()["isthmus"]).get(CONFIG)
    except (SafetensorError, OSError, TypeError, ValueError, KeyError):
        known = None  # there is no such file yet, or it is damaged itself and will be written again
    if known is not None and known != digest(config):
        raise UserError(
            f"{folder / CONFIG} is damaged or was altered; `isthmus train` with its settings writes it again"
        )
    return config


def _read_remeasured(folder: Path, record: RunRecord) -> dict[str, Any]:
    """The fields that `write_remeasured` stored, if they belong to these weights and are intact."""
    path = folder / REMEASURED
    if not path.is_file():
        return {}
    try:
        content = read_sealed(path)
    except UserError:  # training this config again replaces the file
        return {}
    if (content.get("run"), content.get("model")) != (record.id, record.files.get(MODEL)):
        return {}
    return {name: content[name] for name in ("metrics", "metric_versions") if isinstance(content.get(name), dict)}


def write_remeasured(
    folder: Path, record: RunRecord, metrics: dict[str, dict[str, float]], versions: Mapping[str, int]
) -> None:
    """Written beside the record, because a record never changes."""
    content = {"run": record.id, "model": record.files[MODEL], "metrics": metrics, "metric_versions": dict(versions)}
    write_sealed(folder / REMEASURED, content)


def list_temporary(folder: Path) -> list[Path]:
    """Temporary files in a run's folder: all hidden files except the lock."""
    return [path for path in folder.iterdir() if path.name.startswith(".") and path.name != LOCK]


def remove_leftovers(folder: Path) -> None:
    """Remove checkpoints and temporary files of a process that was killed after it wrote the record.

    A folder that is in use or has an unreadable record is left alone.
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
    """The path of a file of a finished run, with its checksum verified."""
    path = folder / name
    if name not in record.files:
        raise UserError(f"run {record.id} has no file {name}")
    if not path.is_file():
        raise UserError(f"{path} is missing; `isthmus runs clean {record.id}` and train the run again")
    if sha256(path) != record.files[name]:
        raise UserError(f"{path} is damaged or was altered: its checksum differs from {RECORD}")
    return path


class LogChecks:
    """Cumulative checksums of a run's log, which reveal a changed, lost or moved line."""

    def __init__(self, run: str) -> None:
        self._hash = hashlib.sha256(run.encode())

    def add(self, line: Mapping[str, Any]) -> str:
        return self.add_text(json.dumps(line))

    def add_text(self, line: str) -> str:
        self._hash.update(line.encode() + b"\n")
        return self._hash.hexdigest()[:16]


@dataclass(frozen=True)
class LogLine:
    text: str
    content: dict[str, Any]
    """The parsed line without its checksum."""
    is_sealed: bool
    """Whether its own checksum or a later one covers it; logs of older versions have none."""


def read_log(folder: Path, run: str = "") -> list[LogLine]:
    """The lines of ``metrics.jsonl``. An incomplete last line is ignored; other damage is an error.

    ``run`` is the id of the run, if the folder has another name.
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
    """The log of a run, verified against its record if it has finished, otherwise by the checksums of its lines.

    With ``sealed``, lines without a checksum are ignored, and a finished run without one is refused.
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
    """All run folders in ``root`` (default: the runs of ``ISTHMUS_HOME``), finished or not."""
    root = root or runs_folder()
    if is_run(root):
        yield root
    elif root.is_dir():
        yield from sorted(filter(is_run, root.iterdir()))


def is_run(folder: Path) -> bool:
    """Whether a folder contains a run, even if its config is lost."""
    return any((folder / name).is_file() for name in (CONFIG, RECORD, METRICS))


def find_run(reference: str | Path) -> Path:
    """A run folder from its path, its id, or a unique prefix of its id."""
    path = expand_user(reference)
    if is_run(path):
        return path
    matches = [folder for folder in run_folders() if reference and folder.name.startswith(str(reference))]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(folder.name for folder in matches[:4])
        raise UserError(f"{str(reference)!r} matches {len(matches)} runs; give more of the id: {names}")
    advice = (
        "`isthmus runs list` shows the runs"
        if any(run_folders())
        else "no run is there yet, `isthmus find` trains some"
    )
    if path.is_file():
        advice = f"it is a file, and a run is given by its id or its folder; {advice}"
    raise UserError(f"there is no run {str(reference)!r} in {runs_folder()}; {advice}")


def select_runs(what: Any = None) -> list[Path]:
    """The run folders of anything that has runs, each once.

    None stands for all runs, a text or a path for a run or a folder of runs. A trained model has one run; an answer, a
    study, a candidate and a DataFrame with a column ``run`` have several. A list may mix them.
    """
    if what is None:
        return list(run_folders())
    if isinstance(what, str | Path):
        path = expand_user(what)
        return (list(run_folders(path)) if path.is_dir() else []) or [find_run(what)]
    if isinstance(what, RunRecord):
        return [find_run(what.id)]
    if isinstance(getattr(what, "record", None), RunRecord):
        return [find_run(what.name)]
    if "run" in getattr(what, "columns", ()):
        what = list(what["run"])
    each = getattr(what, "run_ids", what)
    if not isinstance(each, Iterable) or isinstance(each, Mapping | bytes):
        raise UserError(f"{type(what).__name__} has no runs; give the id or the folder of a run, or a list of them")
    return list(dict.fromkeys(folder for one in each for folder in select_runs(one)))


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted keys, as on the command line."""
    result: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            result |= flatten(item, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = item
    return result


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The dotted names of the settings that differ, with both values."""
    one, other = flatten(first), flatten(second)
    pairs = {name: (one.get(name), other.get(name)) for name in one | other}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
