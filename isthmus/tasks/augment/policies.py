"""AutoAugment and RandAugment: which operation each image of a batch receives, and how strongly.

AutoAugment (Cubuk et al. 2019, arXiv:1805.09501): one of the 25 published pairs of operations per image. A magnitude
from 0 to 9 stands for one of ten evenly spaced values of the range in the paper's Table 6; the paper's ±150 pixels of a
331-pixel image are taken as a part of the side.
RandAugment (Cubuk et al. 2020, arXiv:1909.13719), as recipes write ``rand-m9-mstd0.5-inc1``: operations drawn with
replacement from fifteen, each carried out with probability 0.5, each with its own magnitude from a normal distribution
clipped to [0, 10]; a higher magnitude makes every operation stronger.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from isthmus.tasks.augment.operations import ENHANCEMENTS, OPERATIONS, SHIFTS, Colour, Images, transform

Numbers = Int[Tensor, "*shape"]
Levels = Float64[Tensor, "*shape"]

RANDOM = (
    *("auto_contrast", "equalize", "invert", "rotate", "posterize", "solarize", "solarize_add"),
    *ENHANCEMENTS,
    *SHIFTS,
)
PROBABILITY = 0.5
STRONGEST = 10.0

# operation, probability, magnitude; twice per line
CIFAR10 = """
invert 0.1 7 contrast 0.2 6
rotate 0.7 2 translate_x 0.3 9
sharpness 0.8 1 sharpness 0.9 3
shear_y 0.5 8 translate_y 0.7 9
auto_contrast 0.5 8 equalize 0.9 2
shear_y 0.2 7 posterize 0.3 7
color 0.4 3 brightness 0.6 7
sharpness 0.3 9 brightness 0.7 9
equalize 0.6 5 equalize 0.5 1
contrast 0.6 7 sharpness 0.6 5
color 0.7 7 translate_x 0.5 8
equalize 0.3 7 auto_contrast 0.4 8
translate_y 0.4 3 sharpness 0.2 6
brightness 0.9 6 color 0.2 8
solarize 0.5 2 invert 0.0 3
equalize 0.2 0 auto_contrast 0.6 0
equalize 0.2 8 equalize 0.6 4
color 0.9 9 equalize 0.6 6
auto_contrast 0.8 4 solarize 0.2 8
brightness 0.1 3 color 0.7 0
solarize 0.4 5 auto_contrast 0.9 3
translate_y 0.9 9 translate_y 0.7 9
auto_contrast 0.9 2 solarize 0.8 3
equalize 0.8 8 invert 0.1 3
translate_y 0.7 9 auto_contrast 0.9 1
"""
IMAGENET = """
posterize 0.4 8 rotate 0.6 9
solarize 0.6 5 auto_contrast 0.6 5
equalize 0.8 8 equalize 0.6 3
posterize 0.6 7 posterize 0.6 6
equalize 0.4 7 solarize 0.2 4
equalize 0.4 4 rotate 0.8 8
solarize 0.6 3 equalize 0.6 7
posterize 0.8 5 equalize 1.0 2
rotate 0.2 3 solarize 0.6 8
equalize 0.6 8 posterize 0.4 6
rotate 0.8 8 color 0.4 0
rotate 0.4 9 equalize 0.6 2
equalize 0.0 7 equalize 0.8 8
invert 0.6 4 equalize 1.0 8
color 0.6 4 contrast 1.0 8
rotate 0.8 8 color 1.0 2
color 0.8 8 solarize 0.8 7
sharpness 0.4 7 invert 0.6 8
shear_x 0.6 5 equalize 1.0 9
color 0.4 0 equalize 0.6 3
equalize 0.4 7 solarize 0.2 4
solarize 0.6 5 auto_contrast 0.6 5
invert 0.6 4 equalize 1.0 8
color 0.6 4 contrast 1.0 8
equalize 0.8 8 equalize 0.6 3
"""


def rand_augment(
    images: Images, magnitude: float, deviation: float, layers: int, fill: Colour, generator: torch.Generator
) -> Images:
    shape = (layers, len(images))
    drawn = torch.randint(len(RANDOM), shape, generator=generator)
    kept = torch.rand(shape, generator=generator) < PROBABILITY
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    level = (magnitude + deviation * noise).clamp(0, STRONGEST)
    sign = _signs(shape, generator)
    numbers = torch.tensor([OPERATIONS.index(name) for name in RANDOM])
    operation = torch.where(kept, numbers[drawn], OPERATIONS.index("none"))
    for chosen, argument in zip(operation, rand_arguments(operation, level, sign), strict=True):
        images = transform(images, chosen, argument, fill)
    return images


def rand_arguments(operation: Numbers, level: Levels, sign: Levels) -> Levels:
    part = level / STRONGEST
    values = dict.fromkeys(ENHANCEMENTS, (1 + sign * 0.9 * part).clamp(min=0.1))
    values |= {"posterize": 4 - (4 * part).floor(), "solarize": 256 - (256 * part).floor()}
    values |= {"solarize_add": (110 * part).floor()}
    return _select(operation, values, part, sign, 0.45)


def auto_augment(images: Images, policy: str, fill: Colour, generator: torch.Generator) -> Images:
    """``policy`` is one of the tables above."""
    operation, probability, level = policy_table(policy)
    pair = torch.randint(len(operation), (len(images),), generator=generator)
    shape = (2, len(images))
    kept = torch.rand(shape, generator=generator, dtype=torch.float64) < probability[pair].T
    chosen = torch.where(kept, operation[pair].T, OPERATIONS.index("none"))
    arguments = auto_arguments(chosen, level[pair].T, _signs(shape, generator))
    for number, argument in zip(chosen, arguments, strict=True):
        images = transform(images, number, argument, fill)
    return images


def auto_arguments(operation: Numbers, level: Levels, sign: Levels) -> Levels:
    part = level / 9
    values = dict.fromkeys(ENHANCEMENTS, 1 + sign * 0.9 * part)
    values |= {"posterize": 8 - (4 * part).round(), "solarize": 256 - 256 * part}
    return _select(operation, values, part, sign, 150 / 331)


def policy_table(policy: str) -> tuple[Numbers, Levels, Levels]:
    """Operations, probabilities and magnitudes, each (pairs, 2)."""
    words = [line.split() for line in policy.strip().splitlines()]
    operations = torch.tensor([[OPERATIONS.index(line[at]) for at in (0, 3)] for line in words])
    numbers = [[[float(line[at + shift]) for at in (0, 3)] for line in words] for shift in (1, 2)]
    probabilities, magnitudes = torch.tensor(numbers, dtype=torch.float64)
    return operations, probabilities, magnitudes


def _select(operation: Numbers, values: dict[str, Tensor], part: Levels, sign: Levels, farthest: float) -> Levels:
    """Each image's own argument, out of what every operation would take; ``farthest`` is the longest translation."""
    values = values | {"rotate": sign * 30 * part} | dict.fromkeys(("shear_x", "shear_y"), sign * 0.3 * part)
    values |= dict.fromkeys(("translate_x", "translate_y"), sign * farthest * part)
    argument = torch.zeros_like(part)
    for name, value in values.items():
        argument = torch.where(operation == OPERATIONS.index(name), value, argument)
    return argument


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Float64[Tensor, "*shape"]:
    return torch.randint(2, shape, generator=generator).double() * 2 - 1
