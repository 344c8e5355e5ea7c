"""A linear map whose largest singular value is at most c (Miyato et al. 2018; with c, Behrmann et al. 2019).

    W_eff = W / max(1, σ/c),    σ = uᵀWv

u and v are the leading singular vectors, updated by a few power iterations in every training step and constant in
evaluation. They are part of the state, so a resumed run has the same bits. Only σ has a gradient, through W.

Two such maps with activations between them, F = W₂ f(W₁ e(x)), contract if c² · slope(e) · slope(f) < 1. ReLU's
largest slope is 1 and any c < 1 will do; GELU's is 1.1289, so c must be below 0.8858, and with iMixer's c = 0.9 F may
stretch by 1.032. The layer does not know the activations, so the model checks whether its solver needs a contraction.
"""

from __future__ import annotations

import contextlib

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from isthmus.core.errors import UserError
from isthmus.layers.seeded import on_meta

LARGEST_SLOPE = {"gelu": 1.1289042, "relu": 1.0, "silu": 1.0998394, "tanh": 1.0, "sigmoid": 0.25, "softmax": 0.5}
"""Of the activations in ``layers/pointwise.py``, rounded up: their Lipschitz constants."""

_FIRST = 32  # power iterations on new weights, so that evaluation before training is correct


class SpectralLinear(nn.Linear):
    """``contraction`` is c."""

    u: Tensor
    v: Tensor

    def __init__(self, d_in: int, d_out: int, contraction: float = 0.9, power_iterations: int = 8) -> None:
        super().__init__(d_in, d_out)
        if not 0 < contraction < 1:
            raise UserError(f"contraction={contraction:g}: must be above 0 and below 1")
        if power_iterations < 1:
            raise UserError(f"power_iterations={power_iterations}: must be at least 1")
        self.contraction = contraction
        self.power_iterations = power_iterations
        for name, size in (("u", d_out), ("v", d_in)):
            self.register_buffer(name, torch.empty(size) if on_meta() else normalize(torch.randn(size), dim=0))
        self.follow(_FIRST)

    @torch.no_grad()
    def follow(self, iterations: int = _FIRST) -> None:
        """Power iterations of u and v; call it after setting weights by hand."""
        if self.weight.is_meta:  # no values to iterate on
            return
        with _full_precision(self.weight):
            for _ in range(iterations):
                self.v.copy_(normalize(torch.mv(self.weight.T, self.u), dim=0))
                self.u.copy_(normalize(torch.mv(self.weight, self.v), dim=0))

    def effective_weight(self) -> Float[Tensor, "d_out d_in"]:
        """W_eff. In training each call updates u and v, so call it once per step."""
        if self.training:
            self.follow(self.power_iterations)
        return self._normalise()

    def _normalise(self) -> Float[Tensor, "d_out d_in"]:
        with _full_precision(self.weight):
            # Cloned, because the next step overwrites u and v before the gradient may be computed.
            sigma = torch.dot(self.u.clone(), torch.mv(self.weight, self.v.clone()))
            return self.weight / (sigma / self.contraction).clamp_min(1)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        return nn.functional.linear(x, self.effective_weight(), self.bias)

    @torch.no_grad()
    def fold(self) -> nn.Linear:
        """An equivalent plain layer for evaluation and export."""
        plain = nn.Linear(self.in_features, self.out_features, device=self.weight.device, dtype=self.weight.dtype)
        plain.weight.copy_(self._normalise())
        plain.bias.copy_(self.bias)
        return plain

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, contraction={self.contraction:g}, power_iterations={self.power_iterations}"


def _full_precision(weight: Tensor) -> contextlib.AbstractContextManager[None]:
    """Disables autocast, because half precision would change the singular vectors."""
    if weight.is_meta:  # autocast does not support meta tensors
        return contextlib.nullcontext()
    return torch.autocast(weight.device.type, enabled=False)
