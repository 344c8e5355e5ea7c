"""``isthmus find``: the best network for your data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import options
from isthmus.cli.options import (
    Budget,
    DataDir,
    Json,
    MLflow,
    Overrides,
    Page,
    Rows,
    Target,
    TensorBoard,
    command_line,
)

if TYPE_CHECKING:
    from isthmus.search.answer import Answer


def find(
    data: Rows,
    overrides: Overrides = None,
    target: Target = None,
    task: Annotated[
        str | None, typer.Option(help="`regression`, `classification`, `denoise`, … (default: by the target).")
    ] = None,
    test: Annotated[str | None, typer.Option(help="A file with the test rows (default: a tenth of the rows).")] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="A column to leave out, such as one known only later; repeatable.")
    ] = None,
    patch: Annotated[
        int | None, typer.Option(min=1, help="Cut images into squares of so many pixels, to restore them.")
    ] = None,
    budget: Budget = "50k",
    within: Annotated[str, typer.Option(help="The time that it may take, such as `90s`, `5m` or `2h`.")] = "2m",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of one thread each (default: the cores, at most 8).")
    ] = None,
    out: Page = None,
    data_dir: DataDir = None,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = None,
    as_json: Json = False,
) -> None:
    """Find the best network for your data within a budget of parameters and of time.

    Isthmus says what it found in the data, compares networks of many sizes with each other and with reference models,
    and trains the best one on all rows but the test rows. Repeat the command to resume. For example:

    `isthmus find houses.csv --target price --budget 50k --within 2m`
    """
    import json

    from isthmus.cli import terminal
    from isthmus.search import engine
    from isthmus.search.display import Bar

    settings = [*([f"source.patch={patch}"] if patch else []), *(overrides or ())]
    settings += [f"source.without={json.dumps(without)}"] if without else []
    answer = engine.find(
        data, list(target or []) or None, task=task, test=test, budget=budget, within=within, workers=workers,
        settings=settings, data_dir=data_dir, progress=Bar(terminal.err), command=command_line(),
        began=options.started, tensorboard=tensorboard, mlflow=mlflow,
    )  # fmt: skip
    if as_json:
        terminal.print_json(dict(answer.content))
    else:
        print_found(answer, out)
        terminal.print_trackers(tensorboard, mlflow)


def print_found(answer: Answer, out: Path | None) -> None:
    """Print the table and the answer, then write the page."""
    from isthmus.cli import terminal
    from isthmus.reports.text import metric_noun

    objective, chosen = answer.content["objective"], answer.content["best"]["title"]
    name, looks = f"validation {objective}", "folds" if answer.content["folds"] else "seeds"
    rows = [row for row in answer.rows() if row[name] is not None]
    shown = [row for place, row in enumerate(rows) if place < 8 or row["kind"] == "reference" or row["model"] == chosen]
    terminal.print_table(
        "",
        ["", "", f"validation {metric_noun(objective)}", looks, "parameters"],
        [["●" if row["model"] == chosen else "", row["model"], terminal.figure(row[name]), row["looks"],
          row["params"] or ""] for row in shown],
    )  # fmt: skip
    terminal.out.print(f"● chosen by the mean validation loss of its {looks}", style="dim")
    for sentence in answer.sentences():
        terminal.out.print(sentence, highlight=False, soft_wrap=True)
    terminal.out.print(f"page: {answer.report(out)}", highlight=False, soft_wrap=True)
    for name, text in answer.commands().items():
        terminal.out.print(f"{name.lower()}: {text}", style="dim", highlight=False, soft_wrap=True)
