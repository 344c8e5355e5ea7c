"""``isthmus report``: one page from run records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.options import command_line


def report(
    paths: Annotated[list[str] | None, typer.Argument(help="Runs, or folders of runs (default: all runs).")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the page.")] = Path("report"),
    title: Annotated[str, typer.Option(help="Headline of the page.")] = "Shapes of residual networks",
) -> None:
    """Write one self-contained page from run records, with PNG and CSV files beside it."""
    from isthmus.cli import terminal
    from isthmus.core.record import find_run, run_folders, runs_folder
    from isthmus.reports import write_report

    folders: list[Path] = []
    for path in paths or [str(runs_folder())]:
        inside = list(run_folders(Path(path))) if Path(path).is_dir() else []
        folders += inside or [find_run(path)]
    page = write_report(folders, out, title, command_line(), answers=_read_answers())
    terminal.out.print(str(page), soft_wrap=True)


def _read_answers() -> list[dict[str, Any]]:
    """What `isthmus find` found, the latest last."""
    from isthmus.core.files import home
    from isthmus.search.answer import ANSWER, Answer

    files = sorted((home() / "finds").glob(f"*/{ANSWER}"), key=lambda file: file.stat().st_mtime)
    return [Answer.read(file.parent).for_page() for file in files]
