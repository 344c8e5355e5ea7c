"""What there is: models, recipes, shapes, and the machine."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from isthmus.cli.options import Json

app = typer.Typer()


@app.command()
def models(as_json: Json = False) -> None:
    """The registered architectures, ours and those of installed packages."""
    from isthmus import terminal
    from isthmus.registry import catalogue

    homes = catalogue("models")
    if as_json:
        terminal.print_json(homes)
    else:
        terminal.print_table("", ["model", "defined in"], [[name, home] for name, home in homes.items()])


@app.command()
def recipes(as_json: Json = False) -> None:
    """The complete configs that `train` and `study` know by name."""
    from rich.text import Text

    from isthmus import terminal
    from isthmus.registry import catalogue, find

    lines = {name: _first_line(find("recipes", name).__doc__) for name in catalogue("recipes")}
    if as_json:
        terminal.print_json(lines)
    else:
        for name, line in lines.items():
            terminal.out.print(Text.assemble((name, "bold"), f"  {line}"))


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="A model, `hourglass_mlp`, or a published one, `vit/tiny-hourglass`.")],
    fields: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its fields, `d_z=785`.")] = None,
    as_json: Json = False,
) -> None:
    """What a model costs: parameters, multiply-adds, training FLOPs and bytes. Takes no memory, whatever its size.

    Without fields: the fields that the model has, and the published networks of its kind.
    """
    from isthmus import terminal
    from isthmus.config import parse_override
    from isthmus.counting import cost
    from isthmus.registry import component, find

    if not fields and "/" not in name:
        _print_fields(name, find("models", name), as_json)
        return
    settings: dict[str, Any] = {"name": name}
    for text in fields or ():
        path, value = parse_override(text)
        settings[path[-1] if path[0] == "model" else ".".join(path)] = value
    config = component("models", settings)
    counted = cost(settings).as_dict()
    if as_json:
        terminal.print_json({"model": config.model_dump(mode="json"), **counted})
    else:
        rows = [[key.replace("_", " "), value, terminal.size(value)] for key, value in counted.items()]
        terminal.print_table(name, ["per input", "count", "about"], rows)


def _print_fields(name: str, model: Any, as_json: bool) -> None:
    from isthmus import terminal
    from isthmus.registry import variants

    properties = model.Config.model_json_schema()["properties"]
    if as_json:
        terminal.print_json(model.Config.model_json_schema())
        return
    rows = [
        [field, "required" if info.is_required() else str(info.default), _accepts(properties[field])]
        for field, info in model.Config.model_fields.items()
        if field != "name"
    ]
    terminal.out.print(_first_line(sys.modules[model.__module__].__doc__), highlight=False)
    terminal.print_table(f"fields of {name}", ["field", "default", "accepts"], rows)
    if known := variants(name):
        terminal.out.print("published: " + ", ".join(f"{name}/{variant}" for variant in known), highlight=False)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _accepts(schema: dict[str, Any]) -> str:
    """The values that a field takes, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(_accepts(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    low = f" ≥ {schema['minimum']}" if "minimum" in schema else ""
    return f"{schema.get('type', 'value')}{low}"


@app.command()
def shapes(
    omega: Annotated[str, typer.Option(help="Connections of a layer on average: `2^18`, `262144`, `2.6e8`.")],
    gamma: Annotated[float, typer.Option(help="Expansion of the hidden layers; 1 for S-Mixers.")] = 1.0,
    channels: Annotated[
        list[int] | None, typer.Option("--channels", min=1, help="Only this C; may be repeated.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Mixers with equally many connections, from narrow to widest to narrow: whole S and C, width and density.

    For example: `isthmus shapes --omega 2^19 --gamma 2`
    """
    from dataclasses import asdict

    from isthmus import terminal
    from isthmus.shape_theory import parse_amount, widest_side
    from isthmus.shape_theory import shapes as of_equal_cost

    wanted = parse_amount(omega)
    found = of_equal_cost(wanted, gamma, channels)
    if as_json:
        terminal.print_json([asdict(each) for each in found])
        return
    rows = [
        [each.C, each.S, each.m, f"{each.p:.4g}", f"{each.omega:,.0f}", f"{each.deviation:.2%}".replace("-", "–")]
        for each in found
    ]
    title = f"omega {wanted:,.0f}, gamma {gamma:g}: widest at C = S = {widest_side(wanted, gamma):.4g}"
    terminal.print_table(title, ["C", "S", "m", "p", "omega", "deviation"], rows)


@app.command()
def doctor(as_json: Json = False) -> None:
    """What this machine has, and what is missing."""
    from rich.text import Text

    from isthmus import terminal
    from isthmus.diagnosis import diagnose

    findings = diagnose()
    if as_json:
        terminal.print_json([vars(finding) for finding in findings])
    else:
        marks = {True: Text("✓", "green"), False: Text("–", "yellow")}
        rows = [[marks[finding.good], finding.subject, finding.found, finding.advice] for finding in findings]
        terminal.print_table("", ["", "what", "found", "what to do"], rows)
    raise typer.Exit(0 if all(finding.good or finding.optional for finding in findings) else 1)
