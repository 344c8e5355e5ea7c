"""The sparse wide layers of mixers and SW-MLPs, in the order of computation."""

from __future__ import annotations

from typing import Any, NamedTuple

from isthmus.layers.permuted_kronecker import PermutedKronecker
from isthmus.layers.sparse_linear import SparseLinear

Layer = PermutedKronecker | SparseLinear


class Step(NamedTuple):
    """The layers between two skip connections, named as in the trajectory; an empty ``skip`` is the identity."""

    name: str
    layers: dict[str, Layer]
    skip: list[Layer]


def steps_of(model: Any) -> list[Step]:
    """In the order of computation; empty for a model without such layers."""
    found = []
    for number, block in enumerate(getattr(model, "blocks", ()), start=1):
        if hasattr(block, "token_mixing"):
            skip = list(_layers(getattr(block, "skip", None)).values())
            found.append(Step(f"token_{number}", _layers(block.token_mixing), skip))
            found.append(Step(f"channel_{number}", _layers(block.channel_mixing), []))
        else:
            found.append(Step(f"block_{number}", _layers(block), []))
    return [step for step in found if step.layers]


def _layers(module: Any) -> dict[str, Layer]:
    if module is None:
        return {}
    return {name: part for name, part in module.named_modules() if isinstance(part, Layer)}
