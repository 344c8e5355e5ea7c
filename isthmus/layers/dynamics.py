"""Fixed points x = x0 + F(x), found by iteration.

Every solver returns a ``Solution``: the point and, on request, the trajectory with statistics of each iteration. The
first axis is the batch; each row is accelerated and stops independently of the others.

    plain       x^{a+1} = x0 + F(x^a), a fixed number of times: iMixer's FPA, Eq. (29) of Ota and Taki
    anderson    the next iterate is the combination of the last few with the smallest residual in least squares
    tolerance   either method until the residual of a row is small, at most ``iterations`` times

The gradient is that of the unrolled loop, whose memory grows with the number of iterations, or that of the fixed point
by the implicit function theorem. With J = ∂F/∂x at the point and the output's gradient g, the latter is λ = g + Jᵀλ,
which the same solver solves with the memory of one evaluation of F. The two agree only if the iteration has converged:
after n = 2 iterations the implicit gradient is still that of x^∞.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from isthmus.core.errors import UserError

Map = Callable[[Tensor], Tensor]
MethodName = Literal["plain", "anderson"]
GradientName = Literal["unrolled", "implicit"]

_MEMORY = 5  # earlier iterates that Anderson acceleration combines
_RIDGE = 1e-12  # of Anderson's normal equations, relative to their trace: residuals become parallel as they vanish


@dataclass(frozen=True)
class Solver:
    """The iteration and its gradient."""

    iterations: int
    """n; with a tolerance, the maximum."""
    method: MethodName = "plain"
    tolerance: float | None = None
    """A row stops when ‖x0 + F(x) − x‖ is at most this fraction of ‖x0 + F(x)‖."""
    gradient: GradientName = "unrolled"

    def __post_init__(self) -> None:
        if self.iterations < 0:
            raise UserError(f"iterations={self.iterations}: must be at least 0")
        if self.tolerance is not None and not self.tolerance > 0:
            raise UserError(f"tolerance={self.tolerance:g}: must be above 0, or left out")


class Statistics(NamedTuple):
    """Of each iteration a, for each row of the batch."""

    steps: Float[Tensor, "iterations batch"]
    """‖x^{a+1} − x^a‖ / √size."""
    cosines: Float[Tensor, "iterations batch"]
    """cos(x^{a+1}, x^a)."""


@dataclass(frozen=True)
class Solution:
    point: Float[Tensor, "batch ..."]
    trajectory: tuple[Tensor, ...]
    """x^0, x^1, …, the point; only with ``keep=True``."""
    taken: Int[Tensor, " batch"]
    """Iterations of each row."""
    converged: Bool[Tensor, " batch"]
    """Rows that met the tolerance; none without a tolerance."""

    def statistics(self, size: int | None = None) -> Statistics:
        """Norms are divided by √``size`` (default: the entries of a row)."""
        if not self.trajectory:
            raise ValueError("the trajectory was not kept: solve with keep=True")
        path = torch.stack([x.detach().flatten(1) for x in self.trajectory])
        steps = torch.linalg.vector_norm(path.diff(dim=0), dim=2) / math.sqrt(size or path.shape[2])
        return Statistics(steps, torch.cosine_similarity(path[1:], path[:-1], dim=2))


def fixed_point(F: Map, x0: Float[Tensor, "batch ..."], solver: Solver, keep: bool = False) -> Solution:
    """Iterate x ← x0 + F(x) from x = x0 with this solver. ``F`` is evaluated once per iteration."""
    if solver.gradient == "unrolled" or solver.iterations == 0 or not torch.is_grad_enabled():
        return _iterate(F, x0, solver, keep)
    with torch.no_grad():
        found = _iterate(F, x0, solver, keep)
    # One graph gives both Jᵀ and the gradient of F's parameters.
    x = found.point.detach().requires_grad_()
    image = F(x)
    attached = x0 + image
    if not attached.requires_grad:
        return found

    def pull_back(gradient: Tensor) -> Tensor:
        """Jᵀλ."""
        return torch.autograd.grad(image, x, gradient, retain_graph=True, materialize_grads=True)[0]

    point = _Adjoint.apply(attached, found.point, pull_back, solver)
    return replace(found, point=point, trajectory=(*found.trajectory[:-1], point) if keep else ())


def _iterate(F: Map, x0: Tensor, solver: Solver, keep: bool) -> Solution:
    x = x0
    trajectory = [x0] if keep else []
    anderson = _Anderson() if solver.method == "anderson" else None
    # len(x0) would fix the batch size in an export.
    taken = torch.zeros(x0.shape[0], dtype=torch.long, device=x0.device)
    converged = torch.zeros(x0.shape[0], dtype=torch.bool, device=x0.device)
    moving = ~converged
    for _ in range(solver.iterations):
        image = x0 + F(x)  # Eq. (29)
        after = image if anderson is None else anderson.next(x, image)
        taken = taken + moving
        if solver.tolerance is None:
            x = after
        else:
            residual = torch.linalg.vector_norm((image - x).detach().flatten(1), dim=1)
            allowed = solver.tolerance * torch.linalg.vector_norm(image.detach().flatten(1), dim=1)
            # A converged row no longer changes.
            x = torch.where(moving.view(-1, *[1] * (x.ndim - 1)), after, x)
            converged = converged | (moving & (residual <= allowed))
            moving = moving & (residual > allowed)  # false for NaN rows
        if keep:
            trajectory.append(x)
        depends_on_values = not (x.is_meta or torch.compiler.is_exporting())
        if solver.tolerance is not None and depends_on_values and not bool(moving.any()):
            break
    return Solution(x, tuple(trajectory), taken, converged)


class _Anderson:
    """x^{a+1} = image − Σ γ_i Δimage_i, where γ minimises ‖residual − Σ γ_i Δresidual_i‖, row by row.

    The coefficients γ have no gradient: at the fixed point every combination has the same derivative, and that of the
    least squares is singular there.
    """

    def __init__(self) -> None:
        self.images: deque[Tensor] = deque(maxlen=_MEMORY + 1)
        self.residuals: deque[Tensor] = deque(maxlen=_MEMORY + 1)

    def next(self, x: Tensor, image: Tensor) -> Tensor:
        self.images.append(image)
        # float64, because normal equations square the condition number.
        self.residuals.append((image - x).detach().flatten(1).double())
        if len(self.images) == 1:
            return image
        residuals = torch.stack(tuple(self.residuals), dim=1)
        differences = residuals.diff(dim=1)
        gram = differences @ differences.mT
        trace = gram.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
        ridge = _RIDGE * trace + torch.finfo(torch.float64).tiny
        gram = gram + torch.diag_embed(ridge.expand(gram.shape[:2]))
        # solve_ex raises no error for NaN rows, so the other rows continue.
        gamma, _ = torch.linalg.solve_ex(gram, differences @ residuals[:, -1:].mT)
        images = torch.stack(tuple(self.images), dim=1).flatten(2).diff(dim=1)
        return image - (gamma.mT.to(image.dtype) @ images).view_as(image)


class _Adjoint(torch.autograd.Function):
    """The identity, whose gradient is λ = g + Jᵀλ."""

    @staticmethod
    def forward(ctx: Any, attached: Tensor, point: Tensor, pull_back: Map, solver: Solver) -> Tensor:
        ctx.pull_back, ctx.solver = pull_back, solver
        return point.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return fixed_point(ctx.pull_back, gradient, ctx.solver).point, None, None, None
