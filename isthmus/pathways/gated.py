"""Streams that decay: towards the update (highway), or towards the input (injected).

    highway     x ← x + t ⊙ (u − x),  t = σ(w ⊙ norm(x) + b)               Highway Networks (Srivastava et al. 2015)
    injected    before each block  x ← ā ⊙ x + Δ ⊙ (B e),  e = x_0,
                ā = exp(−Δ ⊙ exp(A)),  Δ = softplus(δ)                      Parcae (2026)

    paper                        here
    T, C                         t, 1 − t; ``carry="free"``: x + t ⊙ u
    b_T                          ``highway.bias``
    A, Δ, B, e                   ``A``, ``delta``, ``B``, the embedded input
    ā in the beginning           ``injected.decay``

ā is between 0 and 1 for all parameters, so the linear part cannot grow. decay → 1 is plain.

Differs from the paper: a highway's gate is a full matrix of the stream in the paper (``highway/published``); d² numbers
are many beside a narrow block, so it is diagonal by default, of the normed stream, and it starts at its bias. Parcae
starts its state at random and norms the input; here the state starts at e, unless ``begin`` is "zero" or "random", and
``normed=true`` norms e. A random state is drawn in training only: predictions start at its mean, zero. B is the
identity, full or (by default) diagonal. Parcae's decay starts at √(1/5); stacked networks start at 0.99. Rivals from
the same paper are ``how="addition"``, x + e, and ``how="concatenation"``, a linear map of (x, e) that starts at x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from isthmus.layers.residual import Entries, Layout, OneStream, Pathway, PathwayConfig
from isthmus.pathways.pathway import EVERY_STACK, Epsilon, PlainNorm, apply_scale, hold, make_parameter, normalise

NAMES = {"highway": "Highway", "injected": "Injected"}
PRESETS = {
    "highway/full": {"name": "highway", "gate": "full"},
    "highway/published": {"name": "highway", "gate": "full", "norm": "none"},
    "injected/parcae": {"name": "injected", "decay": 0.4472135954999579, "mix": "full", "normed": True},
    "injected/addition": {"name": "injected", "how": "addition"},
    "highway_networks": "highway/published",
    "parcae": "injected/parcae",
}
TITLE_FIELDS = {"highway": ("gate", "carry", "norm"), "injected": ("how", "decay", "mix")}


class HighwayConfig(PathwayConfig):
    bias: Annotated[float, Field(ge=-100, le=100)] = -2.0
    """b before training: the gate is nearly closed."""
    gate: Literal["diagonal", "full"] = "diagonal"
    """W_T: d or d × d numbers."""
    carry: Literal["coupled", "free"] = "coupled"
    """Whether the stream is multiplied by 1 − t, or by 1."""
    norm: PlainNorm | Literal["none"] = "rms"
    """Of the stream that the gate sees."""
    eps: Epsilon = 1e-6
    """Of that norm."""


class Highway(OneStream):
    Config = HighwayConfig
    formula = "x ← x + t ⊙ (u − x), t = σ(w ⊙ norm(x) + b)"
    paper = "Highway Networks (2015)"
    extra = "2d parameters; full gate: d² multiply–adds and parameters"

    def __init__(self, config: HighwayConfig, layout: Layout) -> None:
        super().__init__()
        self.config = config
        d, places = layout.width, range(layout.places)
        shape = (d, d) if config.gate == "full" else (d,)
        self.weight = nn.ParameterList(make_parameter(torch.zeros(shape)) for _ in places)
        self.bias = nn.ParameterList(make_parameter(torch.full((d,), config.bias)) for _ in places)

    def write(self, state: Tensor, place: int, known: Any, update: Tensor, scale: float) -> Tensor:
        seen, norm = hold(state), self.config.norm
        seen = seen if norm == "none" else normalise(seen, norm, self.config.eps)
        weight, bias = self.weight[place], self.bias[place]
        full = self.config.gate == "full"
        gate = (nn.functional.linear(seen, weight, bias) if full else torch.addcmul(bias, seen, weight)).sigmoid()
        update = apply_scale(update, scale)
        return torch.addcmul(state, gate, update - state if self.config.carry == "coupled" else update)


class InjectedConfig(PathwayConfig):
    fits = EVERY_STACK
    how: Literal["decay", "addition", "concatenation"] = "decay"
    """How the input enters a block."""
    decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """ā before training; None: 0.447 in recurrent models, 0.99 in stacked ones."""
    mix: Literal["diagonal", "full"] = "diagonal"
    """B, d or d × d numbers."""
    normed: bool = False
    """Whether e is the normed input."""
    begin: Literal["input", "zero", "random"] = "input"
    """The state before the first block; ``random``: drawn anew for every row in training, zero in evaluation."""
    begin_std: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Standard deviation of a random state; e has about 1 if it is normed."""
    eps: Epsilon = 1e-6
    """Of the norm of e."""

    @property
    def entries(self) -> Entries:
        return "by row" if self.normed else "numbers" if self.how == "addition" else "maps"


