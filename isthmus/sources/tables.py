"""Reads csv and parquet tables: columns as features, and targets as labels or values."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import need_regular
from isthmus.sources.files import name_errors, need_room, open_bytes, read_bytes
from isthmus.sources.splits import FoldedSplits

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["auto", "classification", "regression"]
ENDINGS = (".csv", ".csv.gz", ".parquet")
LONGEST_LINE, _MOST_COLUMNS, _LONGEST_TEXT = 2**24, 2**16, 1_000
_COARSE = 0.01
"""The largest rounding error of float32 in targets, as a share of their range."""
LARGEST_CSV = 2**31 - 1
"""The largest block that pyarrow reads at once."""
_FIRST_LINE = re.compile(rb"\s*([^\r\n]*)")


def as_names(value: Any) -> tuple[str, ...]:
    """One name or number of a column, or several, or none."""
    if value is None:
        return ()
    return tuple(str(name) for name in value) if isinstance(value, list | tuple) else (str(value),)


ColumnNames = Annotated[tuple[str, ...], BeforeValidator(as_names)]


class FileSettings(FoldedSplits):
    """Settings of a source that reads a user's file of rows."""

    path: str
    """The file, absolute, under the data folder or under the current one."""
    test_path: str | None = None
    """A file of the same form with the test rows (default: drawn from ``path``)."""
    targets: ColumnNames = ()
    """The array or column(s) to predict; none for a task that needs no targets."""
    inputs: ColumnNames = ()
    """The array or columns to predict from; by default all others."""


def read_table(path: Path, header: bool | None) -> tuple[pyarrow.Table, bool]:
    """A table in one of :data:`ENDINGS`, and whether its columns have names; otherwise they are numbered from "0"."""
    table, named = (read_parquet(path), True) if path.suffix.lower() == ".parquet" else read_csv(path, header)
    if not table.num_rows:
        raise UserError(f"{path} has no rows")
    check_columns(path, table.column_names)
    return table, named


def column_names(path: Path) -> list[str]:
    """The column names of a csv or parquet file; numbers from "0" if it has no header."""
    if path.suffix.lower() == ".parquet":
        with open_parquet(path) as file:
            return list(file.schema_arrow.names)
    with name_errors(path, "a csv table"), open_bytes(path) as head:
        line = first_line(head.read(LONGEST_LINE + 1))
        cells = next(csv.reader([line]), [])
        named = is_named(line, None)
        return [cell.strip() if named else str(number) for number, cell in enumerate(cells)]


def check_columns(path: Path, names: Sequence[Any]) -> None:
    if len(names) > _MOST_COLUMNS:
        raise UserError(f"{path} has {len(names):,} columns, more than {_MOST_COLUMNS:,}; use an npy file")
    if len(set(names)) < len(names):
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise UserError(f"{path} has two columns of the same name: {twice}")


def read_csv(path: Path, header: bool | None) -> tuple[pyarrow.Table, bool]:
    import pyarrow.csv

    with name_errors(path, "a csv table"), open_bytes(path) as head:
        line = first_line(head.read(LONGEST_LINE + 1))
    if not line:
        raise UserError(f"{path} has no rows")
    raw = read_bytes(path, LARGEST_CSV)
    with name_errors(path, "a csv table"):
        named = is_named(line, header)
        # One block, because pyarrow infers the type of a column from its first block.
        options = pyarrow.csv.ReadOptions(block_size=max(len(raw), 1 << 16), autogenerate_column_names=not named)
        table = pyarrow.csv.read_csv(io.BytesIO(raw), options)
        names = table.column_names if named else [str(number) for number in range(table.num_columns)]
        return table.rename_columns([name.strip() for name in names]), named


def first_line(raw: bytes) -> str:
    """The first line that is not empty; a line that is too long raises a ValueError."""
    return check_first_line(raw).decode("utf-8-sig")


def check_first_line(raw: bytes) -> bytes:
    found = _FIRST_LINE.match(raw)
    line = found[1] if found else b""
    if len(line) > LONGEST_LINE:
        raise ValueError(f"its first line is longer than {LONGEST_LINE:,} bytes")
    if (commas := line.count(b",")) >= _MOST_COLUMNS:
        raise ValueError(f"it has {commas + 1:,} columns, more than {_MOST_COLUMNS:,}; give them as an npy file")
    return line


