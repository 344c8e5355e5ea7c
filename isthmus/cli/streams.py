"""Standard streams that may be closed, full, gone, or unable to write every character."""

from __future__ import annotations

import contextlib
import io
import os
import sys


def open_streams() -> None:
    """Let a closed stream lead nowhere, and let no character that an encoding lacks end a command."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _open_null("r" if descriptor == 0 else "w"))
        elif descriptor and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_null(mode: str) -> io.TextIOWrapper:
    """Takes the place of the closed descriptor, which otherwise the next file that is opened would get."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(descriptor, True)
    stream = open(descriptor, mode, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115, PTH123
    assert isinstance(stream, io.TextIOWrapper)
    return stream


def flush_output() -> None:
    """Write what is left of the output; raises OSError where that fails, after which nothing more is tried."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
        raise


def discard_output() -> None:
    """Otherwise Python complains again when it ends, about output that cannot be written."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def say(line: str) -> None:
    """A line on standard error, if anything can be written there; a character that a terminal obeys is shown."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)
    with contextlib.suppress(OSError, ValueError):
        print(shown, file=sys.stderr, flush=True)
