"""The sparse wide layers of a model, step by step: of mixers by their copies, of SW-MLPs by their masks."""

from __future__ import annotations

from typing import Any, NamedTuple

from isthmus.layers.permuted_kronecker import PermutedKronecker
from isthmus.layers.sparse_linear import SparseLinear

Layer = PermutedKronecker | SparseLinear


class Step(NamedTuple):
    """What one skip connection goes around, named as in the trajectory. Layers in the skip: none is the identity."""

    name: str
    layers: dict[str, Layer]
    skip: list[Layer]


def steps_of(model: Any) -> list[Step]:
    """In the order of computation; none for a model of other layers."""
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
