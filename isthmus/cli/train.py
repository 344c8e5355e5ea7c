"""``isthmus train``: train one model."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.options import DataDir, Json, MLflow, Overrides, TensorBoard, command_line
from isthmus.core.errors import UserError

if TYPE_CHECKING:
    from isthmus.core.train_config import TrainConfig

PATIENCE = 30.0  # seconds within which the first of several processes has printed its error


def train(
    target: Annotated[
        str, typer.Argument(help="A recipe (`isthmus recipes`) or a JSON or YAML file of the same fields.")
    ],
    overrides: Overrides = None,
    data_dir: DataDir = None,
    init: Annotated[str | None, typer.Option(help="Initialise from the weights of this run (fine-tuning).")] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="Number of processes, with one device each.")] = None,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = None,
    other_code: Annotated[
        bool, typer.Option("--other-code", help="Resume a run that another version of the code started.")
    ] = False,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Train one model. Repeat the command to resume, or to show the result of a finished run.

    For example: `isthmus train mnist5k-denoise model.d_h=64 train.epochs=3 seed=1`
    """
    from isthmus.cli import terminal
    from isthmus.core.config import override, run_config
    from isthmus.core.interrupts import requests_to_stop
    from isthmus.core.record import find_run, flatten, read_record
    from isthmus.training.devices import is_another, processes
    from isthmus.training.loop import Stopped
    from isthmus.training.run import Options, prepare, run
    from isthmus.training.tracking import NO_TRACKING, prepare_tracking

    settings = _settings(target, overrides)
    start = find_run(init) if init is not None else None
    if start is not None:
        settings["init"] = read_record(start).id
    if devices is None and processes() > 1 and "train.devices" not in flatten(settings):
        devices = processes()
    if devices is not None:
        settings = override(settings, [f"train.devices={devices}"])
    config = run_config(settings)
    _check_processes(config.train)
    options = Options(
        data_dir=data_dir, init_folder=start, save_every=save_every, other_code=other_code,
        tracking=NO_TRACKING if is_another() else prepare_tracking(tensorboard, mlflow), command=command_line(),
    )  # fmt: skip
    prepared = prepare(config, options)
    with requests_to_stop() as should_stop:
        display = terminal.TrainingDisplay(prepared.task.objective, should_stop)
        if not is_another():
            terminal.err.print(f"run {prepared.id} in {prepared.folder}", soft_wrap=True)
        try:
            with contextlib.nullcontext() if is_another() else display:
                record = run(prepared, options, display)
        except Stopped:
            raise KeyboardInterrupt from None
    if as_json and not is_another():
        terminal.print_json(vars(record))
    elif not is_another():
        _print_record(record, prepared.folder)
        terminal.print_trackers(tensorboard, mlflow)
    raise typer.Exit(0 if record.status == "finished" else 1)


def _settings(target: str, overrides: list[str] | None) -> dict[str, Any]:
    """The settings of a recipe or of a JSON or YAML file, with the overrides applied."""
    from isthmus.core.config import RunConfig, override, read_settings
    from isthmus.core.registry import find

    if Path(target).suffix in (".json", ".yaml", ".yml"):
        settings = read_settings(Path(target))
    else:
        config = find("recipes", target)()
        if not isinstance(config, RunConfig):
            study = f"a study of many runs, for `isthmus study {target}`"
            raise UserError(f"recipe {target!r} is {study}; `isthmus recipes` lists all")
        settings = config.model_dump(mode="json", exclude_defaults=True)
    return override(settings, overrides or [])


def _check_processes(config: TrainConfig) -> None:
    """Under torchrun, only the first process reports the error."""
    from isthmus.training.devices import check_processes, is_another

    try:
        check_processes(config)
    except UserError:
        if not is_another():
            raise
        # torchrun stops all processes when one fails; wait so that the first can print its error.
        time.sleep(PATIENCE)
        raise typer.Exit(2) from None


def _print_record(record: Any, folder: Path) -> None:
    from rich.text import Text

    from isthmus.cli import terminal

    if record.status != "finished":
        terminal.out.print(Text.assemble(("failed:", "red"), f" {record.reason}"))
        return
    names, chosen = list(record.metrics["test"]), record.selected
    rows = [
        [split, *(f"{values[name]:.5g}" if name in values else "–" for name in names)]
        for split, values in record.metrics.items()
    ]
    terminal.print_table("", ["split", *names], rows)
    size, time_taken = terminal.size(record.cost["params"]), terminal.duration(record.wall_seconds)
    terminal.out.print(f"weights of epoch {chosen['epoch']:g} ({chosen['by']}), {size} parameters, {time_taken}")
    terminal.out.print(f"isthmus predict {record.id} FILES    isthmus report {record.id}")
