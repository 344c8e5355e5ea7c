"""The targets of a table: which column to predict, whether as classes or as values, and the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from isthmus.core.errors import UserError, nearest
from isthmus.sources import cells
from isthmus.sources.encoding import is_identifier
from isthmus.sources.tables import Kind, target_values

if TYPE_CHECKING:
    import pyarrow

TARGET_NAMES = ("y", "target", "targets", "label", "labels", "class", "outcome", "response")
_MOST_CLASSES, _FEWEST_ROWS = 20, 10
"""Whole numbers are classes if they are at most so many, in so many rows each."""
_LARGEST_CLASS = 2**53
_ANOTHER = "name another column (--target, or source.targets)"
_VALUES = "predict values (--task regression, or source.kind=regression)"


class Target(NamedTuple):
    """How a column is predicted, and why: "classification, because it has 3 different values"."""

    task: Literal["classification", "regression"]
    reason: str


class Targets(NamedTuple):
    """int64 labels (rows,) with class names, or float32 values (rows, outputs); rows that lack one are left out."""

    values: np.ndarray
    classes: tuple[str, ...]
    known: np.ndarray
    """For every row of the tables, whether it has all targets."""
    reason: str = ""
    """Why they are predicted as they are, if that was inferred."""


def guess_target(names: Sequence[str], table: pyarrow.Table | None = None) -> str:
    """The column to predict: one with a usual name such as ``y``, or else the last; with a table, one that varies."""
    if not names:
        raise UserError("the table has no columns")
    order = [*(name for name in names if name.lower() in TARGET_NAMES), *reversed(names)]
    return next((name for name in order if table is None or _can_be_predicted(table, name)), order[0])


def _can_be_predicted(table: pyarrow.Table, name: str) -> bool:
    import pyarrow.compute as compute

    column = _column(table, name)
    kind = cells.recognise(column).kind
    if kind in ("empty", "nested"):
        return False
    texts = cells.texts(column)
    different, known = compute.count_distinct(texts).as_py(), len(texts) - texts.null_count
    numbers_rows = is_identifier(name) and different == known
    return different > 1 and not numbers_rows and (kind != "words" or different <= max(2, known // 2))


def describe_target(table: pyarrow.Table, name: str) -> Target:
    """The task that fits a target column, and one sentence that says why."""
    return _infer_task(_column(table, name), recognise_target(table, name))


def _infer_task(column: pyarrow.ChunkedArray, form: cells.Form) -> Target:
    import pyarrow.compute as compute

    if form.kind == "boolean":
        return _because("classification", "it is true or false")
    if form.kind == "date":
        return _because("regression", "it has dates, which are predicted as days since 1970")
    if form.kind == "words":
        different = compute.count_distinct(cells.texts(column)).as_py()
        return _because("classification", f"it has {different:,} different values, which are words")
    values = _values(column, form)
    values = values[~np.isnan(values)]
    different = len(np.unique(values))
    if (values != np.rint(values)).any():
        return _because("regression", f"it has {different:,} different numbers")
    if different <= 2 or (different <= _MOST_CLASSES and len(values) >= _FEWEST_ROWS * different):
        return _because("classification", f"it has {different:,} different values")
    return _because("regression", f"it has {different:,} different whole numbers")


def _because(task: Literal["classification", "regression"], reason: str) -> Target:
    return Target(task, f"{task}, because {reason}")


def recognise_target(table: pyarrow.Table, name: str) -> cells.Form:
    form = cells.recognise(_column(table, name), lambda: cells.uses_decimal_comma(table))
    if form.kind in ("empty", "nested"):
        what = "is empty" if form.kind == "empty" else f"has the type {table[name].type}"
        raise UserError(f"the target column {name!r} {what}; {_ANOTHER}")
    return form


def read_targets(tables: Sequence[pyarrow.Table], names: Sequence[str], kind: Kind) -> Targets:
    """The targets of all rows of all tables; the first table decides what they are."""
    forms = [recognise_target(tables[0], name) for name in names]
    reason = ""
    if kind == "auto":
        inferred = _infer_task(tables[0][names[0]], forms[0]) if len(names) == 1 else Target("regression", "")
        kind, reason = inferred
    columns = [[_column(table, name) for table in tables] for name in names]
    if kind == "classification":
        if len(names) > 1:
            raise UserError(f"a classification has one target, not {len(names)}: {', '.join(names)}")
        return _read_classes(columns[0], forms[0], names[0])._replace(reason=reason)
    for name, form in zip(names, forms, strict=True):
        if form.kind == "words":
            example = next(cell for cell in cells.texts(tables[0][name]).to_pylist() if cell is not None)
            advice = f"; {_ANOTHER}" if len(names) > 1 else "; predict its classes (--task classification)"
            raise UserError(f"the target column {name!r} is not numeric: it has {example[:40]!r}{advice}")
    parts = [
        np.concatenate([_values(part, form) for part in column]) for column, form in zip(columns, forms, strict=True)
    ]
    values = np.column_stack(parts)
    known = ~np.isnan(values).any(axis=1)
    return Targets(target_values(values[known], "the targets"), (), known, reason)


def _read_classes(columns: Sequence[pyarrow.ChunkedArray], form: cells.Form, name: str) -> Targets:
    import pyarrow
    import pyarrow.compute as compute

    parts = [_class_names(column, form) for column in columns]
    rows = pyarrow.chunked_array([chunk for part in parts for chunk in part.chunks])
    known = np.asarray(compute.is_valid(rows))
    classes = sorted(compute.unique(rows.drop_null()).to_pylist(), key=_natural)
    if len(classes) > max(2, known.sum() // 2):
        raise UserError(
            f"the target column {name!r} has {len(classes):,} different values in {known.sum():,} rows, too many for "
            f"classes; {_ANOTHER}, or {_VALUES}"
        )
    labels = compute.index_in(rows.drop_null(), value_set=pyarrow.array(classes, pyarrow.string()))
    return Targets(np.asarray(labels).astype(np.int64), tuple(classes), known)


def _class_names(column: pyarrow.ChunkedArray, form: cells.Form) -> pyarrow.ChunkedArray:
    """The name of the class of every row; null where it is missing."""
    import pyarrow
    import pyarrow.compute as compute

    if form.kind == "date":
        raise UserError(f"dates cannot be classes; {_VALUES}")
    if form.kind != "number":
        texts = cells.texts(column)
        return texts if isinstance(texts, pyarrow.ChunkedArray) else pyarrow.chunked_array([texts])
    values = _values(column, form)
    known = values[~np.isnan(values)]
    if (known != np.rint(known)).any() or (np.abs(known) > _LARGEST_CLASS).any():
        example = next((value for value in known if value != np.rint(value)), known[0])
        raise UserError(f"the targets are not whole numbers that can be classes, such as {example:g}; {_VALUES}")
    whole = compute.cast(pyarrow.array(values, from_pandas=True), pyarrow.int64())
    return pyarrow.chunked_array([compute.cast(whole, pyarrow.string())])


def _column(table: pyarrow.Table, name: str) -> pyarrow.ChunkedArray:
    if name not in table.column_names:
        raise UserError(f"the table has no column {name!r}; {nearest(name, table.column_names)}")
    return table[name]


def _values(column: pyarrow.ChunkedArray, form: cells.Form) -> np.ndarray:
    if form.kind == "date":
        return cells.days(column, form.date)
    return cells.booleans(column) if form.kind == "boolean" else cells.numbers(column, form.comma)


def _natural(name: str) -> tuple[bool, float, str]:
    """Numbers first, by value."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name
