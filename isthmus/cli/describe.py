"""``isthmus describe``: the cost and the fields of a model."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from isthmus.cli.options import Json, first_line


def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="A model (`hourglass_mlp`), a published network (`vit/tiny-hourglass`), or `train` for its fields."
        ),
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
    from isthmus.core.config import override
    from isthmus.core.fields import read_meanings
    from isthmus.core.registry import catalogue, component, find

    if name == "train" and not fields:
        _print_training_fields(as_json)
        return
    if not fields and "/" not in name:
        _print_fields(name, find("models", name), as_json)
        return
    from isthmus.training.counting import Cost, count_costs

    settings = override({"name": name}, [text.removeprefix("model.") for text in fields or ()])
    config = component("models", settings)
    counted = count_costs(config, catalogue("costs"))
    if as_json:
        terminal.print_json({"model": config.model_dump(mode="json"), **counted})
    else:
        own = read_meanings(Cost)
        meanings = {key: own[key] if key in own else find("costs", key).meaning for key in counted}
        rows = [[key.replace("_", " "), each, terminal.size(each), meanings[key]] for key, each in counted.items()]
        terminal.print_table(name, ["per input", "count", "about", "meaning"], rows)


def _print_training_fields(as_json: bool) -> None:
    from isthmus.cli import terminal
    from isthmus.cli.listing import print_fields
    from isthmus.core.fields import list_fields
    from isthmus.core.train_config import TrainConfig

    fields = list_fields(TrainConfig)
    if as_json:
        terminal.print_json([field._asdict() for field in fields])
    else:
        print_fields("fields of train.*", fields)


def _print_fields(name: str, model: Any, as_json: bool) -> None:
    from isthmus.cli import terminal
    from isthmus.cli.listing import print_fields
    from isthmus.core.fields import list_fields
    from isthmus.core.registry import variants

    fields = list_fields(model.Config)
    if as_json:
        schema = model.Config.model_json_schema()
        for field in fields:
            schema["properties"][field.name]["description"] = field.meaning
        terminal.print_json(schema)
        return
    terminal.out.print(first_line(sys.modules[model.__module__].__doc__))
    print_fields(f"fields of {name}", fields)
    if known := variants(name):
        terminal.out.print("published: " + ", ".join(f"{name}/{variant}" for variant in known))
