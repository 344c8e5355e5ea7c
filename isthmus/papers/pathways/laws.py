"""The costs of pathways in closed form: parameters and multiply–adds beyond plain, and widths of equal cost.

A residual MLP has d·(d_in + d_out + 2·L·d_h) parameters and as many multiply–adds. ``docs/pathways.md`` derives c, what
a pathway adds to a branch in multiplies of d. ``isthmus reproduce pathways E0`` compares it with the counter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from isthmus.core.registry import component, find

PER_BRANCH: Mapping[str, int] = {
    "delta/value": 3, "delta/erase-and-add": 2, "streams/static-2": 6, "streams/static-4": 20, "streams/hyper-4": 44,
    "streams/mhc-4": 116,
}  # fmt: skip
"""c of the pathways that cost the same in every branch; most others cost no multiply–adds."""


def extra_macs(pathway: str, depth: int) -> int:
    """Multiply–adds beyond plain, in multiples of d, over all branches."""
    if pathway == "weighted":
        return sum(range(2, depth + 2))
    if pathway == "attended/blocks-8":
        # Two products with every finished source and one with the growing one, at all places but the first and at the
        # output; where x_0 is the only finished source, its weighted sum is x_0 itself.
        size = -(-depth // 8)
        return sum(2 * (place // size + 1) + bool(place % size) for place in range(1, depth + 1)) - (size - 1)
    return PER_BRANCH.get(pathway, 0) * depth


@cache
def _count_extra(pathway: str, width: int, depth: int) -> int:
    import torch

    from isthmus.layers.residual import Layout

    config = component("pathways", pathway)
    with torch.device("meta"):
        made = find("pathways", config.name)(config, Layout(width, (1,) * depth))
    return sum(parameter.numel() for parameter in made.parameters())


def extra_params(pathway: str, width: int, depth: int) -> int:
    """Parameters beyond plain. They grow linearly with the width, so two counts give all."""
    one, two = (_count_extra(pathway, few, depth) for few in (1, 2))
    return one + (width - 1) * (two - one)


def fit_width(pathway: str, d_h: int, depth: int, ends: int, budget: int) -> int:
    """The widest stream within a budget of parameters; ``ends`` is d_in + d_out."""
    fixed = extra_params(pathway, 0, depth)
    per_width = ends + 2 * depth * d_h + extra_params(pathway, 1, depth) - fixed
    return (budget - fixed) // per_width


def mlp(pathway: str, d_z: int, d_h: int, depth: int, **fields: Any) -> dict[str, Any]:
    """A residual MLP, under the name of its shape."""
    name = "conventional_mlp" if d_h > d_z else "hourglass_mlp"
    sizes = {"name": name, "d_z": d_z, "d_h": d_h, "depth": depth}
    return sizes | ({} if pathway == "plain" else {"pathway": pathway}) | fields
