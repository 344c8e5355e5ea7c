"""The Hadamard projection, which has no matrix, against the dense product of equal widths."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isthmus.analysis.ratios import compare_times
from isthmus.layers.projections import HadamardProjection
from isthmus.training.devices import arithmetic

WIDTH, BATCH = 4096, 512
BAR = 1 / 12
"""At most such a part of the dense product's time."""


def measure(rounds: int, threads: int, width: int = WIDTH, batch: int = BATCH) -> list[dict[str, Any]]:
    """Forward as in inference, and forward and backward to the input, as where layers before it are trained."""
    torch.manual_seed(0)
    fast, dense = HadamardProjection(width, width, seed=0), nn.Linear(width, width, bias=False).requires_grad_(False)
    x, upstream = torch.randn(batch, width), torch.randn(batch, width)
    tracked = x.clone().requires_grad_()

    def forward(layer: nn.Module) -> Tensor:
        with torch.inference_mode():
            y: Tensor = layer(x)
            return y

    def both(layer: nn.Module) -> tuple[Tensor, ...]:
        return torch.autograd.grad(layer(tracked), tracked, upstream)

    shape = f"Hadamard projection against the dense product (d {width}, batch {batch})"
    with arithmetic(threads):
        return [
            compare_times(f"{name}, {shape}", lambda work=work: work(fast), lambda work=work: work(dense), rounds, BAR)  # type: ignore[misc]
            for name, work in (("forward", forward), ("forward and backward", both))
        ]
