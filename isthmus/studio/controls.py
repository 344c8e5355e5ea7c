"""Fields of forms: sliders, choices and texts, also for every field of an architecture."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from html import escape
from typing import Any

from isthmus.core.fields import read_meanings
from isthmus.core.registry import presets
from isthmus.reports.markup import mark_code
from isthmus.studio.designs import OF_THE_TASK, Design


def list_fields(model: Any) -> dict[str, dict[str, Any]]:
    """The JSON schema of every field that a person chooses."""
    schema = type(model).model_json_schema()
    found = {}
    for name, field in schema["properties"].items():
        if name in OF_THE_TASK or name.endswith("_seed"):
            continue
        kinds = [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]
        found[name] = kinds[0] | {"optional": len(kinds) < len(field.get("anyOf", kinds))}
    return found


def control(design: Design, name: str, schema: Mapping[str, Any]) -> str:
    """A field as a slider, a choice or a text."""
    value = getattr(design.model, name)
    meant = read_meanings(type(design.model)).get(name, "")
    if name == "pathway":
        pathways = dict.fromkeys(["plain", *presets()])
        text = type_value(design.given.get("pathway", "plain"))
        return choose(name, name, {each: each for each in dict.fromkeys([text, *pathways])}, text, meant=meant)
    if "enum" in schema or schema.get("type") == "boolean":
        each = schema.get("enum", ["true", "false"])
        options = {"": "default"} if schema.get("optional") else {}
        return choose(name, name, options | {str(one): str(one) for one in each}, type_value(value), meant=meant)
    if schema.get("type") in ("integer", "number"):
        whole = schema["type"] == "integer"
        return slider(name, value, _limits(schema, value, whole), whole, meant)
    return number(name, name, "" if value is None else type_value(value), kind="text", meant=meant)


def _limits(schema: Mapping[str, Any], value: Any, whole: bool) -> tuple[float, float]:
    """The ends of a slider: those of the field, as far as a person would go."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
    reach = 4 * (value or (64 if whole else 1))
    return low, min(high, max(reach, 16 if whole else 1))


def slider(name: str, value: Any, limits: tuple[float, float], whole: bool, meant: str = "", label: str = "") -> str:
    """A range and a number that follow each other; without scripts, the number alone counts."""
    low, high = limits
    step = "1" if whole else "any"
    shown = "" if value is None else type_value(value)
    fine = "1" if whole else f"{(high - low) / 200:g}"
    return (
        f"<div class='slider'><label for='field-{name}'>{escape(label or name)}</label>"
        f"<input type='range' data-for-field='field-{name}' min='{low:g}' max='{high:g}' step='{fine}' "
        f"value='{shown or low}' aria-label='{escape(label or name)}, slider'>"
        f"<input type='number' id='field-{name}' name='{escape(name)}' value='{shown}' min='{low:g}' "
        f"step='{step}'{_refer(name, meant)}>{_explain(name, meant)}</div>"
    )


def _refer(name: str, meant: str) -> str:
    return f" aria-describedby='means-{escape(name)}'" if meant else ""


def _explain(name: str, meant: str) -> str:
    return f"<span class='means' id='means-{escape(name)}'>{mark_code(meant)}</span>" if meant else ""


def choose(name: str, label: str, options: Mapping[str, str], chosen: str, more: str = "", meant: str = "") -> str:
    each = "".join(
        f"<option value='{escape(value)}'{' selected' * (value == chosen)}>{escape(text)}</option>"
        for value, text in options.items()
    )
    return (
        f"<div class='chosen'><label for='field-{name}'>{escape(label)}</label> <select id='field-{name}' "
        f"name='{escape(name)}' {more}{_refer(name, meant)}>{each}</select>{_explain(name, meant)}</div>"
    )


def number(name: str, label: str, value: str, kind: str = "number", meant: str = "", form: str = "") -> str:
    step = " step='any'" * (kind == "number") + f" form='{form}'" * bool(form)
    return (
        f"<div class='chosen'><label for='field-{name}'>{escape(label)}</label> <input type='{kind}' "
        f"id='field-{name}' name='{escape(name)}' value='{escape(value)}' size='10'{step}{_refer(name, meant)}>"
        f"{_explain(name, meant)}</div>"
    )


def type_value(value: Any) -> str:
    """A value as it is typed."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def read_whole(text: str | None, default: int) -> int:
    return int(text) if text and re.fullmatch("[0-9]{1,6}", text) and int(text) else default
