"""``isthmus study``: search for the best shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from isthmus.cli.options import DataDir, Json, MLflow, Overrides, Page, Rebuild, TensorBoard, command_line


def study(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A study recipe, or a JSON or YAML file.")],
    overrides: Overrides = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes on this machine (default: cores / threads).")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="A Ray cluster: `auto`, or its address.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Database URL, `postgresql://…` (default: SQLite in ISTHMUS_HOME).")
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="Fit the study into this time, such as `90s`, `30m` or `2h`.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Rank a grid by one super-network, and train the promising ones alone.")
    ] = False,
    rebuild: Rebuild = False,
    out: Page = None,
    data_dir: DataDir = None,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = None,
    as_json: Json = False,
) -> None:
    """Search a space of networks: many candidates over several seeds; ends with fronts, a conclusion and a page.

    `isthmus find` needs no recipe. Repeat the command to resume. Several such commands at once share the work:

    `isthmus study mnist5k-shapes sampling.name=tpe sampling.candidates=24 --workers 2 --within 20m`
    """
    from isthmus.api.study import plan_study
    from isthmus.cli import terminal
    from isthmus.cli.complete import complete_study, print_answer
    from isthmus.core.units import parse_seconds
    from isthmus.training.prepare import Options
    from isthmus.training.tracking import prepare_tracking

    options = Options(data_dir=data_dir, command=command_line())
    seconds = None if within is None else parse_seconds(within)
    plan = plan_study(target, overrides or (), options, shared)
    tracking = prepare_tracking(tensorboard, mlflow, plan.config.name)
    plan = replace(plan, options=replace(options, tracking=tracking))
    found = complete_study(plan, plan.options, workers, cluster=cluster, url=storage, within=seconds, rebuild=rebuild)
    print_answer(found, out, as_json)
    if not as_json:
        terminal.print_trackers(tensorboard, mlflow)
