"""``isthmus describe``: the cost and the fields of a model."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from isthmus.cli.options import Json, first_line


def describe(
    name: Annotated[
        str, typer.Argument(help="A model (`hourglass_mlp`) or a published network (`vit/tiny-hourglass`).")
    ],
    fields: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Fields such as `d_z=785`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count the parameters, multiply-adds, training FLOPs and bytes of a model, without allocating it.

    Without fields, list the model's fields and its published networks.
    """
    from isthmus.cli import terminal
    from isthmus.core.config import parse_override
    from isthmus.core.registry import catalogue, component, find
    from isthmus.training.counting import count_costs

    if not fields and "/" not in name:
        _print_fields(name, find("models", name), as_json)
        return
    settings: dict[str, Any] = {"name": name}
    for text in fields or ():
        path, value = parse_override(text)
        settings[path[-1] if path[0] == "model" else ".".join(path)] = value
    config = component("models", settings)
    counted = count_costs(config, catalogue("costs"))
    if as_json:
        terminal.print_json({"model": config.model_dump(mode="json"), **counted})
    else:
        rows = [[key.replace("_", " "), value, terminal.size(value)] for key, value in counted.items()]
        terminal.print_table(name, ["per input", "count", "about"], rows)


def _print_fields(name: str, model: Any, as_json: bool) -> None:
    from isthmus.cli import terminal
    from isthmus.core.registry import variants

    properties = model.Config.model_json_schema()["properties"]
    if as_json:
        terminal.print_json(model.Config.model_json_schema())
        return
    rows = [
        [field, "required" if info.is_required() else str(info.default), _accepts(properties[field])]
        for field, info in model.Config.model_fields.items()
        if field != "name"
    ]
    terminal.out.print(first_line(sys.modules[model.__module__].__doc__))
    terminal.print_table(f"fields of {name}", ["field", "default", "accepts"], rows)
    if known := variants(name):
        terminal.out.print("published: " + ", ".join(f"{name}/{variant}" for variant in known))


def _accepts(schema: dict[str, Any]) -> str:
    """The accepted values of a field, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(_accepts(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    low = f" ≥ {schema['minimum']}" if "minimum" in schema else ""
    return f"{schema.get('type', 'value')}{low}"
