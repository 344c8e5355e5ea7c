"""Erasing, cutout, mixup and cutmix, on standardised images."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int, Int64
from torch import Tensor
from torch.nn import functional

from isthmus.tasks.augment.crops import ATTEMPTS, draw_shapes

Images = Float32[Tensor, "batch channels height width"]
AREA = (0.02, 1 / 3)
ASPECTS = (0.3, 1 / 0.3)


def erase(images: Images, probability: float, generator: torch.Generator, noise: torch.Generator) -> Images:
    """Random erasing (Zhong et al. 2020), by pixel: a rectangle of standard normal noise in some of the images.

    Its area is 2 % to a third of the image, its aspect ratio 0.3 to 3.3; where none of ten drawn shapes is smaller than
    the image, the image stays. ``noise`` is a generator of the images' device.
    """
    height, width = images.shape[2:]
    chosen = torch.rand(len(images), generator=generator) < probability
    tall, wide = draw_shapes((len(images), ATTEMPTS), height * width, AREA, ASPECTS, generator)
    fits = (tall < height) & (wide < width)
    first = fits.long().argmax(1, keepdim=True)
    tall, wide = tall.gather(1, first).squeeze(1), wide.gather(1, first).squeeze(1)
    place = torch.rand((2, len(images)), generator=generator, dtype=torch.float64)
    top = (place[0] * (height - tall + 1)).floor().long()
    left = (place[1] * (width - wide + 1)).floor().long()
    rows = (chosen & fits.any(1)).nonzero().squeeze(1)
    if not len(rows):
        return images
    box = torch.stack([top, left, top + tall, left + wide], dim=1)[rows]
    inside = within(box.to(images.device), height, width)[:, None]
    pixels = torch.randn(len(rows), *images.shape[1:], generator=noise, device=images.device)
    result = images.clone()
    result[rows] = torch.where(inside, pixels, images[rows])
    return result


def cut_out(images: Images, side: int, generator: torch.Generator) -> Images:
    """Cutout (DeVries and Taylor 2017): a square of zeros around a random pixel, clipped at the border."""
    height, width = images.shape[2:]
    row, column = (torch.randint(size, (len(images),), generator=generator) for size in (height, width))
    top, left = row - side // 2, column - side // 2
    box = torch.stack([top, left, top + side, left + side], dim=1)
    return images.masked_fill(within(box.to(images.device), height, width)[:, None], 0.0)


def within(box: Int[Tensor, "batch 4"], height: int, width: int) -> Bool[Tensor, "batch height width"]:
    """Whether each pixel lies in the box (top, left, bottom, right)."""
    top, left, bottom, right = (side[:, None] for side in box.unbind(1))
    rows, columns = torch.arange(height, device=box.device), torch.arange(width, device=box.device)
    return ((rows >= top) & (rows < bottom))[:, :, None] & ((columns >= left) & (columns < right))[:, None, :]


def mix(
    images: Images,
    labels: Int64[Tensor, " batch"],
    classes: int,
    mixup: float,
    cutmix: float,
    switch: float,
    generator: np.random.Generator,
) -> tuple[Images, Float32[Tensor, "batch classes"]]:
    """Mixup (Zhang et al. 2018) or cutmix (Yun et al. 2019) of every image with the one at the batch's other end.

    One choice and one λ ~ Beta(α, α) per batch. The rows of a batch are in random order, so the partner is random too.
    Where both have an α above 0, it is cutmix with probability ``switch``.
    """
    cut = cutmix > 0 and (mixup == 0 or generator.random() < switch)
    alpha = cutmix if cut else mixup
    share = float(generator.beta(alpha, alpha))
    partner = images.flip(0)
    if cut:
        top, left, bottom, right = cutmix_box(images.shape[2], images.shape[3], share, generator)
        images = images.clone()
        images[:, :, top:bottom, left:right] = partner[:, :, top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / math.prod(images.shape[2:])  # the box may have been clipped
    else:
        images = torch.lerp(partner, images, share)
    target = functional.one_hot(labels, classes).float()
    return images, torch.lerp(target.flip(0), target, share)


def cutmix_box(height: int, width: int, share: float, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """Top, left, bottom and right of a box with 1 − λ of the area, around a random pixel, clipped at the border."""
    tall, wide = (int(side * math.sqrt(1 - share)) for side in (height, width))
    row, column = int(generator.integers(height)), int(generator.integers(width))
    top, left = max(0, row - tall // 2), max(0, column - wide // 2)
    return top, left, min(height, row + tall // 2), min(width, column + wide // 2)
