"""The initialisations of the residual MLP have the properties that they are named after."""

from __future__ import annotations

import math

import pytest
import torch

import isthmus

FIELDS = {"d_in": 12, "d_out": 9, "d_z": 40, "d_h": 16, "depth": 4}


def built(init, **fields):
    torch.manual_seed(3)
    return isthmus.create_model("hourglass_mlp", **FIELDS | fields, init=init)


@pytest.mark.parametrize("w_in", ["trainable", "orthogonal", "hadamard"])
def test_zero_w2_starts_as_the_identity_on_the_stream(w_in):
    model = built("zero_w2", w_in=w_in, w_in_seed=0)
    x = torch.randn(5, 12)
    trajectory = dict(model.trajectory(x))
    assert all(torch.equal(trajectory[f"z_{i}"], trajectory["z_0"]) for i in range(1, 5))
    assert trajectory["h_1"].abs().max() > 0
    assert torch.equal(model(x), model.W_out(model.W_in(x)))


def test_depth_scaled_w2_is_pytorchs_over_the_root_of_the_depth():
    scaled, plain = built("depth_scaled_w2").state_dict(), built("pytorch").state_dict()
    for name, weight in plain.items():
        factor = 1 / math.sqrt(4) if ".W2." in name else 1
        assert torch.allclose(scaled[name], weight * factor, rtol=1e-6)


def test_pytorchs_is_uniform_up_to_the_root_of_the_inputs():
    for weight in built("pytorch").state_dict().values():
        bound = 1 / math.sqrt(weight.shape[1])
        assert 0.9 * bound < weight.abs().max() <= bound


def test_xavier_is_uniform_up_to_its_bound():
    for weight in built("xavier").state_dict().values():
        bound = math.sqrt(6 / sum(weight.shape))
        assert 0.9 * bound < weight.abs().max() <= bound
        assert weight.var() == pytest.approx(2 / sum(weight.shape), rel=0.25)


def test_orthogonal_weights_have_only_singular_values_of_one():
    for weight in built("orthogonal").state_dict().values():
        values = torch.linalg.svdvals(weight)
        assert torch.allclose(values, torch.ones_like(values), atol=1e-5)


def test_the_default_is_zero_w2():
    torch.manual_seed(3)
    default = isthmus.create_model("hourglass_mlp", **FIELDS)
    expected = built("zero_w2").state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in default.state_dict().items())
