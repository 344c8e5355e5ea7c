"""Reads the tables that people have: parquet files, and text files of any usual dialect, whose cells stay text."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isthmus.core.errors import UserError
from isthmus.sources.files import name_errors, need_room, open_bytes, read_bytes
from isthmus.sources.images import SUFFIXES
from isthmus.sources.tables import LARGEST_CSV, LONGEST_LINE, check_columns, check_first_line, read_parquet

if TYPE_CHECKING:
    import pyarrow

_TEXT = tuple(f".{ending}{packed}" for ending in ("csv", "tsv", "tab", "txt", "dat", "data") for packed in ("", ".gz"))
ENDINGS = (*_TEXT, ".parquet")
DELIMITERS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas", " ": "spaces"}
"""Of two that split the lines equally well, the first is taken."""
_SAMPLE, _MOST_LINES, _LONGEST_PREAMBLE = 2**20, 500, 20
_NUMBER = re.compile(r"[-+]?[$€£]?(?:\d[\d., ']*|\.\d+)(?:e[-+]?\d+)?%?", re.I)
_YEAR = re.compile(r"1[89]\d\d|20\d\d")
_ROW_NAMES = re.compile(r"|unnamed: 0|row\.?names|__index_level_\d+__", re.I)
_LARGEST_KEPT = 2**28
"""Bytes of the largest file whose table is kept in memory."""
_CELL_BYTES = 8
"""Bytes of a cell as float64; its text may be shorter."""


_ROWS = "give a table with the names of columns in its first line and a row of cells in each other"
_KNOWN = "give a .csv, .tsv, .txt (or .gz of these), .parquet, .npy or .npz file"
_ADVICE = {
    (".xlsx", ".xls", ".ods", ".numbers"): "is a spreadsheet; save it as a csv file and give that",
    (".zip", ".tar", ".tgz", ".tar.gz", ".7z", ".rar"): "is an archive; unpack it and give the file or folder inside",
    (
        ".json",
        ".jsonl",
    ): 'is JSON; convert it with `pandas.read_json(…).to_csv("table.csv", index=False)` and give that',
    (".pkl", ".pickle"): "is a pickle, which is never loaded; save it with `to_csv` and give that",
    tuple(SUFFIXES): "is a single image; give the folder that holds the images",
}
"""What to do with files of other formats, by their endings."""


class Frame(NamedTuple):
    """A table, the column that names its rows, and sentences about what was found."""

    table: pyarrow.Table
    row_names: str | None = None
    findings: tuple[str, ...] = ()


class _Layout(NamedTuple):
    """Where the rows of a text begin, and what their columns are called (None: no header)."""

    offset: int
    names: list[str] | None
    width: int
    findings: list[str]


def read_frame(path: Path, header: bool | None = None, delimiter: str | None = None) -> Frame:
    """A table in one of `ENDINGS`; cells of text files stay text. ``None`` detects.

    The last file is kept, because a search reads it for its question, its folds and its refits.
    """
    try:
        state = path.stat()
    except OSError:
        return _read_frame(path, header, delimiter)  # which names the problem
    if state.st_size > _LARGEST_KEPT:
        return _read_frame(path, header, delimiter)
    return _read_kept(path, header, delimiter, (state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=1)
def _read_kept(path: Path, header: bool | None, delimiter: str | None, state: tuple[int, ...]) -> Frame:
    """``state`` is the file's, so that a changed file is read again."""
    return _read_frame(path, header, delimiter)


def _read_frame(path: Path, header: bool | None, delimiter: str | None) -> Frame:
    name = path.name.lower()
    if not name.endswith(ENDINGS):
        advice = next((words for endings, words in _ADVICE.items() if name.endswith(endings)), None)
        raise UserError(f"{path} {advice or f'has an unknown format; {_KNOWN}'}")
    if name.endswith(".parquet"):
        table, findings = read_parquet(path), list[str]()
        names = table.column_names
    else:
        table, names, findings = _read_text(path, header, delimiter)
    if not table.num_rows:
        raise UserError(f"{path} has no rows; {_ROWS}")
    if not table.num_columns:
        raise UserError(f"{path} has no columns")
    if all(len(name) > 1 and name[0] == name[-1] == "'" for name in names):
        names = [name[1:-1] for name in names]
    unique, renamed = _make_unique(names)
    check_columns(path, unique)
    table = table.rename_columns(unique)
    row_names = unique[0] if _ROW_NAMES.fullmatch(names[0]) and _is_unique(table.column(0)) else None
    findings += [f"the first column, `{row_names}`, names the rows"] if row_names else []
    findings += [f"columns without a name of their own are called {renamed}"] if renamed and not row_names else []
    return Frame(table, row_names, tuple(findings))


