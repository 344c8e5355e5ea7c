"""Streams or updates that are normed where they join.

    post_norm   x ← norm(α x + u)                  Attention Is All You Need (2017), α = 1; DeepNet (Wang et al. 2022):
                                                   α = (2N)^{1/4}, branch weights × (8N)^{−1/4}
    peri_norm   x ← x + g ⊙ norm(u)                Peri-LN (Kim et al. 2025): RMSNorm; Sandwich-LN (CogView, 2021):
                                                   LayerNorm
    spherical   x ← norm(x + a ⊙ (norm(u) − x))    nGPT (Loshchilov et al. 2024); norm(·) has length 1

    paper            here
    N                half of the places: a layer has two branches
    α, β             ``post_norm.alpha``, ``post_norm.beta``
    α_A, α_M         a, starting at ``spherical.start``

Differs from the paper: norms have no weights. A block's own norm changes nothing on a stream that is normed already, so
models need no switch. In DeepNet β multiplies all weights of a branch but those of queries and keys; here too, and the
input of the stack is not normed. peri_norm starts at g = 1/√places, because deep stacks do not train from g = 1.
Weights are not normed as nGPT does; ``rescaled=true`` stores a as nGPT's code does, in units of √d · ``start``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from isthmus.layers.attention import SelfAttention
from isthmus.layers.residual import Block, Layout, OneStream, PathwayConfig
from isthmus.pathways.pathway import (
    Epsilon,
    PlainNorm,
    Share,
    apply_scale,
    are_gates_held,
    factor,
    hold,
    make_parameter,
    normalise,
)

NAMES = {"post_norm": "PostNorm", "peri_norm": "PeriNorm", "spherical": "Spherical"}
PRESETS = {
    "post_norm/deepnorm": {"name": "post_norm", "alpha": "deepnorm", "beta": "deepnorm"},
    "deepnorm": "post_norm/deepnorm",
    "deepnet": "post_norm/deepnorm",
    "post_ln": {"name": "post_norm"},
    "peri_norm/peri-ln": {"name": "peri_norm", "start": 1.0},
    "peri_norm/sandwich": {"name": "peri_norm", "start": 1.0, "norm": "layer", "eps": 1e-5},
    "sandwich": "peri_norm/sandwich",
    "sandwich_ln": "peri_norm/sandwich",
    "peri_ln": "peri_norm/peri-ln",
    "spherical/ngpt": {"name": "spherical", "rescaled": True},
    "ngpt": "spherical/ngpt",
}
TITLE_FIELDS = {"post_norm": ("alpha", "beta"), "peri_norm": ("start", "per", "norm"), "spherical": ("start",)}

Positive = Annotated[float, Field(gt=0, le=1e6)]


class PostNormConfig(PathwayConfig):
    alpha: Positive | Literal["deepnorm"] = 1.0
    """Factor of the stream."""
    beta: Positive | Literal["deepnorm"] = 1.0
    """Multiplies the initial weights of all branches."""
    norm: PlainNorm = "layer"
    """Of the sum."""
    eps: Epsilon = 1e-5
    """Of that norm."""


class PostNorm(OneStream):
    Config = PostNormConfig
    formula = "x ← norm(α x + u)"
    paper = "DeepNet (2022); Attention Is All You Need (2017)"
    extra = "nothing"

    def __init__(self, config: PostNormConfig, layout: Layout) -> None:
        super().__init__()
        self.config = config
        layers = max(1, layout.places * layout.iterations) / 2
        self.alpha = (2 * layers) ** 0.25 if config.alpha == "deepnorm" else float(config.alpha)
        self.beta = (8 * layers) ** -0.25 if config.beta == "deepnorm" else float(config.beta)

    def write(self, state: Tensor, place: int, known: Any, update: Tensor, scale: float) -> Tensor:
        return normalise(
            torch.add(apply_scale(update, scale), state, alpha=self.alpha), self.config.norm, self.config.eps
        )

    @torch.no_grad()
    def prepare(self, blocks: Iterable[Block]) -> None:
        for block in blocks if self.beta != 1 else ():
            kept = _queries_and_keys(block)
            for weight in block.parameters():
                if weight.ndim > 1:
                    weight[kept.get(weight, 0) :] *= self.beta


def _queries_and_keys(block: Block) -> dict[Tensor, int]:
    """The number of first rows of a projection that make queries and keys."""
    found: dict[Tensor, int] = {}
    for module in block.modules():
        if isinstance(module, SelfAttention) and module.parts == 3:
            found[module.qkv.weight] = 2 * module.out.in_features
    return found


class PeriNormConfig(PathwayConfig):
    needs_direction = True
    start: Positive | Share = "1/sqrt(places)"
    """g before training."""
    per: Literal["layer", "channel"] = "channel"
    """Whether a branch has one g, or one for each channel."""
    norm: PlainNorm = "rms"
    """Of the update."""
    eps: Epsilon = 1e-6
    """Of that norm."""


class PeriNorm(OneStream):
    Config = PeriNormConfig
    formula = "x ← x + g ⊙ norm(u)"
    paper = "Peri-LN (2025); Sandwich-LN (2021)"
    extra = "1 or d parameters"

    def __init__(self, config: PeriNormConfig, layout: Layout) -> None:
        super().__init__()
        self.config = config
        start, width = factor(config.start, layout), layout.width if config.per == "channel" else 1
        self.gain = nn.ParameterList(make_parameter(torch.full((width,), start)) for _ in range(layout.places))

    def write(self, state: Tensor, place: int, known: Any, update: Tensor, scale: float) -> Tensor:
        normed = normalise(update, self.config.norm, self.config.eps)
        return torch.addcmul(state, normed, self.gain[place], value=scale)


class SphericalConfig(PathwayConfig):
    needs_direction = True
    start: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """a before training."""
    rescaled: bool = False
    """Store a · √(1/d) / start, whose absolute value counts, as nGPT's code does."""
    eps: Epsilon = 1e-12
    """The least length that is divided by."""


class Spherical(OneStream):
    Config = SphericalConfig
    formula = "x ← norm(x + a ⊙ (norm(u) − x))"
    paper = "nGPT (2024)"
    extra = "d parameters"

    def __init__(self, config: SphericalConfig, layout: Layout) -> None:
        super().__init__()
        self.config = config
        stored = layout.width**-0.5 if config.rescaled else config.start
        self.factor = config.start / stored
        self.step = nn.ParameterList(make_parameter(torch.full((layout.width,), stored)) for _ in range(layout.places))

    def unit(self, x: Tensor) -> Tensor:
        if are_gates_held():
            return x / torch.linalg.vector_norm(hold(x), dim=-1, keepdim=True).clamp_min(self.config.eps)
        return nn.functional.normalize(x, dim=-1, eps=self.config.eps)

    def start(self, x: Tensor) -> Tensor:
        return self.unit(x)

    def write(self, state: Tensor, place: int, known: Any, update: Tensor, scale: float) -> Tensor:
        step = self.step[place]
        step = (step * self.factor).abs() if self.config.rescaled else step
        return self.unit(torch.addcmul(state, step, self.unit(apply_scale(update, scale)) - state))
