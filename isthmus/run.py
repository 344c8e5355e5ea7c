"""The composition root: a config becomes a source, a task, a model and a training, and leaves a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from isthmus.protocols import SPLITS, Component, Data, SplitName, Task
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
from isthmus.registry import find
from isthmus.samples import write_sheet, write_values
from isthmus.training.checkpoint import State, read_tensors, start_from, write_model, write_tensors
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


def load_data(source: Component, where: Path | None = None) -> Data:
    data: Data = find("sources", source.name)(source).load(where or data_dir())
    return data


def prepare(config: RunConfig, where: Path | None = None, data: Data | None = None) -> Prepared:
    """Load the data (unless given), let the task read it, complete the config, and name the run. Nothing is written."""
    data = data or load_data(config.source, where)
    task: Task = find("tasks", config.task.name)(config.task)
    task.learn(data)
    complete = config.model_copy(update={"model": config.model.completed(task.signature, config.seed)})
    counted = cost(complete.model)
    # Weights, gradients and two moments, and the best weights so far.
    needed, there = 16 * counted.trainable_params + 4 * counted.params, memory_bytes()
    if needed > there:
        raise UserError(f"training this model takes {needed / 2**30:.0f} GiB, and here are {there / 2**30:.0f} GiB")
    return Prepared(complete, data, task, runs_folder() / complete.run_id(data.fingerprint), counted)


def run(
    config: RunConfig | Prepared, options: Options | None = None, progress: Progress = lambda step, steps: None
) -> RunRecord:
    """Train, or go on with, or just look up the run that this config names."""
    options = options or Options()
    prepared = config if isinstance(config, Prepared) else prepare(config, options.data_dir)
    if (prepared.folder / RECORD).exists():
        return _record(prepared)
    config = prepared.config
    model, fresh = _starting_model(config, options)  # what cannot start leaves no folder behind
    devices = OneDevice(config.train)
    make_folder(prepared.folder)
    with _owned(prepared.folder):
        if (prepared.folder / RECORD).exists():  # finished by another process since
            return _record(prepared)
        write_json(prepared.folder / CONFIG, config.model_dump(mode="json"))
        write_tensors(prepared.folder / TASK, prepared.task.memory())
        if config.train.devices > 1:
            alone = replace(options, stop=_never, heard=_ignore)  # listeners do not travel to other processes
            on_every_device(config.train, _run_on, config.model_dump(mode="json"), alone)
        else:
            _train(prepared, model, fresh, options, devices, progress)
    return _record(prepared)


def _record(prepared: Prepared) -> RunRecord:
    record = read_record(prepared.folder)
    if record.id != prepared.id:
        raise UserError(f"{prepared.folder} holds the record of another run, {record.id}")
    return record


def _run_on(devices: Devices, settings: dict[str, Any], options: Options) -> None:
    """One of several processes; the first of them writes."""
    prepared = prepare(run_config(settings), options.data_dir)
    model, fresh = _starting_model(prepared.config, options)
    _train(prepared, model, fresh, options, devices, lambda step, steps: None)


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


def _starting_model(config: RunConfig, options: Options) -> tuple[nn.Module, list[str]]:
    """The model with the weights that the seed draws or another run gives, and the names of those it does not give."""
    torch.manual_seed(key(config.seed, "init"))
    model: nn.Module = find("models", config.model.name)(config.model)
    if config.init is None:
        return model, []
    folder = options.init_folder or find_run(config.init)
    record = read_record(folder)
    if record.id != config.init:
        raise UserError(f"{folder} holds run {record.id}, not {config.init}")
    weights, _ = read_tensors(verify_file(folder, MODEL, record))
    return model, start_from(model, weights, folder / MODEL)


def _code(config: RunConfig) -> dict[str, str]:
    """Our code, and that of other packages whose parts the config names."""
    parts = [find("sources", config.source.name), find("tasks", config.task.name), find("models", config.model.name)]
    return code_version(*sorted({part.__module__ for part in parts if not part.__module__.startswith("isthmus.")}))


def _train(
    prepared: Prepared, model: nn.Module, fresh: list[str], options: Options, devices: Devices, progress: Progress
) -> None:
    """Train in this process; the first of several writes the results and, last of all, the record."""
    config, folder, task = prepared.config, prepared.folder, prepared.task
    began = datetime.now(UTC)
    reason, outcome = "", None
    with _arithmetic(config.threads):
        rows = {split: Rows.of(prepared.data.split(split), devices.device) for split in SPLITS}
        training = Training(model, task, rows["train"], rows["validation"], config.train, config.seed, devices)
        with _journal(prepared, options, devices) as journal:
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
        code=_code(config),
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


def _journal(prepared: Prepared, options: Options, devices: Devices) -> Journal:
    return Journal(
        prepared.folder,
        code=f"{_code(prepared.config)['digest']} torch {torch.__version__}",
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
