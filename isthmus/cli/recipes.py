"""``isthmus recipes``: the named configs."""

from __future__ import annotations

import re

from isthmus.cli.options import Json


def recipes(as_json: Json = False) -> None:
    """List the named configs for `train` and `study`, by the file or the paper that they belong to."""
    from isthmus.cli.listing import print_names
    from isthmus.core.registry import catalogue, find
    from isthmus.core.titles import file_line

    names = catalogue("recipes")
    print_names(
        {name: {"meaning": _describe(find("recipes", name)), "group": file_line("recipes", name)} for name in names},
        as_json,
    )


def _describe(recipe: object) -> str:
    """The first paragraph of its docstring; a study says so, and the command to train a run is left out."""
    line = " ".join((recipe.__doc__ or "").partition("\n\n")[0].split())
    return re.sub("^`isthmus train [^`]*`: ", "", re.sub("^`isthmus study [^`]*`: ", "study: ", line))
