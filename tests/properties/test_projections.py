"""Frozen projections: their defining properties, their seeds, and that they are neither trained nor stored."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import isthmus
from isthmus.core.errors import UserError
from isthmus.layers.projections import projection
from isthmus.training.checkpoint import fingerprints, load_weights, read_tensors, write_model

FROZEN = ["uniform", "gaussian", "orthogonal", "hadamard"]
WIDTHS, WIDE = st.integers(1, 40), st.integers(16, 40)
FIELDS = {"d_in": 24, "d_out": 5, "d_z": 40, "d_h": 8, "depth": 2}


def matrix(name, d_in, d_out, seed):
    """The map as a matrix, whatever the layer stores."""
    return projection(name, d_in, d_out, seed)(torch.eye(d_in)).T


@settings(max_examples=40)
@given(d_in=WIDTHS, d_out=WIDTHS, seed=st.integers(0, 2**63 - 1))
def test_orthogonal_has_orthonormal_columns_or_where_it_narrows_rows(d_in, d_out, seed):
    w = matrix("orthogonal", d_in, d_out, seed)
    gram = w.T @ w if d_out >= d_in else w @ w.T
    assert torch.allclose(gram, torch.eye(min(d_in, d_out)), atol=1e-5)


@pytest.mark.parametrize("d_out", [20, 100])
@pytest.mark.parametrize("name", ["gaussian", "hadamard"])
def test_the_squared_norm_is_kept_in_the_mean(name, d_out):
    x = torch.linspace(-1, 2, 48)
    ratios = torch.stack(
        [projection(name, 48, d_out, seed)(x).square().sum() / x.square().sum() for seed in range(300)]
    )
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / math.sqrt(300)
    assert 0 < ratios.std() < 0.5


def test_uniform_has_pytorchs_distribution():
    ours = matrix("uniform", 100, 200, seed=0).flatten()
    torch.manual_seed(0)
    pytorchs = torch.nn.Linear(100, 200, bias=False).weight.detach().flatten()
    assert ours.abs().max() <= 1 / math.sqrt(100)
    assert scipy.stats.ks_2samp(ours.numpy(), pytorchs.numpy()).pvalue > 1e-3


@settings(max_examples=40)
@given(
    name=st.sampled_from(FROZEN), seed=st.integers(0, 2**63 - 2), d_in=st.integers(16, 40), d_out=st.integers(16, 40)
)
def test_a_seed_names_one_map(name, seed, d_in, d_out):
    one, same, other = (projection(name, d_in, d_out, s) for s in (seed, seed, seed + 1))
    x = torch.eye(d_in)
    assert torch.equal(one(x), same(x))
    assert not torch.allclose(one(x), other(x), atol=1e-3)
    prints = [fingerprints(layer)[""] for layer in (one, same, other)]
    assert prints[0] == prints[1]
    assert max(abs(a - b) for a, b in zip(prints[0], prints[2], strict=True)) > 1e-3


@pytest.mark.parametrize("name", FROZEN)
def test_a_map_does_not_depend_on_the_global_generator(name):
    torch.manual_seed(1)
    first = matrix(name, 20, 30, seed=5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert torch.equal(first, matrix(name, 20, 30, seed=5))
    assert torch.equal(before, torch.get_rng_state()), "and leaves it alone"


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_map_is_neither_trained_nor_stored(name):
    layer = projection(name, 24, 40, seed=0)
    assert not list(layer.parameters())
    assert not layer.state_dict()
    model = isthmus.create_model("hourglass_mlp", **FIELDS, w_in=name, w_in_seed=3)
    assert not any(key.startswith("W_in") for key in model.state_dict())


@pytest.mark.parametrize("name", FROZEN)
def test_a_checkpoint_notices_a_map_of_another_seed(name, tmp_path):
    config = {"name": "hourglass_mlp", **FIELDS, "w_in": name, "w_in_seed": 3}
    model = isthmus.create_model(**config)
    write_model(tmp_path / "model.safetensors", model, model.state_dict(), config)
    weights, metadata = read_tensors(tmp_path / "model.safetensors")
    load_weights(isthmus.create_model(**config), weights, metadata, tmp_path)
    with pytest.raises(UserError, match="frozen W_in was rebuilt differently"):
        load_weights(isthmus.create_model(**config | {"w_in_seed": 4}), weights, metadata, tmp_path)
