"""``isthmus models``: the registered architectures."""

from __future__ import annotations

from isthmus.cli.options import Json


def models(as_json: Json = False) -> None:
    """List the registered architectures, including those of installed packages."""
    from isthmus.cli import terminal
    from isthmus.core.registry import catalogue

    homes = catalogue("models")
    if as_json:
        terminal.print_json(homes)
    else:
        terminal.print_table("", ["model", "defined in"], [[name, home] for name, home in homes.items()])
