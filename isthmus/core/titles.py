"""What registered names and networks are called in lists, tables and figures; read without importing their files."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from isthmus.core.registry import Kind, catalogue, parse_file, parse_module, read_variable


def file_line(kind: Kind, name: str) -> str:
    """The first line of the docstring of the file that defines a name."""
    return (ast.get_docstring(parse_file(kind, name)) or "").partition("\n")[0].replace("``", "`")


def meaning(kind: Kind, name: str) -> str:
    """One line that describes a registered name."""
    said = (read_variable(kind, name, "MEANINGS") or {}).get(name) or file_line(kind, name)
    return said or f"defined in {catalogue(kind)[name]}"


def model_kind(name: str) -> str:
    """The heading below which lists show a model."""
    return read_variable("models", name, "KIND") or "Other models"


def title_fields(model: Mapping[str, Any], also: Iterable[str] = ()) -> dict[str, Any]:
    """The fields that distinguish a network from others of its model, as far as they are set.

    For a model without ``TITLE_FIELDS``: all its numbers except seeds and the task's sizes.
    """
    names = _declared_title_fields(model["name"])
    if names is None:
        names = tuple(name for name, value in model.items() if _is_size(name, value))
    values = {name: model.get(name) for name in (*names, *also) if not name.startswith("pathway")}
    if (pathway := model.get("pathway")) is not None:
        values["pathway"] = pathway_title(pathway)
    return {name: value for name, value in values.items() if value is not None}


def _declared_title_fields(name: str) -> tuple[str, ...] | None:
    """The literal ``TITLE_FIELDS`` of a model's file, read without importing it, because reports need no torch."""
    fields = read_variable("models", name, "TITLE_FIELDS")
    return None if fields is None else tuple(fields)


def _is_size(name: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and not name.endswith("seed") and name not in ("d_in", "d_out")


def pathway_title(pathway: Mapping[str, Any] | str) -> str:
    """A pathway in one word: its name, and the declared fields that distinguish it, unless they have their defaults."""
    if isinstance(pathway, str):
        return pathway
    declared = (read_variable("pathways", pathway["name"], "TITLE_FIELDS") or {}).get(pathway["name"], ())
    defaults = _read_defaults("pathways", pathway["name"])
    told = {name: pathway[name] for name in declared if name in pathway and pathway[name] != defaults.get(name)}
    shown = ",".join(f"{name}={'none' if value is None else value}" for name, value in told.items())
    return f"{pathway['name']}({shown})" if shown else str(pathway["name"])


@cache
def _read_defaults(kind: Kind, name: str) -> dict[str, Any]:
    """The literal defaults of the settings of a name, read without importing its file."""
    wanted, body = f"{catalogue(kind).get(name, '').partition(':')[2]}Config", parse_file(kind, name).body
    for node in body:  # defined in another file?
        if isinstance(node, ast.ImportFrom) and wanted in [alias.name for alias in node.names]:
            body = parse_module(str(node.module)).body
    found = {}
    for node in body:
        for field in node.body if isinstance(node, ast.ClassDef) and node.name == wanted else ():
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None:
                with suppress(ValueError):  # a default that is computed
                    found[field.target.id] = ast.literal_eval(field.value)
    return found


_JOINED_BY = " · "


def architecture_of(model: Mapping[str, Any]) -> str:
    """A model's name, and its pathway unless that is plain: ``hourglass_mlp · delayed(lag=1)``."""
    title = pathway_title(model.get("pathway") or "plain")
    return str(model["name"]) if title == "plain" else f"{model['name']}{_JOINED_BY}{title}"


def split_architecture(architecture: str) -> tuple[str, str]:
    """The model's name and the pathway of :func:`architecture_of`; an empty one is plain."""
    name, _, pathway = architecture.partition(_JOINED_BY)
    return name, pathway


def model_title(model: Mapping[str, Any], also: Iterable[str] = ()) -> str:
    """A network in one line: ``hourglass_mlp d_z=785 d_h=128 depth=5``."""
    fields = title_fields(model, also).items()
    shown = (f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in fields)
    return " ".join([model["name"], *shown])
