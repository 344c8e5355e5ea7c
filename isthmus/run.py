"""The composition root: a config becomes a source, a task, a model and a training, and leaves a record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import nn

from isthmus.config import RunConfig, run_config
from isthmus.counting import Cost, cost
from isthmus.draws import key
from isthmus.errors import UserError
from isthmus.files import data_dir, make_folder, sha256, write_json
from isthmus.machine import code_version, machine, memory_bytes, versions
from isthmus.protocols import SPLITS, Data, SplitName, Task
from isthmus.record import (
    CONFIG,
    MODEL,
    RECORD,
    SAMPLES,
    TASK,
    RunRecord,
    find_run,
    read_record,
    runs_folder,
    verify_file,
    write_record,
)
from isthmus.registry import component, find
from isthmus.samples import write_sheet, write_values
from isthmus.training.checkpoint import State, load_weights, read_tensors, start_from, write_model, write_tensors
from isthmus.training.devices import Devices, OneDevice, on_every_device
from isthmus.training.journal import Journal
from isthmus.training.loop import Diverged, Outcome, Rows, Training, evaluate

Progress = Callable[[int, int], None]


def _never() -> bool:
    return False


def _ignore(line: Mapping[str, Any]) -> None:
    pass


@dataclass(frozen=True)
class Options:
    """How a run is carried out here and now: nothing in it can change a bit of the result."""

    data_dir: Path | None = None
    init_folder: Path | None = None  # where the run named by config.init is, if not among our runs
    save_every: float = 30.0  # seconds between two saved states
    other_code: bool = False
    tensorboard: bool = False
    command: str = ""
    stop: Callable[[], bool] = _never  # asked after every step; true saves the state and raises Stopped
    heard: Callable[[Mapping[str, Any]], None] = _ignore  # every line of the log as it is written


@dataclass(frozen=True)
class Prepared:
    """A config with everything that its data decides."""

    config: RunConfig
    data: Data
    task: Task
    folder: Path
    cost: Cost

    @property
    def id(self) -> str:
        return self.folder.name


@lru_cache(maxsize=2)
def _load(source: str, where: Path) -> Data:
    settings = component("sources", json.loads(source))
    data: Data = find("sources", settings.name)(settings).load(where)
    return data


def prepare(config: RunConfig, where: Path | None = None) -> Prepared:
    """Load the data, let the task read it, complete the config, and name the run. Nothing is written."""
    data = _load(config.source.model_dump_json(), where or data_dir())
    task: Task = find("tasks", config.task.name)(config.task)
    task.learn(data)
    complete = config.model_copy(update={"model": config.model.completed(task.signature, config.seed)})
    counted = cost(complete.model)
    needed = (
        16 * counted.trainable_params + 4 * counted.params
    )  # weights, gradients, two moments, the best weights so far
    if needed > memory_bytes():
        raise UserError(
            f"training this model takes about {needed / 2**30:.0f} GiB, and here are {memory_bytes() / 2**30:.0f} GiB"
        )
    return Prepared(complete, data, task, runs_folder() / complete.run_id(data.fingerprint), counted)


def run(config: RunConfig, options: Options | None = None, progress: Progress = lambda step, steps: None) -> RunRecord:
    """Train, or go on with, or just look up the run that this config names."""
    options = options or Options()
    prepared = prepare(config, options.data_dir)
    if (prepared.folder / RECORD).exists():
        return _record(prepared)
    make_folder(prepared.folder)
    with _owned(prepared.folder):
        if (prepared.folder / RECORD).exists():  # finished by another process since
            return _record(prepared)
        write_json(prepared.folder / CONFIG, prepared.config.model_dump(mode="json"))
        write_tensors(prepared.folder / TASK, prepared.task.memory())
        if config.train.devices > 1:
            on_every_device(
                config.train, _run_on, config.model_dump(mode="json"), replace(options, stop=_never, heard=_ignore)
            )
        else:
            _train(prepared, options, OneDevice(config.train), progress)
    return _record(prepared)


def _record(prepared: Prepared) -> RunRecord:
    record = read_record(prepared.folder)
    if record.id != prepared.id:
        raise UserError(f"{prepared.folder} holds the record of another run, {record.id}")
    return record


def _run_on(devices: Devices, settings: dict[str, Any], options: Options) -> None:
    """One of several processes; the first of them writes."""
    _train(prepare(run_config(settings), options.data_dir), options, devices, lambda step, steps: None)


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """One process owns a run folder; the operating system frees the lock of a process that was killed."""
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(f"the run in {folder} is in use by another process") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _arithmetic(threads: int) -> Iterator[None]:
    """The number of threads that the config names, for as long as the run lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build(config: RunConfig) -> nn.Module:
    """The model of a completed config, with the weights that the run's seed draws."""
    torch.manual_seed(key(config.seed, "init"))
    model: nn.Module = find("models", config.model.name)(config.model)
    return model


