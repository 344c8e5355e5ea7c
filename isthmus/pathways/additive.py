"""Updates that are added with a weight of their own, or replace the stream.

    plain     x ← x + u                Deep Residual Learning (He et al. 2015)
    none      x ← u                    the rival of every claim about skip connections
    scaled    x ← x + λ u              Inception-v4 (Szegedy et al. 2016): λ from 0.1 to 0.3; On residual network depth
                                       (Dherin, Munn 2025): λ = 1/√L or 1/L
    gained    x ← x + g ⊙ u            ReZero (Bachlechner et al. 2020), SkipInit (De, Smith 2020): one g = 0 each;
                                       LayerScale (CaiT, Touvron et al. 2021): a small g per channel

    paper            here
    λ                ``scaled.by``
    α, λ_l           ``gained.start``, ``gained.per``
    L                the places: branches of the stack, in a recurrent model over all iterations

Differs from the paper: ``start="cait"`` takes CaiT's values by the number of blocks (0.1 up to 18, 1e-5 up to 24, 1e-6
beyond). With λ = 1 or g = 1 both are plain.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from isthmus.layers.residual import Entries, Layout, OneStream, PathwayConfig, Plain
from isthmus.pathways.pathway import EVERY_STACK, Share, apply_scale, factor, make_parameter

__all__ = ["Gained", "NoSkip", "Plain", "Scaled"]

NAMES = {"plain": "Plain", "none": "NoSkip", "scaled": "Scaled", "gained": "Gained"}
PRESETS = {
    "scaled/inception": {"name": "scaled", "by": 0.2},
    "scaled/sqrt": {"name": "scaled", "by": "1/sqrt(places)"},
    "scaled/depth": {"name": "scaled", "by": "1/places"},
    "inception": "scaled/inception",
    "inception_resnet": "scaled/inception",
    "gained/rezero": {"name": "gained", "start": 0.0, "per": "layer"},
    "gained/layer-scale": {"name": "gained", "start": "cait", "per": "channel"},
    "rezero": "gained/rezero",
    "skipinit": "gained/rezero",
    "skip_init": "gained/rezero",
    "layerscale": "gained/layer-scale",
    "layer_scale": "gained/layer-scale",
}
TITLE_FIELDS = {"scaled": ("by",), "gained": ("start", "per")}


class NoSkipConfig(PathwayConfig):
    needs_direction = True

    @property
    def entries(self) -> Entries:
        return "sums"

    def check(self, layout: Layout) -> None:
        super().check(layout)
        if layout.skip_weights:
            raise ValueError(f"none leaves out the first skip, which has weights with {layout.skip_weights}")


class NoSkip(OneStream):
    Config = NoSkipConfig
    formula = "x ← u"
    paper = "no residual connection"
    extra = "nothing"

    def write(self, state: Tensor, place: int, known: Any, update: Tensor, scale: float) -> Tensor:
        return apply_scale(update, scale)


class ScaledConfig(PathwayConfig):
    fits = EVERY_STACK
    by: Annotated[float, Field(gt=0, le=1e6)] | Share = "1/sqrt(places)"
    """λ; the places are the branches of the stack, in a recurrent model those of all iterations."""

    @property
    def entries(self) -> Entries:
        return "sums"


class Scaled(OneStream):
    Config = ScaledConfig
    formula = "x ← x + λ u"
    paper = "Inception-v4 (2016); On residual network depth (2025)"
    extra = "nothing"

    def __init__(self, config: ScaledConfig, layout: Layout) -> None:
        super().__init__()
        self.by = factor(config.by, layout)

    def write(self, state: Tensor, place: int, known: Any, update: Tensor, scale: float) -> Tensor:
        return torch.add(state, update, alpha=self.by * scale)


class GainedConfig(PathwayConfig):
    fits = EVERY_STACK
    start: Annotated[float, Field(ge=-1e6, le=1e6)] | Literal["cait"] = 1.0
    """g before training."""
    per: Literal["layer", "channel"] = "layer"
    """Whether a branch has one g, or one for each channel."""

    @property
    def entries(self) -> Entries:
        return "sums"

    def check(self, layout: Layout) -> None:
        super().check(layout)
        if self.start == 0 and layout.starts_at_zero:
            raise ValueError(f"gained with start=0 never learns with {layout.starts_at_zero}, or start=1")


class Gained(OneStream):
    Config = GainedConfig
    formula = "x ← x + g ⊙ u"
    paper = "ReZero (2020); LayerScale (CaiT, 2021)"
    extra = "1 or d parameters"

    def __init__(self, config: GainedConfig, layout: Layout) -> None:
        super().__init__()
        start = cait_start(len(layout.blocks)) if config.start == "cait" else float(config.start)
        width = layout.width if config.per == "channel" else 1
        self.gain = nn.ParameterList(make_parameter(torch.full((width,), start)) for _ in range(layout.places))

    def write(self, state: Tensor, place: int, known: Any, update: Tensor, scale: float) -> Tensor:
        return torch.addcmul(state, update, self.gain[place], value=scale)


def cait_start(blocks: int) -> float:
    """LayerScale's first value for a network of so many blocks."""
    return 0.1 if blocks <= 18 else 1e-5 if blocks <= 24 else 1e-6
