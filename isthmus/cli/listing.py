"""Prints what is registered: names with their meanings below headings, and the fields of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.cli import terminal
from isthmus.core.fields import Field, list_fields
from isthmus.core.registry import Kind, catalogue, find
from isthmus.core.titles import meaning


def print_components(kind: Kind, name: str | None, as_json: bool) -> None:
    """The names of a kind, or the fields of one."""
    if name is None:
        print_names({each: {"meaning": meaning(kind, each)} for each in catalogue(kind)}, as_json)
        return
    found = find(kind, name)
    detail = " ".join((found.__doc__ or "").split()).replace("``", "`") if "__doc__" in vars(found) else ""
    fields = list_fields(found.Config)
    if as_json:
        described = {"name": name, "meaning": meaning(kind, name), "detail": detail}
        terminal.print_json(described | {"fields": [field._asdict() for field in fields]})
        return
    for line in (meaning(kind, name), detail):
        if line:
            terminal.out.print(line)
    print_fields(f"fields of {kind.removesuffix('s')}.*", fields)


def print_names(names: Mapping[str, Mapping[str, str]], as_json: bool) -> None:
    """Names with their meanings, below headings if they have a ``group``."""
    if as_json:
        terminal.print_json(names)
        return
    groups: dict[str, list[list[str]]] = {}
    width = max(map(len, names), default=0)
    for name, said in names.items():
        groups.setdefault(said.get("group", ""), []).append([name.ljust(width), said["meaning"]])
    for place, (heading, rows) in enumerate(groups.items()):
        if place:
            terminal.out.print()
        terminal.print_pairs(heading, rows)


def print_fields(title: str, fields: Sequence[Field]) -> None:
    rows = [[each.name, each.default, each.accepts, each.meaning] for each in fields]
    terminal.print_table(title, ["field", "default", "accepts", "meaning"], rows)
