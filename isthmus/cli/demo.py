"""``isthmus demo``: the main jobs on embedded data, a study of shapes and a search."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.options import Json, Rebuild, command_line
from isthmus.studio import PORT

if TYPE_CHECKING:
    from isthmus.search.answer import Answer

TABLE, WITHIN = "bikes", "35s"


def demo(
    workers: Annotated[int, typer.Option(min=1, help="Processes of one thread each.")] = 2,
    rebuild: Rebuild = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the pages (default: in ISTHMUS_HOME).")] = None,
    as_json: Json = False,
) -> None:
    """Compare both shapes on embedded digits, then find a network for an embedded table; ends with two pages.

    Takes about two minutes on two cores. Repeat the command to resume, or to show the result of a finished demo.
    """
    from isthmus.cli import terminal
    from isthmus.cli.complete import complete_study, print_answer
    from isthmus.cli.find import print_found
    from isthmus.recipes.mlps import demo as recipe
    from isthmus.training.prepare import Options

    study = complete_study(recipe(), Options(command=command_line()), workers, rebuild=rebuild)
    if as_json:
        print_answer(study, out, as_json, find=dict(_find(workers).content))
        return
    print_answer(study, out, as_json)
    terminal.out.print(f"\nisthmus find {TABLE} --within {WITHIN}", style="bold")
    answer = _find(workers)
    print_found(answer, out and out / TABLE)
    for line in _next_steps(answer):
        terminal.out.print(line, soft_wrap=True)


def _find(workers: int) -> Answer:
    """The stored answer of an earlier search, or that of a new one."""
    from isthmus.cli import terminal
    from isthmus.search import engine
    from isthmus.search.answer import ANSWER, Answer
    from isthmus.search.display import Bar
    from isthmus.search.question import ask
    from isthmus.training.prepare import Options

    known = Answer({"name": ask(TABLE, None, None, None, (), Options()).name})
    if (known.folder / ANSWER).exists():
        return Answer.read(known.folder)
    return engine.find(TABLE, within=WITHIN, workers=workers, progress=Bar(terminal.err), command=command_line())


def _next_steps(answer: Answer) -> list[str]:
    from isthmus.core.files import home

    enter = f". {sys.prefix}/bin/activate" if shutil.which("isthmus") is None else ""
    commands = [
        f"isthmus studio    # all of this in the browser, at http://127.0.0.1:{PORT}/",
        "isthmus find my.csv --target price --within 2m    # or a parquet file, arrays, a folder of images",
        f"isthmus predict {answer.run} {home() / 'examples' / TABLE}.csv",
        "isthmus --help",
    ]
    return ["", "For your own data, type:", *(f"  {line}" for line in [enter, *commands] if line)]
