"""The effective weight against the singular values of linear algebra in float64; u and v are state."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.layers.pointwise import ACTIVATIONS
from isthmus.layers.spectral_norm import LARGEST_SLOPE, SpectralLinear

seeds = st.integers(0, 2**32 - 1)


def layer(seed: int = 0, d_in: int = 7, d_out: int = 11, scale: float = 3.0, **settings) -> SpectralLinear:
    torch.manual_seed(seed)
    made = SpectralLinear(d_in, d_out, **settings).double()
    made.weight.data *= scale
    made.follow(400)
    return made


def largest(weight: Tensor) -> float:
    return float(torch.linalg.svdvals(weight.detach().double())[0])


@given(seeds, st.integers(1, 12), st.integers(1, 12), st.floats(0.05, 5), st.floats(0.05, 0.95))
@settings(max_examples=20, deadline=None)
def test_it_is_the_weight_over_its_largest_singular_value(
    seed: int, d_in: int, d_out: int, scale: float, c: float
) -> None:
    made = layer(seed, d_in, d_out, scale, contraction=c).eval()
    sigma = largest(made.weight)
    torch.testing.assert_close(made.effective_weight(), made.weight / max(1, sigma / c), rtol=1e-4, atol=1e-6)
    assert largest(made.effective_weight()) <= c * (1 + 1e-4)


def test_a_small_weight_is_left_as_it_is() -> None:
    made = layer(scale=0.01)
    assert torch.equal(made.effective_weight(), made.weight)


def test_a_fresh_layer_is_normalised_before_any_training() -> None:
    torch.manual_seed(3)
    made = SpectralLinear(64, 128, contraction=0.5).eval()
    assert 0.45 < largest(made.effective_weight()) < 0.52


def test_the_gradient_is_that_of_the_quotient_with_fixed_directions() -> None:
    """∂/∂W of ⟨A, W c/σ⟩ is (A − ⟨A, W⟩/σ · u vᵀ) c/σ; the singular vectors are those of linear algebra."""
    made = layer().eval()
    A = torch.randn(11, 7, dtype=torch.float64)
    (A * made.effective_weight()).sum().backward()
    U, S, V = torch.linalg.svd(made.weight.detach())
    W = made.weight.detach()
    expected = (A - (A * W).sum() / S[0] * torch.outer(U[:, 0], V[0])) * made.contraction / S[0]
    assert made.weight.grad is not None
    torch.testing.assert_close(made.weight.grad, expected)
    assert made.u.grad_fn is None
    assert not made.u.requires_grad


def test_eight_power_iterations_while_training_and_none_in_evaluation() -> None:
    torch.manual_seed(0)
    made = SpectralLinear(7, 11).double()
    nn.init.normal_(made.weight)
    u = made.u.clone()
    made.eval().effective_weight()
    assert torch.equal(made.u, u)
    W = made.weight.detach()
    for _ in range(8):
        v = W.T @ u
        u = W @ (v / v.norm())
        u = u / u.norm()
    made.train().effective_weight()
    torch.testing.assert_close(made.u, u)
    one, again = made.u.clone(), SpectralLinear(7, 11, power_iterations=1).double()
    again.load_state_dict(made.state_dict())
    again.effective_weight()
    assert float((again.u - one).norm()) > 0


def test_training_follows_the_weights() -> None:
    torch.manual_seed(0)
    made = SpectralLinear(20, 30, contraction=0.7)
    optimiser = torch.optim.SGD(made.parameters(), lr=0.5)
    for step in range(60):
        x = torch.randn(16, 20, generator=torch.Generator().manual_seed(step))
        (made(x) - 3 * x[:, :1]).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    assert largest(made.weight) > 0.9  # the norm has something to do
    assert largest(made.eval().effective_weight()) == pytest.approx(0.7, rel=0.02)


def test_two_forward_passes_before_one_backward() -> None:
    """u and v are overwritten in place; the first pass's gradient must not notice."""
    made, x = layer(), torch.randn(3, 7, dtype=torch.float64)
    (made(x) + made(x)).sum().backward()
    assert made.weight.grad is not None


def test_the_directions_are_part_of_the_state_and_come_from_the_seed() -> None:
    one, same, other = layer(1), layer(1), layer(2)
    assert {"u", "v"} <= one.state_dict().keys()
    assert torch.equal(one.u, same.u)
    assert not torch.equal(one.u, other.u)
    other.load_state_dict(one.state_dict())
    x = torch.randn(4, 7, dtype=torch.float64)
    assert torch.equal(other.eval()(x), one.eval()(x))


def test_the_folded_layer_is_plain_and_says_the_same() -> None:
    made, x = layer().eval(), torch.randn(4, 7, dtype=torch.float64)
    before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    folded = made.train().fold()
    assert type(folded) is nn.Linear
    assert torch.equal(folded(x), made.eval()(x))
    assert all(torch.equal(before[name], tensor) for name, tensor in made.state_dict().items())


@pytest.mark.parametrize("c", [0.0, 1.0, -0.5, 1.2, math.nan])
def test_a_coefficient_that_contracts_nothing_is_refused_in_a_line(c: float) -> None:
    with pytest.raises(UserError, match="must be above 0 and below 1") as error:
        SpectralLinear(2, 2, contraction=c)
    assert "\n" not in str(error.value)


def test_every_activation_has_its_largest_slope() -> None:
    x = torch.linspace(-8, 8, 400_001, dtype=torch.float64, requires_grad=True)
    assert LARGEST_SLOPE.keys() == ACTIVATIONS.keys() | {"softmax"}
    for name, made in ACTIVATIONS.items():
        (slope,) = torch.autograd.grad(made()(x).sum(), x)
        measured = float(slope.abs().max())
        assert measured <= LARGEST_SLOPE[name] < measured + 1e-6


def test_the_softmax_stretches_by_a_half_at_most() -> None:
    """Its Jacobian diag(p) − ppᵀ is steepest where two neurons share everything."""
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    x[0] = torch.tensor([20.0, 20.0, -20.0, -20.0, -20.0])
    jacobians = torch.func.vmap(torch.func.jacrev(lambda row: row.softmax(-1)))(x)
    measured = torch.linalg.matrix_norm(jacobians, 2)
    assert float(measured[0]) == pytest.approx(LARGEST_SLOPE["softmax"])
    assert (measured <= LARGEST_SLOPE["softmax"] + 1e-12).all()
