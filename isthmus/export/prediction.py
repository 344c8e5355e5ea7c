"""`isthmus.load`: a trained run, an export or a file of weights, opened to predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from isthmus.core.errors import UserError
from isthmus.core.files import expand_user
from isthmus.core.prediction import Trained
from isthmus.core.protocols import Task
from isthmus.core.record import find_run, read_record
from isthmus.export.formats import read_format
from isthmus.tasks.row_prediction import RowPredictor, class_names
from isthmus.tasks.table_prediction import EncodedRows
from isthmus.training.exported import FILES, exported_file, is_exported, read_exported
from isthmus.training.loading import load_model, load_task


def load(path: str | Path) -> Trained:
    """A trained model that takes raw rows, from a run (its id or folder), an exported folder or a file of weights.

    ``load(RUN).predict(rows)`` takes a table, arrays or images and gives values in the units of the targets, or names
    of classes; ``load(RUN).model`` is the ``torch.nn.Module``. A ``.safetensors`` file has no task, so it cannot
    predict. Nothing in the file is executed.
    """
    if not isinstance(path, str | Path):
        raise UserError(
            f"{path!r} is not a model; give the id or the folder of a run; `isthmus runs list` shows the runs"
        )
    folder = expand_user(path)
    if is_exported(folder):
        exported = read_exported(folder)
        model = read_format(exported_file(folder, FILES[exported.format], exported), exported.format)
        return _open(
            path, model, load_task(path), exported.model, exported.table,
            classes=exported.classes, columns=exported.columns, source=exported.source,
            takes_raw_rows=exported.raw, takes_flat_rows="d_in" in exported.model,
        )  # fmt: skip
    model = load_model(path)
    if folder.is_file():
        config: Any = model.config
        return Trained(str(path), model, network=config.model_dump(mode="json"))
    record = read_record(find_run(path))
    data = record.data
    return _open(
        path, model, load_task(path), record.config["model"], data.get("table", {}),
        classes=data.get("classes", []), columns=data.get("columns", []), source=record.config["source"],
        record=record,
    )  # fmt: skip


def _open(
    path: str | Path, model: nn.Module, task: Task, network: Mapping[str, Any], table: Mapping[str, Any],
    *, classes: Sequence[str], columns: Sequence[str], **others: Any,
) -> Trained:  # fmt: skip
    if table:
        columns = _check_table(path, table, task).needed
    kind = task.predictor or RowPredictor
    names = class_names(classes).tolist()
    return Trained(
        str(path), model, task, classes=names, columns=list(columns), table=table, network=network, kind=kind, **others
    )


def _check_table(path: str | Path, table: Mapping[str, Any], task: Task) -> EncodedRows:
    """What is known of the columns, if it is whole and gives as many features as the task takes."""
    try:
        rows = EncodedRows(table)
    except UserError:
        raise
    except Exception as error:  # a value of another kind can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(f"{path} is damaged: its table of columns cannot be used ({reason})") from None
    if (len(rows.encoder.features),) != task.row_shape:
        features = len(rows.encoder.features)
        raise UserError(f"{path} is damaged: its columns give {features} features, its task takes {task.row_shape}")
    return rows
