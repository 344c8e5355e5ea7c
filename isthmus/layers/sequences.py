"""Base of the recurrent models on sequences: a few layers, each applied several times.

An image becomes patch tokens and a class token, which is classified. Token ids become embeddings, and every position is
classified. ``layers`` distinct layers are applied in turn, each ``iterations`` times.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace, Varied
from isthmus.layers.patches import Size, cut_patches, list_patches
from isthmus.layers.residual import Block, Layout, Pass, ResidualConfig, Stack, StackKind, Step


class SequenceConfig(ResidualConfig):
    """Settings of all models on sequences."""

    kind: ClassVar[StackKind] = "recurrent"
    """The meaning of an update, which decides on the pathways that fit."""

    input_shape: Annotated[tuple[Size, ...], Field(min_length=1, max_length=3)] | None = None
    """Channels, height and width of an image, or the number of positions; a run takes it from its task."""
    output_shape: Annotated[tuple[Size, ...], Field(min_length=1, max_length=2)] | None = None
    """(classes,) of an image, or (positions, classes)."""
    vocabulary: Annotated[int, Field(ge=0, le=2**24)] = 0
    """The number of distinct tokens; 0 for images."""
    patch: Size = 16
    """Pixels along one side of an image's patch."""
    d: Size = 384
    """Width of a token."""
    num_heads: Annotated[int, Field(ge=1, le=4096)] = 6
    """Attention heads of a layer."""
    layers: Annotated[int, Field(ge=1, le=1000)] = 1
    """Distinct layers."""
    iterations: Annotated[int, Field(ge=1, le=10_000)] = 12
    """Applications of each layer; a forward pass may use another number."""
    positions: Literal["sinusoidal", "learned", "grid"] = "sinusoidal"
    """Fixed sinusoids of a token's number, learned vectors, or sinusoids of its column and row in a square."""
    embedding_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout rate of the embedded tokens."""
    head_bias: bool = True
    """Whether the output layer has a bias."""
    trained_on: Literal["last", "every"] = "last"
    """The iterations whose outputs enter the loss; ``every`` is for tokens and has no effect after training."""

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        if self.d % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads} does not divide d={self.d}")
        if self.d % 2:
            raise ValueError(f"d={self.d} is odd, and sinusoidal positions come in pairs")
        if self.positions == "grid" and self.d % 4:
            raise ValueError(
                f"d={self.d} is no multiple of 4, which positions=grid needs: sinusoids of columns and rows"
            )
        if self.input_shape is None:
            return self
        places = self.input_shape[0]
        if self.positions == "grid" and not (self.vocabulary and math.isqrt(places) ** 2 == places):
            raise ValueError("positions=grid needs the tokens of a square; use positions=sinusoidal")
        if len(self.input_shape) != (1 if self.vocabulary else 3):
            raise ValueError(
                f"input_shape={self.input_shape} is neither an image (channels, height, width) nor, "
                "with a vocabulary, (positions,)"
            )
        if not self.vocabulary and (self.input_shape[1] % self.patch or self.input_shape[2] % self.patch):
            raise ValueError(
                f"patch={self.patch} does not divide an image of {self.input_shape[1]}×{self.input_shape[2]} pixels"
            )
        if self.trained_on == "every" and not self.vocabulary:
            raise ValueError("trained_on=every needs tokens; images use trained_on=last")
        if self.output_shape is not None and len(self.output_shape) != (2 if self.vocabulary else 1):
            raise ValueError(f"output_shape={self.output_shape}: images have (classes,), tokens (positions, classes)")
        if self.vocabulary and self.output_shape is not None and self.output_shape[0] != self.input_shape[0]:
            raise ValueError(
                f"output_shape has {self.output_shape[0]} positions, but the input has {self.input_shape[0]}"
            )
        return self

    @property
    def layout(self) -> Layout:
        return Layout(self.d, (2,) * self.layers, self.kind, self.iterations)

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if self.input_shape is None or self.output_shape is None:
            raise UserError(f"{self.name} needs input_shape and output_shape where no task gives them")
        return self.input_shape, self.output_shape

    @property
    def tokens(self) -> int:
        """N: positions, or patches and the class token."""
        shape = self.shapes[0]
        return shape[0] if self.vocabulary else 1 + (shape[1] // self.patch) * (shape[2] // self.patch)

    def complete(self, signature: Signature, seed: int) -> Self:
        if len(signature.input_shape) != 3 and not signature.vocabulary:
            raise UserError(f"{self.name} works on images or tokens; this task gives rows of {signature.input_shape}")
        return self.require(**signature._asdict())


def sinusoids(place: Float[Tensor, " places"], width: int, inclusive: bool = False) -> Float[Tensor, "places width"]:
    """Sines of ``width``/2 wavelengths from 2π to 10⁴·2π, then their cosines; the last one only if ``inclusive``."""
    half = width // 2
    frequencies = torch.exp(
        -math.log(1e4) / max(1, half - inclusive) * torch.arange(half, dtype=place.dtype, device=place.device)
    )
    angles = place[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def grid_positions(side: int, d: int) -> Float[Tensor, "places d"]:
    """Of every place of a square grid: sinusoids of its column, then of its row, d/2 each."""
    line = sinusoids(torch.arange(side, dtype=torch.float64), d // 2)
    return torch.cat([line.repeat(side, 1), line.repeat_interleave(side, 0)], dim=1).float()


def rms_norm(width: int) -> nn.RMSNorm:
    """Uses float32's epsilon in every precision, because bfloat16's is not negligible for small tokens."""
    return nn.RMSNorm(width, eps=torch.finfo(torch.float32).eps)


def declare_space(model: dict[str, Any], signature: Signature, budget: int, varied: Varied) -> Iterator[FittedSpace]:
    """What a search varies in a recurrent model: of images with classes, and of tokens."""
    patches = list_patches(signature, budget) if len(signature.output_shape) == 1 else ()
    if not (patches or signature.vocabulary):
        return
    model = {**model, "positions": "learned", "num_heads": 4}
    varied = {**varied, "layers": (1, 2), "iterations": (4, 8)}
    if patches:
        varied["patch"] = patches
    varied["train.learning_rate"] = (3e-3, 1e-3)
    yield FittedSpace(model=model, vary=varied, width="d", step=8, low=8)


class Embedding(nn.Module):
    """Images or token ids to tokens of width d, with their positions."""

    positions: Tensor

    def __init__(self, config: SequenceConfig, normed_patches: bool) -> None:
        super().__init__()
        shape, _ = config.shapes
        self.patch = 0 if config.vocabulary else config.patch
        if config.vocabulary:
            self.tokens = nn.Embedding(config.vocabulary, config.d)
            nn.init.normal_(self.tokens.weight, std=0.02)
        else:
            values = shape[0] * config.patch**2
            self.before = nn.LayerNorm(values) if normed_patches else nn.Identity()
            self.linear = nn.Linear(values, config.d)
            self.after = nn.LayerNorm(config.d) if normed_patches else nn.Identity()
            self.class_token = nn.Parameter(torch.randn(1, 1, config.d) * 0.02)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.randn(config.tokens, config.d) * 0.02)
        elif config.positions == "grid":
            self.register_buffer("positions", grid_positions(math.isqrt(config.tokens), config.d), persistent=False)
        else:
            places = torch.arange(config.tokens, dtype=torch.float64)
            self.register_buffer("positions", sinusoids(places, config.d).float(), persistent=False)
        self.dropout = nn.Dropout(config.embedding_dropout)

    def forward(self, x: Tensor) -> Float[Tensor, "batch N d"]:
        if self.patch:
            patches = self.after(self.linear(self.before(cut_patches(x, self.patch))))
            # len(x) would fix the batch size in an export.
            tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], dim=1)
        else:
            tokens = self.tokens(x)
        return self.dropout(tokens + self.positions)


class Readout(nn.Module):
    """The class scores of the class token, or of every position."""

    def __init__(self, config: SequenceConfig, norm: nn.Module) -> None:
        super().__init__()
        self.every_position = bool(config.vocabulary)
        self.norm = norm
        self.linear = nn.Linear(config.d, config.shapes[1][-1], bias=config.head_bias)

    def forward(self, tokens: Float[Tensor, "batch N d"]) -> Float[Tensor, "batch ..."]:
        return self.linear(self.norm(tokens if self.every_position else tokens[:, 0]))


class RecurrentModel(nn.Module):
    """Embedding, layers that are each applied ``iterations`` times, readout after ``norm``.

    The branches of a layer depend on the embedded tokens X_0 and on the number of its iteration, from 1.
    """

    def __init__(self, config: Any, layer: Callable[[Any], Block], norm: nn.Module, normed_patches: bool) -> None:
        super().__init__()
        self.config = config
        self.input_shape = config.shapes[0]
        self.vocabulary = config.vocabulary
        self.embedding = Embedding(config, normed_patches)
        self.layers = Stack((layer(config) for _ in range(config.layers)), config.make_pathway())
        self.layers.prepare()
        self.readout = Readout(config, norm)

    def passes(self, start: Tensor, iterations: int | None = None) -> Iterator[Pass]:
        """The layers in the order of computation, for the embedded tokens ``start``."""
        iterations = self.config.iterations if iterations is None else iterations
        if iterations < 1:
            raise UserError(f"iterations={iterations}: must be at least 1")
        return ((layer, (start, t)) for layer in range(len(self.layers)) for t in range(1, iterations + 1))

    def states(self, x: Tensor, iterations: int | None = None) -> Iterator[Float[Tensor, "batch N d"]]:
        """X_0 and the tokens after every iteration of every layer."""
        start = self.embedding(x)
        yield start
        yield from self.layers.streams(start, self.passes(start, iterations))

    def steps(self, x: Tensor, iterations: int | None = None) -> Iterator[Step]:
        """The steps of all branches in every iteration."""
        start = self.embedding(x)
        return self.layers.steps(start, self.passes(start, iterations))

    def forward(self, x: Tensor, iterations: int | None = None) -> Float[Tensor, "batch ..."]:
        if self.training and self.config.trained_on == "every":
            _, *every = self.states(x, iterations)
            return torch.stack([self.readout(tokens) for tokens in every], dim=1)
        return self.readout(deque(self.states(x, iterations), maxlen=1).pop())

    def trajectory(self, x: Tensor, iterations: int | None = None) -> Iterator[tuple[str, Tensor]]:
        for number, tokens in enumerate(self.states(x, iterations)):
            yield f"X_{number}", tokens
        yield "output", self.readout(tokens)
