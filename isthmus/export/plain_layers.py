"""Trained models with plain layers: normalised, frozen and masked weights become those of linear layers."""

from __future__ import annotations

import copy

from torch import nn


def fold(model: nn.Module) -> nn.Module:
    """A copy that computes the same in evaluation mode; layers with a ``fold`` method are replaced by its result.

    A Hadamard projection needs none: its fast transform consists of small products that every runtime supports.
    """
    plain = copy.deepcopy(model).eval().requires_grad_(False)
    for name, module in list(plain.named_modules()):
        if name and hasattr(module, "fold"):
            parent, _, attribute = name.rpartition(".")
            setattr(plain.get_submodule(parent), attribute, module.fold().eval().requires_grad_(False))
    return plain
