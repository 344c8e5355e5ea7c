"""Tokenization: the model compresses an image into a few tokens and reconstructs it.

``codebook_use`` is the fraction of codes that occur in a split, ``codebook_perplexity`` the exponential of their
entropy, and ``commonest_token`` the frequency of the most common one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isthmus.core.protocols import SplitName
from isthmus.tasks.image_to_image import ImageToImage, pixels

NAMES = {"tokenization": "Tokenization"}

_ROWS_AT_ONCE = 256


class Tokenization(ImageToImage):
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
