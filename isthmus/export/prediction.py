"""A trained run or an export, opened to predict: ``isthmus predict`` and its Python form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.files import expand_user
from isthmus.core.prediction import Predictor, Trained
from isthmus.core.record import find_run, read_record
from isthmus.export.formats import read_format
from isthmus.tasks.row_prediction import RowPredictor
from isthmus.training.exported import FILES, exported_file, is_exported, read_exported
from isthmus.training.loading import load, load_task


def open_predictor(run: str | Path, **options: Any) -> Any:
    """What makes the predictions of a run (its id or folder) or of an export, as its task defines them.

    ``predict`` takes files. For most tasks, ``rows`` takes an array and returns predictions in the user's units.
    """
    trained = open_trained(run)
    kind: type[Predictor] = trained.task.predictor or RowPredictor
    for name in options:
        if name not in kind.options:
            raise UserError(f"--{name} does not apply to task {trained.task.config.name} of {run}; leave it out")
    return kind(trained, **options)


def open_trained(run: str | Path) -> Trained:
    folder = expand_user(run)
    if not is_exported(folder):
        record = read_record(find_run(run))
        classes, columns = record.data.get("classes", []), record.data.get("columns", [])
        return Trained(str(run), load(run), load_task(run), record.config["source"], classes, columns)
    exported = read_exported(folder)
    model = read_format(exported_file(folder, FILES[exported.format], exported), exported.format)
    flat = "d_in" in exported.model
    return Trained(str(run), model, load_task(run), exported.source, exported.classes, exported.columns, flat)
