"""``isthmus tasks``: what is predicted, and how it is measured."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli.options import Json


def tasks(
    name: Annotated[str | None, typer.Argument(help="A task, to list its fields (`task.noise_std=…`).")] = None,
    as_json: Json = False,
) -> None:
    """List the tasks, or the fields of one: what each means, accepts and is by default."""
    from isthmus.cli.listing import print_components

    print_components("tasks", name, as_json)
