"""The hierarchical Hopfield network itself: the associative memory of which Mixer and iMixer blocks are single steps.

Paper: iMixer (Ota, Taki), sections 3 and 4 and appendix B, after Krotov and Hopfield (2021), Krotov (2021) and Tang and
Kopp (2021). Layers A = 1 … L of neurons x^A, the first of them visible, act on their neighbours through ξ:

    τ_A dx^A/dt = ξ^(A,A-1) g^{A-1}(x^{A-1}) + ξ^(A,A+1) g^{A+1}(x^{A+1}) − α_A x^A,    g^A = ∂L^A/∂x^A         (32)
    E = Σ_A [x^A · g^A − L^A(x^A)] − Σ_A g^{A+1} · ξ^(A+1,A) g^A                                                (6)

For symmetric ξ and α = 1, dE/dt = −Σ_A τ_A ẋ^A · M^A ẋ^A with M^A the Hessian of L^A. So the energy cannot rise where
all L^A are convex; GELU's Lagrangian is not (its activation falls below −0.75), and there it does rise at times.

    paper                here
    v, h; v, x, h        ``states[0]``, ``states[1]``, …: rows (batch, N_A), for one network or a stack of them
    ξ^(A+1,A)            ``xi[A - 1]``; ξ^(A,A+1) is its transpose
    L, g; φ, φ'          ``Lagrangian.value`` and ``Lagrangian.activation``
    τ_A, α_A             ``tau``, ``alpha``

Differs from the paper:
    Eq. (6) is written for two layers; the sum over a hierarchy is Krotov's. Eq. (10) calls v/‖v‖ (centred) a LayerNorm,
    which is √N_v times that: a block that is to be this dynamics has 1/√N_v in the scale of its norm, and further eps
    0, the norm along the mixed axis, no biases, and ξ tied to its transpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import gelu, softplus

from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError, nearest
from isthmus.layers.dynamics import Map, Solver, fixed_point

States = list[Tensor]


@dataclass(frozen=True)
class Lagrangian:
    """A function of a layer's neurons (the last axis) and its gradient, the activation."""

    value: Callable[[Tensor], Tensor]
    activation: Callable[[Tensor], Tensor]
    convex: bool

    def hessian(self, x: Float[Tensor, " N"]) -> Float[Tensor, "N N"]:
        """M of Eq. (13)."""
        return torch.func.jacrev(self.activation)(x)


def _gelu_value(x: Tensor) -> Tensor:
    """∫ t Φ(t) dt = ½ [(x² − 1) Φ(x) + x Φ'(x)]."""
    density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    return ((x.square() - 1) * torch.special.ndtr(x) + x * density) / 2


def _centred(v: Tensor) -> Tensor:
    return v - v.mean(-1, keepdim=True)


def _norm(v: Tensor) -> Tensor:
    return torch.linalg.vector_norm(_centred(v), dim=-1)