def is_named(line: str, header: bool | None) -> bool:
    """Whether the first line is a header: as given, or if no cell is a number."""
    return header if header is not None else not any(_is_number(cell) for cell in line.split(","))


def _is_number(cell: str) -> bool:
    try:
        float(cell.strip().strip('"'))
    except ValueError:
        return False
    return True


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    import pyarrow.parquet

    need_regular(path)
    with name_errors(path, "a parquet file"):
        # Keeps repeated text dictionary-encoded.
        texts = [field.name for field in pyarrow.parquet.read_schema(path) if _is_text(field.type)]
        with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
            yield file


def read_parquet(path: Path) -> pyarrow.Table:
    with open_parquet(path) as file:
        need_room(path, file.metadata.num_rows * row_bytes(file))
        return file.read()


def row_bytes(file: Any) -> int:
    """Approximate bytes of an unpacked row; repeated values take no space in the file."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    cells = [group.column(number) for group in groups for number in range(group.num_columns)]
    unpacked = max(sum(group.total_byte_size for group in groups), sum(4 * cell.num_values for cell in cells))
    return max(1, unpacked // max(1, file.metadata.num_rows))


def column(table: pyarrow.Table, name: str, origin: str, start: int = 0) -> np.ndarray:
    """One column: numbers or text; lists of numbers give (rows, numbers).

    ``start`` is the number of the first row, if the table is a piece of a larger one.
    """
    import pyarrow
    import pyarrow.types as types

    if table.schema.get_field_index(name) < 0:
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
    coded = types.is_dictionary(values.type)
    if _is_text(values.dictionary.type if coded else values.type):
        _check_lengths(values.dictionary if coded else values, len(values), f"{origin}: the column {name!r}")
        return np.array(values.to_pylist(), dtype=np.str_)
    values = values.dictionary_decode() if coded else values
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _check_lengths(texts: Any, rows: int, where: str) -> None:
    """Refuse long text, because numpy stores every row at the length of the longest."""
    import pyarrow.compute

    longest = pyarrow.compute.max(pyarrow.compute.utf8_length(texts)).as_py() or 0
    if longest > _LONGEST_TEXT:
        raise UserError(
            f"{where} contains a text of {longest:,} characters; the limit for class names is {_LONGEST_TEXT:,}"
        )
    need_room(where, 4 * longest * rows)


def columns(
    table: pyarrow.Table, names: Sequence[str], origin: str, start: int = 0, *, whole: bool = False
) -> np.ndarray:
    """Several columns side by side as float32 (rows, features); ``whole`` as for `numbers`."""
    blocks = [
        numbers(column(table, name, origin, start), f"{origin}, column {name!r}", start, whole=whole) for name in names
    ]
    return np.ascontiguousarray(np.concatenate([block.reshape(len(block), -1) for block in blocks], axis=1))


def numbers(values: np.ndarray, where: str, start: int = 0, *, whole: bool = False) -> np.ndarray:
    """Convert to finite float32. With ``whole``, a column that float32 would round to zero is refused."""
    if values.dtype.kind not in "biuf":
        example = f", such as {str(values.flat[0])[:40]!r}" if values.size else ""
        raise UserError(f"{where}: {values.dtype}{example} is not a number; leave it out or encode it as numbers")
    with np.errstate(over="ignore"):
        converted = values.astype(np.float32)
    if not np.isfinite(converted).all():
        first = start + np.argwhere(~np.isfinite(converted))[0][0]
        raise UserError(f"{where}: NaN, infinity or a number beyond float32, first in row {first}")
    if whole and values.dtype.kind == "f":
        largest = np.atleast_1d(np.abs(values).max(axis=0, initial=0))
        vanishing = (largest > 0) & (largest < np.finfo(np.float32).tiny)
        if vanishing.any():
            raise UserError(
                f"{where}: a column has at most {largest[vanishing].max():.2g}, which float32 rounds to zero; "
                "multiply it by a constant, or leave it out"
            )
    return converted


def target_values(values: np.ndarray, where: str) -> np.ndarray:
    """Targets as float32, refused if it would round them coarsely, such as seconds since 1970 within one hour."""
    converted = numbers(values, where, whole=True)
    lost = np.atleast_1d(np.abs(converted - values.astype(np.float64)).max(axis=0, initial=0))
    spread = np.ptp(values, axis=0) if len(values) else np.zeros(1)
    if ((spread > 0) & (lost > _COARSE * spread)).any():
        raise UserError(
            f"{where} vary too little around {np.abs(values).max():.3g} for float32; subtract a constant from them"
        )
    return converted


def encode_targets(raw: np.ndarray, kind: Kind, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels with class names, or values (rows, outputs) without.

    ``auto``: text, booleans and whole-number types are classes; floats, or several columns, are values.
    """
    raw = raw[:, 0] if raw.ndim == 2 and raw.shape[1] == 1 else raw
    if kind == "auto":
        kind = "classification" if raw.ndim == 1 and raw.dtype.kind in "biuU" else "regression"
    if kind == "regression":
        if raw.ndim > 2:
            raise UserError(f"{where}: the targets of a regression are (rows,) or (rows, outputs), not {raw.shape}")
        values = target_values(raw, f"{where}: the targets")
        return values.reshape(len(raw), -1), ()
    if raw.ndim != 1:
        raise UserError(f"{where}: a classification has one target per row, not the shape {raw.shape}")
    if raw.dtype.kind == "f":
        if not (numbers(raw, f"{where}: the targets") == np.rint(raw)).all():
            raise UserError(f"{where}: the targets are not whole numbers; set source.kind=regression")
        raw = raw.astype(np.int64)
    if raw.dtype.kind not in "biuU":
        raise UserError(f"{where}: classes must be text or whole numbers, not {raw.dtype}")
    names, labels = np.unique(raw, return_inverse=True)
    if len(names) > max(2, len(raw) // 2):
        raise UserError(
            f"{where}: {len(names)} different targets in {len(raw)} rows are too many classes; "
            "set source.kind=regression"
        )
    return labels.astype(np.int64), tuple(str(name) for name in names)


def table_of(data: Any) -> pyarrow.Table:
    """A table of a pandas or polars DataFrame, an Arrow table, a dict of columns, a list of dicts or a 2-D array.

    pandas' index is left out. The columns of an array are called "0", "1", …
    """
    import pyarrow

    package, columns = type(data).__module__.partition(".")[0], dict[Any, Any]()
    if isinstance(data, pyarrow.Table):
        return data
    if isinstance(data, np.ndarray) and data.ndim == 2:
        columns = {str(number): data[:, number] for number in range(data.shape[1])}
    elif package == "polars" and hasattr(data, "to_arrow") and hasattr(data, "columns"):
        return data.to_arrow()
    elif package == "pandas" and hasattr(data, "columns"):
        columns = {name: data.iloc[:, number] for number, name in enumerate(data.columns)}
        if len(columns) < data.shape[1]:
            raise UserError(
                f"two columns of the DataFrame have the same name; its columns are {list(data.columns)[:12]}"
            )
    elif isinstance(data, dict):
        columns = data
    elif isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        columns = {name: [row.get(name) for row in data] for name in names}
    elif hasattr(data, "__arrow_c_stream__"):
        with name_errors("the data", "a table"):
            return pyarrow.table(data)
    else:
        kind = (
            f"an array of shape {data.shape}" if isinstance(data, np.ndarray) else f"data of type {type(data).__name__}"
        )
        kind = repr(data) if data is None or (isinstance(data, list) and not data) else kind
        raise UserError(
            f"{kind} is not a table; give a DataFrame, a dict of columns, a list of dicts or a two-dimensional array"
        )
    if any(isinstance(values, str) or not hasattr(values, "__len__") for values in columns.values()):
        raise UserError("a dict of columns needs a list per column; put a single row into a list: [row]")
    if len(lengths := {len(values) for values in columns.values()}) > 1:
        raise UserError(f"the columns differ in length: {sorted(lengths)}")
    return pyarrow.table({str(name): _as_arrow(values) for name, values in columns.items()})


def _as_arrow(values: Any) -> pyarrow.Array:
    """A column; values of several types, or of a type that Arrow does not know, become text."""
    import pyarrow

    try:
        made = pyarrow.array(values, from_pandas=True)
        made = made.combine_chunks() if isinstance(made, pyarrow.ChunkedArray) else made
        if not isinstance(made.type, pyarrow.BaseExtensionType):
            return made
    except (pyarrow.ArrowException, ValueError, TypeError, OverflowError):
        pass
    return pyarrow.array([None if _is_missing(value) else str(value) for value in values], pyarrow.string())


def _is_missing(value: Any) -> bool:
    """None, NaN, and pandas' NA and NaT, which are not equal to themselves."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # NA has no truth value; an array has several
        return type(value).__name__ == "NAType"
