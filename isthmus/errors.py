"""The one error that a person sees as a line instead of a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user gave cannot be used; the message says what, what is accepted, and what to type instead."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """The end of an error message: the closest valid name, or all of them where none is close."""
    choices = sorted(choices)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"choose from: {', '.join(choices)}" if choices else "nothing is available"
