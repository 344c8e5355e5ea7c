"""Super-resolution: the model sees an image reduced by a bicubic filter and gives it back at full size.

Paper: Hourglass MLP, appendix A.2 (2×). The reduction is the antialiased bicubic filter of imaging libraries (Pillow's,
to rounding), on [0, 1] and neither rounded nor clipped. It is symmetric, so it commutes with flips.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from isthmus.core.errors import UserError
from isthmus.core.protocols import Data, Signature
from isthmus.tasks.image_to_image import ImageConfig, Images, ImageToImage

NAMES = {"super_resolution": "SuperResolution"}


@cache
def _filter(size: int, factor: int) -> Tensor:
    """The matrix that reduces one axis: torch's bicubic filter applied to unit vectors."""
    units = torch.eye(size, dtype=torch.float64, device="cpu")[None, None]
    matrix = torch.nn.functional.interpolate(units, (size // factor, size), mode="bicubic", antialias=True)[0, 0]
    return matrix.to(torch.float32)


def reduce_images(images: Images, factor: int) -> Float[Tensor, "batch channels reduced_height reduced_width"]:
    """Two small matrix products: ``interpolate`` would take a tenth of a training step on a CPU."""
    vertical, horizontal = (_filter(size, factor).to(images.device) for size in images.shape[-2:])
    return vertical @ images @ horizontal.T


class SuperResolution(ImageToImage):
    class Config(ImageConfig):
        factor: Annotated[int, Field(ge=2, le=16)] = 2
        """How many times smaller the model's input is than the image, along each side."""

    def learn(self, data: Data) -> None:
        super().learn(data)
        _, height, width = self.image_shape
        if height % self.config.factor or width % self.config.factor:
            raise UserError(
                f"images of {height}×{width} cannot be reduced {self.config.factor}×; their sides must be multiples of "
                f"{self.config.factor} (of a folder: source.size or source.patch)"
            )

    @property
    def signature(self) -> Signature:
        channels, height, width = self.image_shape
        return Signature((channels, height // self.config.factor, width // self.config.factor), self.image_shape)

    def degrade(self, images: Images) -> Tensor:
        return reduce_images(images, self.config.factor)
