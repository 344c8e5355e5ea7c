"""The operations of AutoAugment and RandAugment on 8-bit images, each image of a batch with its own.

What Pillow's ``ImageOps`` and ``ImageEnhance`` do to one image is done here to many at once. Operations on single
values become a table of 256 entries per image and channel, the geometric ones a matrix per image: however many
different operations a batch receives, it is looked up once and warped once.

Differs from Pillow: a warped value is rounded, not cut off, and so is at most one level above; every other value is the
same. Images that do not have three channels are their own grey.

Written here and not on kornia: the measure is Pillow's 8-bit arithmetic, to which the tests compare every level. Its
colour jitter is used (``jitter.py``).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float64, Int, UInt8
from torch import Tensor
from torch.nn import functional

Images = UInt8[Tensor, "batch channels height width"]
PerImage = Float64[Tensor, " batch"]
Tables = UInt8[Tensor, "batch channels 256"]

GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
TABULAR = (
    "auto_contrast",
    "equalize",
    "invert",
    "posterize",
    "solarize",
    "solarize_add",
    "contrast",
    "brightness",
)
OPERATIONS = ("none", *GEOMETRIC, *TABULAR, "color", "sharpness")
"""Their numbers are their places. Each takes one argument: degrees (``rotate``, against the clock), a slope
(``shear``), a part of the side (``translate``), bits kept (``posterize``), a threshold (``solarize``), an addend
(``solarize_add``), a factor (``contrast``, ``brightness``, ``color``, ``sharpness``), or ignores it."""


def transformed(
    images: Images, operation: Int[Tensor, " batch"], argument: PerImage, fill: Float[Tensor, " channels"]
) -> Images:
    """Each image after its operation. ``operation`` and ``argument`` are on the CPU; ``fill`` is the colour outside."""
    result = images.clone()

    def chosen(*names: str) -> Tensor:
        numbers = torch.tensor([OPERATIONS.index(name) for name in names])
        return torch.isin(operation, numbers).nonzero().squeeze(1)

    if len(rows := chosen(*GEOMETRIC)):
        matrices = warps(operation[rows], argument[rows], images.shape[2], images.shape[3])
        result[rows] = warped(images[rows], matrices, fill)
    if len(rows := chosen(*TABULAR)):
        result[rows] = looked_up(images[rows], tables(images[rows], operation[rows], argument[rows]))
    if len(rows := chosen("color")):
        result[rows] = blended(gray(images[rows]).expand_as(images[rows]), images[rows], argument[rows])
    if len(rows := chosen("sharpness")):
        result[rows] = blended(smooth(images[rows]), images[rows], argument[rows])
    return result


def warps(
    operation: Int[Tensor, " batch"], argument: PerImage, height: int, width: int
) -> Float64[Tensor, "batch 2 3"]:
    """From the place (x, y) of a pixel in the result to its place in the image."""
    matrices = torch.eye(2, 3, dtype=torch.float64).repeat(len(argument), 1, 1)
    entries = {"shear_x": (0, 1, 1), "shear_y": (1, 0, 1), "translate_x": (0, 2, width), "translate_y": (1, 2, height)}
    for name, (row, column, unit) in entries.items():
        chosen = operation == OPERATIONS.index(name)
        matrices[chosen, row, column] = argument[chosen] * unit
    chosen = operation == OPERATIONS.index("rotate")
    angle = argument[chosen] * (math.pi / 180)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=1).view(-1, 2, 2)
    centre = torch.tensor([width / 2, height / 2], dtype=torch.float64)
    matrices[chosen] = torch.cat([turn, (centre - turn @ centre)[:, :, None]], dim=2)
    return matrices


def warped(images: Images, matrices: Float64[Tensor, "batch 2 3"], fill: Float[Tensor, " channels"]) -> Images:
    """Bilinear; a pixel whose place lies outside of the image takes the colour ``fill``."""
    height, width = images.shape[2:]
    rows = torch.arange(height, dtype=torch.float64, device=images.device) + 0.5
    columns = torch.arange(width, dtype=torch.float64, device=images.device) + 0.5
    x, y = (
        along * columns + across * rows[:, None] + shift
        for along, across, shift in (line[:, :, None, None].unbind(1) for line in matrices.to(images.device).unbind(1))
    )
    inside = ((x >= 0) & (x < width) & (y >= 0) & (y < height))[:, None]
    grid = torch.stack([(x * (2 / width) - 1).float(), (y * (2 / height) - 1).float()], dim=-1)
    sampled = functional.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    colour = fill.to(images.device, torch.float32)[:, None, None]
    return torch.where(inside, sampled, colour).round().clamp(0, 255).to(torch.uint8)


def looked_up(images: Images, entries: Tables) -> Images:
    return entries.gather(2, images.flatten(2).long()).view_as(images)


def tables(images: Images, operation: Int[Tensor, " batch"], argument: PerImage) -> Tables:
    """What becomes of each value from 0 to 255, per image and channel."""
    levels = torch.arange(256, device=images.device)
    entries = torch.empty(*images.shape[:2], 256, dtype=torch.float64, device=images.device)
    for name in TABULAR:
        rows = (operation == OPERATIONS.index(name)).nonzero().squeeze(1)
        if not len(rows):
            continue
        value = argument[rows].to(images.device)[:, None, None]
        match name:
            case "auto_contrast":
                entries[rows] = _stretched(images[rows], levels)
            case "equalize":
                entries[rows] = _equalized(images[rows], levels)
            case "invert":
                entries[rows] = (255 - levels).double()
            case "posterize":
                step = 2 ** (8 - value.long())
                entries[rows] = (levels // step * step).double()
            case "solarize":
                entries[rows] = torch.where(levels < value, levels, 255 - levels).double()
            case "solarize_add":
                entries[rows] = torch.where(levels < 128, levels + value, levels.double())
            case "contrast":
                mean = gray(images[rows]).double().mean(dim=(1, 2, 3)).add(0.5).floor()
                entries[rows] = _blend(mean[:, None, None].float(), levels.float(), value.float()).double()
            case "brightness":
                entries[rows] = _blend(
                    torch.zeros_like(value, dtype=torch.float32), levels.float(), value.float()
                ).double()
    return entries.clamp(0, 255).to(torch.uint8)  # cut off, as a cast in C


def _stretched(images: Images, levels: Int[Tensor, " 256"]) -> Float64[Tensor, "batch channels 256"]:
    """Darkest to 0 and brightest to 255, in Pillow's order of operations: its rounding decides the last level."""
    flat = images.flatten(2)
    low, high = flat.amin(2, keepdim=True).double(), flat.amax(2, keepdim=True).double()
    scale = torch.full_like(low, 255.0) / (high - low).clamp(min=1)  # a number would be times the reciprocal
    return torch.where(high > low, levels * scale + -low * scale, levels.double())


