"""Published numbers and claims: what the authors printed, never what we measured.

They are in the ``published.yaml`` of each paper's folder.

>>> load_paper("hourglass").row("T8.12")["psnr_dB"]
21.96
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from isthmus.core.errors import UserError, nearest


@dataclass(frozen=True)
class Table:
    """A printed table. ``decimals`` says how many digits a column prints, which a number alone forgets (17.70)."""

    id: str
    printed_as: str
    caption: str
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Any]]  # "T8.12" -> column -> value
    decimals: Mapping[str, int]
    task: Mapping[str, Any]
    unit: str
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the paper says of how the rows were obtained."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, and whether its own tables bear it out: yes, no, partly, or not printed."""

    id: str
    statement: str
    supported: str
    tables: tuple[str, ...]
    numbers: Mapping[str, Any]
    note: str
    figures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    id: str
    printed_as: str
    shows: str
    tables: tuple[str, ...]
    stated: tuple[Mapping[str, Any], ...]
    ticks: Mapping[str, Any] = field(default_factory=dict)
    """The first and the last label of an axis: they bound what is drawn and not printed."""


@dataclass(frozen=True)
class Discrepancy:
    """A place where what is printed and what follows from the rest of the paper differ."""

    id: str
    where: str
    printed: Any
    computed: Any
    note: str
    row: str  # "" where it is not about one row of our tables


@dataclass(frozen=True)
class Paper:
    key: str
    title: str
    authors: tuple[str, ...]
    tables: Mapping[str, Table]
    figures: Mapping[str, Figure]
    claims: Mapping[str, Claim]
    discrepancies: Mapping[str, Discrepancy]

    def row(self, row_id: str) -> Mapping[str, Any]:
        """A row by its id, such as ``T8.12``: the twelfth row of Table 8."""
        rows = {name: row for table in self.tables.values() for name, row in table.rows.items()}
        if row_id not in rows:
            raise UserError(f"{self.key} has no row {row_id!r}; {nearest(row_id, rows)}")
        return rows[row_id]


def list_papers() -> list[str]:
    return sorted(folder.name for folder in files(__name__).iterdir() if folder.joinpath("published.yaml").is_file())


@cache
def load_paper(key: str) -> Paper:
    """The published numbers of one paper."""
    if key not in list_papers():
        raise UserError(f"there is no paper {key!r}; {nearest(key, list_papers())}")
    import yaml

    content = yaml.safe_load(files(__name__).joinpath(key, "published.yaml").read_text(encoding="utf-8"))
    return Paper(
        key=content["key"],
        title=content["title"],
        authors=tuple(content["authors"]),
        tables={name: _table(name, entry) for name, entry in content["tables"].items()},
        figures={
            name: Figure(id=name, **entry | {key: tuple(entry[key]) for key in ("tables", "stated")})
            for name, entry in content["figures"].items()
        },
        claims={name: _claim(name, entry) for name, entry in content["claims"].items()},
        discrepancies={
            name: Discrepancy(id=name, **{"row": "", **entry}) for name, entry in content["discrepancies"].items()
        },
    )


def _table(name: str, entry: Mapping[str, Any]) -> Table:
    columns = tuple(entry["columns"])
    return Table(
        id=name,
        printed_as=entry["printed_as"],
        caption=entry["caption"],
        columns=columns,
        rows={
            f"{name}.{number}": dict(zip(columns, row, strict=True))
            for number, row in enumerate(entry["rows"], start=1)
        },
        decimals=entry["decimals"],
        task=entry.get("task", {}),
        unit=entry.get("unit", ""),
        notes=tuple(entry.get("notes", ())),
        settings=entry.get("settings", {}),
    )


def _claim(name: str, entry: Mapping[str, Any]) -> Claim:
    return Claim(
        id=name,
        statement=entry["statement"],
        supported=entry["supported"],
        tables=tuple(entry["tables"]),
        numbers=entry.get("numbers", {}),
        note=entry.get("note", ""),
        figures=tuple(entry.get("figures", ())),
    )
