"""Options shared by several commands, and the command line as text."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

Rows = Annotated[
    str, typer.Argument(help="A table (csv, tsv, parquet), arrays (npy, npz), a folder of images, or a source.")
]
Run = Annotated[str, typer.Argument(help="A finished run: its id, a unique prefix of it, or its folder.")]
Target = Annotated[
    list[str] | None, typer.Option(help="The column to predict; repeatable (default: guessed, and said).")
]
Budget = Annotated[str, typer.Option(help="The largest number of parameters, such as `200k`.")]
Page = Annotated[Path | None, typer.Option(help="Folder of the page (default: in ISTHMUS_HOME).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Fields to change, such as `model.d_h=64`.")
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the data files (default: `ISTHMUS_DATA`).", show_default=False),
]
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Rebuild the study's database from the run records.")]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Also write TensorBoard logs to the folder of each run.")
]
MLflow = Annotated[
    str | None,
    typer.Option(
        "--mlflow",
        metavar="PLACE",
        help="Also show each run in MLflow: a folder, a tracking URI, or `auto` (`MLFLOW_TRACKING_URI`, or a folder in "
        "ISTHMUS_HOME).",
    ),
]

started: float | None = None
"""When the program started, by ``time.monotonic``; its imports count as time of a search."""


def command_line() -> str:
    """The command line as valid UTF-8 for a record, without passwords."""
    words = [re.sub(r"(//[^:/@]*):.*@", r"\1:***@", word) for word in sys.argv[1:]]
    return shlex.join(["isthmus", *words]).encode("utf-8", "backslashreplace").decode()


def first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
