"""A trained model in plain layers: normalised, frozen and masked weights become the weights of linear layers."""

from __future__ import annotations

import copy

from torch import nn


def folded(model: nn.Module) -> nn.Module:
    """The same function in evaluation. Every layer with a ``fold`` method is replaced by what it returns.

    A Hadamard projection has none: its fast transform is made of small products that every runtime knows.
    """
    plain = copy.deepcopy(model).eval().requires_grad_(False)
    for name, module in list(plain.named_modules()):
        if name and hasattr(module, "fold"):
            parent, _, attribute = name.rpartition(".")
            setattr(plain.get_submodule(parent), attribute, module.fold().eval().requires_grad_(False))
    return plain
