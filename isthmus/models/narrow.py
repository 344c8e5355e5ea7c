"""A residual MLP computed in its narrow space, without forming the residual stream.

No paper: ``isthmus.export.narrow`` converts a trained Hourglass or conventional MLP to this form. With
u_i = (x, h_1, …, h_i) and B_i = [W_in, W_12, …, W_i2] the stream is z_i = B_i u_i, so

    W_i1 z_{i-1}     is (W_i1 B_{i-1}) u_{i-1}, a product with narrow vectors
    y = W_out z_L    is (W_out B_L) u_L
    ‖z_0‖            is ‖R x‖, with R from the QR factorisation of W_in; ‖x‖ if W_in keeps lengths
    ‖z_i‖²           is ‖z_{i-1}‖² + h_iᵀ (2 W_i2ᵀ z_{i-1} + W_i2ᵀ W_i2 h_i)

and the norms need only these lengths. LayerNorm is RMSNorm of the centred stream, so B is centred, except before W_out.
``W_x`` computes all contributions of x in one product; ``W_h`` adds those of the hidden vectors.

A new ``narrow_mlp`` has no wide counterpart. It is registered so that converted models can be saved, loaded and counted
like all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from isthmus.layers.pointwise import ActivationName, NormName, activation
from isthmus.layers.rows import RowModelConfig, Width

NAMES = {"narrow_mlp": "NarrowMLP"}
KIND = "Residual MLPs"
TITLE_FIELDS = ("d_z", "d_h", "depth")

LAYER_NORM_EPS = nn.LayerNorm(1).eps


class NarrowConfig(RowModelConfig):
    d_z: Width
    """Width of the residual stream, which is not formed; norms divide by it."""
    d_h: Width
    """Width of the computation within a block."""
    depth: Annotated[int, Field(ge=1, le=1_000)]
    """Number of blocks."""
    norm: NormName = "layer"
    """Normalisation at the start of a block."""
    activation: ActivationName = "gelu"
    """Between the two matrices of a block."""
    start: Literal["triangular", "isometric"] = "triangular"
    """How ‖z_0‖ is computed: from R, or from the input alone if W_in keeps lengths."""


class NarrowMLP(nn.Module):
    Config = NarrowConfig

    def __init__(self, config: NarrowConfig) -> None:
        super().__init__()
        self.config = config
        d_in, d_out = config.ends
        self.input_shape = (d_in,)
        normed = config.norm != "none"
        rank = min(d_in, config.d_z) if normed and config.start == "triangular" else 0
        # A block reads W_i1 z from the stream, and 2 W_i2ᵀ z if a later block needs the norm.
        taken = [config.d_h * (2 if normed and i < config.depth else 1) for i in range(1, config.depth + 1)]
        self.sizes = [rank, *taken, d_out]
        self.W_x = nn.Linear(d_in, sum(self.sizes), bias=False)
        self.W_h = nn.ModuleList(
            nn.Linear(i * config.d_h, taken[i], bias=False) if i else nn.Identity() for i in range(config.depth)
        )
        self.gram = nn.ModuleList(
            nn.Linear(config.d_h, config.d_h, bias=False) for _ in range(config.depth - 1 if normed else 0)
        )
        self.W_out = nn.Linear(config.depth * config.d_h, d_out, bias=False)
        centred = config.norm == "layer" and config.start == "isometric"
        self.axis = nn.Parameter(torch.full((d_in,), d_in**-0.5)) if centred else None
        self.activation = activation(config.activation)
        for module in self.gram:
            assert isinstance(module, nn.Linear)
            nn.init.eye_(module.weight)

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch d_out"]:
        *_, (_, y) = self.trajectory(x)
        return y

    def trajectory(self, x: Float[Tensor, "batch ..."]) -> Iterator[tuple[str, Tensor]]:
        x = x.flatten(1)
        rotated, *taken, y = self.W_x(x).split(self.sizes, dim=-1)
        square = self._square(x, rotated)
        hidden: list[Tensor] = []
        for i, from_x in enumerate(taken):
            from_stream = _plus(from_x, hidden, self.W_h[i]) if i else from_x
            wanted, *rest = from_stream.split(self.config.d_h, dim=-1)
            h = self.activation(wanted if square is None else wanted * self._scale(square, x.dtype))
            yield f"h_{i + 1}", h
            hidden.append(h)
            if rest and square is not None:
                change = (h * _plus(rest[0], [h], self.gram[i])).sum(-1, keepdim=True, dtype=square.dtype)
                square = (square + change).clamp_min(0)
        yield "output", _plus(y, hidden, self.W_out)

    def _square(self, x: Tensor, rotated: Tensor) -> Tensor | None:
        """‖z_0‖², of the centred z_0 for LayerNorm."""
        if self.config.norm == "none":
            return None
        if self.config.start == "isometric":
            rotated = x if self.axis is None else x - (x @ self.axis)[:, None] * self.axis
        return rotated.square().sum(-1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))

    def _scale(self, square: Tensor, dtype: torch.dtype) -> Tensor:
        eps = LAYER_NORM_EPS if self.config.norm == "layer" else torch.finfo(dtype).eps
        return torch.rsqrt(square / self.config.d_z + eps).to(dtype)


def _plus(base: Tensor, vectors: list[Tensor], layer: nn.Module) -> Tensor:
    """base + layer(vectors), in one product."""
    assert isinstance(layer, nn.Linear)
    joined = vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)
    return torch.addmm(base, joined, layer.weight.T)


def _variant(d_in: int, d_z: int, d_h: int, depth: int, start: str) -> dict[str, int | str]:
    shape = {"d_in": d_in, "d_out": 3072, "d_z": d_z, "d_h": d_h, "depth": depth}
    return {"name": "narrow_mlp", **shape, "start": start}


VARIANTS = {
    "super-resolution-18m": _variant(768, 3075, 270, 4, "triangular"),
    "denoise-31m": _variant(3072, 3546, 270, 5, "isometric"),
}
"""The narrow forms of two published networks: row 13 of Table 7, and row 14 of Table 8 with an orthogonal W_in."""
