"""Batched augmentations: one call for a whole batch, each row with its own draw.

Every draw is keyed by (seed, stream, step) over the whole batch. Each kind of augmentation has its own stream, so that
switching one on or off does not change the draws of the others.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int, Int64, UInt8
from pydantic import Field, model_validator
from torch import Tensor

from isthmus.core.draws import numpy_generator, torch_generator
from isthmus.core.protocols import Settings
from isthmus.tasks.augment.crops import Interpolation, fit_size, flip, padded_crop, resized_crop
from isthmus.tasks.augment.mixup import cut_out, erase, mix
from isthmus.tasks.augment.operations import Colour, jitter_colours
from isthmus.tasks.augment.policies import CIFAR10, IMAGENET, auto_augment, rand_augment

ORIENTATIONS = 4

Images = Float[Tensor, "batch channels height width"]
Bytes = UInt8[Tensor, "batch channels height width"]
Share = Annotated[float, Field(ge=0, le=1)]
Strength = Annotated[float, Field(ge=0, le=2)]


class Augmentation(Settings):
    """Augmentation of training images, applied in the order of the fields; all off by default."""

    crop_padding: Annotated[int, Field(ge=0, le=512)] = 0
    """Pixels of black border before a random crop of the image's own size."""
    resized_crop: tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(gt=0, le=1)]] | None = None
    """Smallest and largest relative area of a random crop (aspect ratio 3/4 to 4/3), resized; usually [0.08, 1]."""
    flip: bool = False
    """Mirror half of the images left to right."""
    color_jitter: tuple[Strength, Strength, Strength, Annotated[float, Field(ge=0, le=0.5)]] = (0.0, 0.0, 0.0, 0.0)
    """Strengths of brightness, contrast, saturation and hue."""
    policy: Literal["none", "auto_augment_cifar10", "auto_augment_imagenet", "rand_augment"] = "none"
    """A learned set of image operations, applied to each image: AutoAugment's or RandAugment's."""
    magnitude: Annotated[float, Field(ge=0, le=10)] = 9.0
    """RandAugment's mean magnitude, with ``magnitude_std`` and ``layers``, the operations per image."""
    magnitude_std: Annotated[float, Field(ge=0, le=100)] = 0.5
    """Standard deviation of RandAugment's magnitude."""
    layers: Annotated[int, Field(ge=1, le=20)] = 2
    """RandAugment's operations per image."""
    erasing: Share = 0.0
    """Probability that a rectangle of the standardised image becomes noise."""
    cutout: Annotated[int, Field(ge=0, le=4096)] = 0
    """Side of the square that is filled with the mean colour."""
    mixup: Annotated[float, Field(ge=0, le=100)] = 0.0
    """α of the Beta distribution of a batch's λ; 0 is off. Applied to every batch that cutmix is not applied to."""
    cutmix: Annotated[float, Field(ge=0, le=100)] = 0.0
    """α of cutmix; 0 is off."""
    cutmix_share: Share = 0.5
    """Probability of cutmix instead of mixup, if both are on."""

    @model_validator(mode="after")
    def _fits_together(self) -> Augmentation:
        if self.crop_padding and self.resized_crop:
            raise ValueError("crop_padding and resized_crop are two ways to crop; give one of them")
        if self.resized_crop and self.resized_crop[0] > self.resized_crop[1]:
            raise ValueError(f"resized_crop={list(self.resized_crop)}: give the smaller number first")
        return self

    @property
    def mixes(self) -> bool:
        """Whether targets become class probabilities."""
        return self.mixup > 0 or self.cutmix > 0


def orient(images: Images, view: Int[Tensor, " batch"]) -> Images:
    """Each image as it is (view 0), flipped left–right (1), top–bottom (2), or both (3)."""
    mirrored = torch.where((view % 2 == 1)[:, None, None, None], images.flip(-1), images)
    return torch.where((view >= 2)[:, None, None, None], mirrored.flip(-2), mirrored)


def vary_images(
    images: Bytes,
    settings: Augmentation,
    size: int | None,
    fill: Colour,
    seed: int,
    step: int,
    interpolation: Interpolation = "bilinear",
    extents: Int[Tensor, "batch 2"] | None = None,
) -> UInt8[Tensor, "batch channels new_height new_width"]:
    """Crop, flip, resize to ``size``, jitter colours and apply a policy, on 8-bit images.

    A policy moves pixels of the final size; what comes into the picture from outside has the colour ``fill``. With
    ``extents``, images are whole photographs of these heights and widths, squeezed into squares.
    """

    def draw(stream: str) -> torch.Generator:
        return torch_generator(seed, f"augment/{stream}", step)

    if settings.crop_padding:
        images = padded_crop(images, settings.crop_padding, draw("crop"))
    if settings.resized_crop:
        images = resized_crop(images, settings.resized_crop, size, draw("crop"), interpolation, extents)
    if settings.flip:
        images = flip(images, draw("flip"))
    if size and not settings.resized_crop:
        images = fit_size(images, size, interpolation=interpolation)
    if any(settings.color_jitter):
        images = jitter_colours(images, settings.color_jitter, draw("jitter"))
    if settings.policy == "rand_augment":
        images = rand_augment(images, settings.magnitude, settings.magnitude_std, settings.layers, fill, draw("policy"))
    elif settings.policy != "none":
        table = CIFAR10 if settings.policy == "auto_augment_cifar10" else IMAGENET
        images = auto_augment(images, table, fill, draw("policy"))
    return images


def hide_and_mix(
    images: Images, labels: Int64[Tensor, " batch"], classes: int, settings: Augmentation, seed: int, step: int
) -> tuple[Images, Tensor]:
    """Erase, cut out and mix standardised images; mixed targets are class probabilities."""
    if settings.erasing:
        noise = torch_generator(seed, "augment/erasing/noise", step, images.device)
        images = erase(images, settings.erasing, torch_generator(seed, "augment/erasing", step), noise)
    if settings.cutout:
        images = cut_out(images, settings.cutout, torch_generator(seed, "augment/cutout", step))
    if settings.mixes:
        generator = numpy_generator(seed, "augment/mix", step)
        return mix(images, labels, classes, settings.mixup, settings.cutmix, settings.cutmix_share, generator)
    return images, labels
