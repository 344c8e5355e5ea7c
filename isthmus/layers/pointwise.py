"""Norms and activations by name, without parameters, as the published parameter counts require."""

from __future__ import annotations

from typing import Literal

from torch import nn

NormName = Literal["layer", "rms", "none"]
ActivationName = Literal["gelu", "relu", "silu"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}


def norm(name: NormName, width: int) -> nn.Module:
    if name == "layer":
        return nn.LayerNorm(width, elementwise_affine=False)
    if name == "rms":
        return nn.RMSNorm(width, elementwise_affine=False)
    return nn.Identity()


def activation(name: ActivationName | Literal["none"]) -> nn.Module:
    return nn.Identity() if name == "none" else ACTIVATIONS[name]()
