"""The targets of a table: which column to predict, whether as classes or as values, and the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from isthmus.core.errors import UserError, nearest
from isthmus.sources import cells
from isthmus.sources.tables import Kind, numbers

if TYPE_CHECKING:
    import pyarrow

TARGET_NAMES = ("y", "target", "targets", "label", "labels", "class", "outcome", "response")
_MOST_CLASSES, _FEWEST_ROWS = 20, 10
"""Whole numbers are classes if they are at most so many, in so many rows each."""


class Target(NamedTuple):
    """How a column is predicted, and why: "classification, because it has 3 different values"."""

    task: Literal["classification", "regression"]
    reason: str


class Targets(NamedTuple):
    """int64 labels (rows,) with class names, or float32 values (rows, outputs); rows that lack one are left out."""

    values: np.ndarray
    classes: tuple[str, ...]
    known: np.ndarray
    """For every row of the table, whether it has all targets."""


def guess_target(names: Sequence[str]) -> str:
    """The column to predict: one with a usual name such as ``y``, or else the last."""
    if not names:
        raise UserError("the table has no columns")
    usual = [name for name in names if name.lower() in TARGET_NAMES]
    return usual[0] if usual else names[-1]


def describe_target(table: pyarrow.Table, name: str) -> Target:
    """The task that fits a target column, and one sentence that says why."""
    form = recognise_target(table, name)
    if form.kind == "boolean":
        return _because("classification", "it is true or false")
    if form.kind == "date":
        return _because("regression", "it has dates, which are predicted as days since 1970")
    if form.kind == "words":
        different = len(np.unique(_class_names(table[name], form)[0]))
        return _because("classification", f"it has {different:,} different values, which are words")
    values = _known(_values(table[name], form))
    different = len(np.unique(values))
    if (values != np.rint(values)).any():
        return _because("regression", f"it has {different:,} different numbers")
    if different <= 2 or (different <= _MOST_CLASSES and len(values) >= _FEWEST_ROWS * different):
        return _because("classification", f"it has {different:,} different values")
    return _because("regression", f"it has {different:,} different whole numbers")


def _because(task: Literal["classification", "regression"], reason: str) -> Target:
    return Target(task, f"{task}, because {reason}")


def recognise_target(table: pyarrow.Table, name: str) -> cells.Form:
    if name not in table.column_names:
        raise UserError(f"the table has no column {name!r}; {nearest(name, table.column_names)}")
    form = cells.recognise(table[name], cells.uses_decimal_comma(table))
    if form.kind in ("empty", "nested"):
        what = "is empty" if form.kind == "empty" else f"has the type {table[name].type}"
        raise UserError(f"the target column {name!r} {what}; name another one as source.targets")
    return form


def read_targets(tables: Sequence[pyarrow.Table], names: Sequence[str], kind: Kind) -> Targets:
    """The targets of all rows of all tables; the first table decides what they are."""
    if len(names) == 1 and (kind == "classification" or (kind == "auto" and _is_class(tables[0], names[0]))):
        return _read_classes(tables, names[0])
    if kind == "classification":
        raise UserError(f"a classification has one target, not {len(names)}: {', '.join(names)}")
    columns = []
    for name in names:
        form = recognise_target(tables[0], name)
        values = np.concatenate([_values(_column(table, name), form) for table in tables])
        if np.isnan(values).mean() > 0.5 and form.kind == "words":
            example = next(cell for cell in cells.texts(tables[0][name]).to_pylist() if cell is not None)
            raise UserError(f"the target column {name!r} is not numeric: it has {example[:40]!r}")
        columns.append(values)
    values = np.column_stack(columns)
    known = ~np.isnan(values).any(axis=1)
    return Targets(numbers(values[known], "the targets", whole=True), (), known)


def _is_class(table: pyarrow.Table, name: str) -> bool:
    return describe_target(table, name).task == "classification"


def _read_classes(tables: Sequence[pyarrow.Table], name: str) -> Targets:
    form = recognise_target(tables[0], name)
    parts = [_class_names(_column(table, name), form) for table in tables]
    known = np.concatenate([known for _, known in parts])
    found, labels = np.unique(np.concatenate([names for names, _ in parts]), return_inverse=True)
    if len(found) > max(2, len(labels) // 2):
        raise UserError(
            f"the target column {name!r} has {len(found):,} different values in {len(labels):,} rows, too many "
            "for classes; name another column as source.targets, or set source.kind=regression"
        )
    order = sorted(range(len(found)), key=lambda place: _natural(str(found[place])))
    places = np.empty(len(found), np.int64)
    places[order] = np.arange(len(found))
    return Targets(places[labels.reshape(-1)], tuple(str(found[place]) for place in order), known)


def _class_names(column: pyarrow.ChunkedArray, form: cells.Form) -> tuple[np.ndarray, np.ndarray]:
    """The names of the classes of the rows that have one, and which rows do."""
    import pyarrow.types as types

    if form.kind == "number":
        values = _values(column, form)
        known = ~np.isnan(values)
        if (values[known] != np.rint(values[known])).any():
            raise UserError("the targets are not whole numbers; set source.kind=regression")
        return np.array([f"{value:.0f}" for value in values[known]], object), known
    if types.is_timestamp(column.type) or types.is_date(column.type):
        raise UserError("dates cannot be classes; set source.kind=regression")
    texts = cells.texts(column).to_pylist()
    known = np.array([text is not None for text in texts], bool)
    return np.array([text for text in texts if text is not None], object), known


def _column(table: pyarrow.Table, name: str) -> pyarrow.ChunkedArray:
    if name not in table.column_names:
        raise UserError(f"the test table has no column {name!r}; {nearest(name, table.column_names)}")
    return table[name]


def _values(column: pyarrow.ChunkedArray, form: cells.Form) -> np.ndarray:
    if form.kind == "date":
        return cells.days(column, form.date)
    return cells.booleans(column) if form.kind == "boolean" else cells.numbers(column, form.comma)


def _known(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _natural(name: str) -> tuple[bool, float, str]:
    """Numbers first, by value."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
