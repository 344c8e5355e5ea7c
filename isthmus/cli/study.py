"""``isthmus study``: search for the best shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.options import (
    DataDir,
    Json,
    MLflow,
    Overrides,
    Rebuild,
    TensorBoard,
    command_line,
    default_workers,
)
from isthmus.core.errors import UserError


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
        str | None, typer.Option(help="Reduce the study to this time, such as `90s`, `30m` or `2h`.")
    ] = None,
    rebuild: Rebuild = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the page (default: in ISTHMUS_HOME).")] = None,
    data_dir: DataDir = None,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = None,
    as_json: Json = False,
) -> None:
    """Search a space of networks: many candidates over several seeds; ends with fronts, a conclusion and a page.

    `isthmus find` needs no recipe. Repeat the command to resume. Several such commands at once share the work:

    `isthmus study mnist5k-shapes sampling.name=tpe sampling.candidates=24 --workers 2 --within 20m`
    """
    from isthmus.cli import terminal
    from isthmus.cli.complete import complete_study, print_answer
    from isthmus.core.space import parse_seconds
    from isthmus.training.run import Options
    from isthmus.training.tracking import prepare_tracking

    options = Options(data_dir=data_dir, command=command_line())
    seconds = None if within is None else parse_seconds(within)
    plan = _plan(target, overrides or [], options)
    tracking = prepare_tracking(tensorboard, mlflow, plan.config.name)
    plan = replace(plan, options=replace(options, tracking=tracking))
    processes = workers or default_workers(plan.config.base.threads)
    found = complete_study(plan, plan.options, processes, cluster=cluster, url=storage, within=seconds, rebuild=rebuild)
    print_answer(found, out, as_json)
    if not as_json:
        terminal.print_trackers(tensorboard, mlflow)


def _plan(target: str, overrides: list[str], options: Any) -> Any:
    from isthmus.core.config import StudyConfig, override, read_settings, study_config
    from isthmus.core.registry import catalogue, find
    from isthmus.studies.plan import Plan

    if Path(target).suffix in (".json", ".yaml", ".yml"):
        settings = read_settings(Path(target))
    else:
        config = find("recipes", target)()
        if not isinstance(config, StudyConfig):
            studies = [name for name in catalogue("recipes") if isinstance(find("recipes", name)(), StudyConfig)]
            raise UserError(f"recipe {target!r} is one run, for `isthmus train`; studies are: {', '.join(studies)}")
        settings = config.model_dump(mode="json", exclude_defaults=True)
    return Plan.of(study_config(override(settings, overrides)), options)
