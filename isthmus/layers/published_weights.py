"""Loads the weights of published networks from files, which may hold more than the network needs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError


def need_published(model: nn.Module, found: Mapping[str, Tensor], origin: str, title: str) -> dict[str, Tensor]:
    """What a model takes from the tensors of a file, by name; an error names the first one that does not fit."""
    needed = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    for name, tensor in needed.items():
        if name not in found:
            raise UserError(f"{origin} is no {title}: it has no weight {name}")
        if found[name].shape != tensor.shape:
            raise UserError(f"{origin} is no {title}: {name} is {tuple(found[name].shape)}, not {tuple(tensor.shape)}")
        if not found[name].is_floating_point():
            raise UserError(f"{origin} is damaged: {name} holds {found[name].dtype}, not real numbers")
        if not found[name].is_meta and not torch.isfinite(found[name]).all():
            raise UserError(f"{origin} is damaged: {name} holds numbers that are not finite")
    return {name: found[name] for name in needed}


def load_published(model: nn.Module, found: Mapping[str, Tensor], origin: str, title: str) -> None:
    """Load the tensors of a file by name, in float32."""
    needed = need_published(model, found, origin, title)
    model.load_state_dict({name: tensor.float() for name, tensor in needed.items()}, strict=False)  # no batch counters
