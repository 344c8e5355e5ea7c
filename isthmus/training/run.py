"""Carries out a run, alone or in a stack: prepares it, trains it from its last checkpoint and writes its results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import nn

from isthmus.core.config import RunConfig, run_config
from isthmus.core.errors import UserError
from isthmus.core.files import digest, make_folder, read_json, write_json
from isthmus.core.interrupts import requests_to_stop
from isthmus.core.protocols import SplitName
from isthmus.core.record import CONFIG, LOCK, RECORD, TASK, RunRecord, list_temporary
from isthmus.training.checkpoint import State, write_tensors
from isthmus.training.devices import (
    Devices,
    OneDevice,
    arithmetic,
    check_processes,
    is_later_process,
    on_every_device,
    started_by_torchrun,
)
from isthmus.training.journal import Journal
from isthmus.training.listener import Interruptible, Listener, reach_by_pipe
from isthmus.training.loop import Diverged, Outcome, Rows, Stopped, Training
from isthmus.training.prepare import Options, Prepared, Start, describe_code, load_rows, prepare, starting_model
from isthmus.training.results import finished_record, write_results
from isthmus.training.stacks import Member, train_together
from isthmus.training.tracking import NO_TRACKING, Tracked, track


class InUse(UserError):
    """Another process uses the run folder."""


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
    if is_later_process():  # the first process owns the folder
        _run_on_all(config, options, listener)
        if not (prepared.folder / RECORD).exists():
            raise Stopped
        return finished_record(prepared)
    make_folder(prepared.folder)
    with _lock(prepared.folder):
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

    Returns the error that kept each of them from its record, such as ``Stopped`` or ``InUse``, or None.
    """
    errors: list[Exception | None] = [None] * len(runs)
    with contextlib.ExitStack() as all_open, arithmetic(1):
        members, ends = dict[int, Member](), dict[int, Callable[[Outcome | Exception], None]]()
        for place, (run, listener) in enumerate(zip(runs, listeners, strict=True)):
            resources = all_open.enter_context(contextlib.ExitStack())
            try:
                if opened := _open_member(run, options, listener, resources):
                    members[place], ends[place] = opened
            except (UserError, OSError) as error:  # the others continue
                errors[place] = error
                resources.close()
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


def discard_other_code(run: Prepared) -> bool:
    """Delete the state of an unfinished run that other code began, so that it starts again; whether there was one."""
    state, code = State(run.folder), _name_code(run.config)

    def is_of_other_code() -> bool:
        return not run.has_ended and state.code not in (None, code)

    if not is_of_other_code():
        return False
    try:
        with _lock(run.folder):
            if found := is_of_other_code():  # no other process has done it since
                state.clear()
            return found
    except InUse:
        return False


def _open_member(
    run: Prepared, options: Options, listener: Listener, resources: contextlib.ExitStack
) -> tuple[Member, Callable[[Outcome | Exception], None]] | None:
    """A restored run of a stack, and the function that writes its results; None if it has ended.

    ``resources`` closes what this opens.
    """
    if run.has_ended:
        return None
    if run.config.threads != 1:
        raise UserError(f"train.stack={run.config.train.stack} needs threads=1, not threads={run.config.threads}")
    devices, start = OneDevice(run.config.train), starting_model(run.config, options)
    make_folder(run.folder)
    resources.enter_context(_lock(run.folder))
    if run.has_ended:  # by another process since
        return None
    _begin(run)
    tracked = resources.enter_context(
        track(listener, options.tracking, run.folder, run.config.model_dump(mode="json"), options.command)
    )
    rows = load_rows(run, devices.device)
    training = make_training(run, start.model, rows, devices)
    journal = _journal(run, options, devices, tracked)
    writing = resources.enter_context(contextlib.ExitStack())
    writing.enter_context(journal)
    training.restore(journal)

    def end(outcome: Outcome | Exception) -> None:
        with resources:
            if isinstance(outcome, Outcome | Diverged):
                writing.close()
                write_results(run, start, training, outcome, rows, options, tracked)
            else:
                raise outcome

    return Member(training, journal, tracked), end


def _begin(prepared: Prepared) -> None:
    """Write the files that a run folder has from the start: config and task."""
    for leftover in list_temporary(prepared.folder):  # by a process that was killed
        leftover.unlink(missing_ok=True)
    config = prepared.config.model_dump(mode="json")
    _write_config(prepared.folder / CONFIG, config)
    write_tensors(prepared.folder / TASK, prepared.task.memory(), {CONFIG: digest(config)})


def _write_config(path: Path, content: dict[str, Any]) -> None:
    """Write the config, unless it is there: the date of the file is the start of the run."""
    with contextlib.suppress(UserError):
        if read_json(path) == content:
            return
    write_json(path, content)


def _run_on_all(config: RunConfig, options: Options, listener: Listener) -> None:
    """Train on several devices. The process of the first one reports to our listener."""
    settings = config.model_dump(mode="json")
    if started_by_torchrun():  # only the first process calls its listener
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
def _lock(folder: Path) -> Iterator[None]:
    """Lock a run folder. The operating system frees the lock of a process that was killed."""
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InUse(f"the run in {folder} is in use by another process") from None
    try:
        yield
    finally:
        lock.release()


def _train(prepared: Prepared, start: Start, options: Options, devices: Devices, listener: Listener) -> None:
    """Train in this process. Of several processes, the first shows the run in trackers."""
    config, shown = prepared.config.model_dump(mode="json"), options.tracking if devices.rank == 0 else NO_TRACKING
    with track(listener, shown, prepared.folder, config, options.command) as tracked:
        _train_tracked(prepared, start, options, devices, tracked)


def _train_tracked(prepared: Prepared, start: Start, options: Options, devices: Devices, listener: Tracked) -> None:
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
        write_results(prepared, start, training, outcome, rows, options, listener)


def make_training(prepared: Prepared, model: nn.Module, rows: Mapping[SplitName, Rows], devices: Devices) -> Training:
    config = prepared.config
    return Training(model, prepared.task, rows["train"], rows["validation"], config.train, config.seed, devices)


def _name_code(config: RunConfig) -> str:
    return f"{describe_code(config)['digest']} torch {torch.__version__}"


def _journal(prepared: Prepared, options: Options, devices: Devices, listener: Listener) -> Journal:
    return Journal(
        prepared.folder,
        code=_name_code(prepared.config),
        other_code=options.other_code,
        save_every=options.save_every,
        writes=devices.rank == 0,
        listener=listener,
    )
