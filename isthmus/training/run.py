"""The composition root: a config becomes a source, a task, a model and a training, and leaves a record."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock, Timeout
from torch import nn

from isthmus.core.config import RunConfig, run_config
from isthmus.core.draws import key
from isthmus.core.errors import UserError
from isthmus.core.files import data_dir, make_folder, read_json, sha256, write_json
from isthmus.core.interrupts import requests_to_stop
from isthmus.core.machine import code_version, keep_freed_memory, machine, memory_bytes, versions
from isthmus.core.protocols import SPLITS, Component, Data, SplitName, Task
from isthmus.core.record import (
    CONFIG,
    MODEL,
    RECORD,
    SAMPLES,
    TASK,
    RunRecord,
    find_run,
    flat,
    half_written,
    read_record,
    remove_leftovers,
    runs_folder,
    verify_file,
    write_measured_again,
    write_record,
)
from isthmus.core.registry import find
from isthmus.training.checkpoint import State, read_tensors, start_from, write_model, write_tensors
from isthmus.training.counting import Cost, cost
from isthmus.training.devices import (
    Devices,
    OneDevice,
    check_processes,
    is_another,
    on_every_device,
    started_by_torchrun,
)
from isthmus.training.journal import Journal
from isthmus.training.loading import load, load_task
from isthmus.training.loop import Diverged, Outcome, Rows, Stopped, Training, evaluate
from isthmus.training.samples import write_sheet, write_values

Progress = Callable[[int, int], None]

HELD_OUT: tuple[SplitName, ...] = ("validation", "test")
_TURN = threading.RLock()


class InUse(UserError):
    """Another process owns the run folder: this one may wait, or do something else."""


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


def learned_task(config: Component, data: Data) -> Task:
    task: Task = find("tasks", config.name)(config)
    task.learn(data)
    return task


def prepare(
    config: RunConfig, options: Options | None = None, data: Data | None = None, learned: Task | None = None
) -> Prepared:
    """Load the data (unless given), let the task read it (unless it has), complete the config, and name the run.
    Nothing is written."""
    options = options or Options()
    data = data or load_data(config.source, options.data_dir)
    task = learned or learned_task(config.task, data)
    if task.signature.vocabulary and "vocabulary" not in type(config.model).model_fields:
        raise UserError(f"{config.model.name} takes numbers, and task {config.task.name} gives tokens; try hyper_set")
    # A run that starts from another one keeps what that one's seed drew and froze.
    seed = config.seed if config.init is None else read_record(_initial_run(config.init, options)).seed
    complete = config.model_copy(update={"model": config.model.completed(task.signature, seed)})
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
    prepared = config if isinstance(config, Prepared) else prepare(config, options)
    if (prepared.folder / RECORD).exists():
        return finished_record(prepared)
    config = prepared.config
    check_processes(config.train)
    devices = OneDevice(config.train)  # what cannot start leaves no folder behind
    start = None if config.train.devices > 1 else starting_model(config, options)
    if is_another():  # the first one owns the folder
        _run_on_all(config, options, progress)
        if not (prepared.folder / RECORD).exists():
            raise Stopped
        return finished_record(prepared)
    make_folder(prepared.folder)
    with _owned(prepared.folder):
        if (prepared.folder / RECORD).exists():  # finished by another process since
            return finished_record(prepared)
        for leftover in half_written(prepared.folder):  # by a process that was killed
            leftover.unlink(missing_ok=True)
        _write_config(prepared.folder / CONFIG, config.model_dump(mode="json"))
        write_tensors(prepared.folder / TASK, prepared.task.memory())
        if start is None:
            _run_on_all(config, options, progress)
        else:
            _train(prepared, start, options, devices, progress)
        if not (prepared.folder / RECORD).exists():
            raise Stopped
    return finished_record(prepared)


def finished_record(prepared: Prepared) -> RunRecord:
    """The record of a run, if it is the run that the config means today, with metrics as they are measured today."""
    record = read_record(prepared.folder)
    meant, written = flat(prepared.config.model_dump(mode="json")), flat(record.config)
    different = [name for name in written if name in meant and meant[name] != written[name]]
    if record.id != prepared.id or different:
        raise UserError(f"{prepared.folder} holds the record of another run: {record.id} {' '.join(different)}".strip())
    remove_leftovers(prepared.folder)
    versions = prepared.task.metric_versions
    outdated = [name for name, version in versions.items() if record.metric_versions.get(name, 1) != version]
    if record.status != "finished" or not outdated:
        return record
    metrics = {split: {**values} for split, values in record.metrics.items()}
    for split, values in _evaluated_again(prepared).items():
        metrics[split] |= {name: values[name] for name in outdated if name in values}
    write_measured_again(prepared.folder, record, metrics, versions)
    return read_record(prepared.folder)


def _evaluated_again(prepared: Prepared) -> dict[SplitName, dict[str, float]]:
    """What the stored weights reach today, with the scaling that was stored with them."""
    model, task, device = load(prepared.folder), load_task(prepared.folder), torch.device("cpu")
    with arithmetic(prepared.config.threads):
        rows = {split: Rows.of(prepared.data.split(split), device) for split in HELD_OUT}
        return {split: evaluate(model, task, rows[split], split, device) for split in HELD_OUT}


def _write_config(path: Path, content: dict[str, Any]) -> None:
    """Also where it is damaged; left alone where it is whole, because its date is the start of the run."""
    with contextlib.suppress(UserError):
        if read_json(path) == content:
            return
    write_json(path, content)


def _run_on_all(config: RunConfig, options: Options, progress: Progress) -> None:
    """Train on several devices, of which the first tells our listeners and hears from us when to stop."""
    settings = config.model_dump(mode="json")
    if started_by_torchrun():  # the first one is this process, or else nobody listens here
        on_every_device(config.train, _run_on, settings, options, progress)
        return
    with _in_touch(options, progress) as (tell, asked):
        on_every_device(config.train, _run_on, settings, replace(options, heard=tell, stop=asked), tell)


def _run_on(devices: Devices, settings: dict[str, Any], options: Options, progress: Progress) -> None:
    """One of several processes; the first of them writes. A signal may reach them all, and they agree to stop."""
    asked = options.stop if devices.rank == 0 else _never
    with requests_to_stop(second_ends=False) as is_interrupted, contextlib.suppress(Stopped):
        options = replace(options, stop=lambda: is_interrupted() or asked())
        prepared = prepare(run_config(settings), options)
        start = starting_model(prepared.config, options)
        _train(prepared, start, options, devices, progress if devices.rank == 0 else lambda step, steps: None)


@contextmanager
def _in_touch(options: Options, progress: Progress) -> Iterator[tuple[Callable[..., None], Callable[[], bool]]]:
    """What another process may call instead of our listeners and of our ``stop``, which do not travel: a thread here
    calls them."""
    here, there = Pipe()

    def listen() -> None:
        asked = False
        with here:  # closed also where a listener fails, so that nobody waits to be heard
            while True:
                if not asked and (asked := options.stop()):
                    here.send(True)
                if not here.poll(_PAUSE):
                    continue
                if not (news := here.recv()):
                    return
                options.heard(*news) if len(news) == 1 else progress(*news)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    tell = partial(_tell, there)
    try:
        yield tell, partial(_asked, there)
    finally:
        tell()
        thread.join()
        there.close()


_PAUSE = 0.2
"""Seconds between two questions whether to stop, where nothing is told."""


def _tell(there: Connection, *news: Any) -> None:
    """A line of the log, or a step and their number; nothing at all says that there is no more."""
    with contextlib.suppress(OSError):  # whoever listened is gone
        there.send(news)


def _asked(there: Connection) -> bool:
    """Whether to stop; whoever is gone asks nothing."""
    try:
        return there.poll() and bool(there.recv())
    except (EOFError, OSError):
        return False


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """One process owns a run folder; the operating system frees the lock of a process that was killed."""
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InUse(f"the run in {folder} is in use by another process") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def arithmetic(threads: int) -> Iterator[None]:
    """The number of threads that the config names, for as long as the run lasts.

    It belongs to the whole process, as torch's random generator does, so the runs of one process take turns.
    """
    keep_freed_memory()
    with _TURN:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _initial_run(identity: str, options: Options) -> Path:
    folder = options.init_folder or find_run(identity)
    if read_record(folder).id != identity:
        raise UserError(f"{folder} holds run {read_record(folder).id}, not {identity}")
    return folder


class Start(NamedTuple):
    model: nn.Module
    fresh: list[str]
    """The weights that another run was to give and did not."""


def starting_model(config: RunConfig, options: Options) -> Start:
    """The model with the weights that the seed draws, or that another run gives where they fit."""
    with arithmetic(config.threads):
        torch.manual_seed(key(config.seed, "init"))
        model: nn.Module = find("models", config.model.name)(config.model)
    if config.init is None:
        return Start(model, [])
    folder = _initial_run(config.init, options)
    path = verify_file(folder, MODEL, read_record(folder))
    return Start(model, start_from(model, *read_tensors(path), path))


def _code(config: RunConfig) -> dict[str, str]:
    """Our code, and that of other packages whose parts the config names."""
    parts = [find("sources", config.source.name), find("tasks", config.task.name), find("models", config.model.name)]
    return code_version(*sorted({part.__module__ for part in parts if not part.__module__.startswith("isthmus.")}))


def _train(prepared: Prepared, start: Start, options: Options, devices: Devices, progress: Progress) -> None:
    """Train in this process; the first of several writes the results and, last of all, the record."""
    config, folder, task, model = prepared.config, prepared.folder, prepared.task, start.model
    reason, outcome = "", None
    with arithmetic(config.threads):
        rows = {split: Rows.of(prepared.data.split(split), devices.device) for split in SPLITS}
        training = Training(model, task, rows["train"], rows["validation"], config.train, config.seed, devices)
        with _journal(prepared, options, devices) as journal:
            try:
                outcome = training.run(journal, progress)
            except Diverged as error:
                reason = str(error)
        if devices.rank > 0:
            return
        if devices.sharded:  # and what is left of it here is a part
            model = starting_model(config, options).model.to(devices.device)
        metrics = {} if outcome is None else _write_results(prepared, model, outcome, rows, devices.device, options)
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
        data=_described(prepared.data),
        cost=prepared.cost.as_dict(),
        metrics=metrics,
        directions=task.directions(),
        metric_versions=dict(task.metric_versions),
        selected=_selection(config, outcome, start.fresh),
        steps=training.position.step,
        wall_seconds=round(training.position.seconds, 3),
        samples_per_second=round(training.samples_seen / max(training.position.seconds, 1e-9), 1),
        started=datetime.fromtimestamp((folder / CONFIG).stat().st_mtime, UTC).isoformat(timespec="seconds"),
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
    prepared: Prepared,
    model: nn.Module,
    outcome: Outcome,
    rows: Mapping[SplitName, Rows],
    device: torch.device,
    options: Options,
) -> dict[str, dict[str, float]]:
    model.load_state_dict(outcome.weights)
    model.eval()
    write_model(prepared.folder / MODEL, model, outcome.weights, prepared.config.model.model_dump(mode="json"))
    _write_samples(prepared, model, rows["test"], device, options.data_dir or data_dir())
    return {split: evaluate(model, prepared.task, rows[split], split, device) for split in HELD_OUT}


def _described(data: Data) -> dict[str, Any]:
    rows = {name: len(data.split(name)) for name in SPLITS}
    return {"rows": rows, "classes": list(data.classes), "columns": list(data.columns)}


def _selection(config: RunConfig, outcome: Outcome | None, fresh: list[str]) -> dict[str, Any]:
    if outcome is None:
        return {}
    by = "lowest validation loss" if config.train.select == "best" else "last step"
    chosen: dict[str, Any] = {"step": outcome.step, "epoch": outcome.epoch, "by": by}
    return chosen | ({"not_initialised_from_run": fresh} if fresh else {})


def _is_result(path: Path) -> bool:
    return path.is_file() and not path.name.startswith((".", "state"))


@torch.no_grad()
def _write_samples(prepared: Prepared, model: nn.Module, rows: Rows, device: torch.device, where: Path) -> None:
    """Ten test rows, evenly spread, because a source may keep its test rows in order; the same for every model."""
    folder, task = prepared.folder, prepared.task
    index = torch.linspace(0, len(rows) - 1, min(10, len(rows))).long()
    batch = task.evaluation_batch(*rows.take(index, device), "test", block=len(rows))  # noise of a block of their own
    if samples := task.sample_rows(model, batch):
        source = find("sources", prepared.config.source.name)(prepared.config.source)
        write_sheet(folder / SAMPLES, [source.pictures(each.rows, where, each.hidden) for each in samples])
        return
    decoded = task.decode(model(batch.input))
    if decoded.ndim == 4:
        pictures = (batch.input.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
        write_sheet(folder / SAMPLES, [pictures, decoded, task.decode(batch.target)])
    else:
        target = batch.target.cpu().numpy() if decoded.ndim == 1 else task.decode(batch.target)
        write_values(folder / "samples.csv", decoded, target)