def _equalized(images: Images, levels: Int[Tensor, " 256"]) -> Float64[Tensor, "batch channels 256"]:
    flat = images.flatten(2).long()
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, flat, torch.ones_like(flat))
    last = counts.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - last) // 255
    below = counts.cumsum(2) - counts
    return torch.where(step > 0, (step // 2 + below) // step.clamp(min=1), levels).double()


def gray(images: Images) -> UInt8[Tensor, "batch 1 height width"]:
    """Luma of ITU-R 601, in Pillow's integers."""
    if images.shape[1] != 3:
        return images.float().mean(1, keepdim=True).round().to(torch.uint8)
    red, green, blue = images.int().unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).to(torch.uint8)[:, None]


def smooth(images: Images) -> Images:
    """Weights 1 around a 5, over 13; the outermost pixels stay."""
    if min(images.shape[2:]) < 3:
        return images
    sums = functional.avg_pool2d(images.float(), 3, stride=1, divisor_override=1)
    result = images.clone()
    inner = images[:, :, 1:-1, 1:-1].float()
    result[:, :, 1:-1, 1:-1] = ((sums + 4 * inner) / 13 + 0.5).to(torch.uint8)
    return result


def blended(plain: Images, images: Images, factor: PerImage) -> Images:
    """From ``plain`` (factor 0) through the image (1) to beyond."""
    weight = factor.float().to(images.device)[:, None, None, None]
    return _blend(plain.float(), images.float(), weight).to(torch.uint8)


def _blend(plain: Tensor, full: Tensor, factor: Tensor) -> Tensor:
    """In float32 throughout, as Pillow does it."""
    return (plain + factor * (full - plain)).clamp(0, 255)
