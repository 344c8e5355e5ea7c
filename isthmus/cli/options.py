"""What several commands share: options, and the line that was typed."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Fields to change, such as `model.d_h=64`.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Where data files are (default: `ISTHMUS_DATA`).", show_default=False)
]

Rebuild = Annotated[bool, typer.Option("--rebuild", help="Build the study's database again from the run records.")]


def command_line() -> str:
    """What was typed, as text that a record can hold: without passwords, and a file may have any bytes in its name."""
    words = [re.sub(r"(//[^:/@]*):.*@", r"\1:***@", word) for word in sys.argv[1:]]
    return shlex.join(["isthmus", *words]).encode("utf-8", "backslashreplace").decode()


def first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def default_workers(threads: int) -> int:
    return max(1, (os.cpu_count() or 1) // threads)
