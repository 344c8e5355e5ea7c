"""``isthmus pathways``: how updates can join the stream."""

from __future__ import annotations

from isthmus.cli.options import Json


def pathways(as_json: Json = False) -> None:
    """List the residual pathways with formula, cost and paper, and their presets. Set one with `model.pathway=NAME`."""
    from isthmus.cli import terminal
    from isthmus.core.registry import catalogue, find, presets

    known = {}
    for name in catalogue("pathways"):
        pathway = find("pathways", name)
        named = {preset: fields for preset, fields in presets().items() if fields["name"] == name}
        known[name] = {
            "formula": pathway.formula, "cost": pathway.extra, "paper": pathway.paper, "presets": named,
        }  # fmt: skip
    if as_json:
        terminal.print_json(known)
        return
    rows = [
        [name, each["formula"], each["cost"], each["paper"], ", ".join(each["presets"])] for name, each in known.items()
    ]
    terminal.print_table("", ["pathway", "formula", "adds per branch", "paper", "presets"], rows)
