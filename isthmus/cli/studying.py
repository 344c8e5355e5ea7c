"""Many runs: the demo, a study, a paper's table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.options import DataDir, Json, Overrides, command_line
from isthmus.errors import UserError

app = typer.Typer()
Rebuild = Annotated[bool, typer.Option("--rebuild", help="Build the study's database again from the run records.")]


@app.command()
def demo(
    workers: Annotated[int, typer.Option(min=1, help="Processes, of one thread each.")] = 2,
    rebuild: Rebuild = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the page (default: in ISTHMUS_HOME).")] = None,
    as_json: Json = False,
) -> None:
    """The main job on embedded data: both shapes, many sizes, two seeds; ends in a table and a page.

    Run again, it answers from its records; interrupted, it goes on.
    """
    from isthmus.recipes.hourglass import demo as recipe
    from isthmus.run import Options
    from isthmus.studies.command import answer, complete

    answer(complete(recipe(), Options(command=command_line()), workers, rebuild=rebuild), out, as_json)


@app.command()
def study(
    target: Annotated[str, typer.Argument(help="A study recipe, a JSON or YAML file, or `shape`.")],
    overrides: Overrides = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes here (default: cores / threads).")] = None,
    cluster: Annotated[str | None, typer.Option(help="A Ray cluster: `auto`, or its address.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Database URL, `postgresql://…` (default: SQLite in ISTHMUS_HOME).")
    ] = None,
    time_budget: Annotated[str | None, typer.Option(help="Fit the study into `30m`, `2h` or `90s`.")] = None,
    rebuild: Rebuild = False,
    data: Annotated[str | None, typer.Option(help="For `shape`: a file of rows, a folder of images, a source.")] = None,
    task: Annotated[str | None, typer.Option(help="For `shape`: `regression`, `denoise`, …")] = None,
    budget: Annotated[str | None, typer.Option(help="For `shape`: parameters at most, such as `200k`.")] = None,
    target_column: Annotated[
        list[str] | None, typer.Option("--target", help="For `shape`: the column or array to predict.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the page (default: in ISTHMUS_HOME).")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Find the best shape: many candidates, repeated over seeds, ending in fronts, an answer and a page.

    The same command goes on where it stopped; several at once share the work. For example:

    `isthmus study shape --data table.csv --task regression --budget 200k`

    `isthmus study mnist5k-shapes sampling.name=tpe sampling.candidates=24 --workers 2 --time-budget 20m`
    """
    from isthmus.run import Options
    from isthmus.studies.command import answer, complete, recommend

    options = Options(data_dir=data_dir, command=command_line())
    seconds = None if time_budget is None else _seconds(time_budget)
    config = _study_config(target, overrides, options, data, task, budget, target_column)
    found = complete(
        config, options, workers or _workers(config.base.threads), cluster=cluster, url=storage, time_budget=seconds,
        rebuild=rebuild,
    )  # fmt: skip
    answer(found, out, as_json)
    if target == "shape" and not as_json:
        recommend(found)


def _workers(threads: int) -> int:
    import os

    return max(1, (os.cpu_count() or 1) // threads)


def _seconds(text: str) -> float:
    import re

    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd]?)", text.strip(), re.ASCII)
    if not match or not float(match[1]):
        raise UserError(f"--time-budget {text[:60]!r} is not a time such as 90s, 30m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _study_config(
    target: str,
    overrides: list[str] | None,
    options: Any,
    data: str | None,
    task: str | None,
    budget: str | None,
    columns: list[str] | None,
) -> Any:
    from isthmus.config import StudyConfig, overridden, read_settings, study_config
    from isthmus.registry import catalogue, find
    from isthmus.space import amount

    if target == "shape":
        if data is None or task is None or budget is None:
            raise UserError("`isthmus study shape` needs --data, --task and --budget")
        params = amount(budget)
        if not isinstance(params, int) or params < 1:
            raise UserError(f"--budget {budget!r} is not a number of parameters such as 200k")
        from isthmus.studies.shape import shape_study

        return shape_study(data, task, params, options, columns or (), overrides or ())
    if Path(target).suffix in (".json", ".yaml", ".yml"):
        settings = read_settings(Path(target))
    else:
        config = find("recipes", target)()
        if not isinstance(config, StudyConfig):
            studies = [name for name in catalogue("recipes") if isinstance(find("recipes", name)(), StudyConfig)]
            raise UserError(
                f"recipe {target!r} is one run, for `isthmus train`; studies are: {', '.join(studies)}, shape"
            )
        settings = config.model_dump(mode="json", exclude_defaults=True)
    return study_config(overridden(settings, overrides or []))


@app.command()
def reproduce(
    paper: Annotated[str | None, typer.Argument(help="A paper, such as `hourglass`.")] = None,
    table: Annotated[str | None, typer.Argument(help="A table, figure or section, such as `T8`, `F3`, `S4`.")] = None,
    scale: Annotated[
        str, typer.Option(help="`smoke`: seconds, embedded data; `cpu`: about an hour; `paper`: the exact protocol.")
    ] = "cpu",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes of one thread (default: cores).")] = None,
    rebuild: Rebuild = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the results (default: in ISTHMUS_HOME).")] = None,
    again: Annotated[
        Path | None, typer.Option(help="Judge stored results below this folder again, without training.")
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Measure a paper's table or figure again: measured beside published, row by row, and which claims hold.

    Without a table: those that there are. For example: `isthmus reproduce hourglass T8 --scale smoke`
    """
    from isthmus import terminal
    from isthmus.reproduction import judge_below, list_exhibits
    from isthmus.reproduction import reproduce as measure_again

    if again is not None:
        for result in judge_below(again):
            terminal.out.print(f"judged again: {result}", markup=False, highlight=False, soft_wrap=True)
        return
    if paper is not None and table is not None:
        from isthmus.studies.command import complete

        carry_out = partial(complete, rebuild=True) if rebuild else None
        measure_again(paper, table, scale, out, workers or _workers(1), data_dir, as_json, carry_out)
        return
    lines = list_exhibits(paper)
    if as_json:
        terminal.print_json(lines)
    else:
        terminal.print_table("", list(lines[0]), [list(line.values()) for line in lines])
