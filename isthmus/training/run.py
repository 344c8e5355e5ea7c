"""Carrying out a run: builds the source, the task and the model of a config, trains it, and writes the record."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
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
    flatten,
    list_temporary,
    read_record,
    remove_leftovers,
    runs_folder,
    verify_file,
    write_record,
    write_remeasured,
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
from isthmus.training.listener import Interruptible, Listener, reach_by_pipe
from isthmus.training.loading import load_model, load_task
from isthmus.training.loop import Diverged, Outcome, Rows, Stopped, Training, evaluate
from isthmus.training.samples import write_sheet, write_values
from isthmus.training.stacks import Member, stack_key, train_together
from isthmus.training.tracking import NO_TRACKING, Tracked, Tracking, track

_TURN = threading.RLock()


class InUse(UserError):
    """Another process uses the run folder."""


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
    counted = cost(complete.model)
    # Weights, gradients, two moments, and the best weights so far.
    needed, there = 16 * counted.trainable_params + 4 * counted.params, memory_bytes()
    if needed > there:
        raise UserError(
            f"training needs {needed / 2**30:.0f} GiB; this machine has {there / 2**30:.0f} GiB: use a smaller model"
        )
    return Prepared(complete, data, task, runs_folder() / complete.run_id(data.fingerprint), counted)


def run(config: RunConfig | Prepared, options: Options | None = None, listener: Listener | None = None) -> RunRecord:
    """Train the run of this config, resume it, or return its record if it has finished."""
    options, listener = options or Options(), listener or Listener()
    prepared = config if isinstance(config, Prepared) else prepare(config, options)
    if (prepared.folder / RECORD).exists():
        return finished_record(prepared)
    config = prepared.config
    if config.train.stack is not None:
        if error := run_together([prepared], options, [listener])[0]:
            raise error
        return finished_record(prepared)
    check_processes(config.train)
    devices = OneDevice(config.train)  # before the folder, so that a run that cannot start leaves none
    start = None if config.train.devices > 1 else starting_model(config, options)
    if is_another():  # the first process owns the folder
        _run_on_all(config, options, listener)
        if not (prepared.folder / RECORD).exists():
            raise Stopped
        return finished_record(prepared)
    make_folder(prepared.folder)
    with _own(prepared.folder):
        if (prepared.folder / RECORD).exists():  # finished by another process since
            return finished_record(prepared)
        _begin(prepared)
        if start is None:
            _run_on_all(config, options, listener)
        else:
            _train(prepared, start, options, devices, listener)
        if not (prepared.folder / RECORD).exists():
            raise Stopped
    return finished_record(prepared)


def run_together(runs: Sequence[Prepared], options: Options, listeners: Sequence[Listener]) -> list[Exception | None]:
    """Train or resume the runs of a stack, which have one ``stack_key``; each gets its record when it has ended.

    For each of them, what kept it from its record: ``Stopped``, ``InUse``, any other error, or nothing.
    """
    errors: list[Exception | None] = [None] * len(runs)
    with contextlib.ExitStack() as all_open, arithmetic(1):
        members, ends = dict[int, Member](), dict[int, Callable[[Outcome | Exception], None]]()
        for place, (run, listener) in enumerate(zip(runs, listeners, strict=True)):
            own = all_open.enter_context(contextlib.ExitStack())
            try:
                if opened := _open_member(run, options, listener, own):
                    members[place], ends[place] = opened
            except (UserError, OSError) as error:  # the others go on
                errors[place] = error
                own.close()
        places = {id(member): place for place, member in members.items()}

        def end(member: Member, outcome: Outcome | Exception) -> None:
            place = places[id(member)]
            try:
                ends.pop(place)(outcome)
            except Exception as error:
                errors[place] = error

        if members:
            train_together(list(members.values()), end)
    return errors


def _open_member(
    run: Prepared, options: Options, listener: Listener, own: contextlib.ExitStack
) -> tuple[Member, Callable[[Outcome | Exception], None]] | None:
    """A run of a stack, restored, and what writes its results; None if it has ended. ``own`` closes what it opened."""
    if run.has_ended:
        return None
    if run.config.threads != 1:
        raise UserError(f"train.stack={run.config.train.stack} needs threads=1, not threads={run.config.threads}")
    devices, start = OneDevice(run.config.train), starting_model(run.config, options)
    make_folder(run.folder)
    own.enter_context(_own(run.folder))
    if run.has_ended:  # by another process since
        return None
    _begin(run)
    heard = own.enter_context(
        track(listener, options.tracking, run.folder, run.config.model_dump(mode="json"), options.command)
    )
    rows = load_rows(run, devices.device)
    training = make_training(run, start.model, rows, devices)
    journal = _journal(run, options, devices, heard)
    writing = own.enter_context(contextlib.ExitStack())
    writing.enter_context(journal)
    training.restore(journal)

    def end(outcome: Outcome | Exception) -> None:
        with own:
            if isinstance(outcome, Outcome | Diverged):
                writing.close()
                _write_record(run, start, training, outcome, rows, options, heard)
            else:
                raise outcome

    return Member(training, journal, heard), end


def _begin(prepared: Prepared) -> None:
    """Write what a run folder holds from the start."""
    for leftover in list_temporary(prepared.folder):  # by a process that was killed
        leftover.unlink(missing_ok=True)
    _write_config(prepared.folder / CONFIG, prepared.config.model_dump(mode="json"))
    write_tensors(prepared.folder / TASK, prepared.task.memory())


def finished_record(prepared: Prepared) -> RunRecord:
    """The record of a run, checked against its config; metrics that are measured in another way today are updated."""
    record = read_record(prepared.folder)
    meant, written = flatten(prepared.config.model_dump(mode="json")), flatten(record.config)
    different = [name for name in written if name in meant and meant[name] != written[name]]
    if record.id != prepared.id or different:
        raise UserError(f"{prepared.folder} holds the record of another run: {record.id} {' '.join(different)}".strip())
    remove_leftovers(prepared.folder)
    versions = prepared.task.metric_versions
    outdated = [name for name, version in versions.items() if record.metric_versions.get(name, 1) != version]
    if record.status != "finished" or not outdated:
        return record
    metrics = {split: {**values} for split, values in record.metrics.items()}
    for split, values in _evaluate_again(prepared).items():
        metrics[split] |= {name: values[name] for name in outdated if name in values}
    write_remeasured(prepared.folder, record, metrics, versions)
    return read_record(prepared.folder)


def _evaluate_again(prepared: Prepared) -> dict[str, dict[str, float]]:
    """The metrics of the stored weights, measured as today."""
    model, task, device = load_model(prepared.folder), load_task(prepared.folder), torch.device("cpu")
    with arithmetic(prepared.config.threads):
        rows = {split: Rows.of(prepared.data.split(split), device) for split in SPLITS}
        return _evaluate_held_out(model, task, rows, device)


def _evaluate_held_out(
    model: nn.Module, task: Task, rows: Mapping[SplitName, Rows], device: torch.device
) -> dict[str, dict[str, float]]:
    """The metrics of validation and test; none on validation if the run trained on those rows."""
    held_out: tuple[SplitName, ...] = ("validation", "test")
    return {name: evaluate(model, task, rows[name], name, device) if len(rows[name]) else {} for name in held_out}


def _write_config(path: Path, content: dict[str, Any]) -> None:
    """Write the config, unless it is there: the date of the file is the start of the run."""
    with contextlib.suppress(UserError):
        if read_json(path) == content:
            return
    write_json(path, content)


def _run_on_all(config: RunConfig, options: Options, listener: Listener) -> None:
    """Train on several devices. The process of the first one reports to our listener."""
    settings = config.model_dump(mode="json")
    if started_by_torchrun():  # the listener of the first process hears of the run; the others' hear nothing
        on_every_device(config.train, _run_on, settings, options, listener)
        return
    with reach_by_pipe(listener) as remote:
        on_every_device(config.train, _run_on, settings, options, remote)


def _run_on(devices: Devices, settings: dict[str, Any], options: Options, listener: Listener) -> None:
    """Train in one of several processes. A signal may reach any of them; the loop then stops them all."""
    with requests_to_stop(second_ends=False) as is_interrupted, contextlib.suppress(Stopped):
        prepared = prepare(run_config(settings), options)
        start = starting_model(prepared.config, options)
        heard = Interruptible(listener if devices.rank == 0 else Listener(), is_interrupted)
        _train(prepared, start, options, devices, heard)


@contextmanager
def _own(folder: Path) -> Iterator[None]:
    """Lock a run folder. The operating system frees the lock of a process that was killed."""
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
    """Use this number of threads. It is a setting of the whole process, so that runs of one process take turns."""
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


def _code(config: RunConfig) -> dict[str, str]:
    """The version of our code, and of other packages that the config uses."""
    parts = [find("sources", config.source.name), find("tasks", config.task.name), find("models", config.model.name)]
    return code_version(*sorted({part.__module__ for part in parts if not part.__module__.startswith("isthmus.")}))


def _train(prepared: Prepared, start: Start, options: Options, devices: Devices, listener: Listener) -> None:
    """Train in this process. Of several processes, the first shows the run in trackers."""
    config, shown = prepared.config.model_dump(mode="json"), options.tracking if devices.rank == 0 else NO_TRACKING
    with track(listener, shown, prepared.folder, config, options.command) as heard:
        _train_heard(prepared, start, options, devices, heard)


def _train_heard(prepared: Prepared, start: Start, options: Options, devices: Devices, listener: Tracked) -> None:
    """Train in this process. The first of several processes writes the results, and the record last."""
    config = prepared.config
    with arithmetic(config.threads):
        rows = load_rows(prepared, devices.device)
        training = make_training(prepared, start.model, rows, devices)
        with _journal(prepared, options, devices, listener) as journal:
            try:
                outcome: Outcome | Diverged = training.run(journal, listener)
            except Diverged as error:
                outcome = error
        if devices.rank > 0:
            return
        if devices.sharded:  # this process holds only a part of the model
            start = start._replace(model=starting_model(config, options).model.to(devices.device))
        _write_record(prepared, start, training, outcome, rows, options, listener)


def load_rows(prepared: Prepared, device: torch.device) -> dict[SplitName, Rows]:
    return {split: Rows.of(prepared.data.split(split), device) for split in SPLITS}


def make_training(prepared: Prepared, model: nn.Module, rows: Mapping[SplitName, Rows], devices: Devices) -> Training:
    config = prepared.config
    return Training(model, prepared.task, rows["train"], rows["validation"], config.train, config.seed, devices)


def _write_record(
    prepared: Prepared,
    start: Start,
    training: Training,
    outcome: Outcome | Diverged,
    rows: Mapping[SplitName, Rows],
    options: Options,
    listener: Tracked,
) -> None:
    """Write the results of a training that has ended, and the record last."""
    config, folder, task = prepared.config, prepared.folder, prepared.task
    finished = outcome if isinstance(outcome, Outcome) else None
    device = training.devices.device
    metrics = {} if finished is None else _write_results(prepared, start.model, finished, rows, device, options)
    record = RunRecord(
        id=prepared.id,
        status="failed" if finished is None else "finished",
        reason="" if finished is not None else str(outcome),
        config=config.model_dump(mode="json"),
        seed=config.seed,
        fingerprint=prepared.data.fingerprint,
        objective=task.objective,
        maximise=task.maximise,
        code=_code(config),
        machine=machine(),
        versions=versions(),
        data=_describe(prepared.data),
        cost=prepared.cost.as_dict(),
        metrics=metrics,
        directions=task.directions(),
        metric_versions=dict(task.metric_versions),
        selected=_selection(config, finished, start.fresh),
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
    listener.finish(record)


def _journal(prepared: Prepared, options: Options, devices: Devices, listener: Listener) -> Journal:
    return Journal(
        prepared.folder,
        code=f"{_code(prepared.config)['digest']} torch {torch.__version__}",
        other_code=options.other_code,
        save_every=options.save_every,
        writes=devices.rank == 0,
        listener=listener,
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
    return _evaluate_held_out(model, prepared.task, rows, device)


def _describe(data: Data) -> dict[str, Any]:
    rows = {name: len(data.split(name)) for name in SPLITS}
    facts: dict[str, Any] = {"rows": rows, "classes": list(data.classes), "columns": list(data.columns)}
    facts |= {"findings": list(data.findings)} if data.findings else {}
    return facts | ({"table": dict(data.table)} if data.table else {})


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
    """Write predictions for ten evenly spread test rows, the same for every model."""
    folder, task = prepared.folder, prepared.task
    index = torch.linspace(0, len(rows) - 1, min(10, len(rows))).long()
    batch = task.evaluation_batch(*rows.take(index, device), "test", block=len(rows))  # noise of its own block
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
