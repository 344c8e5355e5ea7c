"""Reads the cells of a column as text, numbers, days or truth values, whatever the column's type.

Every cell is read on its own: what a column was recognised as (`Form`) is all that one cell knows of the others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["number", "boolean", "date", "words", "empty", "nested"]
WORD_COUNTS = 32
_MISSING = ("", "na", "n/a", "nan", "null", "#n/a", "?")
_NO_NUMBER = ("-", "--", ".", "none", "missing", "unknown", "nil", "*")
"""Missing in columns of numbers and dates; in others these may be categories."""
_PAIRS = (("false", "true"), ("f", "t"), ("no", "yes"), ("n", "y"), ("off", "on"))
_ENOUGH = 0.95
"""The share of readable cells from which a column is one of numbers or dates."""
_LARGEST, _SAMPLE = 1e300, 5_000

_MONEY = r"[$€£¥₹%]|^(?:USD|EUR|GBP|CHF|JPY)\s|\s(?:USD|EUR|GBP|CHF|JPY)$"
_GROUPED = r"^-?\d{1,3}(?:[ '’\x{a0}\x{202f}]\d{3})+(?:[.,]\d+)?$"
_EXPONENT = r"(?:[eE][+-]?\d+)?$"
_POINT = r"^-?(?:(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)" + _EXPONENT
_COMMA = r"^-?(?:(?:[1-9]\d{0,2}(?:\.\d{3})+|\d+)(?:,\d*)?|,\d+)" + _EXPONENT
"""Thousands do not begin with a zero, so that ``0,125`` has a decimal comma."""
_THOUSANDS = r"^\s*-?[1-9]\d{0,2}\.\d{3}\s*$"

_YEAR, _SHORT_YEAR = r"(?P<year>\d{4})", r"(?P<year>\d{4}|\d{2})"
_MONTH, _DAY, _NAME = r"(?P<month>\d{1,2})", r"(?P<day>\d{1,2})", r"(?P<name>[A-Za-z]{3,9})\.?"
_TIME = (
    r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:\.\d+)?))?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)? ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?$"
)
_WEEKDAY = r"^(?:[A-Za-z]{3,9},? )?"
DATE_FORMS = {
    "year-month-day": f"^{_YEAR}[-/.]{_MONTH}[-/.]{_DAY}{_TIME}",
    "day.month.year": f"^{_DAY}[.-]{_MONTH}[.-]{_SHORT_YEAR}{_TIME}",
    "month/day/year": f"^{_MONTH}/{_DAY}/{_SHORT_YEAR}{_TIME}",
    "day/month/year": f"^{_DAY}/{_MONTH}/{_SHORT_YEAR}{_TIME}",
    "month-day-year": f"^{_MONTH}[.-]{_DAY}[.-]{_SHORT_YEAR}{_TIME}",
    "day name year": f"{_WEEKDAY}{_DAY}[-/. ]+{_NAME}[-/, ]+{_SHORT_YEAR}{_TIME}",
    "name day year": f"{_WEEKDAY}{_NAME}[- ]{_DAY}(?:st|nd|rd|th)?,?[- ]{_YEAR}{_TIME}",
    "year-month": f"^{_YEAR}[-/]{_MONTH}$",
    "name year": f"^{_NAME}[-/ ]+{_YEAR}$",
    "yearmonthday": f"^{_YEAR}(?P<month>\\d{{2}})(?P<day>\\d{{2}})$",
    "year quarter": f"^{_YEAR}[-: ]?[Qq](?P<quarter>[1-4])$",
}
"""Patterns of dates. If two of them read equally many cells of a column, the first is used."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class Form(NamedTuple):
    """What a column holds, and how its text is read."""

    kind: Kind
    comma: bool = False
    """Whether numbers have a decimal comma."""
    date: str = ""
    """One of `DATE_FORMS`, if dates are text."""


