"""``isthmus runs``: list, compare and remove runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli.options import Json

_WIDTH = 100
"""Columns of a list of runs that is no terminal's."""

app = typer.Typer(help="List, compare and remove runs.", no_args_is_help=True)


@app.command("list")
def runs_list(as_json: Json = False) -> None:
    """List all runs, finished or not, the newest first."""
    from isthmus.cli import terminal
    from isthmus.studies.runs import overview

    lines = overview()
    if as_json:
        terminal.print_json(lines)
    elif not lines:
        terminal.out.print("no runs yet; `isthmus demo` trains some")
    else:
        columns = ["run", "last change", "data", "task", "model", "seed", "params", "test"]
        terminal.print_table("", columns, [_row(line) for line in lines], None if terminal.out.is_terminal else _WIDTH)


def _row(line: dict[str, Any]) -> list[str]:
    """A run for the terminal; what has no test figure says why."""
    from isthmus.cli import terminal
    from isthmus.reports.text import metric_noun

    test = line["test"].replace(f"{line['objective']} ", f"{metric_noun(line['objective'])} ", 1)
    test = test if line["status"] == "finished" else f"{line['status']}: {test}".removesuffix(": ")
    params = terminal.size(line["params"]) if line["params"] else ""
    when = line["changed"][5:16].replace("T", " ")  # month, day and time: lists are sorted by it
    return [line["run"], when, line["data"], line["task"], line["model"], str(line["seed"]), params, test]


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
        rows = [[name, *("–" if value is None else str(value) for value in pair)] for name, pair in lines.items()]
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
