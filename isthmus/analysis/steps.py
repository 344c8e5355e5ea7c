"""The sparse wide layers of mixers and SW-MLPs, in the order of computation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from isthmus.layers.permuted_kronecker import PermutedKronecker
from isthmus.layers.sparse_linear import SparseLinear

Layer = PermutedKronecker | SparseLinear


class Step(NamedTuple):
    """The layers that a skip connection bypasses, named as in the trajectory; an empty ``skip`` is the identity."""

    name: str
    layers: dict[str, Layer]
    skip: list[Layer]


def steps_of(model: Any) -> list[Step]:
    """In the order of computation; an empty list for a model without such layers."""
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
    modules = () if module is None else module.named_modules()
    return {name: part for name, part in modules if isinstance(part, Layer)}


class Entries(NamedTuple):
    """Connections of a layer with their rows and columns in W_eff."""

    rows: Int[Tensor, " connections"]
    columns: Int[Tensor, " connections"]
    values: Float[Tensor, " connections"]


def entries(layer: Layer) -> Iterator[Entries]:
    """All connections, one copy at a time."""
    if isinstance(layer, PermutedKronecker):
        shape, values = layer.weight.shape, layer.weight.detach().flatten()
        for rows, columns in zip(*layer.ends(), strict=True):
            yield Entries(rows[:, None].expand(shape).flatten(), columns.expand(shape).flatten(), values)
    else:
        flat = layer.flat_indices()
        flat = torch.arange(len(layer.values)) if flat is None else flat
        yield Entries(flat // layer.columns, flat % layer.columns, layer.values.detach() * layer.scale)
