"""A skip connection in hyperbolic space: the Möbius addition of a ball of curvature −c.

    x ← log_0( exp_0(u) ⊕_c exp_0(x) )
    exp_0(v) = tanh(√c ‖v‖) v / (√c ‖v‖),     log_0(y) = artanh(√c ‖y‖) y / (√c ‖y‖)
    y ⊕_c z = ((1 + 2c⟨y,z⟩ + c‖z‖²) y + (1 − c‖y‖²) z) / (1 + 2c⟨y,z⟩ + c² ‖y‖² ‖z‖²)

Paper: Poincaré ResNet (van Spengler, Berkhout, Mettes 2023).

    paper            here
    c                ``curvature``
    x ⊕ f(x)         ``order``: the authors' code adds the stream to the update

The stream stays in the tangent space of the origin, so branches are the models' own. c → 0 is plain.

Differs from the paper: its hyperbolic convolutions and norms are not part of a pathway, and curvature is not learned.
Points are kept inside (1 − ``margin``) / √c; the authors' code has 4e-3 in float32 and 1e-5 in float64. The addition is
computed in float32 or finer whatever the precision of the model, because 1 − ``margin`` is 1 in half precision, where
artanh is infinite.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from isthmus.core.errors import UserError
from isthmus.layers.residual import Layout, OneStream, PathwayConfig
from isthmus.pathways.pathway import apply_scale, at_least_single, hold

NAMES = {"mobius": "Mobius"}
PRESETS = {
    "mobius/poincare": {"name": "mobius"},
    "poincare": "mobius/poincare",
    "poincare_resnet": "mobius/poincare",
}
TITLE_FIELDS = {"mobius": ("curvature",)}
_TINY = 1e-15
_LEAST_MARGIN = 2.0**-23
"""A smaller one is lost when it is subtracted from 1 in float32."""


class MobiusConfig(PathwayConfig):
    curvature: Annotated[float, Field(gt=0, le=1e6)] = 0.1
    """c."""
    order: Literal["update_first", "stream_first"] = "update_first"
    """Which of the two the other is added to."""
    margin: Annotated[float, Field(gt=0, lt=1)] = 4e-3
    """How far points stay away from the edge of the ball, relative to its radius."""

    def check(self, layout: Layout) -> None:
        super().check(layout)
        if self.margin < _LEAST_MARGIN:
            raise ValueError(f"margin={self.margin:g} is lost in float32, so that streams overflow; use margin=0.004")


class Mobius(OneStream):
    Config = MobiusConfig
    formula = "x ← log_0(exp_0(u) ⊕_c exp_0(x))"
    paper = "Poincaré ResNet (2023)"
    extra = "nothing; some 20 elementwise passes"

    def __init__(self, config: MobiusConfig, layout: Layout) -> None:
        super().__init__()
        self.config, self.root = config, config.curvature**0.5

    def start(self, x: Tensor) -> Tensor:
        largest, limit = math.atanh(1 - self.config.margin) / self.root, torch.finfo(x.dtype).max
        least = 1.01 * (self.root * largest / limit) ** 2
        if largest > limit:
            dtype = str(x.dtype).removeprefix("torch.")
            raise UserError(
                f"mobius with curvature={self.config.curvature:g} lets streams grow to {largest:.1e} and {dtype} "
                f"ends at {limit:.1e}; use bfloat16, or curvature={least:.1e} or more"
            )
        return x

    def enter_ball(self, v: Tensor) -> Tensor:
        """exp_0."""
        length = self.root * _length(v)
        return v * (length.tanh().clamp(max=1 - self.config.margin) / length)

    def leave_ball(self, y: Tensor) -> Tensor:
        """log_0."""
        length = self.root * _length(y)
        inside = length.clamp(max=1 - self.config.margin)
        # artanh by its logarithm, which every export has.
        return y * (0.5 * (torch.log1p(inside) - torch.log1p(-inside)) / length)

    def add(self, y: Tensor, z: Tensor) -> Tensor:
        """y ⊕_c z."""
        c = self.config.curvature
        inner = torch.sum(hold(y * z), dim=-1, keepdim=True)
        y2, z2 = hold(y).square().sum(dim=-1, keepdim=True), hold(z).square().sum(dim=-1, keepdim=True)
        common = 1 + 2 * c * inner
        return ((common + c * z2) * y + (1 - c * y2) * z) / (common + c * c * y2 * z2).clamp_min(_TINY)

    def write(self, state: Tensor, place: int, known: Any, update: Tensor, scale: float) -> Tensor:
        stream = self.enter_ball(at_least_single(state))
        new = self.enter_ball(at_least_single(apply_scale(update, scale)))
        both = (new, stream) if self.config.order == "update_first" else (stream, new)
        return self.leave_ball(self.add(*both)).to(state.dtype)


def _length(v: Tensor) -> Tensor:
    return torch.linalg.vector_norm(hold(v), dim=-1, keepdim=True).clamp_min(_TINY)
