"""Crops and resizing, each image of a batch at its own position."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float64, Int, Real, UInt8
from torch import Tensor
from torch.nn import functional

from isthmus.tasks.augment.operations import Images

Range = tuple[float, float]
Interpolation = Literal["bilinear", "bicubic"]
ATTEMPTS = 10
ASPECTS = (3 / 4, 4 / 3)


def padded_crop(images: Images, padding: int, generator: torch.Generator) -> Images:
    """A crop of the image's own size from the image with ``padding`` black pixels around it."""
    height, width = images.shape[2:]
    padded = functional.pad(images, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    top, left = torch.randint(2 * padding + 1, (2, len(images)), generator=generator).to(images.device)
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def flip(images: Images, generator: torch.Generator) -> Images:
    """Mirror half of the images left to right."""
    chosen = torch.rand(len(images), generator=generator).to(images.device) < 0.5
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def resized_crop(
    images: Images,
    area: Range,
    size: int | None,
    generator: torch.Generator,
    interpolation: Interpolation = "bilinear",
    extents: Int[Tensor, "batch 2"] | None = None,
) -> UInt8[Tensor, "batch channels new_height new_width"]:
    """A crop of random area and aspect ratio, resized to ``size`` (or the image's own size).

    Without antialiasing, which matters only where a part larger than ``size`` shrinks. Parts are drawn in pixels of the
    image, or of the ``extents`` (height and width) that it had before it was squeezed.
    """
    if extents is None:
        extents = torch.tensor(images.shape[2:]).expand(len(images), 2)
    return cut_out_boxes(images, draw_boxes(extents, area, generator), size, interpolation, extents)


def square_crop(
    images: Images, generator: torch.Generator, extents: Int[Tensor, "batch 2"] | None = None
) -> UInt8[Tensor, "batch channels height width"]:
    """The largest square at a random place of each photograph, at the images' own size."""
    if extents is None:
        extents = torch.tensor(images.shape[2:]).expand(len(images), 2)
    side = extents.long().amin(1, keepdim=True)
    place = torch.rand(extents.shape, generator=generator, dtype=torch.float64)
    corner = (place * (extents - side + 1)).floor().long()
    return cut_out_boxes(images, torch.cat([corner, side, side], dim=1), None, "bilinear", extents)


def cut_out_boxes(
    images: Images,
    parts: Int[Tensor, "batch 4"],
    size: int | None,
    interpolation: Interpolation,
    extents: Int[Tensor, "batch 2"],
) -> UInt8[Tensor, "batch channels new_height new_width"]:
    """Of each image its part (top, left, height and width within its extents), resized."""
    parts = parts.to(images.device)
    top, left, tall, wide = (side.double()[:, None] for side in parts.unbind(1))
    height, width = (side.to(images.device).double()[:, None] for side in extents.unbind(1))
    rows, columns = (size, size) if size else images.shape[2:]
    y = top + (torch.arange(rows, dtype=torch.float64, device=images.device) + 0.5) * tall / rows
    x = left + (torch.arange(columns, dtype=torch.float64, device=images.device) + 0.5) * wide / columns
    # Pixels beyond the crop repeat its border, as if it had been cut out first.
    y, x = y.clamp(top + 0.5, top + tall - 0.5), x.clamp(left + 0.5, left + wide - 0.5)
    across = (x * (2 / width) - 1).float()[:, None, :].expand(-1, rows, -1)
    down = (y * (2 / height) - 1).float()[:, :, None].expand(-1, -1, columns)
    grid = torch.stack([across, down], dim=-1)
    sampled = functional.grid_sample(images.float(), grid, interpolation, padding_mode="border", align_corners=False)
    return sampled.round().clamp(0, 255).to(torch.uint8)


def draw_boxes(extents: Int[Tensor, "number 2"], area: Range, generator: torch.Generator) -> Int[Tensor, "number 4"]:
    """Top, left, height and width: the first of ten drawn shapes that fits, or else the largest central one."""
    height, width = extents.long().unbind(1)
    pixels = (height * width)[:, None]
    tall, wide = draw_shapes((len(extents), ATTEMPTS), pixels, area, ASPECTS, generator)
    fits = (tall <= height[:, None]) & (wide <= width[:, None]) & (tall > 0) & (wide > 0)
    first = fits.long().argmax(1, keepdim=True)  # of equal values, the first
    found = fits.any(1)
    ratio = (width.double() / height).clamp(*ASPECTS)
    central = [
        torch.minimum(height, (width / ratio).round().long()),
        torch.minimum(width, (height * ratio).round().long()),
    ]
    tall = torch.where(found, tall.gather(1, first).squeeze(1), central[0])
    wide = torch.where(found, wide.gather(1, first).squeeze(1), central[1])
    place = torch.rand((2, len(extents)), generator=generator, dtype=torch.float64)
    top = torch.where(found, (place[0] * (height - tall + 1)).floor().long(), (height - tall) // 2)
    left = torch.where(found, (place[1] * (width - wide + 1)).floor().long(), (width - wide) // 2)
    return torch.stack([top, left, tall, wide], dim=1)


def draw_shapes(
    number: tuple[int, ...], pixels: int | Tensor, area: Range, aspects: Range, generator: torch.Generator
) -> tuple[Int[Tensor, "*number"], Int[Tensor, "*number"]]:
    """Heights and widths: uniform in the share of an image's ``pixels``, log-uniform in aspect ratio."""

    def draw(low: float, high: float) -> Float64[Tensor, "*number"]:
        return low + (high - low) * torch.rand(number, generator=generator, dtype=torch.float64)

    pixels = draw(*area) * pixels
    aspect = draw(math.log(aspects[0]), math.log(aspects[1])).exp()
    return (pixels / aspect).sqrt().round().long(), (pixels * aspect).sqrt().round().long()


def fit_size(
    images: Real[Tensor, "batch channels height width"],
    size: int,
    ratio: float = 1.0,
    interpolation: Interpolation = "bilinear",
) -> Real[Tensor, "batch channels size size"]:
    """Resize the short side to ``size / ratio`` (antialiased) and crop the central square of ``size``.

    8-bit images stay such; a user's own floats stay floats.
    """
    short = min(images.shape[2:])
    target = round(size / ratio)
    if short != target:
        wanted = [max(size, side * target // short) for side in images.shape[2:]]
        resized = functional.interpolate(images.float(), wanted, mode=interpolation, antialias=True)
        images = resized if images.is_floating_point() else resized.round().clamp(0, 255).to(torch.uint8)
    top, left = (round((side - size) / 2) for side in images.shape[2:])
    return images[:, :, top : top + size, left : left + size]
