"""SW-MLP: a residual MLP on the image as one vector, whose weight matrices have frozen, random masks.

Paper: Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), appendix A.2.5; the idea is Golubeva,
Neyshabur and Gur-Ari's (2021).

    paper                  here
    m, p, L                ``m``, ``p``, ``depth``
    x + φ((M ⊙ W) LN(x))   ``block="single"``
    γ, M1 ⊙ W1, M2 ⊙ W2    ``gamma``, ``W1``, ``W2`` of ``block="mlp"``
    M, with ones of 1/√p   ``mask_scale="inverse_root"`` (section 4.3); ``"one"`` is A.2.5
    S, C                   ``S`` and m / S: the vector as S tokens of C channels, if S divides m

Differs from the paper:
    The MLP block has no activation after its second matrix. (S.17) prints one, and W2 twice; eqs. (1) and (2), which
    it replaces (appendix C.1), have none.
    Appendix A.2.5 ends with a linear map of the whole vector, but Table S.1 lists global average pooling: ``pool``,
    which also adds the mixers' last LayerNorm. An output image is assembled from tokens like the mixers' if S divides
    m, and is a linear map of the vector otherwise.
    Most widths m of Figures 4 and 5 are not multiples of the image's S_0 tokens, and the paper does not say how the
    S_0 · C outputs of the per-patch layer become m numbers. Here a masked matrix of the same density maps them, unless
    they are m already. ``per_patch=false`` replaces the per-patch layer by the image's own numbers.
    A row of a table is an image of one line, used without patches.
    Weights start as N(0, 1/fan-in), which section 4.3 prints for the first matrix only. LayerNorm is over the vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.draws import key
from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace, Varied
from isthmus.layers.patches import Head, ImageModelConfig, PatchEmbedding, Size, cut_patches, list_patches
from isthmus.layers.pointwise import ActivationName, activation
from isthmus.layers.residual import Block, Branch, Layout, ResidualConfig, ResidualModel, Stack
from isthmus.layers.sparse_linear import ComputeName, SparseLinear, need_memory

NAMES = {"sw_mlp": "SparseWeightMLP"}
KIND = "Sparse and structured MLPs"
TITLE_FIELDS = ("m", "p", "depth", "block")


class SparseWeightConfig(ImageModelConfig, ResidualConfig):
    m: Size
    """Width of the stream."""
    p: float
    """Density: the share of a matrix's entries that the mask keeps."""
    depth: Annotated[int, Field(ge=1, le=1_000)]
    """Number of blocks."""
    block: Literal["single", "mlp"] = "single"
    """One masked matrix per block, or an MLP of two."""
    gamma: Annotated[float, Field(gt=0, le=1024)] = 1.0
    """Hidden width of an MLP block, as a multiple of m."""
    mask_scale: Literal["inverse_root", "one"] = "inverse_root"
    """The value of the mask's ones: 1/√p, which keeps the scale of the output for any p, or 1."""
    mask_seed: Annotated[int, Field(ge=0)] | None = None
    """Draws the masks; a run derives it from its own seed."""
    S: Size | None = None
    """Tokens of the stream; None: those of the image, if they divide m."""
    per_patch: bool = True
    """Begin with a linear layer on each patch; otherwise with the image's own numbers."""
    pool: bool = False
    """Classify the mean of the tokens instead of the whole vector."""
    activation: ActivationName = "gelu"
    """Of the blocks."""
    bias: bool = True
    """Of every linear map, masked or not."""
    compute: ComputeName = "auto"
    """``sparse`` or ``dense`` products; ``auto`` chooses by density."""

    @model_validator(mode="after")
    def _check_widths(self) -> Self:
        if not 0 < self.p <= 1:
            raise ValueError(f"p={self.p:g} is outside of (0, 1]: it is the share of connections kept")
        if self.S is not None and self.m % self.S:
            raise ValueError(f"S={self.S} tokens do not divide m={self.m}")
        if self.block == "single" and self.gamma != 1:
            raise ValueError(f"gamma={self.gamma:g} is for block=mlp; a single-layer block has no hidden width")
        if self.pool and self.input_shape is not None and self.channels is None:
            raise ValueError(f"pool=true needs tokens: m={self.m} is no multiple of the image's {self.tokens}; give S")
        return self

    @property
    def layout(self) -> Layout:
        return Layout(self.m, (1,) * self.depth)

    @property
    def channels(self) -> int | None:
        """C, if the stream can be read as tokens."""
        S = self.S or self.tokens
        return self.m // S if self.m % S == 0 else None

    @property
    def is_row(self) -> bool:
        """Whether the image is one row of numbers, as a table has them."""
        return self.image[:2] == (1, 1)

    @property
    def entry_size(self) -> int:
        """Outputs of the per-patch layer, or the numbers of the image if there is none."""
        return self.tokens * self.patch_channels if self.per_patch else math.prod(self.image)

    @property
    def patch_channels(self) -> int:
        """C of the per-patch layer; if the stream has no C, the smallest with at least m outputs."""
        return self.channels or math.ceil(self.m / self.tokens)

    @property
    def hidden(self) -> int:
        return max(1, round(self.gamma * self.m))

    def connections(self) -> int:
        """The expected number of ones in all masks."""
        inner = self.m * self.m if self.block == "single" else 2 * self.m * self.hidden
        entry = 0 if self.entry_size == self.m else self.entry_size * self.m
        return round(self.p * (self.depth * inner + entry))

    def complete(self, signature: Signature, seed: int) -> Self:
        if len(signature.input_shape) == 1 and not signature.vocabulary:
            shapes = {"input_shape": (1, 1, *signature.input_shape), "output_shape": signature.output_shape}
            config = self.replace(**shapes, patch=1, per_patch=False)
        else:
            config = super().complete(signature, seed)
        return config if self.mask_seed is not None else config.replace(mask_seed=key(seed, "mask"))

    def sparse_linear(self, columns: int, rows: int, stream: str) -> SparseLinear:
        scale = 1.0 if self.mask_scale == "one" else 1 / math.sqrt(self.p)
        return SparseLinear(columns, rows, self.p, self.mask_seed or 0, stream, scale, self.bias, self.compute)


