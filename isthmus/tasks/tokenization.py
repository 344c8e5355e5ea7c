"""Tokenization: the model compresses an image into a few tokens and reconstructs it.

``codebook_use`` is the fraction of codes that occur in a split, ``codebook_perplexity`` the exponential of their
entropy, and ``commonest_token`` the frequency of the most common one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isthmus.core.protocols import Batch, Signature, SplitName
from isthmus.tasks.augment import orient
from isthmus.tasks.image_to_image import ImageConfig, ImageToImage, pixels

NAMES = {"tokenization": "Tokenization"}

_ROWS_AT_ONCE = 256


class TokenizationConfig(ImageConfig):
    pass


class Tokenization(ImageToImage):
    Config = TokenizationConfig

    @property
    def signature(self) -> Signature:
        return Signature(self.image_shape, self.image_shape)

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        images = pixels(rows)
        if self.config.flips:
            images = orient(images, view)
        return Batch(images, images)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        images = pixels(rows)
        return Batch(images, images)

    def inspect(self, model: Any, rows: Tensor, split: SplitName) -> dict[str, float]:
        if not hasattr(model, "codebook"):  # an image model without a codebook can be trained on this task too
            return {}
        counts = torch.zeros(model.config.codes, dtype=torch.int64)
        device = model.codebook.codes.device
        for part in rows.split(_ROWS_AT_ONCE):
            counts += model.tokens(pixels(part.to(device))).flatten().bincount(minlength=len(counts)).cpu()
        shares = counts.double() / counts.sum()
        return {
            "codebook_use": float((counts > 0).double().mean()),
            "codebook_perplexity": float(torch.special.entr(shares).sum().exp()),
            "commonest_token": float(shares.max()),
        }
