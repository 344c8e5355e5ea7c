"""Converts images to tokens and back, for all models on patches.

An image (channels, height, width) is cut into S0 square patches of C0 = channels · patch² numbers. Classes are read
from the mean token. An output image is assembled from one patch per token; super-resolution enlarges the patches.
"""

from __future__ import annotations

import math
from typing import Annotated, Self

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.protocols import ModelConfig, Signature

Size = Annotated[int, Field(ge=1, le=2**24)]


SMALL_BUDGET = 20_000
"""Parameters below which a search prefers shallow networks with high learning rates."""


class ImageModelConfig(ModelConfig):
    """Settings of all models on patches."""

    input_shape: tuple[Size, Size, Size] | None = None
    """Channels, height and width of one image; a run takes them from its task."""
    output_shape: Annotated[tuple[Size, ...], Field(min_length=1, max_length=3)] | None = None
    """(classes,), or the channels, height and width of an image."""
    patch: Size = 4
    """Pixels along one side of a patch."""

    @model_validator(mode="after")
    def _check_patches(self) -> Self:
        if self.input_shape is None:
            return self
        _, height, width = self.input_shape
        if height % self.patch or width % self.patch:
            raise ValueError(f"patch={self.patch} does not divide an image of {height}×{width} pixels")
        if self.output_shape is None or len(self.output_shape) == 1:
            return self
        if len(self.output_shape) == 2 or self.output_shape[1] * width != self.output_shape[2] * height:
            raise ValueError(
                f"output_shape={self.output_shape} is neither (classes,) nor an image like {height}×{width}"
            )
        if self.output_shape[1] % height:
            raise ValueError(f"an output of {self.output_shape[1]} rows is not a multiple of {height} rows")
        return self

    @property
    def image(self) -> tuple[int, int, int]:
        if self.input_shape is None:
            raise UserError(f"{self.name} needs input_shape and output_shape where no task gives them")
        return self.input_shape

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        _, height, width = self.image
        return height // self.patch, width // self.patch

    @property
    def tokens(self) -> int:
        """S0: patches of the image."""
        return math.prod(self.grid)

    @property
    def patch_values(self) -> int:
        """C0: numbers in a patch."""
        return self.image[0] * self.patch**2

    def complete(self, signature: Signature, seed: int) -> Self:
        if len(signature.input_shape) != 3:
            raise UserError(f"{self.name} works on images; this task gives rows of {signature.input_shape}")
        return self.require(input_shape=signature.input_shape, output_shape=signature.output_shape)


def list_patches(signature: Signature, budget: int) -> tuple[int, ...]:
    """Patch sizes that a search tries for images, the most promising first; none if the task has no images.

    Between 4 and 256 tokens, at first about 20, which are quick to train. A width of 16 must leave half of the budget,
    so that small budgets have small patches.
    """
    if len(signature.input_shape) != 3:
        return ()
    _, height, width = signature.input_shape
    values = math.prod(signature.input_shape)
    if len(signature.output_shape) == 3:
        values += math.prod(signature.output_shape)
    tokens = {p: height * width // p**2 for p in range(1, height + 1) if height % p == width % p == 0}
    fitting = [p for p, number in tokens.items() if 4 <= number <= 256 and 32 * values <= budget * number]
    return tuple(sorted(fitting, key=lambda p: abs(math.log(tokens[p] / 20)))[:3])


class PatchEmbedding(nn.Module):
    """The same linear map for every patch: a convolution with stride equal to its kernel, as one matrix product."""

    def __init__(self, config: ImageModelConfig, width: int, bias: bool = True) -> None:
        super().__init__()
        self.patch = config.patch
        self.linear = nn.Linear(config.patch_values, width, bias=bias)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch tokens C"]:
        return self.linear(cut_patches(x, self.patch))


def cut_patches(x: Float[Tensor, "batch channels height width"], patch: int) -> Float[Tensor, "batch tokens values"]:
    """Patches in row-major order, each channel by channel like a convolution kernel."""
    grid = x.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))  # batch, channels, rows, patch, columns, patch
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def join_patches(
    patches: Float[Tensor, "batch tokens values"], shape: tuple[int, int, int]
) -> Float[Tensor, "batch channels height width"]:
    """The inverse of ``cut_patches``."""
    channels, height, width = shape
    patch = round((height * width / patches.shape[1]) ** 0.5)
    grid = patches.unflatten(1, (height // patch, width // patch)).unflatten(3, (channels, patch, patch))
    return grid.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


class Head(nn.Module):
    """Class scores of the mean token, or an image assembled from patches."""

    def __init__(self, config: ImageModelConfig, tokens: int, width: int, bias: bool = True) -> None:
        super().__init__()
        if config.output_shape is None:
            raise UserError(f"{config.name} needs input_shape and output_shape where no task gives them")
        self.image = config.output_shape if len(config.output_shape) == 3 else None
        if self.image is None:
            self.to_patches = None
            self.linear = nn.Linear(width, config.output_shape[0], bias=bias)
        else:
            channels, height, breadth = self.image
            # A model may have more or fewer tokens than the image has patches.
            self.to_patches = nn.Linear(tokens, config.tokens, bias=bias) if tokens != config.tokens else None
            self.linear = nn.Linear(width, channels * height * breadth // config.tokens, bias=bias)

    def forward(self, tokens: Float[Tensor, "batch S C"]) -> Float[Tensor, "batch ..."]:
        if self.image is None:
            return self.linear(tokens.mean(1))
        if self.to_patches is not None:
            tokens = self.to_patches(tokens.mT).mT
        return join_patches(self.linear(tokens), self.image)
