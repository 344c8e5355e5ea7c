"""Where the runs of a study are trained: in this process, in several on this machine, or on a cluster.

A run is a pure function of its config, so that an executor decides only when and where it is trained. It is given jobs
while it has room for them, one or a stack of them at a time, and returns events.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any, Literal, Self

from isthmus.core.config import run_config
from isthmus.core.errors import UserError, is_shortage
from isthmus.core.interrupts import block_signals, ignore_signals
from isthmus.core.protocols import Data, Task
from isthmus.training.journal import Overtaken
from isthmus.training.listener import Listener
from isthmus.training.loop import Stopped
from isthmus.training.prepare import Options, Prepared, learn_task, load_data, prepare
from isthmus.training.run import InUse, run, run_together

CRASHES = 4
"""How often a run may lose its process before it counts as failed; it resumes after each of the others."""


@dataclass(frozen=True)
class Job:
    """A run to train to its end, or until an epoch. Another process prepares it again from its settings."""

    id: str
    settings: str  # the run's config as JSON
    until: int | None = None
    prepared: Prepared | None = None  # for this process only

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"prepared": None}


@dataclass(frozen=True)
class Advanced:
    id: str
    fraction: float


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    ``done``; ``stopped`` on request; ``failed`` for a reason in the run; ``refused`` for another one, such as a full
    disk; ``crashed``: its process died; ``busy``: another process trains it.
    """

    id: str
    how: Literal["done", "stopped", "failed", "refused", "crashed", "busy"]
    reason: str = ""


Event = Advanced | Ended
_REPORT_EVERY = 0.01  # of a run
_NEEDED_BY_RUNS = ("torchmetrics", "torch._dynamo")
"""Slow imports of every run (the second one is torch's optimizers'), which a worker makes before its first job."""


class Executor(ABC):
    slots = 1
    """Jobs, or stacks of jobs, at a time."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...

    @abstractmethod
    def has_room(self) -> bool: ...

    @abstractmethod
    def start(self, jobs: Sequence[Job], options: Options) -> None:
        """Start one job, or several whose runs have one ``stack_key``."""

    @abstractmethod
    def events(self, timeout: float) -> list[Event]:
        """What happened, waiting at most ``timeout`` seconds for it."""

    @abstractmethod
    def stop(self) -> None:
        """Ask every job to save its state and end."""


class _JobListener(Listener):
    """Reports a job's progress. Stops it at its epoch, or when its executor wants to stop."""

    def __init__(self, job: Job, report: Callable[[Event], None], should_stop: Callable[[], bool]) -> None:
        self.job, self.report, self.executor_should_stop = job, report, should_stop
        self.reported, self.has_reached_epoch = 0.0, False

    def step(self, step: int, steps: int) -> None:
        if step / steps - self.reported >= _REPORT_EVERY or step == steps:
            self.reported = step / steps
            self.report(Advanced(self.job.id, self.reported))

    def line(self, line: Mapping[str, Any]) -> None:
        self.has_reached_epoch |= line["split"] == "validation" and line["epoch"] == self.job.until

    def should_stop(self) -> bool:
        return self.has_reached_epoch or self.executor_should_stop()


def work(
    jobs: Sequence[Job], options: Options, report: Callable[[Event], None], should_stop: Callable[[], bool]
) -> list[Ended]:
    """Carry out a job, or a stack of jobs, in this process."""
    if len(jobs) == 1:
        return [_work_alone(jobs[0], options, report, should_stop)]
    listeners = [_JobListener(job, report, should_stop) for job in jobs]
    try:
        runs = [job.prepared or _prepare(job, options) for job in jobs]
        errors = run_together(runs, options, listeners)
    except Exception:  # of one of them, perhaps; which one, it says alone
        return [_work_alone(job, options, report, should_stop) for job in jobs]
    return [_explain_end(listener, error) for listener, error in zip(listeners, errors, strict=True)]


def _work_alone(job: Job, options: Options, report: Callable[[Event], None], should_stop: Callable[[], bool]) -> Ended:
    listener = _JobListener(job, report, should_stop)
    try:
        run(job.prepared or _prepare(job, options), options, listener)
    except Exception as error:
        return _explain_end(listener, error)
    return _explain_end(listener, None)


def _explain_end(listener: _JobListener, error: Exception | None) -> Ended:
    job = listener.job
    try:
        if error is not None:
            raise error
    except Stopped:
        return Ended(job.id, "done" if listener.has_reached_epoch else "stopped")
    except (InUse, Overtaken):
        return Ended(job.id, "busy")
    except (UserError, OSError) as error:  # the user must act; the run itself has not failed
        return Ended(job.id, "refused", " ".join(str(error).split()))
    except Exception as error:  # the other runs of the study go on
        kind = "out of memory" if is_shortage(error) else type(error).__name__
        return Ended(job.id, "failed", f"{kind}: {' '.join(str(error).split())[:300]}".removesuffix(": "))
    return Ended(job.id, "done")


_shared: dict[Any, tuple[Data, Task]] = {}
_MOST_SHARED = 16
_MOST_VALUES = 2**22


