"""A user's tables and arrays to predict from, as the features that a run was trained on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow

from isthmus.core.errors import UserError, nearest
from isthmus.sources import cells, tables
from isthmus.sources.dialects import Frame, read_frame
from isthmus.sources.encoding import Column, TableEncoder, join_names
from isthmus.sources.streaming import table_pieces
from isthmus.sources.tables import columns, numbers, table_of

_ROWS_AT_ONCE = 2**14


class Block(NamedTuple):
    """Some rows as features, and the columns that name them."""

    rows: np.ndarray
    names: Mapping[str, Sequence[Any]] = {}


class EncodedRows:
    """Rows of the source ``table``: words, dates and blanks, encoded as in training."""

    def __init__(self, learned: Mapping[str, Any], header: bool | None = None, *, expand: bool = True) -> None:
        """Without ``expand``, rows are the codes of their cells, which a graph expands itself."""
        self.expand = expand
        self.encoder = TableEncoder.recall(learned["encoder"])
        self.needed = list(self.encoder.inputs)
        self.inputs = list(learned.get("inputs", self.needed))
        self.targets: Sequence[str] = list(learned["targets"])
        self.row_names: str | None = learned.get("row_names")
        self.header = header

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (len(self.encoder.features) if self.expand else sum(column.width for column in self.encoder.columns),)

    def from_table(self, table: pyarrow.Table, origin: str = "the table") -> Block:
        return self._encode(self._arrange(table, origin), None)

    def from_array(self, array: np.ndarray, origin: str, start: int = 0) -> np.ndarray:
        """The features of an array; ``start`` is the number of its first row."""
        if array.ndim != 2:
            raise UserError(f"{origin} has the shape {array.shape}; this run takes rows of {len(self.inputs)} columns")
        return self.from_table(table_of(array), origin).rows

    def from_file(self, path: Path) -> Iterator[Block]:
        """The rows of a text or parquet file."""
        frame = self._read(path)
        table = self._arrange(frame.table, str(path))
        for start in range(0, table.num_rows, _ROWS_AT_ONCE):
            yield self._encode(table.slice(start, _ROWS_AT_ONCE), frame.row_names)

    def takes_width(self, width: int) -> bool:
        return width in (len(self.inputs), len(self.needed))

    def _read(self, path: Path) -> Frame:
        frame = read_frame(path, self.header)
        if self.header is None and _is_numbered(frame.table.column_names) and not _is_numbered(self.inputs):
            again = read_frame(path, header=True)  # a header such as 2019,2020 looks like a row
            frame = again if set(self.needed) <= set(again.table.column_names) else frame
        return frame

    def _arrange(self, table: pyarrow.Table, origin: str) -> pyarrow.Table:
        """The table with the names of its columns; columns without names are those of training, in their order."""
        names = table.column_names
        if _is_numbered(names):
            known = next((known for known in (self.inputs, self.needed) if len(known) == len(names)), None)
            if known is not None:
                named = table.rename_columns(known)
                self._check_kinds(named, f"{origin} has no names of columns, and", "add the names")
                return self.encoder.follow_decimals(named)
            if not set(self.needed) <= set(names):
                raise UserError(
                    f"{origin} has {len(names)} columns without names; this run takes {len(self.inputs)}: "
                    f"{join_names(self.inputs)}"
                )
        for name in self.needed:
            if name not in names:
                raise UserError(f"{origin} has no column {name!r}, which this run needs; {_advise_column(name, names)}")
        self._check_kinds(table, f"{origin}:", "give it as in training, or leave its cells empty")
        return self.encoder.follow_decimals(table)

    def _check_kinds(self, table: pyarrow.Table, origin: str, advice: str) -> None:
        """Refuse a column in which no cell is of the kind that it had in training; warn if no category is known."""
        for column in self.encoder.columns:
            if column.kind == "category":
                _warn_of_unknown(column, table[column.name], origin)
            if column.kind in ("category", "text") or not np.isnan(column.read(table[column.name])).all():
                continue
            given = table[column.name]
            is_text = cells.is_text(given.type)
            left = cells.unreadable(given, np.zeros(len(given), bool)) if is_text else cells.texts(given).drop_null()
            if len(left):
                raise UserError(
                    f"{origin} column {table.column_names.index(column.name)} is not `{column.name}`, a {column.kind}: "
                    f"it has {str(left[0])[:40]!r}; {advice}"
                )

    def _encode(self, table: pyarrow.Table, row_names: str | None) -> Block:
        naming = [name for name in (self.row_names, row_names) if name in table.column_names][:1]
        naming = naming or [name for name in self.encoder.identifiers if name in table.column_names]
        codes = self.encoder.codes(table)
        rows = self.encoder.expand(codes) if self.expand else codes
        return Block(rows, {str(name): table[name].to_pylist() for name in naming})


class PlainRows:
    """Rows of numbers, taken as they are; columns are found by name if the run knows their names.

    It has the methods of `EncodedRows`.
    """

    def __init__(self, known: Sequence[str], width: int, source: Mapping[str, Any]) -> None:
        self.columns, self.width, self.header = known, width, source.get("header")
        self.inputs, self.targets = (tables.as_names(source.get(name)) for name in ("inputs", "targets"))

    def from_table(self, table: pyarrow.Table, origin: str = "the table") -> Block:
        names = table.column_names
        if len(names) > self.width:
            names = [name for name in names if name not in self.targets]
        if self.columns and not _is_numbered(table.column_names):
            names = list(self.columns)
        if not names:
            raise UserError(f"{origin} has no columns to predict from")
        return Block(columns(table, names, origin))

    def from_array(self, array: np.ndarray, origin: str, start: int = 0) -> np.ndarray:
        if array.dtype == object and array.ndim == 2:
            return self.from_table(table_of(array), origin).rows
        return numbers(self._select(array), origin, start)

    def from_file(self, path: Path) -> Iterator[Block]:
        if path.name.lower().endswith(tables.ENDINGS):
            yield from (Block(self._select(piece)) for piece in table_pieces(path, self.header, self.columns))
            return
        table = read_frame(path, self.header).table
        comma = cells.uses_decimal_comma(table)
        read = {name: cells.numbers(table[name], comma) for name in table.column_names if name not in self.targets}
        yield self.from_table(table_of(read), str(path))

    def _select(self, rows: np.ndarray) -> np.ndarray:
        """The inputs of rows that have all columns of training, where columns are called by their numbers."""
        if rows.ndim != 2 or rows.shape[1] <= self.width:
            return rows
        numbered = [str(number) for number in range(rows.shape[1])]
        wanted = self.inputs or [name for name in numbered if name not in self.targets]
        fits = len(wanted) == self.width and {*wanted, *self.targets} <= {*numbered}
        return rows[:, [int(name) for name in wanted]] if fits else rows


def _warn_of_unknown(column: Column, given: pyarrow.ChunkedArray, origin: str) -> None:
    codes = column.read(given)
    if (codes == -1).any() and not (codes >= 0).any():
        unknown = cells.texts(given).drop_null()[0].as_py()
        some = ", ".join(repr(value) for value in column.values[:3]) + (", …" if len(column.values) > 3 else "")
        warnings.warn(
            f"{origin.removesuffix(':')}: no cell of `{column.name}` is a category of the training rows: "
            f"{unknown!r} is none of {some}",
            stacklevel=2,
        )


def _advise_column(name: str, names: Sequence[str]) -> str:
    """A column of nearly the same name, or all columns."""
    advice = nearest(name, names)
    return advice if advice.startswith("did") else f"add it to its columns {join_names(names)}"


def _is_numbered(names: Sequence[str]) -> bool:
    """Whether columns have numbers instead of names."""
    return list(names) == [str(number) for number in range(len(names))]
