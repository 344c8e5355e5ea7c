"""``isthmus models``: the registered architectures."""

from __future__ import annotations

from isthmus.cli.options import Json


def models(as_json: Json = False) -> None:
    """List the registered architectures, including those of installed packages; `describe` lists a model's fields."""
    from isthmus.cli.listing import print_names
    from isthmus.core.registry import catalogue
    from isthmus.core.titles import meaning, model_kind

    homes = catalogue("models").items()
    print_names(
        {name: {"meaning": meaning("models", name), "group": model_kind(name), "home": home} for name, home in homes},
        as_json,
    )
