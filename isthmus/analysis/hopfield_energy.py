"""The Hopfield network in the token mixing of an iMixer: its energy over the iterations, and bounds on Lip F.

Paper: iMixer (Ota, Taki), sections 3 and 4. For a fixed stream v, the iteration x ← x0 + F(x) with
F(x) = ξ^(x,h) f(ξ^(h,x) e(x)) solves for the middle neurons x. Eq. (6) without the terms of v, and with h at rest:

    E(x) = x · e(x) − L_e(x) − L_f(h) − (x0 + b_x) · e(x),    h = ξ^(h,x) e(x) + b_h,    L_e' = e,  L_f' = f

If ξ^(x,h) is the transpose of ξ^(h,x) and both Lagrangians L are convex, the iteration is the concave–convex procedure
(Yuille and Rangarajan 2003) on E, so E cannot rise. An iMixer guarantees neither: its two matrices are independent, and
GELU's Lagrangian is not convex. So every block is measured on test rows:

    energies     E(x^a) − E(x^0) of every iterate, mean over neurons, where ξ is the mean of ξ^(h,x) and ξ^(x,h)ᵀ
    asymmetry    ‖ξ^(h,x) − ξ^(x,h)ᵀ‖ / ‖ξ^(h,x) + ξ^(x,h)ᵀ‖: 0 if they are tied, about 1 if they are unrelated; E
                 describes the block only if it is small
    at_least     a lower bound on the Lipschitz constant of F: the largest singular value of its Jacobian at the last
                 iterates, by power iteration
    at_most      an upper bound: the norms of both matrices times the largest slopes of e and f. If it is below 1, the
                 fixed point exists, is unique and is reached
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear, softplus

from isthmus.analysis.pictures import DASHED, finish, page, save, style
from isthmus.analysis.trained_run import Answer, TrainedRun, finite_values, store_results
from isthmus.layers.dynamics import Solver
from isthmus.layers.spectral_norm import LARGEST_SLOPE

SCHEMA = "isthmus.analysis.hopfield_energy/1"
ROWS = 16
ITERATIONS = 8
POWER_ITERATIONS = 30


def _gelu_lagrangian(x: Tensor) -> Tensor:
    """∫ t Φ(t) dt = ½ [(x² − 1) Φ(x) + x Φ'(x)]."""
    density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    return ((x.square() - 1) * torch.special.ndtr(x) + x * density) / 2


def _sum(value: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: value(x).sum(-1)


LAGRANGIANS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": _sum(_gelu_lagrangian),
    "relu": _sum(lambda x: x.relu().square() / 2),
    "tanh": _sum(lambda x: softplus(2 * x) - x),  # log(2 cosh x)
    "sigmoid": _sum(softplus),
    "softmax": lambda x: x.logsumexp(-1),
}
"""Of a layer of neurons, the last axis, by the name of their activation."""


def applies(model: Any, task: str) -> str | None:
    if not hasattr(model, "mixers") or model.config.hierarchy != 2:
        return "its token mixing is not a Hopfield network of three layers"
    if model.config.norm == "batch":
        return "its batch norm changes F from one iteration to the next"
    if not {model.config.e, model.config.f} <= LAGRANGIANS.keys():
        return f"its activations have no known Lagrangian; {', '.join(LAGRANGIANS)} have one"
    return None


class HiddenNetwork:
    """Middle and hidden neurons of one block, in float64."""

    def __init__(self, mixer: Any, config: Any) -> None:
        self.down, self.up = (weight.detach().double() for weight in mixer.weights(1))
        self.b_h, self.b_x = mixer.down[1].bias.detach().double(), mixer.up[1].bias.detach().double()
        self.e, self.f = mixer.e, mixer.f
        self.L_e, self.L_f = LAGRANGIANS[config.e], LAGRANGIANS[config.f]
        self.slopes = LARGEST_SLOPE[config.e] * LARGEST_SLOPE[config.f]

    def apply(self, x: Float[Tensor, "*batch N_x"]) -> Float[Tensor, "*batch N_x"]:
        """F(x), the map whose fixed point the token mixing solves for."""
        return linear(self.f(linear(self.e(x), self.down, self.b_h)), self.up, self.b_x)  # Eq. (24)

    def energy(self, x: Float[Tensor, "*batch N_x"], x0: Float[Tensor, "*batch N_x"]) -> Float[Tensor, "*batch"]:
        g = self.e(x)
        h = linear(g, (self.down + self.up.mT) / 2, self.b_h)
        return (x * g - (x0 + self.b_x) * g).sum(-1) - self.L_e(x) - self.L_f(h)  # Eq. (6)

    def asymmetry(self) -> float:
        return float((self.down - self.up.mT).norm() / (self.down + self.up.mT).norm())

    def largest_stretch(self, x: Float[Tensor, "*batch N_x"]) -> Tensor:
        """The largest singular value of the Jacobian of F over all points x."""
        generator = torch.Generator().manual_seed(0)
        direction = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)
        hidden = linear(self.e(x), self.down, self.b_h)
        for _ in range(POWER_ITERATIONS):
            direction = torch.nn.functional.normalize(direction, dim=-1)
            received = linear(_stretch(self.e, x, direction), self.down)
            stretched = linear(_stretch(self.f, hidden, received), self.up)  # J d
            received = linear(_stretch(self.f, hidden, linear(stretched, self.up.mT)), self.down.mT)
            direction = _stretch(self.e, x, received)  # Jᵀ J d
        return stretched.norm(dim=-1).max()

    def stretch_bound(self) -> float:
        return float(torch.linalg.matrix_norm(self.down, 2) * torch.linalg.matrix_norm(self.up, 2)) * self.slopes


