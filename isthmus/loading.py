"""A trained run in memory again: its model, and its task with what it learned."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from isthmus.errors import UserError
from isthmus.protocols import Task
from isthmus.record import MODEL, TASK, find_run, read_record, verify_file
from isthmus.registry import component, find
from isthmus.training.checkpoint import load_weights, read_tensors


def load(path: str | Path) -> nn.Module:
    """A trained model, from a run (folder or id) or from a ``.safetensors`` file. Nothing in the file is executed."""
    file = Path(path).expanduser()
    if not file.is_file():
        folder = find_run(path)
        file = verify_file(folder, MODEL, read_record(folder))
    weights, metadata = read_tensors(file)
    if "model" not in metadata:
        raise UserError(f"{file} does not say which model it holds; it was not written by Isthmus")
    config = component("models", metadata["model"])
    model: nn.Module = find("models", config.name)(config)
    load_weights(model, weights, metadata, file)
    return model.eval()


def load_task(path: str | Path) -> Task:
    """The task of a finished run with what it learned, so that predictions need no data set."""
    folder = find_run(path)
    record = read_record(folder)
    task: Task = find("tasks", record.task)(component("tasks", record.config["task"]))
    task.recall(read_tensors(verify_file(folder, TASK, record))[0])
    return task
