"""``isthmus pathways``: how updates can join the stream."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli.options import Json


def pathways(
    name: Annotated[str | None, typer.Argument(help="A pathway, to list its fields (`model.pathway.count=…`).")] = None,
    as_json: Json = False,
) -> None:
    """List the residual pathways with formula, cost, paper and presets (`model.pathway=NAME`), or the fields of one."""
    from isthmus.cli import terminal
    from isthmus.cli.listing import print_fields
    from isthmus.core.fields import list_fields
    from isthmus.core.registry import catalogue, component, find, presets

    known = {}
    for each in catalogue("pathways"):
        pathway = find("pathways", each)
        named = {preset: fields for preset, fields in presets().items() if fields["name"] == each}
        known[each] = {
            "formula": pathway.formula, "cost": pathway.extra, "paper": pathway.paper, "presets": named,
        }  # fmt: skip
    if name is not None:
        family = component("pathways", name).name  # of a preset, too
        fields = list_fields(find("pathways", family).Config)
        if as_json:
            listed = {"name": family, **known[family], "fields": [field._asdict() for field in fields]}
            terminal.print_json(listed)
            return
        terminal.out.print(f"{family}: {known[family]['formula']}")
        print_fields("fields of model.pathway.*", fields)
        return
    if as_json:
        terminal.print_json(known)
        return
    rows = [
        [each, about["formula"], about["cost"], about["paper"], ", ".join(about["presets"])]
        for each, about in known.items()
    ]
    terminal.print_table("", ["pathway", "formula", "adds per branch", "paper", "presets"], rows)