def _train(prepared: Prepared, options: Options, devices: Devices, progress: Progress) -> None:
    """Train in this process; the first of several writes the results and, last of all, the record."""
    config, folder, task = prepared.config, prepared.folder, prepared.task
    began = datetime.now(UTC)
    reason, outcome = "", None
    with _arithmetic(config.threads):
        model = build(config)
        fresh = _initialise_from_run(model, config, options)
        rows = {split: Rows.of(prepared.data.split(split), devices.device) for split in SPLITS}
        training = Training(model, task, rows["train"], rows["validation"], config.train, config.seed, devices)
        with _journal(folder, options, devices) as journal:
            try:
                outcome = training.run(journal, progress)
            except Diverged as error:
                reason = str(error)
        if devices.rank > 0:
            return
        metrics = {} if outcome is None else _write_results(prepared, model, outcome, rows, devices.device)
    record = RunRecord(
        id=prepared.id,
        status="failed" if outcome is None else "finished",
        reason=reason,
        config=config.model_dump(mode="json"),
        seed=config.seed,
        fingerprint=prepared.data.fingerprint,
        objective=task.objective,
        maximise=task.maximise,
        code=code_version(),
        machine=machine(),
        versions=versions(),
        cost=prepared.cost.as_dict(),
        metrics=metrics,
        selected=_selection(config, outcome, fresh),
        steps=training.position.step,
        wall_seconds=round(training.position.seconds, 3),
        samples_per_second=round(training.samples_seen / max(training.position.seconds, 1e-9), 1),
        started=began.isoformat(timespec="seconds"),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        command=options.command,
        files={path.name: sha256(path) for path in sorted(folder.iterdir()) if _is_result(path)},
    )
    write_record(folder, record)
    State(folder).clear()


def _journal(folder: Path, options: Options, devices: Devices) -> Journal:
    return Journal(
        folder,
        code=f"{code_version()['digest']} torch {torch.__version__}",
        other_code=options.other_code,
        save_every=options.save_every,
        stop=options.stop,
        heard=options.heard,
        tensorboard=options.tensorboard,
        writes=devices.rank == 0,
    )


def _write_results(
    prepared: Prepared, model: nn.Module, outcome: Outcome, rows: Mapping[SplitName, Rows], device: torch.device
) -> dict[str, dict[str, float]]:
    model.load_state_dict(outcome.weights)
    write_model(prepared.folder / MODEL, model, outcome.weights, prepared.config.model.model_dump(mode="json"))
    _write_samples(prepared.folder, model, prepared.task, rows["test"], device)
    held_out: tuple[SplitName, ...] = ("validation", "test")
    return {split: evaluate(model, prepared.task, rows[split], split, device) for split in held_out}


def _selection(config: RunConfig, outcome: Outcome | None, fresh: list[str]) -> dict[str, Any]:
    if outcome is None:
        return {}
    by = "lowest validation loss" if config.train.select == "best" else "last step"
    chosen: dict[str, Any] = {"step": outcome.step, "epoch": outcome.epoch, "by": by}
    return chosen | ({"not_initialised_from_run": fresh} if fresh else {})


def _is_result(path: Path) -> bool:
    return path.is_file() and not path.name.startswith((".", "state"))


def _initialise_from_run(model: nn.Module, config: RunConfig, options: Options) -> list[str]:
    if config.init is None:
        return []
    folder = options.init_folder or find_run(config.init)
    record = read_record(folder)
    if record.id != config.init:
        raise UserError(f"{folder} holds run {record.id}, not {config.init}")
    weights, _ = read_tensors(verify_file(folder, MODEL, record))
    return start_from(model, weights, folder / MODEL)


@torch.no_grad()
def _write_samples(folder: Path, model: nn.Module, task: Task, rows: Rows, device: torch.device) -> None:
    """The first test rows; sources shuffle, so they are a sample."""
    batch = task.evaluation_batch(*rows.block(0, device), "test", 0)
    output = model(batch.input)
    decoded = task.decode(output)
    if decoded.ndim == 4:
        pictures = (batch.input.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
        write_sheet(folder / SAMPLES, [pictures, decoded, task.decode(batch.target)])
    else:
        target = batch.target.cpu().numpy() if decoded.ndim == 1 else task.decode(batch.target)
        write_values(folder / "samples.csv", decoded, target)


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
    task: Task = find("tasks", record.config["task"]["name"])(component("tasks", record.config["task"]))
    task.recall(read_tensors(verify_file(folder, TASK, record))[0])
    return task
