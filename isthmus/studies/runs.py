"""Run folders: list them, compare two, delete some."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from isthmus.core.errors import UserError
from isthmus.core.files import home, read_json, read_sealed, resolve_links
from isthmus.core.record import (
    CONFIG,
    METRICS,
    RECORD,
    differences,
    find_run,
    read_open_config,
    read_record,
    remove_leftovers,
    run_folders,
    runs_folder,
    verify_file,
)
from isthmus.core.titles import model_title

COLUMNS = (
    "run", "status", "data", "task", "model", "seed", "params",
    "objective", "validation", "test", "seconds", "finished", "changed", "reason",
)  # fmt: skip
"""What `describe_run` says."""
_NOT_COMPARED = {"id", "files", "command", "started", "finished"}


def overview() -> list[dict[str, Any]]:
    """One line of text per run, the newest first."""
    return [_line(each) for each in list_runs()]


def list_runs() -> list[dict[str, Any]]:
    """What is known of each run, the newest first, also of a run whose record is damaged."""
    for folder in run_folders():
        remove_leftovers(folder)
    known = [(describe_run(folder), _last_written(folder)) for folder in run_folders()]
    return [run for run, _ in sorted(known, key=lambda each: (each[0]["changed"], each[1]), reverse=True)]


def describe_run(folder: Path) -> dict[str, Any]:
    """Plain values; None where nothing is known."""
    known: dict[str, Any] = dict.fromkeys(COLUMNS) | {"run": folder.name, "status": "unfinished"}
    known["changed"] = _last_change(folder)
    try:
        record = read_record(folder) if (folder / RECORD).exists() else None
        config = read_json(verify_file(folder, CONFIG, record)) if record else read_open_config(folder)
        known |= {"data": _name_data(config["source"]), "task": config["task"]["name"], "seed": config["seed"]}
        known["model"] = model_title(config["model"])
        if record:
            absent = "not comparable: measured by an older version" if record.outdated_metrics else record.reason
            known |= {"status": record.status, "params": record.cost.get("params"), "objective": record.objective}
            known |= {split: record.quality(split) for split in ("validation", "test")}
            known |= {"seconds": record.wall_seconds, "finished": record.finished, "reason": absent}
            known["changed"] = record.finished
    except (UserError, KeyError, TypeError, AttributeError):
        known["status"] = "damaged"
    return known


def _line(known: Mapping[str, Any]) -> dict[str, Any]:
    names = ("run", "status", "data", "task", "model", "seed", "params", "objective", "test", "finished", "changed")
    line = {name: "" if known[name] is None else known[name] for name in names}
    line["finished"] = line["finished"][:16]
    quality = known["test"]
    line["test"] = known["reason"] or "" if quality is None else f"{known['objective']} {quality:.4g}"
    return line


def _name_data(source: Mapping[str, Any]) -> str:
    """The name of the file, of the folder or of the hub's data set that was read; otherwise of the source."""
    place = source.get("path") or source.get("repo") or source.get("hub")
    if isinstance(source.get("images"), Mapping):  # tokens of another source's images
        return f"{source['name']} of {_name_data(source['images'])}"
    return Path(str(place)).name if place else str(source["name"])


def _last_change(folder: Path) -> str:
    """When a run that has no record was last at work."""
    return datetime.fromtimestamp(_last_written(folder), UTC).isoformat(timespec="seconds")


def _last_written(folder: Path) -> float:
    """Orders runs that ended within one second."""
    times = [path.stat().st_mtime for name in (CONFIG, METRICS, RECORD) if (path := folder / name).exists()]
    return max(times, default=0.0)


def compare(first: str, second: str) -> dict[str, tuple[Any, Any]]:
    """Dotted fields of the two records whose values differ."""
    found = differences(*(asdict(read_record(find_run(reference))) for reference in (first, second)))
    return {name: pair for name, pair in found.items() if name.partition(".")[0] not in _NOT_COMPARED}


def removable(references: Sequence[str], failed: bool) -> list[Path]:
    """The named runs; without names, all unfinished ones, and with ``failed`` the failed ones too."""
    if references:
        return [_ours(find_run(reference)) for reference in references]
    statuses = {"unfinished", "failed"} if failed else {"unfinished"}
    return [folder for folder in run_folders() if describe_run(folder)["status"] in statuses]


def _ours(folder: Path) -> Path:
    """Refuse to delete a folder elsewhere: one with a config.json can be anything."""
    if resolve_links(folder).parent != resolve_links(runs_folder()):
        raise UserError(f"{folder} is not among the runs in {runs_folder()}; delete it by hand")
    return folder


def studies_in_need(folders: Sequence[Path]) -> tuple[dict[str, int], list[str]]:
    """How many of these runs each study needs, by its ``study.json``; and the studies whose file is damaged."""
    runs, found, unknown = {folder.name for folder in folders}, {}, []
    for path in sorted((home() / "studies").glob("*/study.json")):
        try:
            needed = len(runs.intersection(read_sealed(path)["needs"]))
        except (UserError, KeyError, TypeError):
            unknown.append(path.parent.name)
            continue
        if needed:
            found[path.parent.name] = needed
    return found, unknown


def remove(folder: Path) -> bool:
    """Delete a run folder, unless a process uses it."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            shutil.rmtree(folder)
    except Timeout:
        return False
    except OSError as error:
        raise UserError(f"cannot remove {folder}: {error.strerror}") from None
    return True
