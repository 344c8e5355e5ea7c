"""Stochastic depth: drops the residual branch of random rows during training."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn


class DropPath(nn.Module):
    """Zeroes a row with probability ``rate`` and scales the others to keep the mean (Huang et al. 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        if self.rate == 0 or not self.training:
            return x
        kept = x.new_empty(len(x), *[1] * (x.ndim - 1)).bernoulli_(1 - self.rate)
        return x * kept.div_(1 - self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate:g}"
