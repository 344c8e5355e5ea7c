"""``isthmus runs``: list, compare and remove runs."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli.options import Json

app = typer.Typer(help="List, compare and remove runs.", no_args_is_help=True)


@app.command("list")
def runs_list(as_json: Json = False) -> None:
    """List all runs, finished or not."""
    from isthmus.cli import terminal
    from isthmus.studies.runs import overview

    lines = overview()
    if as_json:
        terminal.print_json(lines)
    elif not lines:
        terminal.out.print("no runs yet; `isthmus demo` trains some")
    else:
        terminal.print_table("", list(lines[0]), [list(line.values()) for line in lines])


@app.command("diff")
def runs_diff(
    first: Annotated[str, typer.Argument(help="A run: its id, a unique prefix of it, or its folder.")],
    second: Annotated[str, typer.Argument(help="Another run.")],
    as_json: Json = False,
) -> None:
    """Show the settings, costs and metrics in which two runs differ."""
    from isthmus.cli import terminal
    from isthmus.studies.runs import compare

    lines = compare(first, second)
    if as_json:
        terminal.print_json(lines)
    else:
        rows = [[name, str(a), str(b)] for name, (a, b) in lines.items()]
        terminal.print_table("", ["field", first, second], rows)


@app.command("clean")
def runs_clean(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs to remove (default: unfinished runs).")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Also remove failed runs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove the named runs, or all unfinished ones. Runs in use are kept."""
    from isthmus.cli import terminal
    from isthmus.studies.runs import removable, remove, studies_in_need

    folders = removable(runs or [], failed)
    for folder in folders:
        terminal.out.print(str(folder), soft_wrap=True)
    needs, unknown = studies_in_need(folders)
    for name, number in needs.items():
        line = f"the study {name} uses {number} of these runs and would have to train them again"
        terminal.out.print(line, soft_wrap=True)
    for name in unknown if folders else ():
        line = f"the study {name} may use some of these runs: its study.json is damaged"
        terminal.out.print(line, soft_wrap=True)
    if not folders:
        terminal.out.print("nothing to remove")
    elif yes or typer.confirm(f"remove {len(folders)} run(s)?"):
        for folder in folders:
            if not remove(folder):
                terminal.err.print(f"{folder.name} is in use by another process and was kept")