def _read_text(path: Path, header: bool | None, delimiter: str | None) -> tuple[pyarrow.Table, list[str], list[str]]:
    with name_errors(path, "a table"), open_bytes(path) as file:
        check_first_line(file.read(LONGEST_LINE + 1))
    raw = read_bytes(path, LARGEST_CSV)
    with name_errors(path, "a table"):
        raw, findings = _as_utf8(raw)
        if not raw.strip():
            raise UserError(f"{path} has no rows; {_ROWS}")
        if declared := re.match(rb"sep=(.)\r?\n", raw):  # Excel's own first line
            raw, delimiter = raw[declared.end() :], delimiter or declared[1].decode()
        lines = _first_lines(raw)
        delimiter = find_delimiter(lines) if delimiter is None else check_delimiter(delimiter)
        if delimiter != ",":
            findings.append(f"{DELIMITERS.get(delimiter, repr(delimiter))} separate the cells")
        layout = _find_layout(lines, delimiter, header)
        check_columns(path, range(layout.width))
        body = raw[layout.offset :]
        if not body.strip():
            raise UserError(f"{path} has no rows; {_ROWS}")
        need_room(path, _CELL_BYTES * layout.width * (body.count(b"\n") + 1))
        if delimiter == " " and b'"' not in body:
            body = re.sub(rb" {2,}", b" ", re.sub(rb"(?m)^ +| +(?=\r?$)", b"", body))
        numbered = [str(number) for number in range(layout.width)]
        table, footer = _parse(body, delimiter, numbered)
        findings += layout.findings
        if footer:
            findings.append(f"{footer} lines below the table are left out, because the rows have other cells")
        if layout.names is None and _counts_itself(table):
            table = table.slice(1)
            findings.append("the first line gives the numbers of rows and columns, left out")
        return table, layout.names or numbered, findings


def _parse(body: bytes, delimiter: str, names: list[str]) -> tuple[pyarrow.Table, int]:
    """The rows of a text, and the number of lines that were left out because they have another number of cells."""
    import pyarrow
    import pyarrow.csv

    ragged = []

    def skip(row: Any) -> str:
        ragged.append(row)
        return "skip"

    table = pyarrow.csv.read_csv(
        io.BytesIO(body),
        # One block, because rows may be long; one thread, because others do not number the rows.
        pyarrow.csv.ReadOptions(use_threads=False, block_size=max(len(body), 1 << 16), column_names=names),
        pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip),
        pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string())),
    )
    if ragged and (ragged[0].number <= table.num_rows or len(ragged) > _LONGEST_PREAMBLE):
        row = ragged[0]
        text = " ".join(row.text.split())[:60]
        raise ValueError(f"row {row.number} has {row.actual_columns} cells, not {row.expected_columns}: {text}")
    return table, len(ragged)


def _as_utf8(raw: bytes) -> tuple[bytes, list[str]]:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raw = raw.decode("utf-16").encode()
    if b"\0" in raw:
        raise ValueError("it contains NUL bytes, so it is not text")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace").encode(), ["the text is not UTF-8 and is read as Latin-1 (Windows-1252)"]
    return raw, []


def _first_lines(raw: bytes) -> list[str]:
    few = re.match(rb"(?:[^\n]*\n){0,3}", raw)
    size = max(_SAMPLE, few.end() if few else 0)
    lines = list(io.StringIO(raw[:size].decode(errors="ignore"), newline=""))
    return lines[: min(_MOST_LINES, len(lines) - (len(raw) > size and len(lines) > 1))]


