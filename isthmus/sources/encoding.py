"""Turns the columns of an ordinary table into features, in two stages, and remembers as plain JSON how.

1. ``codes`` reads cells: a number, 0 or 1, days since 1970, the position of a category in a learned list, or counts of
   hashed words. NaN is missing, −1 a category that the training rows do not have.
2. ``expand`` is arithmetic on codes: medians for missing values and a feature that says so, one feature per frequent
   category, dates as time, season, weekday and hour. `expand_codes` does it with numpy or with torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import digest
from isthmus.sources import cells
from isthmus.sources.cells import WORD_COUNTS, recognise, uses_decimal_comma

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["number", "boolean", "date", "category", "text"]
VERSION = 1
MOST_SHOWN = 30
"""Categories that get a feature of their own."""
_MOST_VALUES, _LONGEST_VALUE = 10_000, 1_000
_PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}
_IDENTIFIER = re.compile(
    r"(?:^|[\W_])(?:id|idx|index|row|rows|row ?names?|identifier|nr|no|uuid|guid|key|obs|unnamed.*)$", re.I
)
_CAMEL_IDENTIFIER = re.compile(r"[a-z](?:Id|ID|Index)$")
_IDENTIFIES = (
    "a different whole number in every row, left out",
    "a different value in every row, left out",
    "a different value in almost every row, left out",
)
_LARGEST, _TOO_FAR, _TOO_NEAR = 1e37, 1e30, 1e-30
"""Differences of features stay finite in float32; columns beyond the other two are rescaled."""
_ROWS_AT_ONCE = 2**14
_EMPTY = "no values, left out"


@dataclass(frozen=True)
class Column:
    """What was learned about one input column."""

    name: str
    kind: Kind
    missing: bool = False
    """Whether training rows had missing values."""
    fill: float = 0.0
    """The median, which replaces missing values."""
    scale: float = 1.0
    comma: bool = False
    date: str = ""
    periods: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """Categories, the most frequent first."""
    counts: tuple[int, ...] = ()
    shown: int = 0
    """How many of them have a feature of their own."""

    @property
    def width(self) -> int:
        """The number of codes."""
        return WORD_COUNTS if self.kind == "text" else 1

    def read(self, column: pyarrow.ChunkedArray) -> np.ndarray:
        """The codes of a column: float64 (rows, width)."""
        if self.kind == "text":
            return cells.word_counts(column)
        if self.kind == "category":
            return cells.positions(column, self.values)[:, None]
        if self.kind == "date":
            return cells.days(column, self.date)[:, None]
        return (cells.booleans(column) if self.kind == "boolean" else cells.numbers(column, self.comma))[:, None]

    def features(self) -> Iterable[tuple[str, str, Mapping[str, float]]]:
        """The name, the operation and the constants of every feature."""
        name, centre = self.name, self.fill if self.kind in ("number", "date") else 0.0
        if self.kind == "text":
            yield from ((f"{name} words {number}", "value", {"offset": number}) for number in range(WORD_COUNTS))
        elif self.kind == "category":
            several = self.shown if self.shown != 2 or len(self.values) > 2 else 1  # one feature tells two apart
            yield from ((f"{name}={self.values[code]}", "equal", {"code": code}) for code in range(several))
            if len(self.values) > self.shown:
                yield f"{name} is rare", "rare", {"shown": self.shown}
            if len(self.values) > MOST_SHOWN:
                yield f"{name} frequency", "frequency", {}
        else:
            yield name, "value", {"fill": self.fill, "centre": centre, "scale": self.scale}
        for period in self.periods:
            for wave, shift in (("sine", 0.0), ("cosine", 0.25)):
                constants = {"fill": self.fill, "period": _PERIODS[period], "shift": shift}
                yield f"{name} {period} {wave}", "wave", constants
        if self.missing:
            yield f"{name} is missing", "missing", {}


class _Finding(NamedTuple):
    """What is said about a column; columns that differ only in how many values they lack share a sentence."""

    said: str
    missing: int = 0
    note: str = ""


class TableEncoder:
    """Learns from training rows; afterwards every row is encoded on its own."""

    def __init__(self, columns: Sequence[Column], findings: Sequence[str], identifiers: Sequence[str] = ()) -> None:
        self.columns, self.findings = tuple(columns), list(findings)
        self.identifiers = tuple(identifiers)
        """Columns that were left out because they tell every row from the others."""
        self.features = [name for column in self.columns for name, _, _ in column.features()]
        self.plan = _plan(self.columns)

    @classmethod
    def learn(cls, table: pyarrow.Table, names: Sequence[str] | None = None, hash_text: bool = True) -> Self:
        """Learn from the training rows; ``names`` are the input columns (default: all)."""
        has_commas = cache(lambda: uses_decimal_comma(table))
        columns, groups = [], dict[tuple[str, bool, str], dict[str, int]]()
        for name, given in _columns(table, table.column_names if names is None else names).items():
            column, finding = _learn_column(name, given, has_commas, hash_text)
            columns += [column] if column else []
            alike = (finding.said, finding.missing > 0, finding.note)
            groups.setdefault(alike, {})[name] = finding.missing
        findings = [
            f"{join_names(list(group))}: {said}{_say_missing(list(group.values()), table.num_rows)}{note}"
            for (said, _, note), group in groups.items()
        ]
        identifiers = [name for said in _IDENTIFIES for name in groups.get((said, False, ""), ())]
        return cls(columns, findings, identifiers)

    @property
    def inputs(self) -> dict[str, Kind]:
        """The columns that it needs, with their kinds."""
        return {column.name: column.kind for column in self.columns}

    def follow_decimals(self, table: pyarrow.Table) -> pyarrow.Table:
        """Another file's table, whose decimal points or commas may be others than in training."""
        return cells.follow_decimals(table, {each.name: each.comma for each in self.columns if each.kind == "number"})

    def codes(self, table: pyarrow.Table) -> np.ndarray:
        """The cells as float64 (rows, codes); other columns are ignored, and their order does not matter."""
        given = _columns(table, list(self.inputs))
        blocks = [column.read(given[column.name]) for column in self.columns]
        return np.concatenate([np.empty((table.num_rows, 0)), *blocks], axis=1)

    def expand(self, codes: np.ndarray) -> np.ndarray:
        """The codes as finite float32 features (rows, features)."""
        expanded = np.empty((len(codes), len(self.features)), np.float32)
        with np.errstate(all="ignore"):
            for start in range(0, len(codes), _ROWS_AT_ONCE):
                part = slice(start, start + _ROWS_AT_ONCE)
                expanded[part] = expand_codes(np, codes[part], self.plan, np.float32, np.int64)
        return expanded

    def memory(self) -> dict[str, Any]:
        """Everything that was learned, as JSON."""
        defaults = {field.name: field.default for field in fields(Column)}
        columns = [
            {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(column).items() if v != defaults[name]}
            for column in self.columns
        ]
        names = {"identifiers": list(self.identifiers)} if self.identifiers else {}
        return {"version": VERSION, "columns": columns, "findings": list(self.findings), **names}

    @classmethod
    def recall(cls, memory: Mapping[str, Any]) -> Self:
        if memory.get("version") != VERSION:
            raise UserError(f"this table encoder has version {memory.get('version')}; this program reads {VERSION}")
        stored: list[dict[str, Any]] = [
            {name: tuple(v) if isinstance(v, list) else v for name, v in column.items()} for column in memory["columns"]
        ]
        return cls([Column(**column) for column in stored], memory["findings"], memory.get("identifiers", ()))

    def digest(self) -> str:
        return digest([VERSION, self.memory()["columns"]])


