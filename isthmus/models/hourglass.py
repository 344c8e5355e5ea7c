"""Residual MLPs of two shapes: skip connections at the wide end (Hourglass) or at the narrow end (conventional).

Paper: Hourglass MLP: Rethinking the Shape of Residual Architectures (Chen, Lee, Liao, Shiu).

    paper            here
    x, d_x           the input, ``d_in``
    z_i, d_z         the residual stream, ``d_z``
    σ(W_i1 norm z)   the computation, ``d_h`` wide
    L                ``depth``
    W_in, W_out      ``W_in`` (kinds in ``layers/projections.py``), ``W_out``

Differs from the paper:
    The paper prints neither the type of norm, nor the activation, nor the initialisation. Our defaults, with which both
    shapes train best (EXPERIMENTS.md), are LayerNorm without parameters, GELU and W_i2 = 0; fields choose others.
    The paper's search requires d_z > d_x; here the search decides, and the model checks only d_h against d_z.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.draws import key
from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace, Varied
from isthmus.layers.pointwise import ActivationName, NormName, activation, norm
from isthmus.layers.projections import ProjectionName, projection
from isthmus.layers.residual import Block, Branch, Layout, ResidualConfig, ResidualModel, Stack, Step
from isthmus.layers.rows import RowModelConfig, Width

NAMES = {"hourglass_mlp": "ResidualMLP", "conventional_mlp": "ResidualMLP"}
KIND = "Residual MLPs"
MEANINGS = {
    "hourglass_mlp": "A residual MLP with wide skip connections and a narrow computation.",
    "conventional_mlp": "A residual MLP with narrow skip connections and a wide computation.",
}
TITLE_FIELDS = ("d_z", "d_h", "depth")

InitName = Literal["pytorch", "zero_w2", "depth_scaled_w2", "xavier", "orthogonal"]


class MLPConfig(RowModelConfig, ResidualConfig):
    sliced: ClassVar = ("d_z", "d_h", "depth")

    d_z: Width
    """Width of the residual stream."""
    d_h: Width
    """Width of the computation within a block."""
    depth: Annotated[int, Field(ge=0, le=1_000)]
    """Number of blocks; without any the network is linear, and ``d_h`` has no effect."""
    norm: NormName = "layer"
    """Normalisation at the start of a block."""
    activation: ActivationName = "gelu"
    """Between the two matrices of a block."""
    w_in: ProjectionName = "trainable"
    """``trainable``, or frozen: ``uniform``, ``gaussian``, ``orthogonal``, ``hadamard``."""
    w_in_seed: Annotated[int, Field(ge=0)] | None = None
    """Draws a frozen W_in; a run derives it from its own seed."""
    init: InitName = "zero_w2"
    """Initial weights; ``zero_w2`` starts every block as the identity, ``depth_scaled_w2`` near it."""
    residual_scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor of every block's update."""
    allow_any_shape: bool = False
    """Accept widths that contradict the model's name."""

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        wrong = ""
        if self.name == "hourglass_mlp" and self.d_h >= self.d_z:
            wrong = "an Hourglass computes in a narrower space than its skip: d_h={d_h} must be below d_z={d_z}"
        if self.name == "conventional_mlp" and self.d_h <= self.d_z:
            wrong = "a conventional block computes in a wider space than its skip: d_h={d_h} must be above d_z={d_z}"
        if wrong and not self.allow_any_shape:
            raise ValueError(f"{wrong.format(d_h=self.d_h, d_z=self.d_z)} (or set allow_any_shape=true)")
        return self

    @property
    def layout(self) -> Layout:
        zero = "init=zero_w2; use init=depth_scaled_w2 or init=pytorch" if self.init == "zero_w2" else ""
        return Layout(self.d_z, (1,) * self.depth, starts_at_zero=zero)

    def complete(self, signature: Signature, seed: int) -> Self:
        config = super().complete(signature, seed)
        drawn = self.w_in != "trainable" and self.w_in_seed is None
        return config.replace(w_in_seed=key(seed, "w_in")) if drawn else config


