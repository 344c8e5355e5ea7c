"""Batched augmentations: one call for a whole batch, each row with its own draw."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

ORIENTATIONS = 4


def oriented(
    images: Float[Tensor, "batch channels height width"], view: Int[Tensor, " batch"]
) -> Float[Tensor, "batch channels height width"]:
    """Each image as it is (view 0), flipped left–right (1), top–bottom (2), or both (3)."""
    mirrored = torch.where((view % 2 == 1)[:, None, None, None], images.flip(-1), images)
    return torch.where((view >= 2)[:, None, None, None], mirrored.flip(-2), mirrored)
