"""Super-resolution: the model sees an image reduced by a bicubic filter and gives it back at full size.

Paper: Hourglass MLP, appendix A.2 (2×). The reduction is the antialiased bicubic filter of imaging libraries (Pillow's,
to rounding), on [0, 1] and neither rounded nor clipped. It is symmetric, so it commutes with flips.
"""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from isthmus.augment import oriented
from isthmus.errors import UserError
from isthmus.protocols import Batch, Data, Signature, SplitName
from isthmus.tasks.image_to_image import ImageConfig, Images, ImageToImage, pixels

NAMES = {"super_resolution": "SuperResolution"}


class SuperResolutionConfig(ImageConfig):
    factor: Annotated[int, Field(ge=2, le=16)] = 2


def reduced(images: Images, factor: int) -> Float[Tensor, "batch channels less_height less_width"]:
    size = (images.shape[-2] // factor, images.shape[-1] // factor)
    return torch.nn.functional.interpolate(images, size, mode="bicubic", antialias=True, align_corners=False)


class SuperResolution(ImageToImage):
    Config = SuperResolutionConfig

    def learn(self, data: Data) -> None:
        super().learn(data)
        if self.image_shape[1] % self.config.factor or self.image_shape[2] % self.config.factor:
            raise UserError(
                f"images of {self.image_shape[1]}×{self.image_shape[2]} cannot be reduced {self.config.factor}×"
            )

    @property
    def signature(self) -> Signature:
        channels, height, width = self.image_shape
        return Signature((channels, height // self.config.factor, width // self.config.factor), self.image_shape)

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        images = oriented(pixels(rows), view) if self.config.flips else pixels(rows)
        return Batch(reduced(images, self.config.factor), images)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        images = pixels(rows)
        return Batch(reduced(images, self.config.factor), images)
