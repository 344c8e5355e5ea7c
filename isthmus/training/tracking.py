"""Shows runs in TensorBoard and MLflow while they train.

A tracker receives what a listener receives and changes nothing. If it fails, one line says so, and the run continues.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.files import home, make_folder
from isthmus.core.record import RunRecord, flatten
from isthmus.training.listener import Listener

_PAUSE = 300.0
"""Seconds after a failure in which no run tries the same place again."""
_NO_FIGURES = {"step", "epoch", "split", "seconds", "metric_versions"}
_MOST_PARAMS, _LONGEST_PARAM = 100, 6_000
"""MLflow's limits of one call and of one value."""

_failed_at: dict[str, float] = {}
"""Places that failed in this process, and when, by ``time.monotonic``."""


class Tracker:
    """Where the log of one run is also written. Opening it may fail, as may every other call."""

    def line(self, line: Mapping[str, Any]) -> None: ...

    def finish(self, record: RunRecord) -> None: ...

    def close(self) -> None: ...


Opening = Callable[[], Tracker]


@dataclass(frozen=True)
class Tracking:
    """Where the runs of a command are also shown."""

    tensorboard: bool = False  # in each run's folder
    mlflow: str | None = None  # a tracking URI
    experiment: str = "isthmus"  # of MLflow


NO_TRACKING = Tracking()


class TensorBoard(Tracker):
    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter
        self._board = SummaryWriter(str(folder / "tensorboard"))

    def line(self, line: Mapping[str, Any]) -> None:
        for name, value in _figures(line).items():
            self._board.add_scalar(name, value, line["step"])

    def close(self) -> None:
        self._board.close()


