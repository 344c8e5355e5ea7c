"""Listeners that stop a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from isthmus.training.listener import Listener


class StopWhen(Listener):
    """Stops a run when a function, called after every step, says so."""

    def __init__(self, should_stop: Callable[[], bool]) -> None:
        self._should_stop = should_stop

    def should_stop(self) -> bool:
        return self._should_stop()


def stop_after(steps: int) -> StopWhen:
    """Stops a run once it has gone on for so many steps."""
    asked = itertools.count()
    return StopWhen(lambda: next(asked) >= steps)
