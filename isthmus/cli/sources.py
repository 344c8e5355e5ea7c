"""``isthmus sources``: where rows come from."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli.options import Json


def sources(
    name: Annotated[str | None, typer.Argument(help="A source, to list its fields (`source.path=…`).")] = None,
    as_json: Json = False,
) -> None:
    """List the sources of data, or the fields of one: what each means, accepts and is by default."""
    from isthmus.cli.listing import print_components

    print_components("sources", name, as_json)
