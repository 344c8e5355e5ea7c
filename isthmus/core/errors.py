"""The one error that a person sees as a line instead of a traceback, and nothing of others' around it."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_MANY = 12


class UserError(Exception):
    """Something the user gave cannot be used; the message says what, what is accepted, and what to type instead."""


def nearest(word: str, choices: Iterable[str], listing: str = "") -> str:
    """The end of an error message: the closest valid name, or all of them where none is close.

    Of many that the command ``listing`` would print, the three nearest.
    """
    choices = sorted(choices)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    if listing and len(choices) > _MANY:
        few = difflib.get_close_matches(word, choices, n=3, cutoff=0.0)
        return f"the nearest are {', '.join(few)}; `{listing}` lists all {len(choices)}"
    return f"choose from: {', '.join(choices)}" if choices else "nothing is available"


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Let these loggers say errors only, where a line of ours says what they would warn of."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
