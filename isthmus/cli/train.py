"""``isthmus train``: train one model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.options import DataDir, Json, MLflow, Overrides, TensorBoard, command_line
from isthmus.core.errors import UserError
from isthmus.core.units import duration

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
    from isthmus.api.train import carry_out, plan_run
    from isthmus.cli import terminal
    from isthmus.training.devices import is_later_process
    from isthmus.training.prepare import Options, prepare
    from isthmus.training.tracking import NO_TRACKING, prepare_tracking

    config, start = plan_run(target, overrides or (), init, devices)
    _check_processes(config.train)
    options = Options(
        data_dir=data_dir, init_folder=start, save_every=save_every, other_code=other_code,
        tracking=NO_TRACKING if is_later_process() else prepare_tracking(tensorboard, mlflow), command=command_line(),
    )  # fmt: skip
    prepared = prepare(config, options)
    if not is_later_process():
        terminal.err.print(f"run {prepared.id} in {prepared.folder}", soft_wrap=True)
    record = carry_out(
        prepared, options, lambda should_stop: terminal.TrainingDisplay(prepared.task.objective, should_stop)
    )
    if as_json and not is_later_process():
        terminal.print_json(vars(record))
    elif not is_later_process():
        _print_record(record, prepared.folder)
        terminal.print_trackers(tensorboard, mlflow)
    raise typer.Exit(0 if record.status == "finished" else 1)


def _check_processes(config: TrainConfig) -> None:
    """Under torchrun, only the first process reports the error."""
    from isthmus.training.devices import check_processes, is_later_process

    try:
        check_processes(config)
    except UserError:
        if not is_later_process():
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
    size, time_taken = terminal.size(record.cost["params"]), duration(record.wall_seconds)
    terminal.out.print(f"weights of epoch {chosen['epoch']:g} ({chosen['by']}), {size} parameters, {time_taken}")
    terminal.out.print(f"isthmus predict {record.id} FILES    isthmus report {record.id}")
