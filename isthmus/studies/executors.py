"""Where the runs of a study are carried out: in this process, or in several on this machine.

A run is a pure function of its config, so an executor decides only when and where, never what.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from isthmus.config import RunConfig, run_config
from isthmus.errors import UserError
from isthmus.run import Options, _ignore, run
from isthmus.training.loop import Stopped


@dataclass(frozen=True)
class Finished:
    number: int
    error: str = ""


@dataclass(frozen=True)
class Advanced:
    number: int
    fraction: float


Event = Finished | Advanced
_REPORT_EVERY = 0.01  # of a run


class Executor(Protocol):
    def carry_out(self, configs: Sequence[RunConfig], options: Options, tell: Callable[[Event], None]) -> None:
        """Carry out every run, telling how far each is. A run that fails is told with its reason; the others go on."""


def _throttled(number: int, tell: Callable[[Event], None]) -> Callable[[int, int], None]:
    told = 0.0

    def progress(step: int, steps: int) -> None:
        nonlocal told
        if step / steps - told >= _REPORT_EVERY or step == steps:
            told = step / steps
            tell(Advanced(number, told))

    return progress


class ThisProcess:
    def carry_out(self, configs: Sequence[RunConfig], options: Options, tell: Callable[[Event], None]) -> None:
        stop = threading.Event()
        with _saving_on_interrupt(stop):
            for number, config in enumerate(configs):
                try:
                    run(config, replace(options, stop=stop.is_set), _throttled(number, tell))
                    tell(Finished(number))
                except UserError as error:
                    tell(Finished(number, str(error)))
                except Stopped:
                    raise KeyboardInterrupt from None


class LocalWorkers:
    """Processes on this machine. Only JSON configs travel; each worker reads the data itself."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def carry_out(self, configs: Sequence[RunConfig], options: Options, tell: Callable[[Event], None]) -> None:
        context = multiprocessing.get_context(
            "spawn"
        )  # a forked process would inherit torch's threads in an unknown state
        events: Any = context.Queue()
        stop: Any = context.Event()
        pool = ProcessPoolExecutor(self.workers, context, _start_worker, (events, stop))
        portable = replace(options, stop=_stop_is_set, heard=_ignore)
        with pool, _saving_on_interrupt(stop):
            futures = {pool.submit(_work, i, c.model_dump_json(), portable): i for i, c in enumerate(configs)}
            pending: set[Future[None]] = set(futures)
            while pending:
                done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                for event in _drained(events):
                    tell(event)
                for future in done:
                    tell(Finished(futures[future], _reason(future)))
        if stop.is_set():
            raise KeyboardInterrupt


def _drained(events: Any) -> Iterator[Event]:
    while not events.empty():
        yield events.get()


def _reason(future: Future[None]) -> str:
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        raise UserError("a worker was killed; the same command goes on where it stopped")
    return "" if error is None else f"{error}" if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


@contextmanager
def _saving_on_interrupt(stop: Any) -> Iterator[None]:
    """Ctrl-C asks the workers to save and stop, instead of ending them in the middle of a step."""
    try:
        before = signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    except ValueError:  # not the main thread: whoever owns it handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_EVENTS: Any = None
_STOP: Any = None


def _start_worker(events: Any, stop: Any) -> None:
    global _EVENTS, _STOP
    _EVENTS, _STOP = events, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _stop_is_set() -> bool:
    return bool(_STOP.is_set())


def _work(number: int, settings: str, options: Options) -> None:
    if _stop_is_set():
        return
    import json

    try:
        run(run_config(json.loads(settings)), options, _throttled(number, _EVENTS.put))
    except Stopped:
        return
