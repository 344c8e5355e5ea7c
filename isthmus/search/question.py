"""What is asked: which data, which column to predict, and which task that makes. Every guess is put into words."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.config import Overrides, override, parse_override
from isthmus.core.errors import UserError, nearest
from isthmus.core.files import advise_path, data_dir, digest, expand_user, home, make_folder, write_with
from isthmus.core.protocols import Component, Data, Task
from isthmus.core.registry import catalogue, component
from isthmus.core.registry import find as find_component
from isthmus.sources.arrays import names_in
from isthmus.sources.dialects import ENDINGS, read_frame
from isthmus.sources.image_folder import Facts, look_at
from isthmus.sources.images import SUFFIXES
from isthmus.sources.splits import array_digest
from isthmus.sources.tables import as_names, table_of
from isthmus.sources.targets import TARGET_NAMES, describe_target, guess_target
from isthmus.training.prepare import Options, learn_task, load_data

if TYPE_CHECKING:
    import pyarrow

_ARRAYS = (".npy", ".npz")
_TABLES = (".csv", ".tsv", ".parquet", *_ARRAYS)
_FEWEST = 10
"""Rows of a table."""
_SUPERVISED = ("regression", "classification")
_RESTORES = ("denoise", "super_resolution")
_LARGEST_WHOLE = 32
"""Up to this many pixels, images are used whole by tasks that restore them, and not reduced by others."""
_PATCH = {1: 16, 3: 8}
"""By channels: the patches that networks of 50k parameters restore best."""


@dataclass(frozen=True)
class Question:
    """The data and the task of a search, with what was guessed about them."""

    name: str
    source: Component
    task: Component
    settings: tuple[str, ...]
    """Overrides of the user that are neither about the source nor about the task."""
    words: tuple[str, ...]
    data: Data
    learned: Task
    seconds: float
    """How long it took to load the data."""

    @property
    def findings(self) -> tuple[str, ...]:
        """What the source found in the data and did with it."""
        return (*self.data.table.get("findings", ()), *self.data.findings)


def ask(data: Any, target: Any, task: str | None, test: Any, settings: Overrides, options: Options) -> Question:
    """Understand what is asked, load the data and let the task learn from them."""
    overrides = _check_overrides(settings)
    if isinstance(data, str | Path):
        return _ask(data, target, task, test, overrides, options)
    stored, target, test = _store(data, target, test)
    try:
        return _ask(stored, target, task, test, overrides, options, "data")
    except UserError as error:
        raise UserError(str(error).replace(stored, "the data")) from None


def _ask(
    data: str | Path,
    target: Any,
    task: str | None,
    test: Any,
    overrides: tuple[str, ...],
    options: Options,
    title: str = "",
) -> Question:
    mine = [text for text in overrides if text.startswith(("source.", "task."))]
    fields = override({}, [text for text in mine if text.startswith("source.")]).get("source", {})
    found, source, task, words = _understand(data, target, task, test, fields, options)
    whole = override({"source": source, "task": {"name": task}}, mine)
    config = component("sources", whole["source"])
    began = time.monotonic()
    loaded = load_data(config, options.data_dir)
    seconds = time.monotonic() - began
    words += _advise_split(loaded, source)
    if loaded.train.inputs.ndim == 2 and task in _SUPERVISED:
        whole["task"].setdefault("ones", True)
    task_config = component("tasks", whole["task"])
    learned = learn_task(task_config, loaded)
    name = f"{_slug(title or found)}-{digest([whole, loaded.fingerprint], 8)}"
    rest = tuple(text for text in overrides if text not in mine)
    return Question(name, config, task_config, rest, tuple(words), loaded, learned, seconds)


def _advise_split(data: Data, source: Mapping[str, Any]) -> list[str]:
    """How to test a forecast, if a table has dates and its test rows are drawn at random."""
    columns = data.table.get("encoder", {}).get("columns", ())
    dates = [column["name"] for column in columns if column["kind"] == "date"]
    if source["name"] != "table" or "test_path" in source or not dates:
        return []
    advice = f"for a forecast, give the latest rows by `{dates[0]}` as a file with --test"
    return [f"test rows are drawn at random; {advice}"]


def _check_overrides(settings: Overrides) -> tuple[str, ...]:
    """The overrides as words, if each is of the form key=value."""
    if isinstance(settings, Mapping):
        settings = [f"{name}={json.dumps(value, default=str)}" for name, value in settings.items()]
    overrides = (settings,) if isinstance(settings, str) else tuple(settings)
    for text in overrides:
        if text.lower().endswith((*ENDINGS, *_ARRAYS)) and "=" not in text:
            raise UserError(f"{text!r} is a second file; give one, or its test rows as --test {text}")
        parse_override(text)
    return overrides


def _understand(
    data: str | Path, target: Any, task: str | None, test: Any, fields: Mapping[str, Any], options: Options
) -> tuple[str, dict[str, Any], str, list[str]]:
    """The title of the data, the settings of their source, the task, and what was guessed.

    ``fields`` are the user's settings of the source, which apply whenever data are loaded.
    """
    if task is not None and task not in catalogue("tasks"):
        raise UserError(f"there is no task {task!r}; {nearest(task, catalogue('tasks'))}")
    title = Path(str(data)).name
    path = _locate(data, options)
    if test is not None and (path is None or path.is_dir()):
        raise UserError(f"--test is for a table or arrays in a file; leave it out for {title}")
    if path is None:
        return title, *_from_source(str(data), as_names(target or None), task, fields, options)
    if path.is_dir():
        return title, *_from_folder(path, task, fields)
    names = _name_targets(target) or list(as_names(fields.get("targets")))
    task = task or (fields["kind"] if fields.get("kind") in _SUPERVISED else None)
    settings: dict[str, Any] = {"path": str(path)}
    if test is not None:
        there = _locate(test, options)
        if there is None:
            raise UserError(f"there is no file {test} with test rows; {advise_path(expand_user(test))}")
        settings["test_path"] = str(there)
    if path.name.lower().endswith(_ARRAYS):
        return title, *_from_arrays(path, settings, names, task, fields)
    return title, *_from_table(path, settings, names, task, fields)


def _name_targets(target: Any) -> list[str]:
    """The names of the target columns of a file."""
    names = target if isinstance(target, list | tuple) else [] if target is None else [target]
    if not all(isinstance(name, str | int) for name in names):
        raise UserError("a file takes the name of its target column; give an array of targets together with an array")
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"the target {name!r} is given twice; give it once")
    return [str(name) for name in names]


def _locate(data: str | Path, options: Options) -> Path | None:
    """The file or folder; None for the name of a source."""
    given, known = expand_user(data), catalogue("sources")
    places = [given] if str(data) in known else [given, (options.data_dir or data_dir()) / given]
    found = next((place.absolute() for place in places if place.exists()), None)
    if found is not None or str(data) in known:
        return found
    if "://" in str(data):
        raise UserError(f"{str(data)!r} is an address; download the file and give its path")
    is_path = given.suffix or given.parent != Path()
    advice = advise_path(given)
    advice = advice if is_path or advice.startswith("did") else nearest(str(data), known)
    raise UserError(f"there is no {'file or folder' if is_path else 'file, folder or source'} {str(data)!r}; {advice}")


def _from_table(
    path: Path, settings: dict[str, Any], names: Sequence[str], task: str | None, fields: Mapping[str, Any]
) -> tuple[dict[str, Any], str, list[str]]:
    table, row_names, _ = read_frame(path, fields.get("header"), fields.get("delimiter"))
    for name in names:
        if name not in table.column_names:
            raise UserError(f"{path} has no column {name!r}; {_advise_column(name, table.column_names)}")
    if table.num_rows < _FEWEST:
        raise UserError(f"{path} has only {table.num_rows} row(s); give at least {_FEWEST}")
    words, guessed = [], not names
    left_out = {row_names, *as_names(fields.get("without"))}
    names = names or [guess_target([name for name in table.column_names if name not in left_out], table)]
    where = "by its name" if names[0].lower() in TARGET_NAMES else "the last column"
    if guessed and where == "the last column" and names[0] != table.column_names[-1]:
        where = "the last column that can be predicted"
    if len(names) > 1:
        task, reason = task or "regression", "regression, because there are several targets"
    else:
        described = describe_target(table, names[0])
        task, reason = (task, f"{task}, as you said") if task else (described.task, described.reason)
    options = "--target or --task" if guessed else "--task"
    words.append(
        f"predicting {', '.join(f'`{name}`' for name in names)}{f', {where}' if guessed else ''}: {reason} "
        f"(change with {options})"
    )
    kind = {"kind": task} if task in _SUPERVISED else {}
    return {"name": "table", "targets": list(names), **settings, **kind}, task, words


def _advise_column(name: str, known: Sequence[str]) -> str:
    parts = [part.strip() for part in name.split(",")]
    if len(parts) > 1 and set(parts) <= set(known):
        return f"for several targets, repeat the option: {' '.join(f'--target {part}' for part in parts)}"
    return nearest(name, known)


def _from_arrays(
    path: Path, settings: dict[str, Any], names: Sequence[str], task: str | None, fields: Mapping[str, Any]
) -> tuple[dict[str, Any], str, list[str]]:
    known, words = names_in(path), []
    if not names and len(known) > 1:
        names = [guess_target(known)]
        words.append(f"predicting the array `{names[0]}` (change with --target)")
    if not names and known == [] and task in (None, *_SUPERVISED):
        raise UserError(f"{path} holds one array and no names; say which column to predict: --target 0, or a --task")
    source = {"name": "arrays", "targets": list(names), **settings}
    if task is None:
        loaded = load_data(component("sources", {**source, **fields}))
        if loaded.train.targets is None:
            task = "denoise"
        else:
            task = "classification" if loaded.train.targets.ndim == 1 else "regression"
        words.append(f"{task}, by the kind of the targets (change with --task)")
    kind = {"kind": task} if task in _SUPERVISED else {}
    return source | kind, task, words


def _from_folder(path: Path, task: str | None, fields: Mapping[str, Any]) -> tuple[dict[str, Any], str, list[str]]:
    tables = sorted(each for each in path.iterdir() if each.suffix.lower() in _TABLES)
    if tables and not any(each.is_dir() or each.suffix.lower() in SUFFIXES for each in path.iterdir()):
        raise UserError(f"there are no images in {path}; give a table in it, such as {tables[0]}")
    facts, words = look_at(path), []
    if task is None:
        task, reason = _guess_image_task(facts, fields)
        words.append(f"images in {path.name}: {task}, because {reason} (change with --task)")
    source: dict[str, Any] = {"name": "image_folder", "path": str(path), "unreadable": "skip"}
    if "patch" in fields and task not in _RESTORES:
        raise UserError(f"--patch is for tasks that restore images ({', '.join(_RESTORES)}); leave it out for {task}")
    if facts.are_grey and "channels" not in fields:
        source["channels"] = 1
        words.append("all images are grey: one channel (change with source.channels=3)")
    if not {"patch", "size"} & set(fields):
        patch = _PATCH[source.get("channels", 3)]
        if task in _RESTORES and facts.side > _LARGEST_WHOLE:
            source["patch"] = patch
            words.append(
                f"images of about {facts.side} pixels are cut into patches of {patch}×{patch}; no image is in two of "
                "training, validation and test (change with --patch; larger ones need a larger --budget)"
            )
        elif facts.side != _LARGEST_WHOLE:
            source["size"] = min(facts.side, _LARGEST_WHOLE)
            words.append(f"images are resized to {source['size']}×{source['size']} (change with source.size)")
    return source, task, words


def _guess_image_task(facts: Facts, fields: Mapping[str, Any]) -> tuple[str, str]:
    if fields.get("patch"):
        return "denoise", "patches are for tasks that restore images"
    if len(facts.classes) > 1:
        return "classification", f"its {len(facts.classes)} subfolders are classes"
    if facts.classes:
        nested = f"; give {facts.classes[0]} itself if its subfolders are classes" if facts.has_nested_classes else ""
        return "denoise", f"its only subfolder {facts.classes[0]} is a single class{nested}"
    return "denoise", "it has no subfolders that could be classes"


def _from_source(
    name: str, names: Sequence[str], task: str | None, fields: Mapping[str, Any], options: Options
) -> tuple[dict[str, Any], str, list[str]]:
    source: dict[str, Any] = {"name": name} | ({"targets": list(names)} if names else {})
    if names and "targets" not in find_component("sources", name).Config.model_fields:
        raise UserError(f"the source {name} has its own targets; leave --target out")
    if task is not None:
        return source, task, []
    loaded = load_data(component("sources", source | dict(fields)), options.data_dir)
    targets = loaded.train.targets
    task = "denoise" if targets is None else "classification" if targets.ndim == 1 else "regression"
    said = any(finding.startswith("predicting `") for finding in loaded.table.get("findings", ()))
    return source, task, [] if said else [f"{name}: {task}, by the kind of its targets (change with --task)"]


def _store(data: Any, target: Any, test: Any) -> tuple[str, Any, str | None]:
    """Write tables and arrays of this process to files of ISTHMUS_HOME, so that runs can be repeated."""
    if isinstance(data, np.ndarray) and data.ndim > 2:
        if test is not None:
            raise UserError("test is for tables and arrays with a row of numbers per example; leave it out for images")
        values = None if target is None else np.asarray(target)
        arrays = {"inputs": data} | ({"target": values} if values is not None else {})
        if values is not None and values.shape[:1] != data.shape[:1]:
            raise UserError(f"there are {len(data):,} rows, but targets of the shape {values.shape}; give one per row")
        key = digest([array_digest(np.ascontiguousarray(array)) for array in arrays.values()], 16)
        path = make_folder(home() / "data") / f"{key}.npz"
        if not path.exists():
            write_with(path, lambda temporary: np.savez(temporary, **arrays))
        return str(path), "target" if values is not None else None, None
    table, names = table_of(data), target
    if isinstance(target, str | int):
        names = [str(target)]
    elif target is not None and not (isinstance(target, list) and all(isinstance(name, str) for name in target)):
        table, names = _append_targets(table, target)
    for name in names or ():
        if name not in table.column_names:
            raise UserError(f"the data have no column {name!r}; {nearest(name, table.column_names)}")
    if table.num_rows < _FEWEST:
        raise UserError(f"the data have only {table.num_rows} row(s); give at least {_FEWEST}")
    stored = test if test is None or isinstance(test, str | Path) else _store_table(table_of(test))
    return _store_table(table), names, None if stored is None else str(stored)


def _append_targets(table: pyarrow.Table, target: Any) -> tuple[pyarrow.Table, list[str]]:
    """The table with columns of target values, and their names."""
    values = np.asarray(target)
    if values.ndim not in (1, 2) or len(values) != table.num_rows:
        raise UserError(
            f"there are {table.num_rows:,} rows, but targets of the shape {values.shape}; "
            "give one target per row, or the name of a column"
        )
    columns = {"target": values} if values.ndim == 1 else {f"target {n}": part for n, part in enumerate(values.T)}
    columns = {"target": values[:, 0]} if values.ndim == 2 and values.shape[1] == 1 else columns
    for name, column in columns.items():
        if name in table.column_names:
            raise UserError(f"the data have a column {name!r} already; rename it, or give target={name!r}")
        table = table.append_column(name, table_of({name: column})[name])
    return table, list(columns)


def _store_table(table: pyarrow.Table) -> str:
    import hashlib

    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    path = make_folder(home() / "data") / f"{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    if not path.exists():
        write_with(path, lambda temporary: temporary.write_bytes(content))
    return str(path)


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower().partition(".")[0]).strip("-")[:40] or "data"
