"""``isthmus recipes``: the named configs."""

from __future__ import annotations

from isthmus.cli.options import Json, first_line


def recipes(as_json: Json = False) -> None:
    """List the named configs for `train` and `study`."""
    from rich.text import Text

    from isthmus.cli import terminal
    from isthmus.core.registry import catalogue, find

    lines = {name: first_line(find("recipes", name).__doc__) for name in catalogue("recipes")}
    if as_json:
        terminal.print_json(lines)
    else:
        for name, line in lines.items():
            terminal.out.print(Text.assemble((name, "bold"), f"  {line}"))
