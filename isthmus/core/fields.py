"""The fields of a config as people read them: what each one means, accepts and is by default.

The meaning is the string below the field in its class. It is read on demand, because pydantic's own way of
reading it (``use_attribute_docstrings``) doubles the time that configs take to import.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any, NamedTuple

from isthmus.core.protocols import Component, Settings
from isthmus.core.registry import parse_code

_SIGNS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_LARGEST_LIMIT = 10**6
"""Limits from here on are not shown: they only stop typing errors."""
_WORDS = {"boolean": "true or false", "object": "mapping of fields"}


class Field(NamedTuple):
    name: str
    meaning: str
    accepts: str
    default: str
    """As the user would type it, or ``required``."""


def list_fields(config: type[Settings], prefix: str = "") -> list[Field]:
    """All fields of a config but its name, with those of nested settings: ``augment.flip``."""
    return list(_fields(config, prefix))


def _fields(config: type[Settings], prefix: str) -> Iterator[Field]:
    schema = config.model_json_schema()
    for name, info in config.model_fields.items():
        if name == "name" and issubclass(config, Component):
            continue
        nested = info.annotation
        if isinstance(nested, type) and issubclass(nested, Settings) and not issubclass(nested, Component):
            yield from _fields(nested, f"{prefix}{name}.")
            continue
        default = "required" if info.is_required() else _type(info.get_default(call_default_factory=True))
        accepts = _accepts(schema["properties"][name], schema.get("$defs", {}))
        yield Field(f"{prefix}{name}", info.description or read_meanings(config).get(name, ""), accepts, default)


@cache
def read_meanings(config: type[Any]) -> dict[str, str]:
    """The strings below the fields of a config or dataclass and of its bases, each as one line."""
    meanings: dict[str, str] = {}
    for owner in reversed(config.__mro__):
        if is_dataclass(owner) or (issubclass(owner, Settings) and owner is not Settings):
            meanings |= _read_strings(owner)
    return meanings


def _read_strings(owner: type[Any]) -> dict[str, str]:
    try:
        (definition,) = parse_code(textwrap.dedent(inspect.getsource(owner))).body
    except (OSError, TypeError, ValueError, SyntaxError):  # defined at a prompt, or compiled
        return {}
    found = {}
    for field, below in itertools.pairwise(getattr(definition, "body", [])):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[ast.unparse(field.target)] = " ".join(str(below.value.value).split()).replace("``", "`")
    return found


def _type(value: Any) -> str:
    """A value as the user would type it in an override."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _accepts(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """The accepted values of a field, from its JSON schema."""
    if "$ref" in schema:
        return _accepts(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_accepts(part, definitions) for part in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    if "prefixItems" in schema:
        parts = [_accepts(part, definitions) for part in schema["prefixItems"]]
        return f"[{len(parts)} × {parts[0]}]" if len(set(parts)) == 1 < len(parts) else f"[{', '.join(parts)}]"
    if schema.get("type") == "array":
        return f"list of {_accepts(schema.get('items', {}), definitions)}"
    kind = schema.get("type", "value")
    return _WORDS.get(kind, f"{kind} {_limits(schema)}".rstrip())


def _limits(schema: dict[str, Any]) -> str:
    known = {name: schema[name] for name in _SIGNS if name in schema and abs(schema[name]) < _LARGEST_LIMIT}
    if known.keys() == {"minimum", "maximum"}:
        return f"from {known['minimum']:,g} to {known['maximum']:,g}"
    return " and ".join(f"{sign} {known[name]:,g}" for name, sign in _SIGNS.items() if name in known)
