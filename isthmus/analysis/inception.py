"""The Inception-v3 whose features define the Fréchet Inception distance, under the names of its public weights.

Papers: Rethinking the Inception Architecture for Computer Vision (Szegedy et al. 2016), and GANs Trained by a Two
Time-Scale Update Rule (Heusel et al. 2017). The network of the second has three peculiarities: averages do not count
the border, the last block takes the maximum where the one before takes the average, and its input is 299 pixels wide,
in [−1, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

Kernel = int | tuple[int, int]
Pool = Callable[[Tensor], Tensor]
FEATURES = 2048

_average = partial(nn.functional.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False)
_maximum = partial(nn.functional.max_pool2d, kernel_size=3, stride=1, padding=1)
_halving = partial(nn.functional.max_pool2d, kernel_size=3, stride=2)


class BasicConv(nn.Module):
    """``padded``: as wide as before; else the border is lost, as where the picture is halved."""

    def __init__(self, before: int, after: int, kernel: Kernel, stride: int = 1, padded: bool = True) -> None:
        super().__init__()
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (sides[0] // 2, sides[1] // 2) if padded and stride == 1 else (0, 0)
        self.conv = nn.Conv2d(before, after, sides, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(after, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)).relu()


class Mixed(nn.Module):
    """Branches side by side. A branch is the names of its layers in order; a tuple of names is a fork."""

    def __init__(
        self,
        layers: dict[str, BasicConv],
        branches: list[list[str | tuple[str, str]]],
        pool: Pool,
    ) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.branches, self.pool = branches, pool

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self._branch(branch, x) for branch in [*self.branches, self._pool_branch()]], dim=1)

    def _pool_branch(self) -> list[str | tuple[str, str]]:
        return ["pool", "branch_pool"] if hasattr(self, "branch_pool") else ["pool"]

    def _branch(self, branch: list[str | tuple[str, str]], x: Tensor) -> Tensor:
        for step in branch:
            if step == "pool":
                x = self.pool(x)
            elif isinstance(step, tuple):
                x = torch.cat([self.get_submodule(name)(x) for name in step], dim=1)
            else:
                x = self.get_submodule(step)(x)
        return x


def block_a(before: int, pooled: int) -> Mixed:
    layers = {
        "branch1x1": BasicConv(before, 64, 1),
        "branch5x5_1": BasicConv(before, 48, 1), "branch5x5_2": BasicConv(48, 64, 5),
        "branch3x3dbl_1": BasicConv(before, 64, 1), "branch3x3dbl_2": BasicConv(64, 96, 3),
        "branch3x3dbl_3": BasicConv(96, 96, 3), "branch_pool": BasicConv(before, pooled, 1),
    }  # fmt: skip
    return Mixed(layers, [["branch1x1"], _chain("branch5x5", 2), _chain("branch3x3dbl", 3)], _average)


def block_b(before: int) -> Mixed:
    layers = {
        "branch3x3": BasicConv(before, 384, 3, stride=2),
        "branch3x3dbl_1": BasicConv(before, 64, 1), "branch3x3dbl_2": BasicConv(64, 96, 3),
        "branch3x3dbl_3": BasicConv(96, 96, 3, stride=2),
    }  # fmt: skip
    return Mixed(layers, [["branch3x3"], _chain("branch3x3dbl", 3)], _halving)


def block_c(before: int, inner: int) -> Mixed:
    across, down = (1, 7), (7, 1)
    layers = {
        "branch1x1": BasicConv(before, 192, 1),
        "branch7x7_1": BasicConv(before, inner, 1), "branch7x7_2": BasicConv(inner, inner, across),
        "branch7x7_3": BasicConv(inner, 192, down),
        "branch7x7dbl_1": BasicConv(before, inner, 1), "branch7x7dbl_2": BasicConv(inner, inner, down),
        "branch7x7dbl_3": BasicConv(inner, inner, across), "branch7x7dbl_4": BasicConv(inner, inner, down),
        "branch7x7dbl_5": BasicConv(inner, 192, across), "branch_pool": BasicConv(before, 192, 1),
    }  # fmt: skip
    return Mixed(layers, [["branch1x1"], _chain("branch7x7", 3), _chain("branch7x7dbl", 5)], _average)


def block_d(before: int) -> Mixed:
    layers = {
        "branch3x3_1": BasicConv(before, 192, 1), "branch3x3_2": BasicConv(192, 320, 3, stride=2),
        "branch7x7x3_1": BasicConv(before, 192, 1), "branch7x7x3_2": BasicConv(192, 192, (1, 7)),
        "branch7x7x3_3": BasicConv(192, 192, (7, 1)), "branch7x7x3_4": BasicConv(192, 192, 3, stride=2),
    }  # fmt: skip
    return Mixed(layers, [_chain("branch3x3", 2), _chain("branch7x7x3", 4)], _halving)


def block_e(before: int, pool: Pool) -> Mixed:
    layers = {
        "branch1x1": BasicConv(before, 320, 1),
        "branch3x3_1": BasicConv(before, 384, 1),
        "branch3x3_2a": BasicConv(384, 384, (1, 3)), "branch3x3_2b": BasicConv(384, 384, (3, 1)),
        "branch3x3dbl_1": BasicConv(before, 448, 1), "branch3x3dbl_2": BasicConv(448, 384, 3),
        "branch3x3dbl_3a": BasicConv(384, 384, (1, 3)), "branch3x3dbl_3b": BasicConv(384, 384, (3, 1)),
        "branch_pool": BasicConv(before, 192, 1),
    }  # fmt: skip
    fork: list[str | tuple[str, str]] = ["branch3x3_1", ("branch3x3_2a", "branch3x3_2b")]
    double: list[str | tuple[str, str]] = [*_chain("branch3x3dbl", 2), ("branch3x3dbl_3a", "branch3x3dbl_3b")]
    return Mixed(layers, [["branch1x1"], fork, double], pool)


def _chain(name: str, length: int) -> list[str | tuple[str, str]]:
    return [f"{name}_{place}" for place in range(1, length + 1)]


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = BasicConv(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3 = BasicConv(32, 32, 3, padded=False)
        self.Conv2d_2b_3x3 = BasicConv(32, 64, 3)
        self.Conv2d_3b_1x1 = BasicConv(64, 80, 1)
        self.Conv2d_4a_3x3 = BasicConv(80, 192, 3, padded=False)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = block_a(192, 32), block_a(256, 64), block_a(288, 64)
        self.Mixed_6a, self.Mixed_6b = block_b(288), block_c(768, 128)
        self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = block_c(768, 160), block_c(768, 160), block_c(768, 192)
        self.Mixed_7a = block_d(768)
        self.Mixed_7b, self.Mixed_7c = block_e(1280, _average), block_e(2048, _maximum)

    def forward(self, images: Float[Tensor, "rows 3 height width"]) -> Float[Tensor, "rows features"]:
        """Of images in [0, 1]."""
        x = nn.functional.interpolate(images, size=(299, 299), mode="bilinear", align_corners=False)
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(2 * x - 1)))
        x = _halving(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(_halving(x))))
        for name, block in self.named_children():
            if name.startswith("Mixed"):
                x = block(x)
        return x.mean(dim=(2, 3))
