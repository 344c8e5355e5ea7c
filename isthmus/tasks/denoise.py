"""Denoising: the model restores an image in [0, 1] from its sum with Gaussian noise, which is not clipped.

Paper: Hourglass MLP, appendix A.2 (std 0.25). The paper does not say whether the noise of a training image is
drawn once or in every epoch; ``noise`` chooses, and every epoch is the default.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.protocols import Batch, Data, SplitName
from isthmus.tasks.image_to_image import ImageConfig, ImageToImage, pixels

NAMES = {"denoise": "Denoise"}

_MOST_BYTES_OF_FIXED_NOISE = 4 * 2**30


class Denoise(ImageToImage):
    class Config(ImageConfig):
        noise_std: Annotated[float, Field(ge=0, le=100)] = 0.25
        """Standard deviation of the noise; pixels are in [0, 1]."""
        noise: Literal["fresh", "once"] = "fresh"
        """Whether a training image gets new noise in every epoch (``fresh``) or keeps its first one (``once``)."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._rows = 0
        self._fixed_noise: tuple[int, Tensor] | None = None  # and its seed

    def learn(self, data: Data) -> None:
        super().learn(data)
        self._rows = len(data.train)
        size = 4 * data.train.inputs.size
        if self.config.noise == "once" and size > _MOST_BYTES_OF_FIXED_NOISE:
            raise UserError(f"task.noise=once keeps {size / 2**30:.0f} GiB of noise in memory; use task.noise=fresh")

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        clean = pixels(rows)
        if self.config.noise == "once":
            noisy = clean + self._noise_of(index, seed)
            return Batch(self.turn(noisy, view), self.turn(clean, view))
        clean = self.turn(clean, view)
        noise = self._draw(clean.shape, torch_generator(seed, "noise", step, clean.device))
        return Batch(noise.add_(clean), clean)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        clean = pixels(rows)
        generator = torch_generator(self.config.evaluation_seed, f"noise/{split}", block)
        return Batch(clean + self._draw(clean.shape, generator).to(clean.device), clean)

    def _draw(self, shape: torch.Size, generator: torch.Generator) -> Tensor:
        return torch.randn(shape, generator=generator, device=generator.device).mul_(self.config.noise_std)

    def _noise_of(self, index: Tensor, seed: int) -> Tensor:
        if self._fixed_noise is None or self._fixed_noise[0] != seed:
            shape = torch.Size((self._rows, *self.image_shape))
            self._fixed_noise = seed, self._draw(shape, torch_generator(seed, "noise/once")).to(index.device)
        return self._fixed_noise[1][index]
