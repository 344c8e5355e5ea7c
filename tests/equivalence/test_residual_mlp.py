"""ResidualMLP against a loop over rows in numpy's float64 that spells the mathematics out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import torch

import isthmus

WIDTHS = {"d_in": 5, "d_out": 3, "d_z": 11, "d_h": 6, "depth": 3}
NORMS = {
    "layer": lambda z: (z - z.mean()) / np.sqrt(((z - z.mean()) ** 2).mean() + 1e-5),
    "rms": lambda z: z / np.sqrt((z**2).mean() + np.finfo(np.float64).eps),
    "none": lambda z: z,
}
ACTIVATIONS = {
    "gelu": lambda h: h * (1 + scipy.special.erf(h / np.sqrt(2))) / 2,
    "relu": lambda h: np.maximum(h, 0),
    "silu": lambda h: h / (1 + np.exp(-h)),
}
W_IN = ["trainable", "uniform", "gaussian", "orthogonal", "hadamard"]
INITS = ["pytorch", "depth_scaled_w2", "xavier", "orthogonal"]


def built(norm="layer", activation="gelu", w_in="trainable", init="pytorch"):
    torch.manual_seed(1)
    choices = {"norm": norm, "activation": activation, "w_in": w_in, "init": init, "w_in_seed": 4}
    return isthmus.create_model("hourglass_mlp", **WIDTHS, **choices).double()


def dense(projection):
    """W_in as an explicit matrix."""
    if hasattr(projection, "weight"):
        return projection.weight.detach().numpy()
    n = 16  # the power of two that holds both widths
    hadamard = scipy.linalg.hadamard(n) / np.sqrt(n)
    rows = hadamard[projection.kept.numpy()][:, : len(projection.signs)]
    return np.sqrt(n / len(projection.kept)) * rows * projection.signs.numpy()


def slow(model, row, norm, activation):
    """(name, value) of every intermediate of one row."""
    z = dense(model.W_in) @ row
    yield "z_0", z
    for i, block in enumerate(model.blocks, start=1):
        h = ACTIVATIONS[activation](block.W1.weight.detach().numpy() @ NORMS[norm](z))
        yield f"h_{i}", h
        z = z + block.W2.weight.detach().numpy() @ h
        yield f"z_{i}", z
    yield "output", model.W_out.weight.detach().numpy() @ z


# Norms and activations meet in every pair; projections and starts only decide which matrices there are.
@pytest.mark.parametrize(
    ("norm", "activation", "w_in", "init"),
    [
        *((norm, activation, "trainable", "pytorch") for norm, activation in itertools.product(NORMS, ACTIVATIONS)),
        *(("layer", "gelu", w_in, "pytorch") for w_in in W_IN[1:]),
        *(("layer", "gelu", "trainable", init) for init in INITS[1:]),
    ],
)
def test_forward_is_the_loop(norm, activation, w_in, init):
    model = built(norm, activation, w_in, init)
    assert all(block.W2.weight.abs().max() > 0 for block in model.blocks), "or the blocks would not be seen"
    x = np.random.default_rng(0).normal(size=(4, 5))
    expected = [dict(slow(model, row, norm, activation))["output"] for row in x]
    with torch.no_grad():
        np.testing.assert_allclose(model(torch.from_numpy(x)).numpy(), expected, rtol=1e-10, atol=1e-12)


def test_the_trajectory_names_every_intermediate_and_ends_with_the_output():
    model, x = built(), np.random.default_rng(0).normal(size=(4, 5))
    with torch.no_grad():
        trajectory = dict(model.trajectory(torch.from_numpy(x)))
        blocks = [name for i in (1, 2, 3) for name in (f"h_{i}", f"block_{i}", f"z_{i}")]
        assert list(trajectory) == ["z_0", *blocks, "output"]
        assert torch.equal(trajectory["output"], model(torch.from_numpy(x)))
    for number, row in enumerate(x):
        for name, value in slow(model, row, "layer", "gelu"):
            np.testing.assert_allclose(trajectory[name][number].numpy(), value, rtol=1e-10, atol=1e-12)


def test_images_are_flattened_row_by_row():
    model, x = built(), torch.randn(4, 5, dtype=torch.float64)
    assert torch.equal(model(x.reshape(4, 1, 5, 1)), model(x))
