"""Columns of a table as features, and whatever names a class or a value as targets."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from isthmus.errors import UserError, nearest
from isthmus.sources.reading import parsing, read_bytes

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["auto", "classification", "regression"]
ENDINGS = (".csv", ".csv.gz", ".parquet")


def read_table(path: Path, header: bool | None) -> tuple[pyarrow.Table, bool]:
    """A table of one of :data:`ENDINGS`, and whether its columns have names; else these are numbers from "0"."""
    table, named = (read_parquet(path), True) if path.suffix.lower() == ".parquet" else read_csv(path, header)
    if not table.num_rows:
        raise UserError(f"{path} has no rows")
    if len(set(table.column_names)) < table.num_columns:
        raise UserError(f"{path} has two columns of the same name: {', '.join(table.column_names)}")
    return table, named


def read_csv(path: Path, header: bool | None) -> tuple[pyarrow.Table, bool]:
    import pyarrow.csv

    raw = read_bytes(path)
    with parsing(path, "a csv table"):
        if not raw.strip():
            raise UserError(f"{path} has no rows")
        named = is_named(first_line(raw), header)
        # One block for all: the type of a column is decided on its first block.
        options = pyarrow.csv.ReadOptions(block_size=max(len(raw), 1 << 16), autogenerate_column_names=not named)
        table = pyarrow.csv.read_csv(io.BytesIO(raw), options)
        names = table.column_names if named else [str(number) for number in range(table.num_columns)]
        return table.rename_columns([name.strip() for name in names]), named


def first_line(raw: bytes) -> str:
    return raw.lstrip().splitlines()[0].decode("utf-8-sig")


def is_named(line: str, header: bool | None) -> bool:
    """Whether the first line of a table names its columns: as told, or where nothing in it is a number."""
    return header if header is not None else not any(_is_number(cell) for cell in line.split(","))


def _is_number(cell: str) -> bool:
    try:
        float(cell.strip().strip('"'))
    except ValueError:
        return False
    return True


def read_parquet(path: Path) -> pyarrow.Table:
    import pyarrow.parquet

    with parsing(path, "a parquet file"):
        return pyarrow.parquet.ParquetFile(path).read()


def column(table: pyarrow.Table, name: str, origin: str, start: int = 0) -> np.ndarray:
    """One column as it is: numbers, or text; a list of numbers in each row gives (rows, numbers).

    ``start`` is the number of the first row, where the table is a piece of a larger one.
    """
    import pyarrow
    import pyarrow.types as types

    if name not in table.column_names:
        raise UserError(f"{origin} has no column {name!r}; {nearest(name, table.column_names)}")
    values = table[name].combine_chunks()
    values = pyarrow.concat_arrays(values.chunks) if isinstance(values, pyarrow.ChunkedArray) else values
    if values.null_count:
        first = start + values.is_null().to_pylist().index(True)
        raise UserError(f"{origin}: the column {name!r} has {values.null_count} missing values, first in row {first}")
    if types.is_list(values.type) or types.is_large_list(values.type) or types.is_fixed_size_list(values.type):
        lengths = set(values.value_lengths().to_pylist())
        if len(lengths) > 1:
            raise UserError(f"{origin}: the lists of the column {name!r} differ in length")
        return np.asarray(values.flatten().to_numpy(zero_copy_only=False)).reshape(len(values), -1)
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if types.is_string(values.type) or types.is_large_string(values.type):
        return np.array(values.to_pylist(), dtype=np.str_)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def columns(
    table: pyarrow.Table, names: Sequence[str], origin: str, start: int = 0, *, whole: bool = False
) -> np.ndarray:
    """Several columns side by side as float32 (rows, features); ``whole`` as for `numbers`."""
    blocks = [
        numbers(column(table, name, origin, start), f"{origin}, column {name!r}", start, whole=whole) for name in names
    ]
    return np.ascontiguousarray(np.concatenate([block.reshape(len(block), -1) for block in blocks], axis=1))


def numbers(values: np.ndarray, where: str, start: int = 0, *, whole: bool = False) -> np.ndarray:
    """As finite float32. Of ``whole`` columns, one that float32 would round to nothing is refused."""
    if values.dtype.kind not in "biuf":
        example = f", such as {str(values.flat[0])[:40]!r}" if values.size else ""
        raise UserError(
            f"{where} does not hold numbers but {values.dtype}{example}; leave it out or encode it as numbers"
        )
    with np.errstate(over="ignore"):
        converted = values.astype(np.float32)
    if not np.isfinite(converted).all():
        first = start + np.argwhere(~np.isfinite(converted))[0][0]
        raise UserError(f"{where} holds NaN, infinity or a number beyond float32, first in row {first}")
    if whole and values.dtype.kind == "f":
        largest = np.atleast_1d(np.abs(values).max(axis=0, initial=0))
        vanishing = (largest > 0) & (largest < np.finfo(np.float32).tiny)
        if vanishing.any():
            raise UserError(
                f"{where}: a column holds no number above {largest[vanishing].max():.2g}, which float32 rounds away; "
                "multiply it by a constant, or leave it out"
            )
    return converted


def encode_targets(raw: np.ndarray, kind: Kind, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels with the names of their classes, or values (rows, outputs) without.

    ``auto``: text, booleans and whole-number types are classes; floats, or several columns, are values.
    """
    raw = raw[:, 0] if raw.ndim == 2 and raw.shape[1] == 1 else raw
    if kind == "auto":
        kind = "classification" if raw.ndim == 1 and raw.dtype.kind in "biuU" else "regression"
    if kind == "regression":
        if raw.ndim > 2:
            raise UserError(f"{where}: the targets of a regression are (rows,) or (rows, outputs), not {raw.shape}")
        values = numbers(raw, f"{where}: the targets", whole=True)
        return values.reshape(len(raw), -1), ()
    if raw.ndim != 1:
        raise UserError(f"{where}: a classification has one target per row, not the shape {raw.shape}")
    if raw.dtype.kind == "f":
        if not (numbers(raw, f"{where}: the targets") == np.rint(raw)).all():
            raise UserError(
                f"{where}: the targets are not whole numbers; say source.kind=regression to learn them as values"
            )
        raw = raw.astype(np.int64)
    if raw.dtype.kind not in "biuU":
        raise UserError(f"{where}: classes are named by text or whole numbers, not by {raw.dtype}")
    names, labels = np.unique(raw, return_inverse=True)
    if len(names) > max(2, len(raw) // 2):
        raise UserError(
            f"{where}: {len(names)} different targets in {len(raw)} rows are hardly classes; "
            "say source.kind=regression to learn them as values"
        )
    return labels.astype(np.int64), tuple(str(name) for name in names)
