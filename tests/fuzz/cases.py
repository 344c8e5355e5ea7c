"""What the kinds of attack share: the command line in this process, and the judgement of what it answers."""

from __future__ import annotations

import io
import os
import re
import sys
import time
import traceback
import types
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

from isthmus.cli.main import main

LONGEST = 300
"""Characters of an error line."""


class Failure(Exception):
    """A defect that an attack has found."""

    def __init__(self, way: Literal["wrong", "traceback", "endless"], what: object) -> None:
        super().__init__(way, str(what))
        self.way, self.what = way, str(what)


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def is_refusal(self) -> bool:
        return self.code == 2


class Streams(NamedTuple):
    """Where the standard streams lead; one without a name is closed."""

    stdin: str = os.devnull
    out: str = "out.txt"
    err: str = "err.txt"
    encoding: str = "utf-8"


def call(*words: object) -> Answer:
    """``isthmus WORDS`` in this process; an exception that leaves ``main`` or is reported by it is a failure."""
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", ["isthmus", *map(str, words)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
        except Exception as error:
            raise Failure("traceback", describe(error)) from error
    answer = Answer(code, out.getvalue(), err.getvalue())
    judge(answer)
    return answer


def describe(error: BaseException) -> str:
    """The exception, and the line of ours in which it was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "isthmus" in frame.filename]
    where = "".join(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in frames[-1:])
    return f"{type(error).__name__}: {str(error)[:200]}{where}"


def judge(answer: Answer, *, is_ascii: bool = False) -> None:
    """A good exit code, and an error that is one short line, perhaps with a second one that names its report."""
    shown = f"exit {answer.code}, {answer.err.strip()[-1500:]!r}"
    if "Traceback (most recent" in answer.err + answer.out:
        raise Failure("traceback", shown)
    if answer.code == 1 and not is_foreseen(answer):
        raise Failure("traceback", f"{shown}{last_line_of_report(answer.err)}")
    if answer.code not in (0, 1, 2, 130, 143):
        raise Failure("traceback", shown)
    if answer.is_refusal:
        check_refusal(answer.err)
    if is_ascii and not (answer.out + answer.err).isascii():
        raise Failure("wrong", f"characters that the stream has not: {shown}")


def is_foreseen(answer: Answer) -> bool:
    """A training that diverged, a question that nobody answered, or a reader that went away."""
    if "report is in" in answer.err or "report could be" in answer.err:
        return False
    return "failed" in answer.out or "Aborted" in answer.err or not answer.err.strip()


def last_line_of_report(err: str) -> str:
    report = re.search(r"report is in (.+)", err)
    if report is None or not Path(report[1]).is_file():
        return ""
    lines = Path(report[1]).read_text(errors="replace").strip().splitlines()
    return " | " + " ".join(" ".join(line.split()) for line in lines[-7:])[-700:]


def check_refusal(err: str) -> None:
    lines = [line for line in err.splitlines() if line.startswith("isthmus: ")]
    if not lines and "Usage:" in err:  # Typer's own
        return
    if not lines:
        raise Failure("traceback", f"exit 2 without a line: {err[-500:]!r}")
    for line in lines:
        if len(line) > LONGEST:
            raise Failure("traceback", f"an error line of {len(line)} characters: {line[:200]!r}…{line[-80:]!r}")
        if not line.isprintable():
            raise Failure("traceback", f"an error line with control characters: {line!r}")
    if len(lines) > 2 or (len(lines) == 2 and "report" not in lines[1]) or err.rstrip().splitlines()[-1] != lines[-1]:
        raise Failure("traceback", f"an error of {len(err.splitlines())} lines: {err[-500:]!r}")


def start(words: Sequence[str], streams: Streams | None = None, *, is_new: bool = False) -> int:
    """``isthmus WORDS`` in a fork of this process, or in a new interpreter.

    A fork has imported everything already, and has run nothing yet: whoever calls this leaves torch alone.
    """
    streams = streams or Streams()
    if process := os.fork():
        return process
    try:
        for descriptor, name in enumerate((streams.stdin, streams.out, streams.err)):
            os.close(descriptor)
            if name:
                taken = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC * (descriptor > 0) | os.O_NONBLOCK)
                os.dup2(taken, descriptor)  # another one where a stream before it is closed
                os.set_inheritable(descriptor, True)
                if taken != descriptor:
                    os.close(taken)
        if is_new:
            os.environ["PYTHONIOENCODING"] = streams.encoding
            os.execv(sys.executable, [sys.executable, "-m", "isthmus", *words])
        os._exit(run_main(words, streams))
    finally:
        os._exit(BROKEN)


BROKEN = 70
"""The exit code of a fork whose own preparation failed, or which an exception left."""


def run_main(words: Sequence[str], streams: Streams) -> int:
    """In the fork: ``main`` with streams like those of a new interpreter."""
    sys.modules["__main__"] = types.ModuleType("__main__")  # so that workers do not import the fuzz
    sys.argv = ["isthmus", *words]
    names = (("stdin", "r", "strict"), ("stdout", "w", "strict"), ("stderr", "w", "backslashreplace"))
    for descriptor, (name, mode, errors) in enumerate(names):
        is_open = bool(streams[descriptor])
        stream = (
            os.fdopen(descriptor, mode, encoding=streams.encoding, errors=errors, closefd=False) if is_open else None
        )
        setattr(sys, name, stream)
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = BROKEN
    for output in (sys.stdout, sys.stderr):
        try:
            if output is not None and not output.closed:
                output.flush()
        except OSError:
            code = 120  # as the interpreter does
    return int(code)


def ended(process: int, seconds: float) -> int | None:
    """The exit code of a process, minus the signal that ended it, or None if it goes on."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.005)