class MLflow(Tracker):
    """One run of MLflow for one of ours, also if ours was stopped and resumed."""

    def __init__(self, uri: str, experiment: str, folder: Path, config: Mapping[str, Any], command: str) -> None:
        self._client, self._status = _open_client(uri), "KILLED"
        number = open_experiment(uri, experiment)
        known = self._client.search_runs([number], f"tags.`isthmus.run` = '{folder.name}'", max_results=1)
        if known:
            self._id = known[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        tags = {"isthmus.run": folder.name, "isthmus.folder": str(folder), "isthmus.command": command[:_LONGEST_PARAM]}
        self._id = self._client.create_run(number, run_name=_name_run(config, folder), tags=tags).info.run_id
        self._log_params(flatten(config))

    def _log_params(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        params = [Param(name, str(value)[:_LONGEST_PARAM]) for name, value in values.items()]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + _MOST_PARAMS])

    def _log_metrics(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(self._id, [Metric(name, float(value), now, step) for name, value in values.items()])

    def line(self, line: Mapping[str, Any]) -> None:
        self._log_metrics(_figures(line), line["step"])

    def finish(self, record: RunRecord) -> None:
        figures = {f"cost/{name}": value for name, value in record.cost.items() if isinstance(value, int | float)}
        for name, value in record.metrics.get("test", {}).items():
            figures[f"test/{name}"] = value
        self._log_metrics(figures, record.steps)
        self._status = "FINISHED" if record.status == "finished" else "FAILED"

    def close(self) -> None:
        self._client.set_terminated(self._id, self._status)


class Tracked(Listener):
    """A listener whose run is also shown by trackers."""

    def __init__(self, listener: Listener, opening: Mapping[str, Opening]) -> None:
        self.step, self.should_stop = listener.step, listener.should_stop  # type: ignore[method-assign]
        self._listener, self._trackers = listener, dict[str, Tracker]()
        for place, open_tracker in opening.items():
            if place not in _failed_at or time.monotonic() - _failed_at[place] >= _PAUSE:
                self._try(place, partial(self._open, place, open_tracker))

    def _open(self, place: str, open_tracker: Opening) -> None:
        self._trackers[place] = open_tracker()

    def line(self, line: Mapping[str, Any]) -> None:
        self._listener.line(line)
        for place, tracker in list(self._trackers.items()):
            self._try(place, partial(tracker.line, line))

    def finish(self, record: RunRecord) -> None:
        """Add the costs and test metrics of the record."""
        for place, tracker in list(self._trackers.items()):
            self._try(place, partial(tracker.finish, record))

    def close(self) -> None:
        for place, tracker in list(self._trackers.items()):
            self._try(place, tracker.close)

    def _try(self, place: str, act: Callable[[], Any]) -> None:
        try:
            act()
        except Exception as error:  # whatever it is, the run continues
            self._trackers.pop(place, None)
            say_failure(place, error)


@contextmanager
def track(
    listener: Listener, tracking: Tracking, folder: Path, config: Mapping[str, Any], command: str
) -> Iterator[Tracked]:
    """A listener of the run in this folder that also shows it where ``tracking`` says."""
    require_packages(tracking)
    opening: dict[str, Opening] = {}
    if tracking.tensorboard:
        opening["TensorBoard"] = partial(TensorBoard, folder)
    if uri := tracking.mlflow:
        opening[name_place(uri)] = partial(MLflow, uri, tracking.experiment, folder, config, command)
    heard = Tracked(listener, opening)
    try:
        yield heard
    finally:
        heard.close()


def say_failure(place: str, error: BaseException) -> None:
    """Print that a tracker failed, once for each place and process."""
    cause = " ".join(str(error).split())[:120] or type(error).__name__
    if place not in _failed_at:
        print(f"isthmus: {place} failed, and training continues without it: {cause}", file=sys.stderr, flush=True)
    _failed_at[place] = time.monotonic()


def require_packages(tracking: Tracking) -> None:
    """A one-line error if a package that was asked for is not installed."""
    wanted = {"tensorboard": ("TensorBoard", tracking.tensorboard), "mlflow": ("MLflow", tracking.mlflow is not None)}
    for package, (title, is_wanted) in wanted.items():
        if is_wanted and importlib.util.find_spec(package) is None:
            raise UserError(f"--{package} needs {title}: pip install 'isthmus[{package}]'")


def prepare_tracking(tensorboard: bool, mlflow: str | None, experiment: str = "isthmus") -> Tracking:
    """The tracking that a command asks for. MLflow's tables are made here, before several processes need them."""
    tracking = Tracking(tensorboard, mlflow, os.environ.get("MLFLOW_EXPERIMENT_NAME") or experiment)
    require_packages(tracking)
    if mlflow is None:
        return tracking
    tracking = replace(tracking, mlflow=tracking_uri(mlflow))
    try:
        open_experiment(str(tracking.mlflow), tracking.experiment)
    except Exception as error:  # of a server, or of a package of another version
        say_failure(name_place(str(tracking.mlflow)), error)
        return replace(tracking, mlflow=None)
    return tracking


def tracking_uri(place: str) -> str:
    """MLflow's URI of a place: a URI, a folder for an SQLite file, or ``auto``.

    ``auto`` is ``MLFLOW_TRACKING_URI``, or a folder in ISTHMUS_HOME.
    """
    if place == "auto":
        place = os.environ.get("MLFLOW_TRACKING_URI") or str(home() / "mlflow")
    if "://" in place or place.startswith("databricks"):
        return place
    return f"sqlite:///{make_folder(Path(place).expanduser().absolute()) / 'mlflow.db'}"


def open_experiment(uri: str, name: str) -> str:
    """The id of MLflow's experiment of this name, which is made if it is not there."""
    client = _open_client(uri)
    if found := client.get_experiment_by_name(name):
        return str(found.experiment_id)
    local = uri.removeprefix("sqlite:///") if uri.startswith("sqlite:///") else ""
    try:
        artifacts = (Path(local).absolute().parent / "artifacts").as_uri() if local else None
        return str(client.create_experiment(name, artifact_location=artifacts))
    except Exception:
        if found := client.get_experiment_by_name(name):  # made by another process since
            return str(found.experiment_id)
        raise


def name_place(uri: str) -> str:
    """A tracking server for a message, without its password."""
    shown = re.sub(r"(//[^:/@]*):.*@", r"\1:***@", uri)
    return f"MLflow at {shown}"


def _open_client(uri: str) -> Any:
    """MLflow's client. A server that does not answer may hold a run up for seconds, not for minutes."""
    for name, value in (("MAX_RETRIES", "1"), ("TIMEOUT", "10")):
        os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{name}", value)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # only the chosen server is told of a run
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.tracking import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        return MlflowClient(tracking_uri=uri)


def _figures(line: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a line of the log, named by their split."""
    return {f"{line['split']}/{name}": value for name, value in line.items() if name not in _NO_FIGURES}


def _name_run(config: Mapping[str, Any], folder: Path) -> str:
    return f"{config['model']['name']} {folder.name[:8]}"
