"""A linear map whose largest singular value is held at c or below (Miyato et al. 2018; with c, Behrmann et al. 2019).

    W_eff = W / max(1, σ/c),    σ = uᵀWv

u and v are the singular vectors of the largest singular value, followed by a few power iterations in every training
step and left alone in evaluation. They are part of the state, so a resumed run has the same bits, and they carry no
gradient; σ does, through W.

Two such maps with activations between them, F = W₂ f(W₁ e(x)), contract if c² · slope(e) · slope(f) < 1. ReLU's
largest slope is 1 and any c < 1 will do; GELU's is 1.1289, so c must be below 0.8858, and with iMixer's c = 0.9 F may
stretch by 1.032. A layer cannot know what stands between, so it says nothing: the model whose solver relies on a
contraction does.
"""

from __future__ import annotations

import contextlib

import torch
from jaxtyping import Float
from torch import Tensor, nn

from isthmus.core.errors import UserError

LARGEST_SLOPE = {"gelu": 1.1289042, "relu": 1.0, "silu": 1.0998394}
"""Of the activations in ``layers/pointwise.py``, rounded up: their Lipschitz constants."""

_FIRST = 32  # power iterations on fresh weights, so that evaluation before any training is right as well


class SpectralLinear(nn.Linear):
    """``contraction`` is c."""

    u: Tensor
    v: Tensor

    def __init__(self, d_in: int, d_out: int, contraction: float = 0.9, power_iterations: int = 8) -> None:
        super().__init__(d_in, d_out)
        if not 0 < contraction < 1:
            raise UserError(f"contraction={contraction:g}: a contraction coefficient is above 0 and below 1")
        if power_iterations < 1:
            raise UserError(f"power_iterations={power_iterations}: at least 1 is needed to follow the weights")
        self.contraction = contraction
        self.power_iterations = power_iterations
        self.register_buffer("u", nn.functional.normalize(torch.randn(d_out), dim=0))
        self.register_buffer("v", nn.functional.normalize(torch.randn(d_in), dim=0))
        self.follow(_FIRST)

    @torch.no_grad()
    def follow(self, iterations: int = _FIRST) -> None:
        """Turn u and v towards the first singular vectors; needed by hand only after weights were set by hand."""
        if self.weight.is_meta:  # nothing to find there, slowly
            return
        with _full_precision(self.weight):
            for _ in range(iterations):
                self.v.copy_(nn.functional.normalize(torch.mv(self.weight.T, self.u), dim=0))
                self.u.copy_(nn.functional.normalize(torch.mv(self.weight, self.v), dim=0))

    def effective_weight(self) -> Float[Tensor, "d_out d_in"]:
        """W_eff. A training step asks once and keeps the answer for all its iterations: each call moves u and v."""
        if self.training:
            self.follow(self.power_iterations)
        return self._normalise()

    def _normalise(self) -> Float[Tensor, "d_out d_in"]:
        with _full_precision(self.weight):
            # Copies: the next step overwrites u and v, and a gradient may still need these.
            sigma = torch.dot(self.u.clone(), torch.mv(self.weight, self.v.clone()))
            return self.weight / (sigma / self.contraction).clamp_min(1)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        return nn.functional.linear(x, self.effective_weight(), self.bias)

    @torch.no_grad()
    def fold(self) -> nn.Linear:
        """The plain layer that evaluates to the same: for export, and for a model that is trained no more."""
        plain = nn.Linear(self.in_features, self.out_features, device=self.weight.device, dtype=self.weight.dtype)
        plain.weight.copy_(self._normalise())
        plain.bias.copy_(self.bias)
        return plain

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, contraction={self.contraction:g}, power_iterations={self.power_iterations}"


def _full_precision(weight: Tensor) -> contextlib.AbstractContextManager[None]:
    """Half precision would end in other directions than the weights have."""
    if weight.is_meta:  # which knows no other precision
        return contextlib.nullcontext()
    return torch.autocast(weight.device.type, enabled=False)
