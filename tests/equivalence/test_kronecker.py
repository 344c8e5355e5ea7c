"""Monarch and Kronecker nets against their explicit matrices in float64, and Corollary 3.4 between the two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import isthmus
from isthmus.core.errors import UserError
from isthmus.models.kronecker import Kronecker, Monarch

sides = st.integers(1, 6)


def double(module: Any) -> Any:
    return module.double().eval()


def commutation(S: int, C: int) -> Tensor:
    """J_c with J_c vec(X) = vec(Xᵀ), entry by entry: X_ij is entry jS + i of vec(X) and iC + j of vec(Xᵀ)."""
    J = torch.zeros(S * C, S * C, dtype=torch.float64)
    for i in range(S):
        for j in range(C):
            J[i * C + j, j * S + i] = 1
    return J


def explicit(layer: Monarch | Kronecker) -> Tensor:
    if isinstance(layer, Kronecker):
        return torch.kron(layer.V, layer.W)
    J = commutation(layer.S, layer.C)
    return J.T @ torch.block_diag(*layer.L) @ J @ torch.block_diag(*layer.R)  # Eq. (12)


@given(sides, sides, st.sampled_from([Monarch, Kronecker]), st.booleans())
def test_a_structured_product_is_that_with_its_matrix(S, C, kind, bias):
    layer = double(kind(S, C, bias))
    if bias:
        torch.nn.init.normal_(layer.bias)
    x = torch.randn(3, S * C, dtype=torch.float64)
    torch.testing.assert_close(layer(x), x @ explicit(layer).T + (layer.bias if bias else 0))


@given(sides, sides)
def test_a_monarch_matrix_with_shared_blocks_is_a_kronecker_product(S, C):
    """Corollary 3.4, for H = W X V: L = I ⊗ Vᵀ and R = I ⊗ W give Vᵀ ⊗ W."""
    V, W = torch.randn(C, C, dtype=torch.float64), torch.randn(S, S, dtype=torch.float64)
    monarch = double(Monarch(S, C))
    with torch.no_grad():
        monarch.L.copy_(V.T.expand(S, C, C))
        monarch.R.copy_(W.expand(C, S, S))
    torch.testing.assert_close(explicit(monarch), torch.kron(V.T.contiguous(), W))
    X = torch.randn(S, C, dtype=torch.float64)
    vec = X.T.reshape(1, -1)
    torch.testing.assert_close(monarch(vec), (W @ X @ V).T.reshape(1, -1))


@pytest.mark.parametrize("name", ["monarch_mlp", "kronecker_mlp"])
def test_the_net_is_its_formula(name):
    model: Any = double(isthmus.create_model(name, d_in=30, d_out=4, size=35, S=5))
    x = torch.randn(6, 30, dtype=torch.float64)
    padded = torch.cat([x, torch.zeros(6, 5, dtype=torch.float64)], dim=1)
    hidden = (padded @ explicit(model.B1).T).relu()
    torch.testing.assert_close(model(x), hidden @ explicit(model.B2).T @ model.Bc.weight.T)
    assert [step for step, _ in model.trajectory(x)] == ["h_1", "h_2", "output"]


@pytest.mark.parametrize(("name", "params"), [("monarch_mlp", 4 * 28**3 + 7840), ("kronecker_mlp", 4 * 28**2 + 7840)])
def test_on_mnist_the_factors_are_28_by_28(name, params):
    assert isthmus.cost({"name": name, "d_in": 784, "d_out": 10}).params == params


def test_the_smallest_square_holds_the_input():
    model: Any = isthmus.create_model("monarch_mlp", d_in=50, d_out=2)
    assert (model.config.n, model.B1.S, model.B1.C, model.padding) == (64, 8, 8, 14)
    model = isthmus.create_model("monarch_mlp", d_in=50, d_out=2, S=12)
    assert model.config.n == 60


def test_the_start_keeps_the_size_of_the_input():
    torch.manual_seed(0)
    x = torch.randn(200, 784)
    for name in ("monarch_mlp", "kronecker_mlp"):
        model: Any = isthmus.create_model(name, d_in=784, d_out=10)
        steps = dict(model.trajectory(x))
        assert steps["h_2"].square().mean().item() == pytest.approx(1, rel=0.35)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 24}, "does not hold an input of 30"),
        ({"size": 35, "S": 6}, "S=6 does not divide it"),
        ({"size": 35}, "not a square"),
        ({"S": 0}, "S"),
        ({"d_in": None}, "needs d_in and d_out"),
    ],
)
def test_factors_that_do_not_fit(fields, message):
    with pytest.raises(UserError, match=message) as raised:
        isthmus.create_model("kronecker_mlp", **{"d_in": 30, "d_out": 2} | fields)
    assert "\n" not in str(raised.value)
