"""What is asked: which data, which column to predict, and which task that makes. Every guess is put into words."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.config import override
from isthmus.core.errors import UserError, nearest
from isthmus.core.files import data_dir, digest, expand_user, home, make_folder, write_with
from isthmus.core.protocols import Component, Data, Task
from isthmus.core.registry import catalogue, component
from isthmus.core.registry import find as find_component
from isthmus.sources.arrays import names_in
from isthmus.sources.dialects import ENDINGS, read_frame
from isthmus.sources.image_folder import Facts, look_at
from isthmus.sources.splits import array_digest
from isthmus.sources.tables import as_names, table_of
from isthmus.sources.targets import describe_target, guess_target
from isthmus.training.run import Options, learn_task, load_data

_ARRAYS = (".npy", ".npz")
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


def ask(data: Any, target: Any, task: str | None, test: Any, settings: Iterable[str], options: Options) -> Question:
    """Understand what is asked, load the data and let the task learn from them."""
    overrides = tuple(settings)
    mine = [text for text in overrides if text.startswith(("source.", "task."))]
    fields = override({}, [text for text in mine if text.startswith("source.")]).get("source", {})
    title, source, task, words = _understand(data, target, task, test, fields, options)
    whole = override({"source": source, "task": {"name": task}}, mine)
    config = component("sources", whole["source"])
    began = time.monotonic()
    loaded = load_data(config, options.data_dir)
    seconds = time.monotonic() - began
    if loaded.train.inputs.ndim == 2 and task in _SUPERVISED:
        whole["task"].setdefault("ones", True)
    task_config = component("tasks", whole["task"])
    learned = learn_task(task_config, loaded)
    name = f"{_slug(title)}-{digest([whole, loaded.fingerprint], 8)}"
    rest = tuple(text for text in overrides if text not in mine)
    return Question(name, config, task_config, rest, tuple(words), loaded, learned, seconds)


def _understand(
    data: Any, target: Any, task: str | None, test: Any, fields: Mapping[str, Any], options: Options
) -> tuple[str, dict[str, Any], str, list[str]]:
    """The title of the data, the settings of their source, the task, and what was guessed.

    ``fields`` are the user's settings of the source, which apply whenever data are loaded.
    """
    if task is not None and task not in catalogue("tasks"):
        raise UserError(f"there is no task {task!r}; {nearest(task, catalogue('tasks'))}")
    if not isinstance(data, str | Path):
        data, target, test = _store(data, target, test)
        title = "data"
    else:
        title = Path(str(data)).name
    path = _locate(data, options)
    if path is None:
        return title, *_from_source(str(data), as_names(target or None), task, fields, options)
    if path.is_dir():
        return title, *_from_folder(path, task, fields)
    names = [str(name) for name in as_names(target)] if target else list(as_names(fields.get("targets")))
    task = task or (fields["kind"] if fields.get("kind") in _SUPERVISED else None)
    settings: dict[str, Any] = {"path": str(path)}
    if test is not None:
        there = _locate(test, options)
        if there is None:
            raise UserError(f"there is no file {test} with test rows")
        settings["test_path"] = str(there)
    if path.name.lower().endswith(_ARRAYS):
        return title, *_from_arrays(path, settings, names, task, fields)
    return title, *_from_table(path, settings, names, task, fields)


def _locate(data: str | Path, options: Options) -> Path | None:
    """The file or folder; None for the name of a source."""
    given, is_source = expand_user(data), str(data) in catalogue("sources")
    places = [given] if is_source else [given, (options.data_dir or data_dir()) / given]
    found = next((place.absolute() for place in places if place.exists()), None)
    if found is None and not is_source:
        raise UserError(f"there is no file, folder or source {str(data)!r}; {nearest(str(data), catalogue('sources'))}")
    return found


def _from_table(
    path: Path, settings: dict[str, Any], names: Sequence[str], task: str | None, fields: Mapping[str, Any]
) -> tuple[dict[str, Any], str, list[str]]:
    if not path.name.lower().endswith(ENDINGS):
        raise UserError(f"{path} has an unsupported format; give one of {', '.join((*ENDINGS, *_ARRAYS))}, or a folder")
    table, row_names, _ = read_frame(path, fields.get("header"), fields.get("delimiter"))
    for name in names:
        if name not in table.column_names:
            raise UserError(f"{path} has no column {name!r}; {nearest(name, table.column_names)}")
    words, guessed = [], not names
    names = names or [guess_target([name for name in table.column_names if name != row_names], table)]
    where = "the last column" if names[0] == table.column_names[-1] else "by its name"
    if len(names) > 1:
        task, reason = task or "regression", "regression, because there are several targets"
    else:
        described = describe_target(table, names[0])
        task, reason = (task, f"{task}, as you said") if task else (described.task, described.reason)
    options = " --target/--task" if guessed else " --task"
    words.append(
        f"predicting {', '.join(f'`{name}`' for name in names)}{f', {where}' if guessed else ''}: {reason} "
        f"(say{options} otherwise)"
    )
    kind = {"kind": task} if task in _SUPERVISED else {}
    return {"name": "table", "targets": list(names), **settings, **kind}, task, words


def _from_arrays(
    path: Path, settings: dict[str, Any], names: Sequence[str], task: str | None, fields: Mapping[str, Any]
) -> tuple[dict[str, Any], str, list[str]]:
    known, words = names_in(path), []
    if not names and len(known) > 1:
        names = [guess_target(known)]
        words.append(f"predicting the array `{names[0]}` (say --target otherwise)")
    if not names and known == [] and task in (None, *_SUPERVISED):
        raise UserError(f"{path} holds one array and no names; say which column to predict: --target 0, or a --task")
    source = {"name": "arrays", "targets": list(names), **settings}
    if task is None:
        loaded = load_data(component("sources", {**source, **fields}))
        if loaded.train.targets is None:
            task = "denoise"
        else:
            task = "classification" if loaded.train.targets.ndim == 1 else "regression"
        words.append(f"{task}, by the kind of the targets (say --task otherwise)")
    kind = {"kind": task} if task in _SUPERVISED else {}
    return source | kind, task, words


def _from_folder(path: Path, task: str | None, fields: Mapping[str, Any]) -> tuple[dict[str, Any], str, list[str]]:
    facts, words = look_at(path), []
    if task is None:
        task, reason = _guess_image_task(facts, fields)
        words.append(f"images in {path.name}: {task}, because {reason} (say --task otherwise)")
    source: dict[str, Any] = {"name": "image_folder", "path": str(path), "unreadable": "skip"}
    if "patch" in fields and task not in _RESTORES:
        raise UserError(f"--patch is for tasks that restore images ({', '.join(_RESTORES)}); leave it out for {task}")
    if facts.are_grey and "channels" not in fields:
        source["channels"] = 1
        words.append("all images are grey: one channel (say source.channels=3 otherwise)")
    if not {"patch", "size"} & set(fields):
        patch = _PATCH[source.get("channels", 3)]
        if task in _RESTORES and facts.side > _LARGEST_WHOLE:
            source["patch"] = patch
            words.append(
                f"images of about {facts.side} pixels are cut into patches of {patch}×{patch}; no image is in two of "
                "training, validation and test (say --patch otherwise; larger ones need a larger --budget)"
            )
        elif facts.side != _LARGEST_WHOLE:
            source["size"] = min(facts.side, _LARGEST_WHOLE)
            words.append(f"images are resized to {source['size']}×{source['size']} (say source.size otherwise)")
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
    targets = load_data(component("sources", source | dict(fields)), options.data_dir).train.targets
    task = "denoise" if targets is None else "classification" if targets.ndim == 1 else "regression"
    return source, task, [f"{name}: {task}, by the kind of its targets (say --task otherwise)"]


def _store(data: Any, target: Any, test: Any) -> tuple[str, Any, str | None]:
    """Write tables and arrays of this process to files of ISTHMUS_HOME, so that runs can be repeated."""
    if isinstance(data, np.ndarray) and data.ndim > 2:
        values = None if target is None else np.asarray(target)
        arrays = {"inputs": data} | ({"target": values} if values is not None else {})
        key = digest([array_digest(np.ascontiguousarray(array)) for array in arrays.values()], 16)
        path = make_folder(home() / "data") / f"{key}.npz"
        if not path.exists():
            write_with(path, lambda temporary: np.savez(temporary.open("wb"), **arrays))
        return str(path), "target" if values is not None else None, None
    names, values = target, None
    if isinstance(target, str | int):
        names = [str(target)]
    elif target is not None and not (isinstance(target, list) and all(isinstance(name, str) for name in target)):
        names, values = ["target"], target
    stored = _store_table(data, values)
    return stored, names, None if test is None else test if isinstance(test, str) else _store_table(test, None)


def _store_table(data: Any, values: Any) -> str:
    import hashlib

    import pyarrow
    import pyarrow.parquet

    table = table_of(data)
    if values is not None:
        table = table.append_column("target", pyarrow.array(np.asarray(values)))
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    path = make_folder(home() / "data") / f"{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    if not path.exists():
        write_with(path, lambda temporary: temporary.write_bytes(content))
    return str(path)


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower().partition(".")[0]).strip("-")[:40] or "data"
