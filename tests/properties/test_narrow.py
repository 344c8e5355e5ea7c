"""The narrow form is the same function: every norm, activation and W_in, over random shapes, weights and inputs."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import isthmus
from isthmus.core.errors import UserError
from isthmus.export import narrow, narrow_gain
from isthmus.export.narrow_form import _axis
from isthmus.models.narrow import NarrowMLP
from isthmus.training.checkpoint import write_model

NORMS = ["layer", "rms", "none"]
ACTIVATIONS = ["gelu", "relu", "silu"]
W_IN = ["trainable", "uniform", "gaussian", "orthogonal", "hadamard"]
INITS = ["pytorch", "depth_scaled_w2", "xavier", "orthogonal", "zero_w2"]


def built(seed=0, offset=0.0, **fields):
    """A model whose W_in and W2, if they are trained, have columns of a mean far from zero."""
    torch.manual_seed(seed)
    defaults = {"d_in": 24, "d_out": 7, "d_z": 60, "d_h": 8, "depth": 4, "init": "pytorch", "w_in_seed": seed}
    model: Any = isthmus.create_model("hourglass_mlp", allow_any_shape=True, **defaults | fields)
    with torch.no_grad():
        for block in model.blocks:
            block.W2.weight += offset
        if fields.get("w_in", "trainable") == "trainable":
            model.W_in.weight += offset
    return model.eval()


def error(model, x):
    """Of the narrow form in the model's own precision, against the model in float64, relative to the outputs."""
    converted = narrow(model, force=True)
    assert isinstance(converted, NarrowMLP)
    reference = copy.deepcopy(model).double()
    for block in reference.blocks:
        if model.config.norm == "rms":  # its epsilon is that of the precision
            block.norm.eps = torch.finfo(x.dtype).eps
    with torch.no_grad():
        truth = reference(x.double())
        found = converted(x)
    assert found.dtype == x.dtype
    return float((found.double() - truth).norm() / truth.norm())


shapes = st.fixed_dictionaries(
    {
        "d_in": st.integers(1, 40),
        "d_out": st.integers(1, 20),
        "d_z": st.integers(16, 90),
        "d_h": st.integers(1, 40),
        "depth": st.integers(1, 6),
        "norm": st.sampled_from(NORMS),
        "activation": st.sampled_from(ACTIVATIONS),
        "w_in": st.sampled_from(W_IN),
        "init": st.sampled_from(INITS),
        "residual_scale": st.sampled_from([1.0, 0.2, 3.0]),
        "seed": st.integers(0, 2**31),
        "offset": st.sampled_from([0.0, 0.01, 0.3]),
    }
)
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12}


@given(fields=shapes, dtype=st.sampled_from(list(BOUNDS)), scale=st.sampled_from([0.1, 1.0, 100.0]))
def test_the_narrow_form_is_the_same_function(fields, dtype, scale):
    model = built(**fields).to(dtype)
    assert error(model, scale * torch.randn(9, fields["d_in"], dtype=dtype)) < BOUNDS[dtype]


@pytest.mark.parametrize(("norm", "activation", "w_in"), list(itertools.product(NORMS, ACTIVATIONS, W_IN)))
def test_every_combination_at_a_shape_that_pays(norm, activation, w_in):
    fields = {"d_in": 64, "d_z": 512, "d_h": 16, "depth": 5, "norm": norm, "activation": activation, "w_in": w_in}
    model = built(**fields, offset=0.05)
    assert error(model, torch.randn(40, 64)) < 1e-6
    assert error(model.double(), torch.randn(40, 64, dtype=torch.float64)) < 1e-13


def test_inputs_far_from_zero_lose_nothing():
    """Without centred columns ‖z‖²/d − mean² would lose four digits here."""
    model = built(d_in=64, d_z=512, offset=1.0)
    assert error(model, torch.randn(40, 64) + 30) < 1e-5


@pytest.mark.parametrize("w_in", ["orthogonal", "hadamard"])
def test_an_isometric_w_in_costs_no_triangle_and_centring_no_digits(w_in):
    model = built(d_in=64, d_z=64, d_h=4, w_in=w_in, norm="layer")
    converted = narrow(model, force=True)
    assert isinstance(converted, NarrowMLP)
    assert converted.config.start == "isometric"
    towards_the_mean = model.W_in(torch.eye(64)).sum(dim=1)  # the input of a constant z_0, whose variance is nothing
    x = towards_the_mean + 0.3 * torch.randn(9, 64)
    assert error(model, x) < 1e-5
    narrower: Any = narrow(built(w_in=w_in, d_in=64, d_z=40), force=True)
    assert narrower.config.start == "triangular"


