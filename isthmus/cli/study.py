"""``isthmus study``: search for the best shape."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.options import DataDir, Json, Overrides, Rebuild, command_line, default_workers
from isthmus.core.errors import UserError


def study(
    target: Annotated[str, typer.Argument(help="A study recipe, a JSON or YAML file, or `shape`.")],
    overrides: Overrides = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes on this machine (default: cores / threads).")
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="A Ray cluster: `auto`, or its address.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Database URL, `postgresql://…` (default: SQLite in ISTHMUS_HOME).")
    ] = None,
    time_budget: Annotated[
        str | None, typer.Option(help="Reduce the study to this time, such as `90s`, `30m` or `2h`.")
    ] = None,
    rebuild: Rebuild = False,
    data: Annotated[str | None, typer.Option(help="For `shape`: a file of rows, a folder of images, a source.")] = None,
    task: Annotated[str | None, typer.Option(help="For `shape`: `regression`, `denoise`, …")] = None,
    budget: Annotated[
        str | None, typer.Option(help="For `shape`: the largest number of parameters, such as `200k`.")
    ] = None,
    target_column: Annotated[
        list[str] | None, typer.Option("--target", help="For `shape`: the column or array to predict.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the page (default: in ISTHMUS_HOME).")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Search for the best shape: many candidates over several seeds; ends with fronts, a conclusion and a page.

    Repeat the command to resume. Several such commands at once share the work. For example:

    `isthmus study shape --data table.csv --task regression --budget 200k`

    `isthmus study mnist5k-shapes sampling.name=tpe sampling.candidates=24 --workers 2 --time-budget 20m`
    """
    from isthmus.cli.complete import complete_study, print_answer, print_recommendation
    from isthmus.training.run import Options

    options = Options(data_dir=data_dir, command=command_line())
    seconds = None if time_budget is None else _seconds(time_budget)
    plan = _plan(target, overrides, options, data, task, budget, target_column)
    processes = workers or default_workers(plan.config.base.threads)
    found = complete_study(plan, options, processes, cluster=cluster, url=storage, time_budget=seconds, rebuild=rebuild)
    print_answer(found, out, as_json)
    if target == "shape" and not as_json:
        print_recommendation(found)


def _seconds(text: str) -> float:
    import re

    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd]?)", text.strip(), re.ASCII)
    if not match or not float(match[1]):
        raise UserError(f"--time-budget {text[:60]!r} is not a time such as 90s, 30m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _plan(
    target: str,
    overrides: list[str] | None,
    options: Any,
    data: str | None,
    task: str | None,
    budget: str | None,
    columns: list[str] | None,
) -> Any:
    from isthmus.core.config import StudyConfig, override, read_settings, study_config
    from isthmus.core.registry import catalogue, find
    from isthmus.core.space import amount
    from isthmus.studies.plan import Plan

    if target == "shape":
        if data is None or task is None or budget is None:
            raise UserError("`isthmus study shape` needs --data, --task and --budget")
        params = amount(budget)
        if not isinstance(params, int) or params < 1:
            raise UserError(f"--budget {budget!r} is not a number of parameters such as 200k")
        from isthmus.studies.shape import plan_shapes

        return plan_shapes(data, task, params, options, columns or (), overrides or ())
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
    return Plan.of(study_config(override(settings, overrides or [])), options)
