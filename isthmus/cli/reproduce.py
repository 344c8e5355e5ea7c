"""``isthmus reproduce``: reproduce a paper's table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.options import DataDir, Json, Overrides, Rebuild
from isthmus.core.machine import default_workers


def reproduce(
    paper: Annotated[str | None, typer.Argument(help="A paper, such as `hourglass`.")] = None,
    table: Annotated[str | None, typer.Argument(help="A table, figure or section, such as `T8`, `F3`, `S4`.")] = None,
    settings: Overrides = None,
    scale: Annotated[
        str, typer.Option(help="`smoke`: seconds, embedded data; `cpu`: about an hour; `paper`: the exact protocol.")
    ] = "cpu",
    protocol: Annotated[
        str,
        typer.Option(help="At the paper's scale: `printed`, or `code` for what the authors' code has instead."),
    ] = "printed",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes of one thread (default: cores).")] = None,
    rebuild: Rebuild = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Report the runs that have ended so far, without training any.")
    ] = False,
    stored: Annotated[
        bool,
        typer.Option("--stored", help="Take a study from a stored result of another table instead of training it."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the results (default: in ISTHMUS_HOME).")] = None,
    again: Annotated[
        Path | None, typer.Option(help="Test the claims of stored results below this folder again, without training.")
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="List which tables and claims have results, at which scale, and verdicts.")
    ] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Reproduce a paper's table or figure: measured beside published, row by row, and which claims hold.

    Without a table, list the available ones. For example: `isthmus reproduce hourglass T8 --scale smoke`

    Where the data are, the seeds and the devices can be changed: `source.folder=…`, `seeds=5`, `train.device=cuda`.
    `--status` reads the results below `--out`, or by default those in results/reproductions and in ISTHMUS_HOME.
    """
    from isthmus.cli import terminal
    from isthmus.papers.engine.reproduce import default_folder, judge_below, list_exhibits
    from isthmus.papers.engine.reproduce import reproduce as measure
    from isthmus.papers.engine.status import default_folders

    if status:
        print_status(paper, out, as_json)
        return
    if again is not None:
        for result in judge_below(again):
            terminal.out.print(f"judged again: {result}", soft_wrap=True)
        return
    if paper is not None and table is not None:
        from isthmus.cli.complete import complete_study
        from isthmus.studies.complete import read_study

        out = out or default_folder(paper, table, scale, protocol)
        carry_out, processes = partial(complete_study, rebuild=rebuild), workers or default_workers(1)
        found = measure(
            paper, table, scale, out, carry_out=read_study if recorded else carry_out, workers=processes,
            data_dir=data_dir, partial=recorded, protocol=protocol, overrides=settings or (),
            stored=default_folders() if stored else (),
        )  # fmt: skip
        if as_json:
            terminal.print_json(found, sort_keys=True)
        else:
            print_result(found, out)
        return
    lines = list_exhibits(paper)
    if as_json:
        terminal.print_json(lines)
    else:
        terminal.print_table("", list(lines[0]), [list(line.values()) for line in lines])


def print_status(paper: str | None, folder: Path | None, as_json: bool) -> None:
    from isthmus.cli import terminal
    from isthmus.papers.engine.status import default_folders, describe, read_status

    found = read_status([folder] if folder else default_folders(), paper)
    if as_json:
        terminal.print_json(found)
        return
    for each in found:
        rows = [
            [claim["id"], claim["verdict"] or "not run", claim["scale"] or "", ", ".join(claim["by_exhibit"]),
             str(claim["seeds_to_decide"] or ""), claim["statement"]]
            for claim in each["claims"]
        ]  # fmt: skip
        terminal.print_table("", ["claim", "verdict", "scale", "results of", "seeds to decide", "says"], rows)
        without = [exhibit["id"] for exhibit in each["exhibits"] if not exhibit["scales"]]
        terminal.out.print(describe(each), style="bold")
        terminal.out.print(f"without a result: {', '.join(without)}\n" if without else "", style="dim")


def print_result(result: Mapping[str, Any], folder: Path) -> None:
    from rich.text import Text

    from isthmus.cli import terminal
    from isthmus.papers.engine.tables import NOTHING, note, quantities, table

    title = f"{result['printed_as']}: {result['shows']}"
    if rows := table(result):
        trained = [row for row in rows if row["measured"] != NOTHING]
        terminal.print_table(title, list(rows[0]), [list(row.values()) for row in trained])
        if left := len(rows) - len(trained):
            terminal.out.print(f"{left} published rows are not run at this scale; table.md lists them", style="dim")
        terminal.out.print(note(result), style="dim")
    if values := quantities(result):
        terminal.print_table("" if rows else title, list(values[0]), [list(value.values()) for value in values])
    for claim in result["claims"]:
        said = (f"{claim['id']}: {claim['measured']}", "bold")
        terminal.out.print(Text.assemble(said, f"  {claim['statement']}\n    {claim['because']}"))
    for line in result["analysis"].get("summary", ()):
        terminal.out.print(line)
    against = result.get("contradictions", [])
    for title, lines in (
        ("What contradicts the paper", against),
        ("What else differs", [line for line in result["differences"] if line not in against]),
    ):
        terminal.out.print(title if lines else "", style="bold")
        for line in lines:
            terminal.out.print(f"  {line}")
    page = "page, " * (folder / "index.html").is_file()
    files = f"{page}figure, table.md, rows.csv, result.json"
    terminal.out.print(f"{files}: {folder}", soft_wrap=True)
