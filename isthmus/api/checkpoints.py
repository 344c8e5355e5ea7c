"""Evaluates checkpoints of the papers' authors with our data, tasks and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from isthmus.core.config import RunConfig, find_settings, override, run_config
from isthmus.core.errors import UserError
from isthmus.core.registry import find
from isthmus.layers.published_weights import load_published, need_published
from isthmus.training.checkpoint import read_tensors
from isthmus.training.devices import arithmetic
from isthmus.training.loop import Rows, evaluate
from isthmus.training.official_weights import find_official
from isthmus.training.prepare import learn_task, load_data


def evaluate_checkpoint(
    path: Path, name: str, overrides: Sequence[str] = (), data_dir: Path | None = None
) -> dict[str, Any]:
    """The metrics of an authors' network on the test rows.

    ``name`` is a model and a size, such as ``hyper_set/sudoku``. Sizes are read off the weights; ``overrides`` change
    the data, the task, or what weights do not show, such as ``model.iterations=48``.
    """
    official = find_official(name)
    if path.suffix != ".safetensors" or not path.is_file():
        raise UserError(
            f"{path} is no safetensors file; in Python, save the tensors of a checkpoint with "
            "safetensors.torch.save_file (pickled files can execute code and are not read)"
        )
    weights, fields = official.read(read_tensors(path)[0], path)
    settings = find_settings(official.recipe, RunConfig)
    settings["model"] = {**settings["model"], **official.model, **fields}
    config = run_config(override(override(settings, official.settings), overrides))
    data = load_data(config.source, data_dir)
    task = learn_task(config.task, data)
    completed = config.model.complete(task.signature, config.seed)
    title = f"{completed.name} of this size for {config.source.name}"
    with torch.device("meta"):  # before anything is allocated
        need_published(find("models", completed.name)(completed), weights, str(path), title)
    model = find("models", completed.name)(completed)
    load_published(model, weights, str(path), title)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with arithmetic(config.threads):
        metrics = evaluate(model.to(device), task, Rows.of(data.test, device), "test", device)
    if missing := {"loss", task.objective} - metrics.keys():
        raise UserError(f"{path}: the network has no finite {min(missing)} on test data")
    return {
        "checkpoint": str(path),
        "as": name,
        "source": config.source.name,
        "rows": len(data.test),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "model": completed.model_dump(mode="json", exclude_defaults=True),
        "metrics": metrics,
    }