def test_centring_that_leaves_almost_nothing_costs_no_digits():
    """The root of 1 − ‖v‖² would have half of them."""
    column = 1 + 1e-5 * torch.randn(20, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w_in = column / column.norm()
    centred = w_in - w_in.mean(dim=0)
    axis = _axis(w_in.mean(dim=0) * 20**0.5, centred)
    assert abs(1 - axis.square().sum()) == pytest.approx(float(centred.norm()), rel=1e-9)


@pytest.mark.parametrize("depth", [1, pytest.param(4, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", list(BOUNDS))
def test_a_constant_column_leaves_nothing_for_a_layer_norm_to_multiply(depth, dtype):
    """Every block sees zeros and adds none, so that the function is W_out W_in x; 1e-17 instead of 0 became 7e-3."""
    shapes = [*itertools.product(range(4), (20, 60, 90)), (0, 5095)]  # where the mean is five units of rounding away
    for seed, d_z in shapes:
        model = built(seed, d_in=1, d_z=d_z, d_h=1 + seed, depth=depth, w_in="hadamard", norm="layer").to(dtype)
        column = model.W_in(torch.ones(1, 1, dtype=dtype)).double()
        assert column.unique().numel() == 1, "the first column of Hadamard's matrix"
        x = 100 * torch.randn(9, 1, dtype=dtype)
        exact = x.double() @ column @ model.W_out.weight.double().T
        found = narrow(model, force=True)(x).double()
        assert (found - exact).norm() / exact.norm() < BOUNDS[dtype]


def test_an_orthogonal_w_in_that_is_one_to_single_precision_only_is_not_taken_for_one_in_double():
    model = built(d_in=24, d_z=60, w_in="orthogonal").double()
    assert error(model, torch.randn(9, 24, dtype=torch.float64)) < 1e-12


def test_zero_rows_and_no_rows():
    for norm in NORMS:
        model = built(norm=norm)
        converted = narrow(model, force=True)
        assert torch.equal(converted(torch.zeros(2, 24)), torch.zeros(2, 7))
        assert converted(torch.zeros(0, 24)).shape == (0, 7)
        assert converted(torch.randn(2, 4, 6)).shape == (2, 7)


def test_it_is_saved_and_loaded_like_any_model(tmp_path):
    model: Any = narrow(built(w_in="orthogonal"), force=True)
    write_model(tmp_path / "narrow.safetensors", model, model.state_dict(), model.config.model_dump(mode="json"))
    loaded = isthmus.load(tmp_path / "narrow.safetensors").model
    x = torch.randn(5, 24)
    assert torch.equal(loaded(x), model(x))
    assert not loaded.training


def test_counting_decides_before_anything_is_converted():
    wide = built(d_in=24, d_z=60, d_h=50, depth=6)
    assert narrow(wide) is wide
    gain = narrow_gain(wide)
    assert not gain.pays
    assert gain.speed is None
    assert "does not pay" in str(gain)
    pays = built(d_in=24, d_z=600, d_h=4, depth=2)
    gain = narrow_gain(pays, measure=False)
    assert gain.pays
    assert gain.wide_macs == 600 * (24 + 2 * 2 * 4 + 7)
    assert gain.narrow_macs == 24 * (24 + 3 * 4 + 7) + 4 * 4 + 4 * 4 + 2 * 4 * 7
    assert isinstance(narrow(pays, measure=False), NarrowMLP)
    assert (narrow_gain(pays, batch=4).speed or 0) > 0


@pytest.mark.parametrize("rows", [1, 32, 256])
def test_what_is_measured_as_slower_is_returned_as_it_was(rows, monkeypatch):
    """With many rows, with some or with one."""
    monkeypatch.setattr("isthmus.export.narrow_form._speed", lambda *given: 2.0 - (given[-1] == rows))
    model = built(d_in=24, d_z=600, d_h=4, depth=2)
    assert narrow(model) is model
    assert isinstance(narrow(model, measure=False), NarrowMLP)


@pytest.mark.parametrize(("mode", "d_z"), [(torch.no_grad, 61), (torch.inference_mode, 62)])
def test_it_is_counted_and_made_where_gradients_are_off(mode, d_z):
    model = built(d_z=d_z)  # no other test counts these shapes, whose cost would be remembered
    with mode():
        assert isinstance(narrow(model, force=True), NarrowMLP)


def test_a_model_without_a_narrow_form_is_named():
    with pytest.raises(UserError, match="Linear has no narrow form; hourglass_mlp and conventional_mlp have one"):
        narrow(torch.nn.Linear(2, 2))
    with pytest.raises(UserError, match="narrow_mlp has no narrow form"):
        narrow(narrow(built(), force=True))
