"""``isthmus demo``: a shape study on embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import Json, Rebuild, command_line


def demo(
    workers: Annotated[int, typer.Option(min=1, help="Processes of one thread each.")] = 2,
    rebuild: Rebuild = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the page (default: in ISTHMUS_HOME).")] = None,
    as_json: Json = False,
) -> None:
    """Compare both shapes on embedded data: many sizes, two seeds; ends with a table and a page.

    Repeat the command to resume, or to show the result of a finished demo.
    """
    from isthmus.cli.complete import complete_study, print_answer
    from isthmus.recipes.mlps import demo as recipe
    from isthmus.training.run import Options

    study = complete_study(recipe(), Options(command=command_line()), workers, rebuild=rebuild)
    print_answer(study, out, as_json)
