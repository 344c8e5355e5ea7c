"""``isthmus report``: one page from run records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import command_line


def report(
    paths: Annotated[list[str] | None, typer.Argument(help="Runs, or folders of runs (default: all runs).")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the page.")] = Path("report"),
    title: Annotated[str, typer.Option(help="Headline of the page.")] = "Shapes of residual networks",
) -> None:
    """Write one self-contained page from run records, with PNG and CSV files beside it."""
    from isthmus.api.records import report as write
    from isthmus.cli import terminal

    page = write(paths or None, out, title=title, command=command_line())
    terminal.out.print(str(page), soft_wrap=True)
