"""A trained run in memory again: its model, and its task with what it learned."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from isthmus.errors import UserError
from isthmus.exported import FILES, Exported, exported_file, is_exported, read_exported
from isthmus.files import expanded
from isthmus.protocols import Task
from isthmus.record import MODEL, TASK, find_run, read_record, verify_file
from isthmus.registry import component, find
from isthmus.training.checkpoint import assign_whole, load_weights, read_tensors


def load(path: str | Path) -> nn.Module:
    """A trained model, from a run (folder or id), an exported folder or a ``.safetensors`` file.

    Nothing in the file is executed.
    """
    file = expanded(path)
    if is_exported(file):
        file = _weights_of(file, read_exported(file))
    elif not file.is_file():
        folder = find_run(path)
        file = verify_file(folder, MODEL, read_record(folder))
    weights, metadata = read_tensors(file)
    if "model" not in metadata:
        raise UserError(f"{file} does not say which model it holds; it was not written by Isthmus")
    config = component("models", metadata["model"])
    build = find("models", config.name)
    if metadata.get("whole"):
        with torch.device("meta"):
            model: nn.Module = build(config)
        assign_whole(model, weights, file)
    else:
        model = build(config)
        load_weights(model, weights, metadata, file)
    return model.eval()


def _weights_of(folder: Path, exported: Exported) -> Path:
    name = FILES[exported.format]
    if not name.endswith(".safetensors"):
        raise UserError(f"{folder} holds {name}, which is run and not loaded: `isthmus predict {folder} FILES`")
    return exported_file(folder, name, exported)


def task_name(path: str | Path) -> str:
    """The task of a finished run or of an export."""
    folder = expanded(path)
    return str(read_exported(folder).task["name"]) if is_exported(folder) else read_record(find_run(path)).task


def load_task(path: str | Path) -> Task:
    """The task of a finished run or an export with what it learned, so that predictions need no data set."""
    folder = expanded(path)
    if is_exported(folder):
        exported = read_exported(folder)
        settings, memory = exported.task, exported_file(folder, TASK, exported)
    else:
        folder = find_run(path)
        record = read_record(folder)
        settings, memory = record.config["task"], verify_file(folder, TASK, record)
    config = component("tasks", settings)
    task: Task = find("tasks", config.name)(config)
    task.recall(read_tensors(memory)[0])
    return task
