"""From a config to a run that can begin: its data, its task, its cost, its id and its first weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from isthmus.core.config import RunConfig
from isthmus.core.draws import key
from isthmus.core.errors import UserError
from isthmus.core.files import data_dir
from isthmus.core.machine import code_version, memory_bytes
from isthmus.core.protocols import SPLITS, Component, Data, SplitName, Task
from isthmus.core.record import MODEL, RECORD, find_run, read_record, runs_folder, verify_file
from isthmus.core.registry import find
from isthmus.training.checkpoint import read_tensors, start_from
from isthmus.training.counting import Cost, cost
from isthmus.training.devices import arithmetic
from isthmus.training.loop import Rows, recompute_blocks
from isthmus.training.stacks import stack_key
from isthmus.training.tracking import NO_TRACKING, Tracking


@dataclass(frozen=True)
class Options:
    """Settings of this machine and this call. None of them can change a bit of the result."""

    data_dir: Path | None = None
    init_folder: Path | None = None  # of the run named by config.init, if it is not in ISTHMUS_HOME
    save_every: float = 30.0  # seconds between checkpoints
    other_code: bool = False
    tracking: Tracking = NO_TRACKING
    command: str = ""


@dataclass(frozen=True)
class Prepared:
    """A config with everything that its data decide."""

    config: RunConfig
    data: Data
    task: Task
    folder: Path
    cost: Cost

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def has_ended(self) -> bool:
        return (self.folder / RECORD).exists()

    @cached_property
    def stack_key(self) -> str | None:
        """Runs with the same key can train together; None if the run trains alone."""
        return stack_key(self.config, len(self.data.train))

    @property
    def work(self) -> float:
        """Floating-point operations of the training, for estimates of time."""
        rows = len(self.data.train) * self.task.views()
        return float(self.cost.training_flops * rows * self.config.train.last_epoch)


def load_data(source: Component, where: Path | None = None) -> Data:
    """The rows of a source. Folds of the same rows have the same fingerprint: their splits follow from the config."""
    kind, folder = find("sources", source.name), where or data_dir()
    data: Data = kind(source).load(folder)
    if getattr(source, "folds", None) is None:
        return data
    whole: Data = kind(source.model_copy(update={"folds": None, "fold": 0})).load(folder)
    return replace(data, fingerprint=whole.fingerprint)


def learn_task(config: Component, data: Data) -> Task:
    task: Task = find("tasks", config.name)(config)
    if (data.pictures or data.train).extents is not None and not task.crops_photographs:
        raise UserError(
            "source.extent=whole squeezes training photographs into squares, for crops to be drawn from: set "
            "task.name=classification and task.augment.resized_crop=[0.08,1] (of tokens: task.name=masked_tokens and "
            "task.random_crop=true), or leave source.extent out"
        )
    task.learn(data)
    return task


def prepare(
    config: RunConfig, options: Options | None = None, data: Data | None = None, learned: Task | None = None
) -> Prepared:
    """Load the data and let the task learn from them, unless given; complete the config and name the run.

    Nothing is written.
    """
    options = options or Options()
    data = data or load_data(config.source, options.data_dir)
    if not len(data.validation) and config.train.select == "best":
        raise UserError("without validation rows the best weights are unknown: set train.select=last")
    task = learned or learn_task(config.task, data)
    if task.signature.vocabulary and "vocabulary" not in type(config.model).model_fields:
        raise UserError(f"{config.model.name} takes numbers, but task {config.task.name} gives tokens; try hyper_set")
    # Fine-tuning keeps the frozen projections of the initial run, which its seed drew.
    seed = config.seed if config.init is None else read_record(_initial_run(config.init, options)).seed
    complete = config.model_copy(update={"model": config.model.complete(task.signature, seed)})
    if config.train.recompute:  # refused here, before the run has a folder
        with torch.device("meta"):
            recompute_blocks(find("models", complete.model.name)(complete.model))
    counted = cost(complete.model)
    # Weights, gradients, two moments, and the best weights so far.
    needed, there = 16 * counted.trainable_params + 4 * counted.params, memory_bytes()
    if needed > there:
        raise UserError(
            f"training needs {needed / 2**30:.0f} GiB; this machine has {there / 2**30:.0f} GiB: use a smaller model"
        )
    return Prepared(complete, data, task, runs_folder() / complete.run_id(data.fingerprint), counted)


def _initial_run(identity: str, options: Options) -> Path:
    folder = options.init_folder or find_run(identity)
    if read_record(folder).id != identity:
        raise UserError(f"{folder} holds run {read_record(folder).id}, not {identity}")
    return folder


class Start(NamedTuple):
    model: nn.Module
    fresh: list[str]
    """Names of the weights that could not be taken from the initial run."""


def starting_model(config: RunConfig, options: Options) -> Start:
    """The model with random weights drawn from the seed, or with the weights of the initial run where they fit."""
    with arithmetic(config.threads):
        torch.manual_seed(key(config.seed, "init"))
        model: nn.Module = find("models", config.model.name)(config.model)
    if config.init is None:
        return Start(model, [])
    folder = _initial_run(config.init, options)
    path = verify_file(folder, MODEL, read_record(folder))
    return Start(model, start_from(model, *read_tensors(path), path))


def describe_code(config: RunConfig) -> dict[str, str]:
    """The version of our code, and of other packages that the config uses."""
    parts = [find("sources", config.source.name), find("tasks", config.task.name), find("models", config.model.name)]
    return code_version(*sorted({part.__module__ for part in parts if not part.__module__.startswith("isthmus.")}))


def load_rows(prepared: Prepared, device: torch.device) -> dict[SplitName, Rows]:
    return {split: Rows.of(prepared.data.split(split), device) for split in SPLITS}
