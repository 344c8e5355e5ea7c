"""Norms and activations by name, without parameters, as the published parameter counts require."""

from __future__ import annotations

from typing import Literal

from torch import nn

NormName = Literal["layer", "rms", "none"]
ActivationName = Literal["gelu", "relu", "silu"]
NeuronName = ActivationName | Literal["tanh", "sigmoid", "softmax"]
"""Activations of neurons in a Hopfield network; ``softmax`` is over a layer's neurons, the last axis."""

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid,
}  # fmt: skip


def norm(name: NormName, width: int) -> nn.Module:
    if name == "layer":
        return nn.LayerNorm(width, elementwise_affine=False)
    if name == "rms":
        return nn.RMSNorm(width, elementwise_affine=False)
    return nn.Identity()


def activation(name: NeuronName | Literal["none"]) -> nn.Module:
    if name == "softmax":
        return nn.Softmax(dim=-1)
    return nn.Identity() if name == "none" else ACTIVATIONS[name]()