def _sum(phi: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: phi(x).sum(-1)


LAGRANGIANS = {
    "identity": Lagrangian(_sum(lambda x: x.square() / 2), lambda x: x, convex=True),
    "relu": Lagrangian(_sum(lambda x: x.relu().square() / 2), torch.relu, convex=True),
    "sigmoid": Lagrangian(_sum(softplus), torch.sigmoid, convex=True),
    "tanh": Lagrangian(_sum(lambda x: softplus(2 * x) - x), torch.tanh, convex=True),  # log(2 cosh x)
    "softmax": Lagrangian(lambda x: x.logsumexp(-1), lambda x: x.softmax(-1), convex=True),
    "gelu": Lagrangian(_sum(_gelu_value), gelu, convex=False),
    # Eq. (8), (10)
    "layer_norm": Lagrangian(_norm, lambda v: _centred(v) / _norm(v).unsqueeze(-1), convex=True),
}
"""By the name of the activation. Softplus is the Lagrangian of the sigmoid."""


def lagrangian(name: str) -> Lagrangian:
    if name not in LAGRANGIANS:
        raise UserError(f"unknown Lagrangian {name!r}; {nearest(name, LAGRANGIANS)}")
    return LAGRANGIANS[name]


class Hopfield:
    """L layers, named by their activations, with interactions ``xi[A - 1]`` of shape (…, N_{A+1}, N_A)."""

    def __init__(
        self,
        activations: Sequence[str],
        xi: Sequence[Tensor],
        tau: Sequence[float] | None = None,
        alpha: Sequence[float] | None = None,
    ) -> None:
        if len(activations) != len(xi) + 1:
            raise UserError(f"{len(activations)} layers have {len(activations) - 1} interactions, not {len(xi)}")
        for below, above in pairwise(xi):
            if below.shape[-2] != above.shape[-1]:
                raise UserError(f"interactions of {tuple(below.shape)} and {tuple(above.shape)} share no layer")
        self.layers = [lagrangian(name) for name in activations]
        self.xi = list(xi)
        self.tau = list(tau or [1.0] * len(activations))
        self.alpha = list(alpha or [1.0] * len(activations))

    @property
    def widths(self) -> list[int]:
        return [self.xi[0].shape[-1], *(xi.shape[-2] for xi in self.xi)]

    def activations(self, states: States) -> States:
        return [layer.activation(x) for layer, x in zip(self.layers, states, strict=True)]

    def inputs(self, states: States) -> States:
        """What each layer receives from its neighbours; the first and the last have one."""
        g = self.activations(states)
        received = [torch.zeros_like(x) for x in states]
        for place, xi in enumerate(self.xi):
            received[place + 1] = received[place + 1] + g[place] @ xi.mT
            received[place] = received[place] + g[place + 1] @ xi
        return received

    def velocity(self, states: States) -> States:
        """dx/dt, Eq. (3)–(4), (15)–(17), (32)."""
        parts = zip(self.inputs(states), states, self.tau, self.alpha, strict=True)
        return [(received - alpha * x) / tau for received, x, tau, alpha in parts]

    def energy(self, states: States) -> Float[Tensor, "*batch"]:
        g = self.activations(states)
        own = [(x * y).sum(-1) - layer.value(x) for layer, x, y in zip(self.layers, states, g, strict=True)]
        shared = [((g[place] @ xi.mT) * g[place + 1]).sum(-1) for place, xi in enumerate(self.xi)]
        return torch.stack(own).sum(0) - torch.stack(shared).sum(0)  # Eq. (6)

    def energy_rate(self, states: States) -> Float[Tensor, "*batch"]:
        """dE/dt along the dynamics: the derivative of the energy in the direction of the velocity, Eq. (7)."""
        with torch.enable_grad():
            free = [x.detach().requires_grad_() for x in states]
            slopes = torch.autograd.grad(self.energy(free).sum(), free)
        parts = [(slope * speed).sum(-1) for slope, speed in zip(slopes, self.velocity(states), strict=True)]
        return torch.stack(parts).sum(0)

    def evolve(self, states: States, step: float, steps: int) -> list[States]:
        """The continuous dynamics by the classical Runge–Kutta method: the states at 0, step, 2 step, …"""
        path = [states]
        for _ in range(steps):
            x = path[-1]
            first = self.velocity(x)
            second = self.velocity(_moved(x, first, step / 2))
            third = self.velocity(_moved(x, second, step / 2))
            fourth = self.velocity(_moved(x, third, step))
            slopes = [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(first, second, third, fourth, strict=True)]
            path.append(_moved(x, slopes, step))
        return path

    def adiabatic(self, v: Float[Tensor, "*batch N_v"], solver: Solver) -> States:
        """Hidden layers that have come to rest while v stood still: τ_1 ≫ τ_2 ≫ … ≫ τ_L, Eq. (34)–(35)."""
        states = [v]
        for place in range(len(self.xi)):
            x0 = self.layers[place].activation(states[-1]) @ self.xi[place].mT
            last = place == len(self.xi) - 1
            states.append(x0 if last else fixed_point(self._contractive(place + 1, solver), x0, solver).point)
        return states

    def _contractive(self, place: int, solver: Solver) -> Map:
        """F^{place + 1} of Eq. (39), (40)."""
        xi, layer, below = self.xi[place], self.layers[place], self.layers[place + 1]

        def evaluated(x: Tensor) -> Tensor:
            hidden = layer.activation(x) @ xi.mT
            if place + 1 < len(self.xi):
                hidden = fixed_point(self._contractive(place + 1, solver), hidden, solver).point
            return below.activation(hidden) @ xi

        return evaluated

    def discretised(self, v: Float[Tensor, "*batch N_v"], solver: Solver) -> Float[Tensor, "*batch N_v"]:
        """One step Δt = τ_v with α = 0: the residual block of Eq. (14) for two layers, of Eq. (30), (42) for more."""
        hidden = self.adiabatic(v, solver)[1]
        return v + self.layers[1].activation(hidden) @ self.xi[0]


def _moved(states: States, velocity: States, step: float) -> States:
    return [x + step * slope for x, slope in zip(states, velocity, strict=True)]


def rises(network: Hopfield, states: States, step: float, steps: int) -> Bool[Tensor, "*batch"]:
    """Whether the energy of a row rises anywhere on its way, beyond what rounding can do."""
    rates = torch.stack([network.energy_rate(each) for each in network.evolve(states, step, steps)])
    return (rates > 1e-9 * (1 + rates.abs().amax(0))).any(0)


def rising_fraction(
    activations: Sequence[str],
    widths: Sequence[int],
    trials: int = 1000,
    scale: float = 1.0,
    time: float = 10.0,
    steps: int = 200,
    seed: int = 0,
) -> float:
    """The share of random trajectories along which the energy rises: 0 for convex Lagrangians, more for GELU.

    Every trial is a network of its own with interactions of N(0, scale²/N), goes on for ``time`` and starts at N(0, 1).
    """
    if len(activations) != len(widths):
        raise UserError(f"{len(activations)} activations need as many widths, not {len(widths)}")
    generator = torch_generator(seed, "hopfield")
    xi = [_drawn(generator, trials, above, below) * scale / math.sqrt(below) for below, above in pairwise(widths)]
    states = [_drawn(generator, trials, 1, width) for width in widths]
    return float(rises(Hopfield(activations, xi), states, time / steps, steps).double().mean())


def _drawn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
