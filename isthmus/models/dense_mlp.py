"""A fully connected network without skips, with batch norm: S-FC, which β-LASSO trains.

Paper: Towards Learning Convolutions from Scratch (Neyshabur 2020). Understanding MLP-Mixer as a Wide and Sparse MLP
(Hayase, Karakida) quotes its errors in Table 1.

    paper    here
    S-FC     a shallow convolutional network (9×9 filters of stride 2, α of them, then 24 α neurons) whose layers are
             fully connected: for images of s×s pixels ``hidden`` is (α s²/4, 24 α)
    α        150 in the variant, which gives the 256 M connections of the quoted row

Differs from the paper: nothing known. Every layer but the last is followed by batch norm and ReLU, and has no bias,
which the norm would remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from isthmus.layers.rows import RowModelConfig, Width

NAMES = {"dense_mlp": "DenseMLP"}
KIND = "Sparse and structured MLPs"
TITLE_FIELDS = ("hidden",)


class DenseMLPConfig(RowModelConfig):
    hidden: Annotated[tuple[Width, ...], Field(min_length=1, max_length=100)]
    """The widths of the hidden layers."""


class BatchNorm(nn.BatchNorm1d):
    """A batch of one row has no variance: it is normalised by the running averages, also in training."""

    def forward(self, x: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        if not self.training or x.shape[0] > 1:
            return super().forward(x)
        return functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )


class DenseMLP(nn.Module):
    Config = DenseMLPConfig

    def __init__(self, config: DenseMLPConfig) -> None:
        super().__init__()
        self.config = config
        d_in, d_out = config.ends
        self.input_shape = (d_in,)
        widths = [d_in, *config.hidden]
        self.layers = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairwise(widths))
        self.norms = nn.ModuleList(BatchNorm(width) for width in config.hidden)
        self.head = nn.Linear(widths[-1], d_out)

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch d_out"]:
        *_, (_, y) = self.trajectory(x)
        return y

    def trajectory(self, x: Float[Tensor, "batch ..."]) -> Iterator[tuple[str, Tensor]]:
        h = x.flatten(1)
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True), start=1):
            h = torch.relu(norm(layer(h)))
            yield f"h_{number}", h
        yield "output", self.head(h)


def _s_fc(side: int, alpha: int, classes: int) -> dict[str, object]:
    hidden = (alpha * side**2 // 4, 24 * alpha)
    return {"name": "dense_mlp", "d_in": 3 * side**2, "d_out": classes, "hidden": hidden}


VARIANTS = {"s-fc-cifar10": _s_fc(32, 150, 10)}