@dataclass(frozen=True)
class Rates:
    """ā and Δ ⊙ B of every block, computed once in a forward pass."""

    decay: tuple[Tensor, ...] = ()
    share: tuple[Tensor, ...] = ()


class Fed(NamedTuple):
    x: Tensor
    input: Tensor
    rates: Rates


class Injected(Pathway):
    Config = InjectedConfig
    formula = "before a block: x ← ā ⊙ x + Δ ⊙ (B x_0), ā = exp(−Δ ⊙ exp(A))"
    paper = "Parcae (2026)"
    extra = "3d parameters per block; full B: d² multiply–adds and parameters"

    def __init__(self, config: InjectedConfig, layout: Layout) -> None:
        super().__init__()
        self.config = config
        self.numbers = {place: number for number, place in enumerate(layout.first_places)}
        d, blocks = layout.width, range(len(layout.blocks))
        if config.how == "decay":
            step = -math.log(config.decay or (0.99 if layout.kind == "stacked" else math.sqrt(1 / 5)))
            full = config.mix == "full"
            number = len(layout.blocks)
            self.A = make_parameter(torch.zeros(number, d))
            self.delta = make_parameter(torch.full((number, d), math.log(math.expm1(step))))
            self.B = make_parameter(torch.eye(d).repeat(number, 1, 1) if full else torch.ones(number, d))
        elif config.how == "concatenation":
            self.W = nn.ParameterList(make_parameter(torch.eye(d, 2 * d)) for _ in blocks)

    def sliced_axes(self) -> dict[str, tuple[int, ...]]:
        """A part takes the first numbers of the stream and of the input."""
        if self.config.how != "concatenation":
            return {}
        return {f"W.{number}": (len(W), 2, len(W)) for number, W in enumerate(self.W)}

    def start(self, x: Tensor) -> Fed:
        e = normalise(x, "rms", self.config.eps) if self.config.normed else x
        first = e if self.config.begin == "input" else torch.zeros_like(x)
        if self.config.begin == "random" and self.training:
            first = self.config.begin_std * torch.randn_like(x)
        return Fed(first, e, self.rates())

    def rates(self) -> Rates:
        if self.config.how != "decay":
            return Rates()
        step = nn.functional.softplus(self.delta)
        share = step.unsqueeze(-1) * self.B if self.config.mix == "full" else step * self.B
        return Rates(torch.exp(-step * self.A.exp()).unbind(), share.unbind())

    def enter_block(self, state: Fed, place: int) -> Fed:
        x, e, rates = state
        number = self.numbers[place]
        if self.config.how == "addition":
            return Fed(x + e, e, rates)
        if self.config.how == "concatenation":
            return Fed(nn.functional.linear(torch.cat([x, e], dim=-1), self.W[number]), e, rates)
        decay, share = rates.decay[number], rates.share[number]
        fed = nn.functional.linear(e, share) if self.config.mix == "full" else e * share
        # addcmul, whose gradient multiplies x by 1 first, takes longer.
        return Fed((x * decay).add_(fed), e, rates)

    def read(self, state: Fed, place: int) -> tuple[Tensor, Any]:
        return state.x, None

    def write(self, state: Fed, place: int, known: Any, update: Tensor, scale: float) -> Fed:
        return Fed(torch.add(state.x, update, alpha=scale), state.input, state.rates)

    def finish(self, state: Fed) -> Tensor:
        return state.x

    def transform(self, state: Fed, function: Callable[[Tensor], Tensor]) -> Fed:
        return Fed(function(state.x), function(state.input), state.rates)