class MLPBlock(Block):
    """W2 σ(W1 norm(z)), which is multiplied by ``residual_scale`` and added to the stream."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.norm = norm(config.norm, config.d_z)
        self.W1 = nn.Linear(config.d_z, config.d_h, bias=False)
        self.activation = activation(config.activation)
        self.W2 = nn.Linear(config.d_h, config.d_z, bias=False)
        self.scale = config.residual_scale

    def hidden(self, z: Float[Tensor, "batch d_z"]) -> Float[Tensor, "batch d_h"]:
        return self.activation(self.W1(self.norm(z)))

    def update(self, z: Float[Tensor, "batch d_z"]) -> Float[Tensor, "batch d_z"]:
        return self.W2(self.hidden(z))  # Eq. (1)

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("block", self.update, self.scale),)


class ResidualMLP(ResidualModel):
    Config = MLPConfig
    symbol = "z"

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.config = config
        d_in, d_out = config.ends
        self.input_shape = (d_in,)
        self.W_in = projection(config.w_in, d_in, config.d_z, config.w_in_seed or 0)
        self.blocks = Stack((MLPBlock(config) for _ in range(config.depth)), config.make_pathway())
        self.W_out = nn.Linear(config.d_z, d_out, bias=False)
        self._initialise(config.init)

    @torch.no_grad()
    def _initialise(self, init: InitName) -> None:
        """Replace PyTorch's weights, unless ``init`` is "pytorch"."""
        for module in self.modules():
            if isinstance(module, nn.Linear) and init == "xavier":
                nn.init.xavier_uniform_(module.weight)
            elif isinstance(module, nn.Linear) and init == "orthogonal":
                nn.init.orthogonal_(module.weight)
            elif isinstance(module, MLPBlock) and init == "zero_w2":
                nn.init.zeros_(module.W2.weight)
            elif isinstance(module, MLPBlock) and init == "depth_scaled_w2":
                module.W2.weight /= math.sqrt(self.config.depth)
        self.blocks.prepare()

    def embed(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch d_z"]:
        return self.W_in(x.flatten(1))

    def look_inside(self, step: Step) -> Iterator[tuple[str, Tensor]]:
        yield f"h_{step.block}", self.blocks[step.block - 1].hidden(step.read)

    def read_out(self, z: Float[Tensor, "batch d_z"]) -> Float[Tensor, "batch d_out"]:
        return self.W_out(z)


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """For rows, and for images as rows. Norms matter little for tables of few rows."""
    if signature.vocabulary:
        return
    are_images = len(signature.input_shape) == 3
    norms = ("layer",) if are_images else ("none", "layer")
    rates = (3e-3, 1e-3) if are_images else (3e-3,)
    for name, ratios, depths in (
        ("hourglass_mlp", (1 / 4, 1 / 2, 1 / 16), (2, 4, 8)),
        ("conventional_mlp", (2.0, 4.0), (1, 2, 3)),
    ):
        varied: Varied = {"norm": norms, "d_h/d_z": ratios, "depth": depths, "train.learning_rate": rates}
        yield FittedSpace(model={"name": name}, vary=varied, width="d_z", low=2)


def _variant(name: str, d_in: int, d_z: int, d_h: int, depth: int) -> dict[str, int | str]:
    return {"name": name, "d_in": d_in, "d_out": 3072, "d_z": d_z, "d_h": d_h, "depth": depth}


VARIANTS = {
    "imagenet-denoise-66m": _variant("hourglass_mlp", 3072, 3546, 1560, 4),
    "imagenet-denoise-84m": _variant("conventional_mlp", 3072, 3072, 3546, 3),
    "imagenet-super-resolution-69m": _variant("hourglass_mlp", 768, 3075, 1560, 6),
    "imagenet-super-resolution-87m": _variant("conventional_mlp", 768, 3072, 3075, 4),
}
"""The two pairs that the text of the paper compares (Tables 6 and 7)."""