def _prepare(job: Job, options: Options) -> Prepared:
    """The runs of a study share data and task, so that a worker loads them once; of small data it keeps several folds.

    A run's id covers the fingerprint of its data. A file that changed gives another id, and is then read again.
    """
    config = run_config(json.loads(job.settings))
    setup = (config.source, config.task, options.data_dir)
    if setup in _shared:
        prepared = prepare(config, options, *_shared[setup])
        if prepared.id == job.id:
            return prepared
    data = load_data(config.source, options.data_dir)
    if len(_shared) >= _MOST_SHARED or data.train.inputs.size > _MOST_VALUES:
        _shared.clear()
    _shared[setup] = data, learn_task(config.task, data)
    prepared = prepare(config, options, *_shared[setup])
    if prepared.id != job.id:
        raise UserError(
            "the data have changed since the study began; restore them, or give a study of the new data another name=…"
        )
    return prepared


class ThisProcess(Executor):
    """One job or stack at a time, in this process."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.waiting: tuple[Sequence[Job], Options] | None = None
        self.tell: Callable[[Event], None] = lambda event: None
        """Called with progress at once, because ``events`` returns only when a job has ended."""

    def __exit__(self, *error: object) -> None:
        pass

    def has_room(self) -> bool:
        return self.waiting is None

    def start(self, jobs: Sequence[Job], options: Options) -> None:
        self.waiting = (jobs, options)

    def events(self, timeout: float) -> list[Event]:
        if self.waiting is None:
            self.asked.wait(timeout)
            return []
        (jobs, options), self.waiting = self.waiting, None
        return [*work(jobs, options, self.tell, self.asked.is_set)]

    def stop(self) -> None:
        self.asked.set()


class LocalWorkers(Executor):
    """Worker processes on this machine. They receive JSON and load the data themselves.

    They start with their first jobs, or at once if ``early``, so that their imports take place beside other work.
    """

    def __init__(self, workers: int, *, early: bool = False) -> None:
        # A forked process would inherit torch's threads in an unknown state.
        self.context = multiprocessing.get_context("spawn")
        self.slots = workers
        self.workers = [_Worker(self.context) for _ in range(workers if early else 0)]

    def __exit__(self, *error: object) -> None:
        self.stop()
        for worker in self.workers:
            worker.end()

    def has_room(self) -> bool:
        return sum(bool(worker.jobs) for worker in self.workers) < self.slots

    def start(self, jobs: Sequence[Job], options: Options) -> None:
        for worker in [worker for worker in self.workers if not worker.jobs]:
            if worker.give(jobs, options):
                return
            self.workers.remove(worker)  # it was killed while it had nothing to do
        self.workers.append(_Worker(self.context))
        self.workers[-1].give(jobs, options)

    def events(self, timeout: float) -> list[Event]:
        busy = [worker for worker in self.workers if worker.jobs]
        if not busy:
            time.sleep(timeout)
            return []
        ready = wait([worker.pipe for worker in busy], timeout)
        events: list[Event] = []
        for worker in busy:
            if worker.pipe in ready:
                events += worker.news()
                if not worker.is_alive:
                    self.workers.remove(worker)
        return events

    def stop(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.pipe.send(None)


@contextmanager
def hide_main() -> Iterator[None]:
    """Keep a spawned process from importing the script that starts it, which would run again without a main guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class _Worker:
    def __init__(self, context: Any) -> None:
        self.pipe, theirs = context.Pipe()
        # Not a daemon, because a run on several devices starts processes. It ends when the pipe closes.
        self.process = context.Process(target=_serve, args=(theirs,))
        Finalize(self, self.pipe.close, exitpriority=1)
        with hide_main(), block_signals():  # Ctrl-C while it imports would print a traceback
            self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        self.jobs: set[str] = set()
        """The ids of those that have not ended."""
        self.is_alive = True

    def give(self, jobs: Sequence[Job], options: Options) -> bool:
        try:
            self.pipe.send((jobs, options))
        except OSError:
            return False
        self.jobs = {job.id for job in jobs}
        return True

    def news(self) -> list[Event]:
        """All events in the pipe, and a last one if the process has died."""
        events: list[Event] = []
        try:
            while self.pipe.poll():
                events.append(self.pipe.recv())
                if isinstance(events[-1], Ended):
                    self.jobs.discard(events[-1].id)
        except (EOFError, OSError):
            self.process.join()
            self.is_alive = False
            code = self.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            events += [Ended(job, "crashed", f"its process ended with {how}") for job in sorted(self.jobs)]
        return events

    def end(self) -> None:
        self.pipe.close()
        if self.jobs:
            self.process.join(30)
        self.process.kill()  # without a job it has nothing to save, and taking Python down takes a second
        self.process.join()


def _serve(pipe: Connection) -> None:
    """The main function of a worker: carry out jobs from the pipe until it closes or brings None.

    Whatever arrives during a job means to stop. A shared event would hang once a process dies while holding its lock.
    """
    ignore_signals()  # the driver gets them too, and asks the workers to stop
    for name in _NEEDED_BY_RUNS:
        importlib.import_module(name)
    with contextlib.suppress(EOFError, OSError):
        while message := pipe.recv():
            jobs, options = message
            for ended in work(jobs, options, pipe.send, pipe.poll):
                pipe.send(ended)
