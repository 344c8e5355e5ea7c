"""Loads the model and the task of a trained run; `isthmus.load` combines them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import nn

from isthmus.core.errors import UserError
from isthmus.core.files import expand_user
from isthmus.core.protocols import Component, ModelConfig, Task
from isthmus.core.record import MODEL, TASK, find_run, read_record, verify_file
from isthmus.core.registry import component, find
from isthmus.training.checkpoint import assign_whole, load_weights, need_fit, read_plan, read_tensors
from isthmus.training.exported import FILES, Exported, exported_file, is_exported, read_exported

_LARGEST = 2**31
"""The largest size of an axis of a row."""


def load_model(path: str | Path) -> nn.Module:
    """A trained model, from a run (folder or id), an exported folder or a ``.safetensors`` file.

    Nothing in the file is executed.
    """
    file = expand_user(path)
    if is_exported(file):
        file = _find_weights(file, read_exported(file))
    elif file.suffix != ".safetensors" or not file.is_file():
        folder = find_run(path)
        file = verify_file(folder, MODEL, read_record(folder))
    plan, metadata = read_plan(file)
    if "model" not in metadata:
        raise UserError(f"{file} does not say which model it holds; it was not written by Isthmus")
    config = component("models", metadata["model"])
    empty = _build_empty(config, file)
    need_fit(empty, plan, metadata, file)
    weights, _ = read_tensors(file)
    if metadata.get("whole"):
        assign_whole(empty, weights, file)
        return empty.eval()
    model: nn.Module = find("models", config.name)(config)
    load_weights(model, weights, metadata, file)
    return model.eval()


def _build_empty(config: Component, file: Path) -> nn.Module:
    """The model on the meta device, which takes no memory."""
    try:
        with torch.device("meta"):
            model: nn.Module = find("models", config.name)(config)
    except UserError:
        raise
    except Exception as error:  # sizes whose products overflow
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{file} is damaged: the {config.name} of its header cannot be built: {reason}") from None
    return model


def _find_weights(folder: Path, exported: Exported) -> Path:
    name = FILES[exported.format]
    if not name.endswith(".safetensors"):
        raise UserError(f"{folder} holds {name}, which has no torch.nn.Module; isthmus.load({str(folder)!r}) runs it")
    return exported_file(folder, name, exported)


def load_task(path: str | Path) -> Task:
    """The task of a finished run or an export, with the state that it learned; it needs no data set."""
    folder = expand_user(path)
    if is_exported(folder):
        exported = read_exported(folder)
        settings, model, memory = exported.task, exported.model, exported_file(folder, TASK, exported)
    else:
        folder = find_run(path)
        record = read_record(folder)
        settings, model = record.config["task"], record.config["model"]
        memory = verify_file(folder, TASK, record)
    config = component("tasks", settings)
    task: Task = find("tasks", config.name)(config)
    _recall(task, config.name, memory)
    try:
        cast("ModelConfig", component("models", model)).complete(task.signature, 0)
    except UserError as error:
        raise UserError(f"{memory} does not fit the model: {error}") from None
    return task


def _recall(task: Task, title: str, path: Path) -> None:
    """Restore the learned state of a task, after checking that it fits."""
    memory = read_tensors(path)[0]
    try:
        task.recall(memory)
        again = task.memory()
        sizes = [*task.signature.input_shape, *task.signature.output_shape, *task.row_shape]
    except Exception as error:  # a tensor of another name, shape or dtype can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{path} is damaged: task {title} cannot use it ({reason})") from None
    for name, tensor in memory.items():
        if name in again and _describe(again[name]) != _describe(tensor):
            raise UserError(f"{path} is damaged: {name} is {tensor.dtype} of shape {tuple(tensor.shape)}")
    finite = all(torch.isfinite(tensor).all() for tensor in memory.values())
    if not finite or not all(0 < size < _LARGEST for size in sizes):
        raise UserError(f"{path} is damaged: it holds numbers that a task {title} cannot learn")


def _describe(tensor: torch.Tensor) -> tuple[bool, torch.Size]:
    return tensor.is_floating_point(), tensor.shape
