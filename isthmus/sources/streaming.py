"""Reads and writes files of rows in pieces, so that a file may be larger than memory."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import as_cell, need_regular, write_with
from isthmus.sources.files import Header, name_errors, need_content, open_bytes, read_header
from isthmus.sources.tables import (
    LONGEST_LINE,
    check_columns,
    columns,
    first_line,
    is_named,
    open_parquet,
    read_table,
    row_bytes,
)

if TYPE_CHECKING:
    import pyarrow

PIECE = 2**26
"""Approximate bytes of a piece."""
_BLOCK = 2**24


def array_pieces(file: IO[bytes], size: int) -> Iterator[np.ndarray]:
    """The rows of an npy file of ``size`` bytes, which may be a member of an archive."""
    header = read_header(file)
    need_content(header, size - file.tell())
    rows, at_once = _rows(header)
    if not header.bytes:
        return
    if _column_by_column(header) and rows > at_once:  # no row is complete before the end
        raise UserError(
            f"an array of {rows} rows that is stored column by column (Fortran order) cannot be read in pieces from an "
            "archive; save it alone with np.save, or as np.ascontiguousarray(array)"
        )
    for start in range(0, rows, at_once):
        count = min(at_once, rows - start)
        raw = file.read(count * header.row_bytes)
        if len(raw) < count * header.row_bytes:  # a damaged archive
            raise ValueError(f"it ends in row {start + len(raw) // header.row_bytes} of {rows}")
        shape = (count, *header.shape[1:])
        yield np.frombuffer(raw, header.dtype).reshape(shape, order="F" if header.fortran else "C")


def npy_pieces(path: Path) -> Iterator[np.ndarray]:
    size = need_regular(path)
    with name_errors(path, "an npy file"), path.open("rb") as file:
        if file.read(2) == b"PK":
            raise UserError(f"{path} is an npz archive; rename it to .npz")
        file.seek(0)
        header = read_header(file)
        if _column_by_column(header):
            yield from _mapped_pieces(path, header, file.tell())
        else:
            file.seek(0)
            yield from array_pieces(file, size)


def _mapped_pieces(path: Path, header: Header, offset: int) -> Iterator[np.ndarray]:
    """Rows stored column by column: each piece gathers its part of every column."""
    rows, at_once = _rows(header)
    if not header.bytes:  # an empty array cannot be mapped
        return
    if path.stat().st_size < offset + header.bytes:
        raise ValueError(f"it ends before the last of its {rows} rows, which are stored column by column")
    array = np.memmap(path, header.dtype, "r", offset, header.shape, order="F")
    for start in range(0, rows, at_once):
        yield np.array(array[start : start + at_once], order="C")


def _rows(header: Header) -> tuple[int, int]:
    """The number of rows, and the rows per piece."""
    return header.shape[0] if header.shape else 0, max(1, PIECE // max(1, header.row_bytes))


def _column_by_column(header: Header) -> bool:
    return header.fortran and len(header.shape) > 1


def table_pieces(path: Path, header: bool | None, wanted: Sequence[str]) -> Iterator[np.ndarray]:
    """The wanted columns of a table as float32; all columns if it has no names or none are wanted."""
    start = 0
    for table, named in _tables(path, header, wanted):
        names = list(wanted) if named and wanted else table.column_names
        yield columns(table, names, str(path), start)
        start += table.num_rows


def _tables(path: Path, header: bool | None, wanted: Sequence[str]) -> Iterator[tuple[pyarrow.Table, bool]]:
    if path.suffix.lower() == ".parquet":
        yield from _parquet_tables(path, wanted)
    elif path.stat().st_size > (PIECE // 8 if path.suffix.lower() == ".gz" else PIECE):
        yield from _csv_tables(path, header, wanted)
    else:
        yield read_table(path, header)


def _parquet_tables(path: Path, wanted: Sequence[str]) -> Iterator[tuple[pyarrow.Table, bool]]:
    import pyarrow

    with open_parquet(path) as file:
        names = file.schema_arrow.names
        if file.metadata.num_rows == 0:
            raise UserError(f"{path} has no rows")
        check_columns(path, names)
        chosen = list(wanted) if wanted and set(wanted) <= set(names) else None
        for batch in file.iter_batches(max(1, min(PIECE // row_bytes(file), 2**20)), columns=chosen):
            yield pyarrow.Table.from_batches([batch]), True


def _csv_tables(path: Path, header: bool | None, wanted: Sequence[str]) -> Iterator[tuple[pyarrow.Table, bool]]:
    """Every column is read as a number, because its first block does not determine the type of its last."""
    import pyarrow
    import pyarrow.csv

    def open_stream() -> Any:
        return pyarrow.input_stream(path, compression="gzip" if path.suffix.lower() == ".gz" else None)

    with name_errors(path, "a csv table"):
        with open_bytes(path) as head:
            line = first_line(head.read(LONGEST_LINE + 1))
        named = is_named(line, header)
        cells = next(csv.reader([line]))
        # pyarrow's names of columns without a header.
        names = {name.strip(): name for name in cells} if named else {f"f{i}": f"f{i}" for i in range(len(cells))}
        if missing := [name for name in wanted if named and name not in names]:
            raise UserError(f"{path} has no column {missing[0]!r}; {nearest(missing[0], names)}")
        chosen = [names[name] for name in wanted] if named and wanted else list(names.values())
        read = pyarrow.csv.ReadOptions(block_size=_BLOCK, autogenerate_column_names=not named)
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(chosen, pyarrow.float64()), include_columns=chosen
        )
        with open_stream() as stream, pyarrow.csv.open_csv(stream, read, convert_options=convert) as reader:
            for batch in reader:
                table = pyarrow.Table.from_batches([batch])
                yield table.rename_columns([name.strip() for name in table.column_names]), named


def write_pieces(path: Path, pieces: Iterable[np.ndarray]) -> None:
    """Write all pieces to one npy file, atomically; if the first piece fails, no folder is created."""
    rest = iter(pieces)
    first = next(rest)
    write_with(path, lambda temporary: _write_npy(temporary, first, rest))


def write_columns(path: Path, pieces: Iterable[Mapping[str, Sequence[Any] | np.ndarray]]) -> None:
    """Write tables of the same columns to one csv file with a header, likewise."""
    rest = iter(pieces)
    first = next(rest)
    write_with(path, lambda temporary: _write_csv(temporary, first, rest))


def _write_csv(path: Path, first: Mapping[str, Any], rest: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([as_cell(name) for name in first])
        for piece in itertools.chain([first], rest):
            writer.writerows(zip(*(_cells(values) for values in piece.values()), strict=True))


def _cells(values: Sequence[Any] | np.ndarray) -> list[Any]:
    """The cells of a column; computed numbers have the digits of a float32."""
    if isinstance(values, np.ndarray):
        return [f"{cell:.9g}" if isinstance(cell, float) else as_cell(cell) for cell in values.tolist()]
    return [as_cell(cell) for cell in values]


def _write_npy(path: Path, first: np.ndarray, rest: Iterable[np.ndarray]) -> None:
    """The header is rewritten at the end with the number of rows; numpy reserves space for it."""
    rows = 0
    with path.open("wb") as file:
        _write_header(file, first, rows)
        for piece in itertools.chain([first], rest):
            file.write(np.ascontiguousarray(piece, first.dtype).tobytes())
            rows += len(piece)
        file.seek(0)
        _write_header(file, first, rows)


def _write_header(file: IO[bytes], like: np.ndarray, rows: int) -> None:
    fields = {"descr": npy.dtype_to_descr(like.dtype), "fortran_order": False, "shape": (rows, *like.shape[1:])}
    npy.write_array_header_1_0(file, fields)
