"""An SW-MLP layer against the masked dense one.

The rival is what a person would write first: a dense weight times a mask of zeros and ones, in the same rounds
with the same optimiser. Memory is what a training holds: weights, mask or pattern, gradients, optimiser state.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.analysis.ratios import compare_times, load, row
from isthmus.layers.sparse_linear import SparseLinear
from isthmus.papers.widesparse.table_s3 import BATCH, Trained
from isthmus.training.devices import arithmetic

M, P = 3072, 0.02
TIME_BAR, MEMORY_BAR = 1 / 7, 1 / 15
"""At most such a part of the masked dense layer's time and memory the sparse one takes."""


class MaskedLinear(nn.Module):
    """(M ⊙ W) x with both stored whole."""

    mask: Tensor

    def __init__(self, columns: int, rows: int, density: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns) / math.sqrt(columns))
        self.register_buffer("mask", (torch.rand(rows, columns) < density).float())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight * self.mask)


def measure_layer(rounds: int, threads: int, m: int = M, p: float = P, batch: int = BATCH) -> list[dict[str, Any]]:
    """The time of a training step, and what it holds, against the masked dense layer."""
    torch.manual_seed(0)
    x = torch.randn(batch, m, requires_grad=True)
    what = f"SW-MLP layer against the masked dense one (m {m}, p {p:g}, batch {batch})"

    def loss(y: Tensor) -> Tensor:
        return y.square().sum()  # number by number, as an activation

    with arithmetic(threads):
        before = load()
        sparse = Trained(SparseLinear(m, m, p, seed=0, compute="sparse"), loss)
        dense = Trained(MaskedLinear(m, m, p), loss)
        step = compare_times(f"training step, {what}", lambda: sparse.step(x), lambda: dense.step(x), rounds, TIME_BAR)
        held = (sparse.held_bytes() / 1e6, dense.held_bytes() / 1e6)
    return [step, row(f"memory, {what}", "MB", [held], MEMORY_BAR, before)]
