"""Fixed points are fixed, an inverse inverts, and both gradients agree where the iteration has converged."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from isthmus.core.errors import UserError
from isthmus.layers.dynamics import MethodName, Solver, fixed_point

seeds = st.integers(0, 2**32 - 1)
METHODS: tuple[MethodName, ...] = ("plain", "anderson")


class Contraction(nn.Module):
    """W₂ GELU(W₁ GELU(x)) with singular values of c: guaranteed for c² · 1.1289² < 1."""

    def __init__(self, width: int = 6, hidden: int = 9, c: float = 0.8, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.W1, self.W2 = (
            nn.Parameter(drawn / torch.linalg.matrix_norm(drawn, 2) * c)
            for drawn in (
                torch.randn(hidden, width, generator=generator, dtype=torch.float64),
                torch.randn(width, hidden, generator=generator, dtype=torch.float64),
            )
        )
        self.bias = nn.Parameter(torch.randn(hidden, generator=generator, dtype=torch.float64))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        gelu = nn.functional.gelu
        return gelu(gelu(x) @ self.W1.T + self.bias) @ self.W2.T


def rows(seed: int = 1, batch: int = 3, width: int = 6) -> Tensor:
    return torch.randn(batch, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stiff(rate: float = 0.99, width: int = 12) -> tuple[nn.Linear, Tensor]:
    """A linear contraction whose slowest direction loses one per cent an iteration; its point is (1 − A)⁻¹ x0."""
    layer = nn.Linear(width, width, bias=False, dtype=torch.float64)
    basis = torch.linalg.qr(rows(3, width, width)).Q
    values = torch.linspace(0.1, rate, width, dtype=torch.float64)
    layer.weight.data = basis @ torch.diag(values) @ basis.T
    return layer, rows(4, 5, width)


@given(seeds, st.integers(0, 7))
@settings(max_examples=12, deadline=None)
def test_plain_iteration_is_the_obvious_loop(seed: int, n: int) -> None:
    F, x0 = Contraction(seed=seed), rows(seed)
    x = x0
    path = [x0]
    for _ in range(n):
        x = x0 + F(x)
        path.append(x)
    F.calls = 0
    found = fixed_point(F, x0, Solver(n), keep=True)
    assert torch.equal(found.point, x)
    assert F.calls == n
    assert all(torch.equal(a, b) for a, b in zip(found.trajectory, path, strict=True))
    assert found.taken.tolist() == [n] * 3
    steps, cosines = found.statistics()
    for a in range(n):
        expected = (path[a + 1] - path[a]).norm(dim=1) / math.sqrt(6)
        torch.testing.assert_close(steps[a], expected)
        dot = (path[a + 1] * path[a]).sum(1) / (path[a + 1].norm(dim=1) * path[a].norm(dim=1))
        torch.testing.assert_close(cosines[a], dot)
    assert steps.shape == cosines.shape == (n, 3)


def test_norms_are_divided_by_the_root_of_the_size_that_is_asked_for() -> None:
    found = fixed_point(torch.ones_like, torch.zeros(2, 4), Solver(1), keep=True)
    assert found.statistics().steps.tolist() == [[1.0, 1.0]]
    assert found.statistics(size=16).steps.tolist() == [[0.5, 0.5]]


def test_a_trajectory_is_kept_only_if_asked_for() -> None:
    found = fixed_point(Contraction(), rows(), Solver(3))
    assert found.trajectory == ()
    with pytest.raises(ValueError, match="keep=True"):
        found.statistics()


@pytest.mark.parametrize("method", METHODS)
@given(seed=seeds, c=st.floats(0.1, 0.87))
@settings(max_examples=15, deadline=None)
def test_the_inverse_inverts(method, seed: int, c: float) -> None:
    """(1 − F)(x) = z, for a guaranteed contraction and a tolerance."""
    F, z = Contraction(c=c, seed=seed), rows(seed)
    found = fixed_point(F, z, Solver(5000, method, tolerance=1e-12))
    assert found.converged.all()
    torch.testing.assert_close(found.point - F(found.point), z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_linear_problem_has_the_solution_of_linear_algebra(method) -> None:
    F, x0 = stiff()
    found = fixed_point(F, x0, Solver(10_000, method, tolerance=1e-13))
    exact = torch.linalg.solve(torch.eye(12, dtype=torch.float64) - F.weight, x0.T).T
    torch.testing.assert_close(found.point, exact, rtol=1e-8, atol=1e-8)


def test_anderson_needs_fewer_iterations_on_a_stiff_contraction() -> None:
    F, x0 = stiff()
    plain, anderson = (fixed_point(F, x0, Solver(5000, method, tolerance=1e-8)) for method in METHODS)
    assert plain.converged.all()
    assert anderson.converged.all()
    assert (10 * anderson.taken < plain.taken).all(), (anderson.taken, plain.taken)


def test_anderson_in_single_precision_reaches_single_precision() -> None:
    F, x0 = stiff(0.95)
    found = fixed_point(F.float(), x0.float(), Solver(300, "anderson", tolerance=1e-6))
    assert found.converged.all()
    exact = torch.linalg.solve(torch.eye(12) - F.weight, x0.float().T).T
    torch.testing.assert_close(found.point, exact, rtol=1e-3, atol=1e-3)


def gradients(F: Contraction, x0: Tensor, solver: Solver) -> list[Tensor]:
    F.zero_grad()
    z = x0.clone().requires_grad_()
    point = fixed_point(F, z, solver).point
    (point.sin() * torch.arange(6, dtype=torch.float64)).sum().backward()
    return [z.grad, *(parameter.grad.clone() for parameter in F.parameters())]  # type: ignore[list-item,union-attr]


@pytest.mark.parametrize("method", METHODS)
@given(seed=seeds)
@settings(max_examples=8, deadline=None)
def test_both_gradients_agree_at_convergence(method, seed: int) -> None:
    F, x0 = Contraction(c=0.75, seed=seed), rows(seed)
    unrolled = gradients(F, x0, Solver(200))
    implicit = gradients(F, x0, Solver(200, method, tolerance=1e-13, gradient="implicit"))
    fixed = gradients(F, x0, Solver(200 if method == "plain" else 40, method, gradient="implicit"))
    for one, other, third in zip(unrolled, implicit, fixed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(one, third, rtol=1e-7, atol=1e-9)


def test_the_unrolled_gradient_goes_through_the_acceleration_too() -> None:
    F, x0 = Contraction(c=0.75), rows()
    for one, other in zip(
        gradients(F, x0, Solver(200)), gradients(F, x0, Solver(40, "anderson", tolerance=1e-13)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_after_two_iterations_the_gradients_differ_and_the_values_do_not() -> None:
    F, x0 = Contraction(), rows()
    one, other = (fixed_point(F, x0, Solver(2, gradient=kind)).point for kind in ("unrolled", "implicit"))
    assert torch.equal(one, other)
    unrolled, implicit = (gradients(F, x0, Solver(2, gradient=kind))[0] for kind in ("unrolled", "implicit"))
    assert (unrolled - implicit).abs().max() > 1e-3


def test_small_gradients_are_solved_for_as_exactly_as_large_ones() -> None:
    """A tolerance that were absolute would be met by tiny gradients before anything is solved."""
    F, x0 = Contraction(), rows()
    solver = Solver(500, tolerance=1e-10, gradient="implicit")
    found = []
    for scale in (1.0, 1e-12):
        z = x0.clone().requires_grad_()
        (fixed_point(F, z, solver).point.sum() * scale).backward()
        assert z.grad is not None
        found.append(z.grad / scale)
    torch.testing.assert_close(*found)


def test_an_implicit_gradient_passes_gradcheck() -> None:
    F = Contraction(4, 5, c=0.6)
    solver = Solver(500, tolerance=1e-14, gradient="implicit")
    x0 = rows(width=4).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: fixed_point(F, z, solver).point, x0, rtol=1e-5, atol=1e-7)


def test_a_fixed_point_within_a_fixed_point_has_its_gradient() -> None:
    """F^2 = H ∘ (1 − F^3)^{-1} ∘ G of the general hierarchy."""
    inner, outer = Contraction(c=0.5, seed=5), Contraction(c=0.5, seed=6)

    def found(gradient, z: Tensor) -> Tensor:
        solver = Solver(36, gradient=gradient)
        return fixed_point(lambda x: outer(fixed_point(inner, x, solver).point), z, solver).point

    results = []
    for gradient in ("unrolled", "implicit"):
        z = rows().requires_grad_()
        found(gradient, z).square().sum().backward()
        results.append([z.grad, *(p.grad for p in (*inner.parameters(), *outer.parameters()))])
        inner.zero_grad()
        outer.zero_grad()
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def kept_bytes(solver: Solver) -> int:
    """What autograd keeps for the backward pass of one solution."""
    total = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal total
        total += tensor.numel() * tensor.element_size()
        return tensor

    F, x0 = Contraction(), rows()
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        fixed_point(F, x0.requires_grad_(), solver)
    return total


def graph_size(tensor: Tensor) -> int:
    seen, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [follower for follower, _ in node.next_functions]
    return len(seen)


@pytest.mark.parametrize("method", METHODS)
def test_implicit_memory_does_not_depend_on_n(method) -> None:
    few, many = (Solver(n, method, gradient="implicit") for n in (2, 64))
    assert kept_bytes(few) == kept_bytes(many) < 1.5 * kept_bytes(Solver(1))
    sizes = [graph_size(fixed_point(Contraction(), rows().requires_grad_(), solver).point) for solver in (few, many)]
    assert sizes[0] == sizes[1]
    assert kept_bytes(Solver(64, method)) > 20 * kept_bytes(Solver(2, method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tolerance", [None, 1e-9])
def test_a_row_does_not_depend_on_the_others(method, tolerance) -> None:
    F, x0, solver = Contraction(), rows(batch=4), Solver(60, method, tolerance)
    whole = fixed_point(F, x0, solver)
    alone = fixed_point(F, x0[2:3], solver)
    torch.testing.assert_close(alone.point, whole.point[2:3], rtol=1e-12, atol=1e-12)
    assert int(alone.taken) == int(whole.taken[2])
    spoilt = x0.clone()
    spoilt[0] = torch.nan
    found = fixed_point(F, spoilt, solver)
    torch.testing.assert_close(found.point[1:], whole.point[1:], rtol=1e-12, atol=1e-12)
    assert not found.converged[0]


def test_a_row_that_has_arrived_stays() -> None:
    F, _ = stiff()
    x0 = torch.stack([torch.linalg.eigh(F.weight).eigenvectors[:, place] for place in (0, -1)]).detach()  # fast, slow
    found = fixed_point(F, x0, Solver(3000, tolerance=1e-6), keep=True)
    fast, slow = found.taken.tolist()
    assert fast < 10 < 100 < slow == len(found.trajectory) - 1
    assert all(torch.equal(x[0], found.trajectory[fast][0]) for x in found.trajectory[fast:])


def test_what_does_not_converge_says_so() -> None:
    found = fixed_point(lambda x: 2 * x, rows(), Solver(10, tolerance=1e-6))
    assert not found.converged.any()
    assert found.taken.tolist() == [10] * 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"iterations": -1}, "iterations=-1: must be at least 0"),
        ({"iterations": 2, "tolerance": 0.0}, "tolerance=0: must be above 0, or left out"),
    ],
)
def test_what_no_solver_can_do_is_refused_in_a_line(settings: dict, said: str) -> None:
    with pytest.raises(UserError) as error:
        Solver(**settings)
    assert str(error.value) == said
