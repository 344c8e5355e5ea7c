"""UserError, which the command line prints as one line, and helpers for its messages."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

_MANY = 12


class UserError(Exception):
    """Invalid input. The message says what was given, what is accepted and what to type."""


def nearest(word: str, choices: Iterable[str], listing: str = "") -> str:
    """The end of an error message: the closest valid name, or all valid names if none is close.

    If there are many, the three closest, and the command ``listing`` that prints all.
    """
    choices = sorted(choices)
    if close := _find_close(word, choices):
        return f"did you mean {' or '.join(map(repr, close))}?"
    if listing and len(choices) > _MANY:
        few = difflib.get_close_matches(word, choices, n=3, cutoff=0.0)
        return f"the nearest are {', '.join(few)}; `{listing}` lists all {len(choices)}"
    return f"choose from: {', '.join(choices)}" if choices else "nothing is available"


def _find_close(word: str, choices: Sequence[str]) -> list[str]:
    """Up to three choices that begin with the word, or the one that is closest; capitals do not matter."""
    folded = {choice.lower(): choice for choice in reversed(choices)}
    longer = [choice for choice in choices if choice.lower().startswith(word.lower())] if len(word) > 2 else []
    if 0 < len(longer) <= 3:
        return longer
    return [folded[found] for found in difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.5)]


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
