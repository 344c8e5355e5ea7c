"""Joins with written-out gradients against the formulas that autograd differentiates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.pathways import attended, delta, joins, streams
from tests.equivalence.pathway_stacks import D, stack

CASES: list[Any] = [
    "delta",
    "delta/erase-and-add",
    {"name": "delta", "value": "linear"},
    {"name": "delta", "value": "constant", "value_scale": 2.0},
    {"name": "attended", "blocks": 3},
    {"name": "attended", "blocks": 2, "total": "mean"},
    "attended/full",
    "streams/static-2",
    "streams/hyper-4",
    "streams/mhc-4",
    {"name": "streams/mhc-2", "pre_eps": 1e-2, "post_scale": 0.7},
    {"name": "streams", "count": 3, "constrain": "doubly_stochastic", "dynamic": False, "sinkhorn_iterations": 1},
]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def gradients(network: Any, x: Tensor) -> list[Tensor | None]:
    x = x.clone().requires_grad_()
    tensors = [x, *network.parameters()]
    return [network(x), *torch.autograd.grad(network(x).sin().sum(), tensors, allow_unused=True)]


@every_case
@pytest.mark.parametrize("shape", [(3, D), (2, 3, D)], ids=["rows", "tokens"])
def test_they_have_the_values_and_gradients_of_the_formulas(
    case: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = stack(case, move=0.3)
    x = torch.randn(shape, dtype=torch.float64)
    found = gradients(network, x)
    for module in (attended, delta, streams):
        monkeypatch.setattr(module, "is_written_out", lambda: False)
    for ours, wanted in zip(found, gradients(network, x), strict=True):
        assert (ours is None) == (wanted is None)
        if ours is not None:
            torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-11)


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def test_every_gradient_is_that_of_finite_differences() -> None:
    torch.manual_seed(0)
    part, n = torch.tensor([0] * 3 + [1] * 3 + [2] * 9), 3
    check: Any = torch.autograd.gradcheck
    assert check(joins.WriteStreams.apply, (draw(n, 2, 4), draw(2, 4), draw(n, n), draw(n)))
    assert check(joins.WriteStreams.apply, (draw(2, n, 4), draw(2, 4), draw(2, n, n), draw(2, n)))
    weights = draw(15, n * 4), draw(15), draw(3)
    assert check(joins.ReadBalanced.apply, (draw(2, n, 4), *weights, part, 4, (1e-2, 1e-3, 1e-2), 0.7))
    assert check(joins.Balance.apply, (draw(n, n), 3, 1e-2))
    assert check(joins.Attend.apply, (draw(3, 4), 1e-3, draw(2, 4), draw(2, 4)))
    assert check(joins.Merge.apply, (draw(2, 4), draw(2), draw(2, 4), draw(4), 3, 1e-3))
    assert check(joins.Rewrite.apply, (draw(2, 4), draw(2, 4), draw(2, 4), draw(2), 0.0, 4.0, (1e-3, 1e-3)))
    assert check(joins.Rewrite.apply, (draw(2, 4), draw(2, 4), draw(1, 4), draw(1), 1.0, 0.0, (1e-3, 1e-3)))


@every_case
def test_transforms_and_second_gradients_never_meet_them(case: Any) -> None:
    network = stack(case, move=0.3)
    x = torch.randn(2, D, dtype=torch.float64)
    wanted = gradients(network, x)[1]
    found = torch.func.grad(lambda x: network(x).sin().sum())(x)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="create_graph=False"):
        torch.autograd.grad(network(x).sin().sum(), x, create_graph=True)
