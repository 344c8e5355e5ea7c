"""Error output: one line for the person, and a report file for the rest."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from isthmus.cli.options import command_line
from isthmus.cli.streams import escape, say
from isthmus.core.errors import UserError

LONGEST = 300
"""Characters of an error line."""
_ENDING = 90
"""Characters kept at the end of a shortened line, because errors end with what to type."""
_KEPT = 20
"""Report files; older ones are removed."""


def fail_unexpected(error: BaseException) -> int:
    """Print two lines: the error, and the path of the full report."""
    name = type(error).__name__
    return fail(f"unexpected error, {name}: {error}" if str(error) else f"unexpected error, {name}", error, code=1)


def fail(message: str, error: BaseException, code: int = 2) -> int:
    """Print the message in one line; a second line names the report if the error is unexpected or the line too long."""
    if os.environ.get("ISTHMUS_TRACEBACK") not in (None, "", "0"):
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exception(error)
    line = escape(f"isthmus: {' '.join(message.split())}")  # which makes it longer
    say(shorten(line))
    if code == 1 or len(line) > LONGEST:
        path = write_report(message, error)
        say("isthmus: no report could be written" if path is None else _pointer(path))
    return code


def shorten(line: str) -> str:
    if len(line) <= LONGEST:
        return line
    gap = escape(" … ")
    return f"{line[: LONGEST - _ENDING - len(gap)]}{gap}{line[-_ENDING:]}"


def _pointer(path: Path) -> str:
    return f"isthmus: the full report is in {path}"


def write_report(message: str, error: BaseException) -> Path | None:
    """The report's path, in ISTHMUS_HOME or else in the temporary folder; None if neither is writable."""
    text = "".join(_content(message, error))
    for place in _places():
        with contextlib.suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            # mkstemp makes it readable by its owner only: a command line may hold a database password.
            prefix = f"isthmus-{datetime.now():%Y-%m-%d-%H%M%S}-"
            descriptor, name = tempfile.mkstemp(dir=place, prefix=prefix, suffix=".txt")
            with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
                file.write(text)
            return Path(name)
    return None


def _places() -> Iterator[Path]:
    from isthmus.core.files import home

    with contextlib.suppress(UserError, OSError):
        place = home() / "errors"
        for old in sorted(place.glob("isthmus-*.txt"))[: 1 - _KEPT]:
            old.unlink(missing_ok=True)
        if len(_pointer(place)) < LONGEST - 50:  # room for the file name
            yield place
    with contextlib.suppress(OSError):
        yield Path(tempfile.gettempdir())


def _content(message: str, error: BaseException) -> Iterator[str]:
    from isthmus.core.machine import versions

    yield f"{message}\n\n{command_line()}\n"
    with contextlib.suppress(OSError):  # the current folder may be deleted
        yield f"in {Path.cwd()}\n"
    yield f"python {platform.python_version()} ({sys.executable}) on {platform.platform()}\n"
    yield "".join(f"{name} {number}\n" for name, number in versions().items())
    yield "\n"
    yield from traceback.format_exception(error)