def _records(lines: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """The cells of every row that is not empty, and the number of lines up to its end."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter == " ")
    rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    if delimiter == " ":  # spaces at the ends of lines
        rows = [(end, row[:-1] if len(row) > 1 and not row[-1] else row) for end, row in rows]
    return rows


def _usual_width(rows: Sequence[tuple[int, list[str]]]) -> tuple[int, int]:
    """The most frequent number of cells, and how many rows have it."""
    return max(Counter(len(row) for _, row in rows).items(), key=lambda item: (item[1], item[0]))


def find_delimiter(lines: Sequence[str]) -> str:
    """The delimiter by which most rows have the same number of cells, at least two."""
    best, most = ",", 0.0
    for delimiter in DELIMITERS:
        try:
            rows = _records(lines, delimiter)
        except csv.Error:  # a cell that is too long, so this is not what separates cells
            continue
        width, times = _usual_width(rows)
        is_likely = width > 1 and (delimiter != " " or times >= max(1, len(rows) - 1))
        if is_likely and times / len(rows) > most:
            best, most = delimiter, times / len(rows)
    return best


def check_delimiter(given: str) -> str:
    """A delimiter given as a character or by its name."""
    named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
    delimiter = named.get(given.lower(), given)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '\r\n"':
        raise UserError(f"delimiter={given[:20]!r} cannot separate cells; give one character, such as ; or | or tab")
    return delimiter


def _find_layout(lines: Sequence[str], delimiter: str, header: bool | None) -> _Layout:
    rows = _records(lines, delimiter)
    width, _ = _usual_width(rows)
    start = next(number for number, (_, row) in enumerate(rows) if len(row) == width)
    short = rows[start - 1][1] if start else []
    # R leaves out the name of the row names; some programs end rows, but not the header, with a delimiter.
    ends_empty = not any(row[-1] for _, row in rows[start:] if len(row) == width)
    names = [*short, ""] if ends_empty else ["", *short]
    if len(short) == width + 1 and not short[-1]:
        short = names = short[:-1]
    is_comment = bool(short) and short[0].startswith("#")
    if header is not False and len(names) == width and not is_comment and is_header(short, []):
        return _Layout(_bytes(lines, rows[start - 1][0]), names, width, _say_skipped(lines, rows, start - 1))
    if start > _LONGEST_PREAMBLE:
        start = 0
    first, rest = rows[start][1], [row for _, row in rows[start + 1 :] if len(row) == width]
    named = is_header(first, rest) if header is None else header
    findings = _say_skipped(lines, rows, start)
    findings += [] if named else ["there is no header; columns are numbered from 0"]
    end = rows[start][0] if named else (rows[start - 1][0] if start else 0)
    return _Layout(_bytes(lines, end), first if named else None, width, findings)


def _bytes(lines: Sequence[str], count: int) -> int:
    return sum(len(line.encode()) for line in lines[:count])


def _say_skipped(lines: Sequence[str], rows: Sequence[tuple[int, list[str]]], start: int) -> list[str]:
    what = "line is" if start == 1 else f"{start} lines are"
    return [f"the first {what} left out, because the rows have other cells: {lines[0].strip()[:60]}"] if start else []


def is_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether a row is a header: names above row names or above numbers, or at least words that no row below has."""
    below = [[row[place] for row in rest] for place in range(len(first))] if rest else []
    are_distinct = all(first[1:]) and len(set(first)) == len(first) > 1
    if below and not first[0] and all(below[0]) and are_distinct:
        return True
    numbers = [cell for cell in first if _NUMBER.fullmatch(cell)]
    if numbers and (len(numbers) == len(first) or not all(_YEAR.fullmatch(cell) for cell in numbers)):
        return False
    above = [(name, cells) for name, cells in zip(first, below, strict=False) if name and not _NUMBER.fullmatch(name)]
    if any(any(cells) and all(not cell or _NUMBER.fullmatch(cell) for cell in cells) for _, cells in above):
        return True
    return any(first) and not any(name in cells for name, cells in above)


def _counts_itself(table: pyarrow.Table) -> bool:
    """Whether the first row gives the numbers of the other rows and of the inputs, as scikit-learn's files do."""
    if table.num_columns < 3 or table.num_rows < 2:
        return False
    first = [table.column(place)[0].as_py() for place in (0, 1)]
    return first == [str(table.num_rows - 1), str(table.num_columns - 1)]


def _make_unique(names: Sequence[str]) -> tuple[list[str], str]:
    """Names without repetition, and those that were made, for a sentence."""
    taken, unique, made = set(names) - {""}, list[str](), list[str]()
    seen = set[str]()
    for name in (str(name).strip() for name in names):
        new, number = name or "unnamed", 2
        while new in seen or (new in taken and new != name):
            new, number = f"{name or 'unnamed'} {number}", number + 1
        made += [f"`{new}`"] if new != name else []
        seen.add(new)
        unique.append(new)
    return unique, ", ".join(made[:5]) + (f" and {len(made) - 5} more" if len(made) > 5 else "")


def _is_unique(column: pyarrow.ChunkedArray) -> bool:
    import pyarrow.compute

    return not column.null_count and len(pyarrow.compute.unique(column)) == len(column)
