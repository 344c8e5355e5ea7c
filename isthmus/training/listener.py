"""Receives the progress of a training while it runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any


class Listener:
    """Receives the progress of a run and may stop it. This one does nothing; a subclass overrides what it needs."""

    def step(self, step: int, steps: int) -> None:
        """Called after every step."""

    def line(self, line: Mapping[str, Any]) -> None:
        """Called with every line of the log as it is written."""

    def should_stop(self) -> bool:
        """Called after every step; True saves the state and raises ``Stopped``."""
        return False


class Interruptible(Listener):
    """Another listener that also stops when a signal arrives."""

    def __init__(self, listener: Listener, is_interrupted: Callable[[], bool]) -> None:
        self.step, self.line = listener.step, listener.line  # type: ignore[method-assign]
        self._listener, self._is_interrupted = listener, is_interrupted

    def should_stop(self) -> bool:
        return self._is_interrupted() or self._listener.should_stop()


class _Remote(Listener):
    """Stands for a listener in another process, at the other end of a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def step(self, step: int, steps: int) -> None:
        self._send("step", step, steps)

    def line(self, line: Mapping[str, Any]) -> None:
        self._send("line", line)

    def end(self) -> None:
        self._send()

    def should_stop(self) -> bool:
        try:
            return self._pipe.poll() and bool(self._pipe.recv())
        except (EOFError, OSError):  # the other process is gone, or its listener failed
            return False

    def _send(self, *call: Any) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(call)


@contextmanager
def reach_by_pipe(listener: Listener) -> Iterator[_Remote]:
    """A stand-in that can travel to another process. A thread here passes its calls on to the listener."""
    here, there = Pipe()

    def pass_on() -> None:
        is_stopping = False
        with here:  # also closed if a listener fails, so that no process waits for it
            while True:
                if not is_stopping and (is_stopping := listener.should_stop()):
                    here.send(True)
                if not here.poll(_PAUSE):
                    continue
                if not (call := here.recv()):
                    return
                getattr(listener, call[0])(*call[1:])

    thread, remote = threading.Thread(target=pass_on, daemon=True), _Remote(there)
    thread.start()
    try:
        yield remote
    finally:
        remote.end()
        thread.join()
        there.close()


_PAUSE = 0.2
"""Seconds between two calls of ``should_stop`` while no news arrives."""
