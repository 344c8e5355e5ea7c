"""The Inception-v3 whose features define the Fréchet Inception distance, with the names of its public weights.

Papers: Rethinking the Inception Architecture for Computer Vision (Szegedy et al. 2016), and GANs Trained by a Two
Time-Scale Update Rule (Heusel et al. 2017). The network of the second differs in three ways: averages do not count the
border, the last block pools by the maximum and not by the average, and its input is 299 pixels wide, in [−1, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

Kernel = int | tuple[int, int]
Conv = tuple[Any, ...]
Pool = Callable[[Tensor], Tensor]
FEATURES = 2048
ACROSS, DOWN, ACROSS_7, DOWN_7 = (1, 3), (3, 1), (1, 7), (7, 1)
FORK: Conv = (768, "fork")

_average = partial(nn.functional.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False)
_maximum = partial(nn.functional.max_pool2d, kernel_size=3, stride=1, padding=1)
_halve = partial(nn.functional.max_pool2d, kernel_size=3, stride=2)


class BasicConv(nn.Module):
    """``padded`` keeps the size of the picture; a stride never pads."""

    def __init__(self, before: int, after: int, kernel: Kernel, stride: int = 1, padded: bool = True) -> None:
        super().__init__()
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (sides[0] // 2, sides[1] // 2) if padded and stride == 1 else (0, 0)
        self.conv = nn.Conv2d(before, after, sides, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(after, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)).relu()


class Mixed(nn.Module):
    """Branches side by side, and a last branch that pools.

    A branch lists its convolutions as (width, kernel) or (width, kernel, stride). ``FORK`` is two side by side.
    """

    def __init__(self, before: int, branches: dict[str, list[Conv]], pool: Pool, pooled: int = 0) -> None:
        super().__init__()
        self.pool, self.branch_pool = pool, BasicConv(before, pooled, 1) if pooled else nn.Identity()
        self.branches: list[list[list[str]]] = []
        for branch, convs in branches.items():
            width, steps = before, []
            for place, conv in enumerate(convs, start=1):
                name = branch if len(convs) == 1 else f"{branch}_{place}"
                parts = {f"{name}a": (384, ACROSS), f"{name}b": (384, DOWN)} if conv == FORK else {name: conv}
                for part, shape in parts.items():
                    self.add_module(part, BasicConv(width, *shape))
                width = conv[0]
                steps.append(list(parts))
            self.branches.append(steps)

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for steps in self.branches:
            y = x
            for names in steps:
                y = torch.cat([self.get_submodule(name)(y) for name in names], dim=1)
            outputs.append(y)
        return torch.cat([*outputs, self.branch_pool(self.pool(x))], dim=1)


def block_a(before: int, pooled: int) -> Mixed:
    double = [(64, 1), (96, 3), (96, 3)]
    return Mixed(
        before, {"branch1x1": [(64, 1)], "branch5x5": [(48, 1), (64, 5)], "branch3x3dbl": double}, _average, pooled
    )


def block_b(before: int) -> Mixed:
    return Mixed(before, {"branch3x3": [(384, 3, 2)], "branch3x3dbl": [(64, 1), (96, 3), (96, 3, 2)]}, _halve)


def block_c(before: int, inner: int) -> Mixed:
    single = [(inner, 1), (inner, ACROSS_7), (192, DOWN_7)]
    double = [(inner, 1), (inner, DOWN_7), (inner, ACROSS_7), (inner, DOWN_7), (192, ACROSS_7)]
    return Mixed(before, {"branch1x1": [(192, 1)], "branch7x7": single, "branch7x7dbl": double}, _average, 192)


def block_d(before: int) -> Mixed:
    seven = [(192, 1), (192, ACROSS_7), (192, DOWN_7), (192, 3, 2)]
    return Mixed(before, {"branch3x3": [(192, 1), (320, 3, 2)], "branch7x7x3": seven}, _halve)


def block_e(before: int, pool: Pool) -> Mixed:
    double = [(448, 1), (384, 3), FORK]
    return Mixed(before, {"branch1x1": [(320, 1)], "branch3x3": [(384, 1), FORK], "branch3x3dbl": double}, pool, 192)


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = BasicConv(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = BasicConv(32, 32, 3, padded=False)
        self.Conv2d_2b_3x3, self.pool_1 = BasicConv(32, 64, 3), nn.MaxPool2d(3, stride=2)
        self.Conv2d_3b_1x1 = BasicConv(64, 80, 1)
        self.Conv2d_4a_3x3, self.pool_2 = BasicConv(80, 192, 3, padded=False), nn.MaxPool2d(3, stride=2)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = block_a(192, 32), block_a(256, 64), block_a(288, 64)
        self.Mixed_6a, self.Mixed_6b = block_b(288), block_c(768, 128)
        self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = block_c(768, 160), block_c(768, 160), block_c(768, 192)
        self.Mixed_7a = block_d(768)
        self.Mixed_7b, self.Mixed_7c = block_e(1280, _average), block_e(2048, _maximum)

    def forward(self, images: Float[Tensor, "rows 3 height width"]) -> Float[Tensor, "rows features"]:
        """The features of images in [0, 1]."""
        x = nn.functional.interpolate(images, size=(299, 299), mode="bilinear", align_corners=False)
        return nn.Sequential(*self.children())(2 * x - 1).mean(dim=(2, 3))
