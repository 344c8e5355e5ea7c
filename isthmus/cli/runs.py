"""`isthmus runs`: list, compare and remove."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli.options import Json

app = typer.Typer(help="List, compare and remove runs.", no_args_is_help=True)


@app.command("list")
def runs_list(as_json: Json = False) -> None:
    """Every run, finished or not."""
    from isthmus.cli import terminal
    from isthmus.studies.runs import overview

    lines = overview()
    if as_json:
        terminal.print_json(lines)
    elif not lines:
        terminal.out.print("no runs yet; `isthmus demo` makes some")
    else:
        terminal.print_table("", list(lines[0]), [list(line.values()) for line in lines])


@app.command("diff")
def runs_diff(
    first: Annotated[str, typer.Argument(help="A run: its id, the beginning of it, or its folder.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    as_json: Json = False,
) -> None:
    """Where two runs differ: settings, cost and metrics."""
    from isthmus.cli import terminal
    from isthmus.studies.runs import differences

    lines = differences(first, second)
    if as_json:
        terminal.print_json(lines)
    else:
        rows = [[name, str(a), str(b)] for name, (a, b) in lines.items()]
        terminal.print_table("", ["field", first, second], rows)


@app.command("clean")
def runs_clean(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Runs to remove (default: those that never finished).")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Also the ones that failed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove runs: the ones named, or the unfinished ones. A run in use stays."""
    from isthmus.cli import terminal
    from isthmus.studies.runs import removable, remove, studies_in_need

    folders = removable(runs or [], failed)
    for folder in folders:
        terminal.out.print(str(folder), highlight=False, soft_wrap=True)
    needs, unknown = studies_in_need(folders)
    for name, number in needs.items():
        line = f"the study {name} needs {number} of these runs and would train them again"
        terminal.out.print(line, highlight=False, soft_wrap=True, markup=False)
    for name in unknown if folders else ():
        line = f"the study {name} may need some of these runs: its study.json is damaged"
        terminal.out.print(line, highlight=False, soft_wrap=True, markup=False)
    if not folders:
        terminal.out.print("nothing to remove")
    elif yes or typer.confirm(f"remove {len(folders)} run(s)?"):
        for folder in folders:
            if not remove(folder):
                terminal.err.print(f"{folder.name} is in use by another process and stays", highlight=False)