def _stretch(activation: Callable[[Tensor], Tensor], x: Tensor, direction: Tensor) -> Tensor:
    """The activation's Jacobian times a direction; it is symmetric, because the activation is a gradient."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(activation(x), x, direction)[0]


@store_results(SCHEMA, applies)
def of_run(trained: TrainedRun) -> Answer:
    """Energy and Lipschitz bounds of every block of an iMixer."""
    return measure(trained.model, next(trained.test_inputs(ROWS, ROWS)))


@torch.no_grad()
def measure(model: Any, x: Tensor) -> Answer:
    """Uses the plain solver for every run, so that runs with different solvers are comparable."""
    blocks: list[dict[str, Any]] = []
    solver = Solver(max(ITERATIONS, min(model.iterations, 64)))
    for step in (step for step in model.steps(x) if step.branch == "token"):
        block = model.blocks[step.block - 1]
        network = HiddenNetwork(block.token, model.config)
        iterates = [iterate.double() for iterate in block.solve(step.read, keep=True, solver=solver).trajectory]
        energies = torch.stack([network.energy(iterate, iterates[0]) for iterate in iterates]).flatten(1)
        changes = (energies - energies[0]) / iterates[0].shape[-1]
        rising = (energies.diff(dim=0) > 1e-9 * energies.abs().amax()).double().mean()
        blocks.append(
            {
                "energies": finite_values(changes.mean(dim=1)),
                "rising": float(rising),
                "asymmetry": network.asymmetry(),
                "at_least": finite_values(network.largest_stretch(iterates[-1])),
                "at_most": network.stretch_bound(),
            }
        )
    return {"rows": len(x), "trained_iterations": model.iterations, "blocks": blocks}


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    blocks = found["blocks"]
    known = [block["at_least"] for block in blocks if block["at_least"] is not None]
    return {
        "Lipschitz constant of F, at least": max(known) if len(known) == len(blocks) else "–",
        "Lipschitz constant of F, at most": max(block["at_most"] for block in blocks),
        "iterations that raise the energy": f"{sum(block['rising'] for block in blocks) / len(blocks):.1%}",
        "asymmetry of ξ": sum(block["asymmetry"] for block in blocks) / len(blocks),
    }


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """The energy over the iterations of every block, and both bounds on F over depth."""
    figure, ((left, right),) = page(1, 2)
    blocks = found["blocks"]
    for number, block in enumerate(blocks, start=1):
        label = f"block {number}" if len(blocks) <= 8 else None
        left.plot(block["energies"], **style(number - 1), markersize=3, label=label)
    left.axvline(found["trained_iterations"], **DASHED)
    finish(left, "energy of the middle neurons", "iteration; dashed: n of the training", "change per neuron")
    numbers = range(1, len(blocks) + 1)
    for place, name in enumerate(("at_least", "at_most")):
        right.plot(
            numbers, [block[name] for block in blocks], **style(place), markersize=4, label=name.replace("_", " ")
        )
    right.axhline(1, **DASHED)
    finish(right, "Lipschitz constant of F", "block; dashed: below it, F contracts", "")
    return [save(figure, folder / "hopfield_energy.png")]
