"""Colour jitter: brightness, contrast, saturation and hue, in this order, each image with its own factors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from isthmus.tasks.augment.operations import Images


def jitter_colours(images: Images, strengths: tuple[float, float, float, float], generator: torch.Generator) -> Images:
    """A strength s draws a factor from [max(0, 1 − s), 1 + s]; for hue, a rotation from [−s, s] of a full turn."""
    from kornia import enhance  # importing it takes half a second, and most runs do not need it

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
