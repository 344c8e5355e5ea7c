"""`isthmus.train`: train one model, and have it ready to predict."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from isthmus.core.config import Given, Overrides, RunConfig, find_settings, override, run_config
from isthmus.core.errors import UserError
from isthmus.core.interrupts import requests_to_stop
from isthmus.core.prediction import Trained
from isthmus.core.record import RunRecord, find_run, flatten, read_record
from isthmus.export.prediction import load
from isthmus.search.display import Bar, Display, Silence, describe_validation
from isthmus.training.devices import count_processes, is_later_process
from isthmus.training.listener import Listener
from isthmus.training.loop import Stopped
from isthmus.training.prepare import Options, Prepared, prepare
from isthmus.training.run import run
from isthmus.training.tracking import NO_TRACKING, prepare_tracking


def train(
    config: Given,
    settings: Overrides = (),
    *,
    init: str | Path | None = None,
    devices: int | None = None,
    data_dir: Path | str | None = None,
    save_every: float = 30.0,
    other_code: bool = False,
    tensorboard: bool = False,
    mlflow: str | None = None,
    progress: bool = True,
) -> Trained:
    """Train one model, resume its run, or load it if the run has finished: the same call gives the same model.

    :param config: the name of a recipe (``isthmus recipes``), a JSON or YAML file, a dict of the same fields, or a
        ``RunConfig``.
    :param settings: fields to change: ``{"model.d_h": 64}`` or ``["model.d_h=64"]``.
    :param init: a run whose weights initialise the model (fine-tuning).
    :param devices: number of processes, with one device each.
    :param data_dir: the folder of data files (default: ``ISTHMUS_DATA``).
    :param save_every: seconds between checkpoints.
    :param other_code: resume a run that another version of the code started.
    :param tensorboard: also write TensorBoard logs to the run's folder.
    :param mlflow: also log to this MLflow folder or server.
    :param progress: whether to show a bar.

    The result is what ``isthmus.load`` returns for the run. It takes raw rows; ``id``, ``metrics`` and ``record`` say
    what was trained:

    >>> import isthmus
    >>> digits = {
    ...     "source": {"name": "digits"},
    ...     "task": {"name": "classification"},
    ...     "model": {"name": "hourglass_mlp", "d_z": 32, "d_h": 8, "depth": 1},
    ...     "train": {"epochs": 2},
    ... }
    >>> model = isthmus.train(digits, {"seed": 1, "threads": 1}, progress=False)
    >>> model
    <01ca6c4fb8875973: hourglass_mlp d_z=32 d_h=8 depth=1, 2,880 parameters, classification>
    >>> sorted(model.metrics["test"])
    ['accuracy', 'loss']
    >>> isthmus.load(model.id).record == model.record
    True
    """
    with Bar() if progress else Silence() as display:
        planned, start = plan_run(config, settings, init, devices)
        options = Options(
            data_dir=None if data_dir is None else Path(data_dir), init_folder=start, save_every=save_every,
            other_code=other_code, command="isthmus.train",
            tracking=NO_TRACKING if is_later_process() else prepare_tracking(tensorboard, mlflow),
        )  # fmt: skip
        prepared = prepare(planned, options)
        record = carry_out(prepared, options, lambda should_stop: _Shown(display, prepared, should_stop))
    if record.status != "finished":
        raise UserError(f"run {record.id} failed: {record.reason}")
    return load(prepared.folder)


def plan_run(
    config: Given, settings: Overrides = (), init: str | Path | None = None, devices: int | None = None
) -> tuple[RunConfig, Path | None]:
    """The complete config, and the folder of the initial run."""
    given = find_settings(config, RunConfig, settings)
    start = find_run(init) if init is not None else None
    if start is not None:
        given["init"] = read_record(start).id
    if devices is None and count_processes() > 1 and "train.devices" not in flatten(given):
        devices = count_processes()
    if devices is not None:
        given = override(given, {"train.devices": devices})
    return run_config(given), start


def carry_out(prepared: Prepared, options: Options, show: Callable[[Callable[[], bool]], Any]) -> RunRecord:
    """Train; Ctrl-C saves the state first. ``show`` makes the display from a function that says whether to stop."""
    with requests_to_stop() as should_stop:
        display = show(should_stop)
        try:
            with contextlib.nullcontext() if is_later_process() else display:
                return run(prepared, options, display)
        except Stopped:
            raise KeyboardInterrupt from None


class _Shown(Listener):
    """Shows a training by a bar."""

    def __init__(self, display: Display, prepared: Prepared, should_stop: Callable[[], bool]) -> None:
        self.display, self.objective, self._should_stop = display, prepared.task.objective, should_stop
        self.fraction = 0.0
        display.say(f"run {prepared.id} in {prepared.folder}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def step(self, step: int, steps: int) -> None:
        self.fraction = step / steps
        self.display.move(self.fraction)

    def line(self, line: Mapping[str, Any]) -> None:
        if line["split"] == "validation":
            self.display.advance(self.fraction, describe_validation(line, self.objective))

    def should_stop(self) -> bool:
        return self._should_stop()
