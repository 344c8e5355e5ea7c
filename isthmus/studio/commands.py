"""Commands that somebody started in a terminal of this machine, found by the locks of the runs that they train.

Only such a command can be paused: its process, or a worker of it, holds the lock of a run of this home.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from isthmus.core.errors import UserError
from isthmus.studio.index import Run, find_holders


@dataclass(frozen=True)
class Command:
    """A process of the command line."""

    pid: int
    words: tuple[str, ...]
    """The command line after ``isthmus``."""

    @property
    def text(self) -> str:
        return shlex.join(["isthmus", *self.words])


def find_commands(runs: Iterable[Run]) -> list[Command]:
    """The commands that train these runs on this machine."""
    found = {}
    for holder in set(find_holders(run for run in runs if not run.has_ended).values()):
        pid = holder
        while pid > 1:
            words = _read_words(pid)
            if words[:1] == ("studio",):  # it started the command, and is none that trains
                break
            if words:  # the outermost, because `demo` may have started it
                found[holder] = Command(pid, words)
            pid = _find_parent(pid)
    return sorted({command.pid: command for command in found.values()}.values(), key=lambda command: command.pid)


def pause_command(runs: Iterable[Run], pid: str) -> None:
    """Ask a command to save and end, as Ctrl-C does in its terminal."""
    command = next((each for each in find_commands(runs) if str(each.pid) == pid), None)
    if command is None:
        raise UserError("this command trains no run of this home any more")
    try:
        os.kill(command.pid, signal.SIGINT)
    except OSError as error:
        raise UserError(f"{command.text} cannot be paused: {error.strerror}") from None


def _read_words(pid: int) -> tuple[str, ...]:
    """The words after ``isthmus``; empty if the process is no command of ours."""
    with suppress(OSError, UnicodeDecodeError):
        given = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
        return tuple(_cut(given))
    return ()


def _cut(given: Sequence[str]) -> Sequence[str]:
    """``python -m isthmus WORDS``, ``isthmus WORDS`` or ``python …/bin/isthmus WORDS``."""
    if given[1:3] == ["-m", "isthmus"]:
        return given[3:]
    for place, word in enumerate(given[:2]):
        if Path(word).name == "isthmus":
            return given[place + 1 :]
    return ()


def _find_parent(pid: int) -> int:
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
