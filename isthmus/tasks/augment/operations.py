"""The operations of AutoAugment and RandAugment on 8-bit images, each image of a batch with its own.

kornia's functions do to a batch what Pillow's ``ImageOps`` and ``ImageEnhance`` do to one image. Images that receive
the same operation go through it together; all warped images go through one warp.

Differs from Pillow: a value is at most one level away, because it is computed in floats from 0 to 1, a grey or smoothed
image is not rounded on the way, and a warped value is rounded, not truncated; ``equalize``, ``invert``, ``posterize``,
``solarize`` and ``solarize_add`` are exact. Not kornia's, because these do something else there: autocontrast of a
constant channel (black), ``solarize`` with additions (to every value), ``warp_affine`` with a fill (blends the edge).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float32, Float64, Int, UInt8
from torch import Tensor

Images = UInt8[Tensor, "batch channels height width"]
Pixels = Float32[Tensor, "batch channels height width"]
"""From 0 to 1."""
PerImage = Float64[Tensor, " batch"]
Colour = Float[Tensor, " channels"]

SHIFTS = ("shear_x", "shear_y", "translate_x", "translate_y")
ENHANCEMENTS = ("color", "contrast", "brightness", "sharpness")
GEOMETRIC = ("rotate", *SHIFTS)
PHOTOMETRIC = ("auto_contrast", "equalize", "invert", "posterize", "solarize", "solarize_add", *ENHANCEMENTS)
OPERATIONS = ("none", *GEOMETRIC, *PHOTOMETRIC)
"""Their numbers are their places. Each takes one argument: degrees (``rotate``, against the clock), a slope
(``shear``), a part of the side (``translate``), bits kept (``posterize``), a threshold (``solarize``), an addend
(``solarize_add``), a factor (``contrast``, ``brightness``, ``color``, ``sharpness``), or ignores it."""


def transform(images: Images, operation: Int[Tensor, " batch"], argument: PerImage, fill: Colour) -> Images:
    """Each image after its operation. ``operation`` and ``argument`` are on the CPU; ``fill`` is the colour outside."""
    result = images.clone()

    def chosen(*names: str) -> Tensor:
        numbers = torch.tensor([OPERATIONS.index(name) for name in names])
        return torch.isin(operation, numbers).nonzero().squeeze(1)

    if len(rows := chosen(*GEOMETRIC)):
        matrices = warps(operation[rows], argument[rows], images.shape[2], images.shape[3])
        result[rows] = warp(images[rows], matrices, fill)
    for name in PHOTOMETRIC:
        if len(rows := chosen(name)):
            pixels = change_pixels(name, images[rows].float() / 255, argument[rows].float().to(images.device))
            result[rows] = (pixels * 255 + 1e-3).clamp(0, 255).to(torch.uint8)  # truncate, with a margin for integers
    return result


def warps(
    operation: Int[Tensor, " batch"], argument: PerImage, height: int, width: int
) -> Float64[Tensor, "batch 2 3"]:
    """The matrix from a pixel (x, y) of the result to its source in the image."""
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


def warp(images: Images, matrices: Float64[Tensor, "batch 2 3"], fill: Colour) -> Images:
    """Bilinear; pixels from outside the image get the colour ``fill``."""
    from kornia.geometry.transform import remap  # importing it takes half a second, and most runs do not need it

    height, width = images.shape[2:]
    rows = torch.arange(height, dtype=torch.float64, device=images.device) + 0.5
    columns = torch.arange(width, dtype=torch.float64, device=images.device) + 0.5
    x, y = (
        along * columns + across * rows[:, None] + shift
        for along, across, shift in (line[:, :, None, None].unbind(1) for line in matrices.to(images.device).unbind(1))
    )
    inside = ((x >= 0) & (x < width) & (y >= 0) & (y < height))[:, None]
    places = ((x - 0.5).float(), (y - 0.5).float())  # of pixels' centres, as kornia counts them
    sampled = remap(images.float(), *places, padding_mode="border", align_corners=True)
    colour = fill.to(images.device, torch.float32)[:, None, None]
    return torch.where(inside, sampled, colour).round().clamp(0, 255).to(torch.uint8)


def change_pixels(name: str, pixels: Pixels, argument: Float32[Tensor, " batch"]) -> Pixels:
    """After the photometric operation ``name``; images without three channels have no colour to change."""
    from kornia import enhance

    match name:
        case "auto_contrast":
            constant = pixels.amax(dim=(2, 3), keepdim=True) == pixels.amin(dim=(2, 3), keepdim=True)
            return torch.where(constant, pixels, enhance.normalize_min_max(pixels, eps=1e-12))
        case "equalize":
            return enhance.equalize(pixels)
        case "invert":
            return enhance.invert(pixels)
        case "posterize":
            return enhance.posterize(pixels, argument.int())
        case "solarize":
            return enhance.solarize(pixels, (argument.ceil() - 0.5) / 255)  # between two levels, so nothing is rounded
        case "solarize_add":
            return torch.where(pixels < 0.5, pixels + argument[:, None, None, None] / 255, pixels)
        case "contrast":
            return enhance.adjust_contrast_with_mean_subtraction(pixels, argument)
        case "brightness":
            return enhance.adjust_brightness_accumulative(pixels, argument)
        case "color" if pixels.shape[1] == 3:
            return enhance.adjust_saturation_with_gray_subtraction(pixels, argument)
        case "sharpness" if min(pixels.shape[2:]) >= 3:
            return enhance.sharpness(pixels, argument)
    return pixels


def jitter_colours(images: Images, strengths: tuple[float, float, float, float], generator: torch.Generator) -> Images:
    """Brightness, contrast, saturation and hue, in this order, each image with its own factors.

    A strength s draws a factor from [max(0, 1 − s), 1 + s]; for hue, a rotation from [−s, s] of a full turn.
    """
    from kornia import enhance

    low = torch.tensor([max(0.0, 1 - strength) for strength in strengths[:3]] + [-strengths[3]])
    high = torch.tensor([1 + strength for strength in strengths[:3]] + [strengths[3]])
    drawn = low[:, None] + (high - low)[:, None] * torch.rand((4, len(images)), generator=generator)
    brightness, contrast, saturation, hue = drawn.to(images.device)
    pixels: Tensor = images.float() / 255
    if strengths[0]:
        pixels = enhance.adjust_brightness_accumulative(pixels, brightness)
    if strengths[1]:
        pixels = enhance.adjust_contrast_with_mean_subtraction(pixels, contrast)
    if strengths[2]:
        pixels = enhance.adjust_saturation_with_gray_subtraction(pixels, saturation)
    if strengths[3] and images.shape[1] == 3:
        pixels = enhance.adjust_hue(pixels, hue * (2 * math.pi))
    return (pixels * 255).round().clamp(0, 255).to(torch.uint8)
