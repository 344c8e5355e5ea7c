"""UserError, which the command line prints as one line, and helpers for its messages."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_MANY = 12


class UserError(Exception):
    """Invalid input. The message says what was given, what is accepted and what to type."""


def nearest(word: str, choices: Iterable[str], listing: str = "") -> str:
    """The end of an error message: the closest valid name, or all valid names if none is close.

    If there are many, the three closest, and the command ``listing`` that prints all.
    """
    choices = sorted(choices)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    if listing and len(choices) > _MANY:
        few = difflib.get_close_matches(word, choices, n=3, cutoff=0.0)
        return f"the nearest are {', '.join(few)}; `{listing}` lists all {len(choices)}"
    return f"choose from: {', '.join(choices)}" if choices else "nothing is available"


def is_shortage(error: BaseException) -> bool:
    """Whether memory ran out; torch reports it as one of several kinds of RuntimeError."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error))


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Suppress the warnings of these loggers, where our own error line replaces them."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