def recognise(column: pyarrow.ChunkedArray, has_commas: Callable[[], bool] = lambda: False) -> Form:
    """What a column holds; ``has_commas`` decides ``1,234`` and ``1.234`` if no other cell of the column does."""
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.types as types

    kind = column.type
    if column.null_count == len(column):
        return Form("empty")
    if types.is_dictionary(kind):
        if not is_text(kind.value_type):  # categories by choice
            return Form("words")
        kind = kind.value_type
    if types.is_boolean(kind):
        return Form("boolean")
    if types.is_timestamp(kind) or types.is_date(kind):
        return Form("date")
    if types.is_integer(kind) or types.is_floating(kind):
        return _number_form(numbers(column))
    if types.is_decimal(kind) or types.is_temporal(kind):
        return Form("number")
    if not is_text(kind):
        return Form("nested")
    if (values := _try_numbers(column)) is not None:
        comma = _may_be_thousands(column) and has_commas()
        return _number_form(numbers(column, comma) if comma else values, comma)
    counted = compute.value_counts(texts(column).drop_null())
    different, counts = counted.field("values"), np.asarray(counted.field("counts"))
    is_strict = ~np.asarray(_is_among(different, _NO_NUMBER))
    strict = different.filter(pyarrow.array(is_strict))
    if not len(strict):
        return Form("words" if len(different) else "empty")
    points, commas = decimal_votes(strict)
    values = numbers(strict, commas > points)
    if _share_known(values, counts[is_strict]) >= _ENOUGH:
        is_open = commas == points and _count_matches(strict, "[.,]") > 0
        comma = commas > points or (is_open and has_commas())
        return _number_form(numbers(strict, comma), comma)
    if len(different) <= 2 and set(compute.utf8_lower(different).to_pylist()) in map(set, _PAIRS):
        return Form("boolean")
    if len(strict) > _SAMPLE:  # evenly over the sorted values, so that the order of rows does not matter
        strict = strict.take(compute.sort_indices(strict)[:: -(-len(strict) // _SAMPLE)])
    shares = {form: _share_known(_parse_days(strict, form)) for form in DATE_FORMS}
    best = max(shares, key=lambda form: shares[form])
    return Form("date", date=best) if shares[best] >= _ENOUGH else Form("words")


def _number_form(values: np.ndarray, comma: bool = False) -> Form:
    """Numbers, unless all of them are dates such as 20201231."""
    known = values[np.isfinite(values)]
    if len(known) < 2 or known.min() < 1800_01_01 or known.max() > 2100_12_31:
        return Form("number", comma)
    month, day = known // 100 % 100, known % 100
    are_dates = (known == np.rint(known)) & (month > 0) & (month < 13) & (day > 0) & (day < 32)
    return Form("date", date="yearmonthday") if are_dates.all() else Form("number", comma)


def type_numbers(table: pyarrow.Table, names: Iterable[str]) -> pyarrow.Table:
    """Parse the columns of text that hold plain numbers such as ``-1.5e3``, so that later steps need not parse them."""
    import pyarrow

    columns = dict(zip(table.column_names, table.columns, strict=True))
    has_commas = cache(lambda: uses_decimal_comma(table))
    for name in names:
        if not is_text(columns[name].type) or (_may_be_thousands(columns[name]) and has_commas()):
            continue
        if (values := _try_numbers(columns[name])) is not None:
            columns[name] = pyarrow.chunked_array([pyarrow.array(values, from_pandas=True)])
    return pyarrow.table(columns)


def is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def texts(column: pyarrow.ChunkedArray) -> Any:
    """Every cell as trimmed text; null where it is missing."""
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        column = compute.cast(column, column.type.value_type)
    if types.is_boolean(column.type):
        return compute.if_else(column, "True", "False")
    if types.is_nested(column.type) or types.is_binary(column.type):
        return pyarrow.nulls(len(column), pyarrow.string())
    cells = compute.utf8_trim_whitespace(compute.cast(column, pyarrow.string()))
    return compute.if_else(_is_among(cells, _MISSING), pyarrow.scalar(None, pyarrow.string()), cells)


def numbers(column: Any, comma: bool = False) -> np.ndarray:
    """Every cell as float64, NaN where it is no finite number."""
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.types as types

    kind = column.type
    if is_text(kind) or types.is_dictionary(kind):
        plain = None if comma or types.is_dictionary(kind) else _try_numbers(column)
        values = _parse_numbers(texts(column), comma) if plain is None else plain
    elif types.is_temporal(kind) and not types.is_date(kind) and not types.is_timestamp(kind):
        values = _floats(compute.cast(compute.cast(column, _find_stored_type(kind)), pyarrow.float64(), safe=False))
    elif types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        values = _floats(compute.cast(column, pyarrow.float64(), safe=False))
    else:
        values = np.full(len(column), np.nan)
    return np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), np.nan)


def days(column: Any, form: str = "") -> np.ndarray:
    """Every cell as days since 1970 in its own time zone, NaN where it is no date."""
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.types as types

    kind = column.type
    if types.is_floating(kind):  # such as 20201231
        column, kind = compute.cast(column, pyarrow.int64(), safe=False), pyarrow.int64()
    if is_text(kind) or types.is_dictionary(kind) or types.is_integer(kind):
        cells = texts(column)
        different = compute.unique(cells)  # dates come again
        parsed = _parse_days(different, form or "year-month-day")
        parsed = np.where(np.isnan(parsed), _parse_days(different, "year-month-day"), parsed)
        return parsed[np.asarray(compute.index_in(cells, value_set=different))] if len(cells) else parsed
    if types.is_timestamp(kind):
        if kind.tz:
            with suppress(pyarrow.ArrowInvalid):  # an unknown time zone; its moments are in UTC
                column = compute.local_timestamp(column)
        units = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
        return _floats(compute.cast(column, pyarrow.int64())) / (86_400 * units[kind.unit])
    if types.is_date(kind):
        return _floats(compute.cast(column, _find_stored_type(kind))) / (1 if types.is_date32(kind) else 86_400_000)
    return np.full(len(column), np.nan)


def unreadable(column: Any, is_known: np.ndarray) -> list[str]:
    """The texts of the cells that could not be read, without the usual signs for missing values."""
    import pyarrow
    import pyarrow.compute as compute

    if not is_text(column.type):
        return []
    left = compute.unique(texts(column).filter(pyarrow.array(~is_known))).drop_null()
    return sorted(left.filter(compute.invert(_is_among(left, _NO_NUMBER))).to_pylist())


def say_unreadable(texts: Sequence[str]) -> str:
    """A note on the texts of `unreadable`."""
    others = f" and {len(texts) - 1:,} other texts" if texts[1:] else ""
    return f" ({texts[0][:40]!r}{others} cannot be read)" if texts else ""


def say_thousands(column: Any) -> str:
    """A note on commas that are read as separators of thousands, if no cell of the column shows it."""
    import pyarrow.compute as compute

    if not is_text(column.type) or any(decimal_votes(texts(column).drop_null())):
        return ""
    found = column.filter(compute.match_substring_regex(column, r"^\s*-?[1-9]\d{0,2},\d{3}\s*$"))
    return f" ({found[0].as_py().strip()} is read as {numbers(found[:1])[0]:.0f})" if len(found) else ""


def booleans(column: Any) -> np.ndarray:
    """Every cell as 0 or 1, NaN where it is neither."""
    import pyarrow
    import pyarrow.compute as compute

    words = compute.utf8_lower(texts(column))
    false, true = (pyarrow.array([pair[side] for pair in _PAIRS] + [str(side)]) for side in (0, 1))
    found = [np.asarray(compute.is_in(words, value_set=side)) for side in (false, true)]
    return np.where(found[1], 1.0, np.where(found[0], 0.0, np.nan))


def positions(column: Any, values: tuple[str, ...]) -> np.ndarray:
    """The position of every cell in ``values``; −1 if it is not among them, NaN if it is missing."""
    import pyarrow
    import pyarrow.compute as compute

    cells = texts(column)
    found = compute.fill_null(compute.index_in(cells, value_set=pyarrow.array(values, pyarrow.string())), -1)
    return np.where(np.asarray(compute.is_null(cells)), np.nan, np.asarray(found).astype(np.float64))


def word_counts(column: Any) -> np.ndarray:
    """How many words of every cell fall into each of `WORD_COUNTS` groups; NaN if it is missing."""
    counts = np.zeros((len(column), WORD_COUNTS))
    for row, text in enumerate(texts(column).to_pylist()):
        if text is None:
            counts[row] = np.nan
            continue
        for word in split_words(text):
            counts[row, _word_group(word)] += 1
    return counts


def split_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@lru_cache(2**16)
def _word_group(word: str) -> int:
    hashed = hashlib.blake2b(word.encode(errors="replace"), key=b"isthmus words", digest_size=4)
    return int.from_bytes(hashed.digest(), "big") % WORD_COUNTS


def decimal_votes(cells: Any) -> tuple[int, int]:
    """How many cells can only have a decimal point, and how many only a decimal comma."""
    if _try_numbers(cells) is not None:
        return _count_matches(cells, r"\.") - _count_matches(cells, _THOUSANDS), 0
    _, point, comma = _number_forms(cells)
    return int((point & ~comma).sum()), int((comma & ~point).sum())


def uses_decimal_comma(table: pyarrow.Table) -> bool:
    """Whether more values in a table have a decimal comma than a decimal point."""
    import pyarrow.compute as compute

    columns = [column for column in table.columns if is_text(column.type)]
    votes = [decimal_votes(compute.unique(texts(column)).drop_null()) for column in columns]
    return sum(commas for _, commas in votes) > sum(points for points, _ in votes)


def follow_decimals(table: pyarrow.Table, commas: Mapping[str, bool]) -> pyarrow.Table:
    """Parse columns of text that have decimal points instead of the commas of training (``commas``), or the reverse."""
    import pyarrow
    import pyarrow.compute as compute

    columns = dict(zip(table.column_names, table.columns, strict=True))
    found = [name for name in commas if is_text(columns[name].type)]
    votes = {name: decimal_votes(compute.unique(texts(columns[name])).drop_null()) for name in found}
    decided = {name: more > points for name, (points, more) in votes.items() if more != points}
    is_other = bool(decided) and all(comma != commas[name] for name, comma in decided.items())
    usual = sum(decided.values()) * 2 > len(decided)
    for name in found:
        comma = decided.get(name, usual if is_other else commas[name])
        if comma != commas[name]:
            columns[name] = pyarrow.chunked_array([pyarrow.array(numbers(columns[name], comma), from_pandas=True)])
    return pyarrow.table(columns)


def _may_be_thousands(column: pyarrow.ChunkedArray) -> bool:
    """Whether points in a column of plain numbers may separate thousands, as in ``1.234``."""
    return is_text(column.type) and 0 < _count_matches(column, r"\.") == _count_matches(column, _THOUSANDS)


def _count_matches(cells: Any, pattern: str) -> int:
    import pyarrow.compute as compute

    return compute.sum(compute.match_substring_regex(cells, pattern)).as_py() or 0


def _number_forms(cells: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """The cells without currency and the like, and where they are numbers with a point and with a comma."""
    import pyarrow.compute as compute

    cells = compute.utf8_trim_whitespace(compute.replace_substring_regex(cells, _MONEY, ""))
    cells = compute.replace_substring(cells, "−", "-")
    cells = compute.replace_substring_regex(cells, r"^\((.*)\)$", r"-\1")
    cells = compute.replace_substring_regex(cells, r"^\+", "")
    grouped = compute.match_substring_regex(cells, _GROUPED)
    cells = compute.if_else(grouped, compute.replace_substring_regex(cells, r"[ '’\x{a0}\x{202f}]", ""), cells)
    point, comma = (
        np.asarray(compute.fill_null(compute.match_substring_regex(cells, form), False)) for form in (_POINT, _COMMA)
    )
    return cells, point, comma


def _try_numbers(cells: Any) -> np.ndarray | None:
    """The cells as numbers, if all of them are written as plainly as ``-1.5e3``; otherwise None."""
    import pyarrow
    import pyarrow.compute as compute

    with suppress(pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        return _floats(compute.cast(cells, pyarrow.float64()))
    return None


def _parse_numbers(cells: Any, comma: bool) -> np.ndarray:
    import pyarrow
    import pyarrow.compute as compute

    if not comma and (values := _try_numbers(cells)) is not None:
        return values
    cells, has_point, has_comma = _number_forms(cells)
    by_comma = has_comma & (comma | ~has_point)
    swapped = compute.replace_substring(compute.replace_substring(cells, ".", ""), ",", ".")
    plain = compute.if_else(pyarrow.array(by_comma), swapped, compute.replace_substring(cells, ",", ""))
    plain = compute.if_else(pyarrow.array(has_point | has_comma), plain, pyarrow.scalar(None, pyarrow.string()))
    try:
        return _floats(compute.cast(plain, pyarrow.float64()))
    except pyarrow.ArrowInvalid:  # beyond float64
        return np.array([np.nan if cell is None else float(cell) for cell in plain.to_pylist()])


def _parse_days(cells: Any, form: str) -> np.ndarray:
    import pyarrow
    import pyarrow.compute as compute

    found = compute.extract_regex(cells, DATE_FORMS[form])
    parts = [found.type.field(number).name for number in range(found.type.num_fields)]
    fields = {part: compute.struct_field(found, part) for part in parts}

    def whole(part: str, default: float) -> np.ndarray:
        if part not in fields:
            return np.full(len(cells), default)
        return np.nan_to_num(_parse_numbers(fields[part], comma=False), nan=default)

    year, month, day = whole("year", np.nan), whole("month", 1), whole("day", 1)
    year = np.where(year < 70, year + 2000, np.where(year < 100, year + 1900, year))
    if "name" in fields:
        short = compute.utf8_lower(compute.utf8_slice_codeunits(fields["name"], 0, 3))
        month = _floats(compute.cast(compute.index_in(short, pyarrow.array(_MONTHS)), pyarrow.float64())) + 1
    if "quarter" in fields:
        month = 3 * whole("quarter", 1) - 2
    hour, minute, second = whole("hour", 0), whole("minute", 0), whole("second", 0)
    if "half" in fields:
        half = compute.utf8_lower(fields["half"])
        given = [np.asarray(compute.fill_null(compute.equal(half, letter), False)) for letter in ("a", "p")]
        hour = np.where(given[0], hour % 12, np.where(given[1], hour % 12 + 12, hour))
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 61) & (year >= 1)
    months = (np.where(valid, 12 * (year - 1970) + month - 1, 0)).astype("datetime64[M]")
    first, following = months.astype("datetime64[D]"), (months + 1).astype("datetime64[D]")
    valid &= day <= (following - first).astype(np.float64)
    return np.where(valid, first.astype(np.float64) + day - 1 + (hour + (minute + second / 60) / 60) / 24, np.nan)


def _find_stored_type(kind: Any) -> Any:
    """The integers that a date, a time or a duration is stored as."""
    import pyarrow

    return pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()


def _floats(column: Any) -> np.ndarray:
    return np.array(column.to_numpy(zero_copy_only=False), np.float64)


def _is_among(cells: Any, words: tuple[str, ...]) -> Any:
    import pyarrow
    import pyarrow.compute as compute

    return compute.is_in(compute.utf8_lower(cells), value_set=pyarrow.array(words))


def _share_known(values: np.ndarray, counts: np.ndarray | None = None) -> float:
    return float(np.average(~np.isnan(values), weights=counts)) if len(values) else 0.0