class SingleBlock(Block):
    """φ((M ⊙ W) LN(x))."""

    def __init__(self, config: SparseWeightConfig, number: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.m)
        self.W = config.sparse_linear(config.m, config.m, f"{number}/W")
        self.activation = activation(config.activation)

    def update(self, x: Float[Tensor, "batch m"]) -> Float[Tensor, "batch m"]:
        return self.activation(self.W(self.norm(x)))  # Eq. (S.16)

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("block", self.update),)


class MLPBlock(Block):
    """(M2 ⊙ W2) φ((M1 ⊙ W1) LN(x))."""

    def __init__(self, config: SparseWeightConfig, number: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.m)
        self.W1 = config.sparse_linear(config.m, config.hidden, f"{number}/W1")
        self.activation = activation(config.activation)
        self.W2 = config.sparse_linear(config.hidden, config.m, f"{number}/W2")

    def update(self, x: Float[Tensor, "batch m"]) -> Float[Tensor, "batch m"]:
        return self.W2(self.activation(self.W1(self.norm(x))))  # Eq. (S.17) without its outer φ

    def branches(self) -> tuple[Branch, ...]:
        return (Branch("block", self.update),)


class FlatHead(nn.Module):
    """A linear map of the whole vector to class scores or an image."""

    def __init__(self, config: SparseWeightConfig) -> None:
        super().__init__()
        if config.output_shape is None:
            raise UserError(f"{config.name} needs input_shape and output_shape where no task gives them")
        self.shape = config.output_shape
        self.linear = nn.Linear(config.m, math.prod(self.shape), bias=config.bias)

    def forward(self, x: Float[Tensor, "batch m"]) -> Float[Tensor, "batch ..."]:
        return self.linear(x).unflatten(1, self.shape) if len(self.shape) > 1 else self.linear(x)


class TokenHead(nn.Module):
    """Reads the vector as S tokens of C channels, like the mixers' head."""

    def __init__(self, config: SparseWeightConfig, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.norm = nn.LayerNorm(channels)
        self.head = Head(config, config.m // channels, channels, config.bias)

    def forward(self, x: Float[Tensor, "batch m"]) -> Float[Tensor, "batch ..."]:
        return self.head(self.norm(x.unflatten(1, (-1, self.channels))))


class SparseWeightMLP(ResidualModel):
    Config = SparseWeightConfig

    def __init__(self, config: SparseWeightConfig) -> None:
        super().__init__()
        self.config = config
        self.input_shape = config.image[2:] if config.is_row else config.image
        need_memory(config.connections(), f"sw_mlp with m={config.m}, p={config.p:g}, depth={config.depth}")
        self.stem = PatchEmbedding(config, config.patch_channels, config.bias) if config.per_patch else None
        fits = config.entry_size == config.m
        self.enter = nn.Identity() if fits else config.sparse_linear(config.entry_size, config.m, "enter")
        kind = SingleBlock if config.block == "single" else MLPBlock
        self.blocks = Stack((kind(config, number) for number in range(1, config.depth + 1)), config.make_pathway())
        self.blocks.prepare()
        image_output = config.output_shape is not None and len(config.output_shape) > 1
        tokens_wanted = (image_output or config.pool) and config.channels is not None
        self.head = TokenHead(config, config.channels or 1) if tokens_wanted else FlatHead(config)

    def embed(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch m"]:
        if self.config.is_row:
            x = x.flatten(1).unflatten(1, self.config.image)
        tokens = cut_patches(x, self.config.patch) if self.stem is None else self.stem(x)
        return self.enter(tokens.flatten(1))

    def read_out(self, x: Float[Tensor, "batch m"]) -> Float[Tensor, "batch ..."]:
        return self.head(x)


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """Of rows and of images. One seed draws all masks, because the number of connections depends on it."""
    if signature.vocabulary:
        return
    model: dict[str, Any] = {"name": "sw_mlp", "mask_seed": 0, "per_patch": False}
    if len(signature.input_shape) == 3:
        model["patch"] = next(iter(list_patches(signature, budget)), 1)
    varied: Varied = {"block": ("single", "mlp"), "depth": (1, 2), "p": (0.1, 0.3), "train.learning_rate": (3e-3, 1e-3)}
    yield FittedSpace(model=model, vary=varied, width="m", low=8)


def _cifar(**fields: Any) -> dict[str, Any]:
    return {"name": "sw_mlp", "input_shape": (3, 32, 32), "output_shape": (10,), "patch": 4, **fields}


VARIANTS: dict[str, dict[str, Any]] = {
    "figure-2b": _cifar(m=4096, p=1 / 64, depth=6, block="mlp", gamma=2),
    "figure-2c": _cifar(m=4096, p=1.0, depth=6, block="mlp", gamma=2),
    "figure-5-540": _cifar(m=540, p=0.9, depth=8),
    "figure-5-612": _cifar(m=612, p=0.7, depth=8),
    "figure-5-724": _cifar(m=724, p=0.5, depth=8),
    "figure-5-935": _cifar(m=935, p=0.3, depth=8),
    "figure-5-1619": _cifar(m=1619, p=0.1, depth=8),
}
"""On CIFAR-10: the sparse and the dense MLP compared with a Mixer of S = C = 64, and the widths of Ω = 2^18."""
