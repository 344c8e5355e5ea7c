"""Published numbers and claims: what the authors printed, never what we measured.

A paper is a package with ``published.yaml`` and ``exhibits.py``: a folder here, or an entry point of another package::

    [project.entry-points."isthmus.papers"]
    my_paper = "my_package.my_paper"

>>> load_paper("hourglass").row("T8.12")["psnr_dB"]
21.96
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any, TypeVar

from isthmus.core.errors import UserError, nearest

T = TypeVar("T")


@dataclass(frozen=True)
class Table:
    """A printed table. ``decimals`` is the number of digits printed per column, because 17.70 is read as 17.7."""

    id: str
    printed_as: str
    caption: str
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Any]]  # "T8.12" -> column -> value
    decimals: Mapping[str, int]
    task: Mapping[str, Any] = field(default_factory=dict)
    unit: str = ""
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How the paper obtained the rows."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and whether its own tables support it: yes, no, partly, or not printed."""

    id: str
    statement: str
    supported: str
    tables: tuple[str, ...]
    numbers: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    figures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    id: str
    printed_as: str
    shows: str
    tables: tuple[str, ...]
    stated: tuple[Mapping[str, Any], ...]
    ticks: Mapping[str, Any] = field(default_factory=dict)
    """The first and last label of each axis; they bound values that are drawn but not printed."""


@dataclass(frozen=True)
class Discrepancy:
    """A printed value that differs from what follows from the rest of the paper."""

    id: str
    where: str
    printed: Any
    computed: Any
    note: str
    row: str = ""
    """The table row in question, if any."""


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
    return list(_homes())


@cache
def _homes() -> dict[str, str]:
    """Each paper's key with its package: our folders, then the entry points ``isthmus.papers`` of other packages."""
    folders = [folder.name for folder in files(__name__).iterdir() if folder.joinpath("published.yaml").is_file()]
    homes = {name: f"{__name__}.{name}" for name in folders}
    for entry in entry_points(group="isthmus.papers"):
        if entry.name in homes:
            warnings.warn(f"{entry.value} is ignored: paper {entry.name!r} is {homes[entry.name]}", stacklevel=2)
        homes.setdefault(entry.name, entry.value)
    return dict(sorted(homes.items()))


def import_exhibits(key: str) -> Any:
    """The ``TABLES`` of a paper's module ``exhibits``; no other paper is imported."""
    return _load(key, lambda home: importlib.import_module(f"{home}.exhibits")).TABLES


@cache
def load_paper(key: str) -> Paper:
    """The published numbers of one paper."""
    import yaml

    content = yaml.safe_load(_load(key, lambda home: files(home).joinpath("published.yaml").read_text("utf-8")))
    for name, table in content["tables"].items():
        numbered = enumerate(table["rows"], start=1)
        table["rows"] = {f"{name}.{number}": dict(zip(table["columns"], row, strict=True)) for number, row in numbered}
    kinds = {"tables": Table, "figures": Figure, "claims": Claim, "discrepancies": Discrepancy}
    entries: dict[str, Any] = {group: {} for group in kinds}
    for group, kind in kinds.items():
        for name, entry in content[group].items():
            lists = (
                {} if kind is Discrepancy else {field: tuple(v) for field, v in entry.items() if isinstance(v, list)}
            )
            entries[group][name] = kind(id=name, **entry | lists)
    return Paper(key=key, title=content["title"], authors=tuple(content["authors"]), **entries)


def _load(key: str, load: Callable[[str], T]) -> T:
    homes = _homes()
    if key not in homes:
        raise UserError(f"there is no paper {key!r}; {nearest(key, homes)}")
    try:
        return load(homes[key])
    except (ImportError, OSError) as error:
        raise UserError(f"paper {key!r} cannot be loaded from {homes[key]}: {error}") from error
