"""Ctrl-C and SIGTERM: during training a request to save and stop, otherwise the end of the command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_received: list[int] = []


def was_interrupted() -> bool:
    """Whether a signal arrived since the command started."""
    return bool(_received)


def exit_code() -> int:
    """The exit code for the first signal: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (_received[0] if _received else signal.SIGINT)


@contextmanager
def end_on_signals() -> Iterator[None]:
    """Within this context a signal raises KeyboardInterrupt, so that temporary files are removed."""
    _received.clear()

    def end(number: int, frame: object) -> None:
        is_first = not _received
        _received.append(number)
        if is_first or number == signal.SIGINT:  # SIGTERM may arrive twice: to the process and to its group
            raise KeyboardInterrupt

    with keep_handlers(end), _resend_lost_signals():
        yield


@contextmanager
def _resend_lost_signals() -> Iterator[None]:
    """Send a signal again if Python dropped its exception, which happens in finalizers."""
    before = sys.unraisablehook

    def look(lost: Any) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            before(lost)
            return
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = look
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def requests_to_stop(
    tell: Callable[[], None] = lambda: None, *, second_ends: bool = True
) -> Iterator[Callable[[], bool]]:
    """Turn signals into requests to save and stop; yields a function that returns whether there was one.

    Each request calls ``tell``. A second Ctrl-C raises KeyboardInterrupt, unless ``second_ends`` is false. Outside the
    main thread this does nothing, because only the main thread receives signals.
    """
    requests: list[int] = []

    def ask(number: int, frame: object) -> None:
        _received.append(number)
        if second_ends and number == signal.SIGINT and number in requests:
            raise KeyboardInterrupt
        requests.append(number)
        tell()

    with keep_handlers(ask):
        yield lambda: bool(requests)


@contextmanager
def block_signals() -> Iterator[None]:
    """Delay signals. A process that is started meanwhile does not receive them until it calls ``ignore_signals``."""
    resource_tracker.ensure_running()  # its start would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """For a worker, which its parent stops: a terminal or a service manager signals all processes."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


@contextmanager
def keep_handlers(meanwhile: Callable[[int, object], None] | None = None) -> Iterator[None]:
    """Restore the handlers at the end; until then signals go to ``meanwhile``, or to what a library installs."""
    before: dict[signal.Signals, Any] = {number: signal.getsignal(number) or signal.SIG_DFL for number in _SIGNALS}
    try:
        for number in _SIGNALS:
            signal.signal(number, meanwhile or before[number])
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
