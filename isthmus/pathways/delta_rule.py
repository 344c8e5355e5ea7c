"""The fields and formulas of ``pathways/delta.py``, which the narrow form of a model needs too."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from isthmus.layers.residual import Layout, PathwayConfig
from isthmus.pathways.pathway import Epsilon, make_parameter


class DeltaConfig(PathwayConfig):
    needs_direction = True
    write: Literal["value", "update"] = "value"
    """Whether v is written after erasing, or the update added."""
    channels: Annotated[int, Field(ge=1, le=64)] = 1
    """d_v."""
    convolution: Annotated[int, Field(ge=1, le=64)] | None = None
    """Size of a kernel over the channels, for each coordinate, through which they are read."""
    start: Annotated[float, Field(gt=0, lt=2)] | None = None
    """β before training; None: 1, or 0.02 with ``write="update"``."""
    value: Literal["sigmoid", "linear", "constant"] = "sigmoid"
    """v: a sigmoid or a linear function of what the branch read, or a constant."""
    value_scale: Annotated[float, Field(gt=0, le=1e6)] = 4.0
    """Factor of the sigmoid, or the constant."""
    eps: Epsilon = 1e-5
    """Added to the length of an update, squared."""
    norm_eps: Epsilon = 1e-6
    """Of the norm before β."""

    def check(self, layout: Layout) -> None:
        super().check(layout)
        if self.write == "update" and self.channels > 1:
            raise ValueError(f"write=update adds to one stream; channels={self.channels} needs write=value")
        if (self.convolution or 1) > self.channels:
            raise ValueError(f"convolution={self.convolution} exceeds channels={self.channels}; use at most as many")

    @property
    def gates(self) -> int:
        """Rows of a gate: the first makes β, the others make v."""
        return 1 + (self.channels if self.write == "value" and self.value != "constant" else 0)


def make_biases(config: DeltaConfig, places: int) -> nn.ParameterList:
    share = (config.start or (1.0 if config.write == "value" else 0.02)) / 2
    bias = torch.tensor([math.log(share / (1 - share))] + [0.0] * (config.gates - 1))
    return nn.ParameterList(make_parameter(bias.clone()) for _ in range(places))


def make_gates(config: DeltaConfig, logits: Tensor, bias: Tensor, mean_square: Tensor) -> tuple[Tensor, Tensor | float]:
    """β and v of every row, from gate · r and the mean of r²."""
    inverse = mean_square.add(config.norm_eps).rsqrt()
    beta = 2 * torch.addcmul(bias[:1], logits[..., :1], inverse).sigmoid()
    if config.gates == 1:
        return beta, config.value_scale
    v = logits[..., 1:] + bias[1:]
    return beta, v.sigmoid() * config.value_scale if config.value == "sigmoid" else v


def find_change(config: DeltaConfig, beta: Tensor, v: Tensor | float, along: Tensor, inverse: Tensor) -> Tensor:
    """c of x ← x + c u, for ``along`` = kᵀx and ``inverse`` = 1/‖u‖."""
    return 1 - beta * along * inverse if config.write == "update" else beta * (v - along) * inverse
