"""Standard streams that may be closed, full, or unable to encode every character."""

from __future__ import annotations

import contextlib
import io
import os
import sys


def open_streams() -> None:
    """Replace closed streams by the null device, and escape characters that a stream cannot encode."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _open_null("r" if descriptor == 0 else "w"))
        elif descriptor and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_null(mode: str) -> io.TextIOWrapper:
    """Occupies the closed descriptor, which the next opened file would get otherwise."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(descriptor, True)
    stream = open(descriptor, mode, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115, PTH123
    assert isinstance(stream, io.TextIOWrapper)
    return stream


def flush_output() -> None:
    """Flush standard output; on OSError, discard the rest and raise."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
        raise


def discard_output() -> None:
    """Redirect standard output to the null device, so that Python does not fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def escape(line: str) -> str:
    """The line with control characters escaped, and those that standard error cannot encode."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def say(line: str) -> None:
    """Print a line on standard error; a closed stream is ignored."""
    with contextlib.suppress(OSError, ValueError):
        print(escape(line), file=sys.stderr, flush=True)