def is_identifier(name: str) -> bool:
    """Whether a column is named like one that numbers the rows."""
    return bool(_IDENTIFIER.search(name) or _CAMEL_IDENTIFIER.search(name))


def join_names(names: Sequence[str]) -> str:
    """Names of columns for a sentence, of which at most five are listed."""
    listed = [f"`{name}`" for name in (names if len(names) <= 5 else names[:4])]
    return ", ".join(listed) + (f" and {len(names) - 4:,} more" if len(names) > 5 else "")


def _columns(table: pyarrow.Table, names: Sequence[str]) -> dict[str, pyarrow.ChunkedArray]:
    there = dict(zip(table.column_names, table.columns, strict=True))
    for name in names:
        if name not in there:
            raise UserError(f"the table has no column {name!r}; {nearest(name, there)}")
    return {name: there[name] for name in names}


def _learn_column(
    name: str, column: pyarrow.ChunkedArray, has_commas: Callable[[], bool], hash_text: bool
) -> tuple[Column | None, _Finding]:
    """What is learned about a column, or None if it is left out; and what is said about it."""
    form = recognise(column, has_commas)
    if form.kind == "empty":
        return None, _Finding(_EMPTY)
    if form.kind == "nested":
        return None, _Finding(f"{column.type} is neither number, text nor date, left out")
    if form.kind == "words":
        return _learn_words(name, column, hash_text)
    kind = form.kind
    draft = Column(name, kind, comma=form.comma, date=form.date)
    codes = draft.read(column)[:, 0]
    known = np.sort(codes[~np.isnan(codes)])
    if not len(known):
        return None, _Finding(_EMPTY)
    different = 1 + int(np.count_nonzero(np.diff(known)))
    if different == 1 and len(known) == len(codes):
        return None, _Finding("the same value in every row, left out")
    if kind == "number" and is_identifier(name) and different == len(codes) and (known == np.rint(known)).all():
        return None, _Finding(_IDENTIFIES[0])
    fill = float(known[(len(known) - 1) // 2])
    spread = max(known[-1] - fill, fill - known[0])
    scale = 1.0 if _TOO_NEAR < spread < _TOO_FAR or not spread else float(spread)
    periods = _find_periods(known) if kind == "date" else ()
    learned = replace(draft, missing=len(known) < len(codes), fill=fill, scale=scale, periods=periods)
    note = cells.say_thousands(column) if kind == "number" and not form.comma else ""
    if learned.missing:
        note += cells.say_unreadable(cells.unreadable(column, ~np.isnan(codes)))
    return learned, _Finding(_describe(learned, different), len(codes) - len(known), note)


def _find_periods(known: np.ndarray) -> tuple[str, ...]:
    """The cycles that vary over these days."""
    whole = np.floor(known)
    date = whole.astype("datetime64[D]")
    month = date.astype("datetime64[M]")
    varies = {
        "year": len(np.unique(month.astype(np.int64) % 12)) > 1,
        "week": len(np.unique(whole % 7)) > 1 and len(np.unique((date - month).astype(np.int64))) > 1,
        "day": len(np.unique(np.round((known - whole) * 86_400))) > 1,
    }
    return tuple(period for period, does in varies.items() if does)


def _learn_words(name: str, column: pyarrow.ChunkedArray, hash_text: bool) -> tuple[Column | None, _Finding]:
    """A column of categories or of free text."""
    import pyarrow.compute as compute

    known = cells.texts(column).drop_null()
    missing = len(column) - len(known)
    counted = compute.value_counts(known)
    values, counts = counted.field("values").to_pylist(), np.asarray(counted.field("counts"))
    if len(values) == 1 and not missing:
        return None, _Finding("the same value in every row, left out")
    many = len(values) > max(MOST_SHOWN, 0.2 * len(known))
    if (many or len(values) == len(known)) and _mean_words(values) >= 3:
        if not hash_text:
            return None, _Finding("free text, left out", missing)
        said = f"free text, as {WORD_COUNTS} counts of hashed words"
        return Column(name, "text", missing > 0), _Finding(said, missing)
    if len(values) == len(known) > 1 or (many and len(values) >= 0.95 * len(known)):
        return None, _Finding(_IDENTIFIES[1 if len(values) == len(known) else 2])
    order = sorted(range(len(values)), key=lambda number: (-counts[number], values[number]))[:_MOST_VALUES]
    kept = [number for number in order if len(values[number]) <= _LONGEST_VALUE]
    often = int(sum(counts[number] > 1 for number in kept))
    learned = Column(
        name, "category", missing > 0, values=tuple(values[number] for number in kept),
        counts=tuple(int(counts[number]) for number in kept), shown=min(often, MOST_SHOWN),
    )  # fmt: skip
    return learned, _Finding(_describe(learned, len(values)), missing)


def _mean_words(values: Sequence[str]) -> float:
    sample = sorted(values)[:: -(-len(values) // 1_000)]
    return float(np.mean([len(cells.split_words(value)) for value in sample]))


def _say_missing(missing: Sequence[int], rows: int) -> str:
    fewest, most = min(missing), max(missing)
    counts = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return f"; missing in {counts} of {rows:,} training rows" if most else ""


def _describe(column: Column, different: int) -> str:
    if column.kind == "category":
        shown = {0: "none has a feature of its own", 1: "1 has a feature of its own"}
        several = f"{column.shown} have a feature of their own"
        rest = f", of which {shown.get(column.shown, several)}" if column.shown < different else ""
        said = f"{different:,} categories{rest}" if different > 1 else "one category"
    elif column.kind == "date":
        names = {"year": "season", "week": "weekday", "day": "hour"}
        said = (f"{different:,} dates" if different > 1 else "one date") + (
            f" ({column.date})" if "/" in column.date or "." in column.date else ""
        )
        parts = ["time", *(names[period] for period in column.periods)]
        said += f", as {', '.join(parts[:-1])} and {parts[-1]}" if parts[1:] else ", as time"
    elif column.kind == "boolean":
        said = "true or false"
    else:
        said = "numbers" + (" with decimal commas" if column.comma else "")
    return said


_CONSTANTS: dict[str, tuple[str, ...]] = {
    "value": ("fill", "centre", "scale"), "missing": (), "equal": ("code",), "rare": ("shown",),
    "frequency": (), "wave": ("fill", "period", "shift"),
}  # fmt: skip
_DEFAULTS = {"fill": 0.0, "centre": 0.0, "scale": 1.0}


def _plan(columns: Sequence[Column]) -> dict[str, np.ndarray]:
    """The constants of `expand_codes`: for each operation, the codes it takes and one array per constant."""
    lists: dict[str, list[float]] = {f"{group}.column": [] for group in _CONSTANTS}
    lists |= {f"{group}.{name}": [] for group, names in _CONSTANTS.items() for name in names}
    lists |= {"frequency.first": [], "frequency.size": []}
    places: dict[str, list[int]] = {group: [] for group in _CONSTANTS}
    logarithms: list[float] = []
    start = place = 0
    for column in columns:
        for _, group, constants in column.features():
            lists[f"{group}.column"].append(start + constants.get("offset", 0))
            for name in _CONSTANTS[group]:
                lists[f"{group}.{name}"].append(constants.get(name, _DEFAULTS.get(name, 0.0)))
            if group == "frequency":
                lists["frequency.first"].append(len(logarithms))
                lists["frequency.size"].append(len(column.counts))
                logarithms += np.log([0.5, *column.counts]).tolist()  # a category that no training row has comes first
            places[group].append(place)
            place += 1
        start += column.width
    plan = {name: np.array(each, np.int64 if name.endswith("column") else float) for name, each in lists.items()}
    made = [place for group in _CONSTANTS for place in places[group]]
    return plan | {"frequency.logarithms": np.array(logarithms), "order": np.argsort(made).astype(np.int64)}


def expand_codes(
    library: Any, codes: Any, plan: Mapping[str, Any], single: Callable[[Any], Any], whole: Callable[[Any], Any]
) -> Any:
    """Codes as features, with the functions of numpy or of torch; ``single`` casts to float32, ``whole`` to int64."""

    def take(group: str) -> Any:
        return codes[:, plan[f"{group}.column"]]

    def fill(group: str) -> Any:
        taken = take(group)
        return library.where(library.isnan(taken), plan[f"{group}.fill"], taken)

    parts = []
    if len(plan["value.column"]):
        # The median is subtracted in float64, so that a large offset costs no digits.
        centred = (fill("value") - plan["value.centre"]) / plan["value.scale"]
        parts.append(single(library.clip(centred, -_LARGEST, _LARGEST)))
    if len(plan["missing.column"]):
        parts.append(single(library.isnan(take("missing"))))
    if len(plan["equal.column"]):
        parts.append(single(take("equal") == plan["equal.code"]))
    if len(plan["rare.column"]):
        rare = take("rare")
        parts.append(single((rare < 0) | (rare >= plan["rare.shown"])))
    if len(plan["frequency.column"]):
        taken = take("frequency")
        known = library.clip(library.where(library.isnan(taken), -1.0, taken), -1.0, None)
        entry = library.minimum(known + 1, plan["frequency.size"]) + plan["frequency.first"]
        parts.append(single(plan["frequency.logarithms"][whole(entry)]))
    if len(plan["wave.column"]):
        turns = fill("wave") / plan["wave.period"] + plan["wave.shift"]
        # In float64, because the last bit of a sine in float32 differs between machines.
        parts.append(single(library.sin((turns - library.floor(turns)) * (2 * np.pi))))
    return library.concatenate(parts, axis=1)[:, plan["order"]] if parts else single(codes[:, :0])
