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


PATHWAYS = [
    "none", "scaled", "gained/rezero", "layerscale", "ladder", {"name": "delayed", "lag": 3}, "parallel",
    {"name": "delayed", "group": 2}, {"name": "delayed", "lag": 0}, {"name": "delayed", "lag": 1, "from_block": 3},
    {"name": "delayed", "lag": 2, "from_block": 3},
    "reversible", "weighted", {"name": "weighted", "dilation": 2, "period": 2}, "streams/static-2",
    {"name": "streams", "count": 3, "dynamic": False, "output": "sum"},
    {"name": "streams", "count": 3, "dynamic": False, "constrain": "doubly_stochastic"},
    {"name": "streams", "count": 3, "dynamic": False, "constrain": "permutations"},
    "injected", {"name": "injected", "begin": "zero"}, {"name": "injected", "mix": "full"},
    "injected/addition", {"name": "injected", "how": "concatenation"},
]  # fmt: skip
"""All that join updates with fixed weights."""
EVERY_TIME = ("ladder", "reversible", "weighted", "injected")


def trained(pathway, **fields):
    """A model whose pathway has other values than at the start."""
    model = built(pathway=pathway, **{"depth": 5, "residual_scale": 0.7, "offset": 0.05} | fields)
    with torch.no_grad():
        for parameter in model.blocks.pathway.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize(
    "pathway",
    [pytest.param(each, id=str(each), marks=() if each in EVERY_TIME else pytest.mark.slow) for each in PATHWAYS],
)
def test_every_pathway_with_fixed_weights_has_a_narrow_form(pathway):
    for norm, w_in in [("layer", "trainable"), ("layer", "orthogonal"), ("rms", "trainable"), ("none", "trainable")]:
        model = trained(pathway, norm=norm, w_in=w_in)
        assert error(model, torch.randn(9, 24)) < 1e-5
        assert error(model.double(), torch.randn(9, 24, dtype=torch.float64)) < 1e-12
    shallow = trained("plain" if pathway == {"name": "delayed", "lag": 3} else without_depth(pathway), depth=1)
    assert error(shallow, torch.randn(9, 24)) < 1e-5


def without_depth(pathway):
    """Without the fields that a network of one block refuses."""
    limits = ("lag", "group", "from_block", "dilation", "period")
    return pathway if isinstance(pathway, str) else {name: pathway[name] for name in pathway if name not in limits}


DELTAS = [
    "delta/value", "delta/erase-and-add", {"name": "delta", "value": "linear"},
    {"name": "delta", "value": "constant", "value_scale": 1.0}, {"name": "delta", "write": "update", "start": 1.0},
]  # fmt: skip


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("pathway", DELTAS, ids=str)
def test_delta_has_a_narrow_form_although_its_weights_depend_on_the_row(pathway, norm):
    shapes: list[dict[str, Any]] = [
        {},
        {"d_h": 70},
        {"d_in": 1, "depth": 1},
        {"d_in": 64, "d_z": 512, "d_h": 16, "w_in": "orthogonal"},
    ]
    for fields in shapes:
        model = trained(pathway, norm=norm, **fields).double()
        for scale in (0.1, 1.0, 100.0):
            assert error(model, scale * torch.randn(9, fields.get("d_in", 24), dtype=torch.float64)) < 1e-12
        assert error(model.float(), torch.randn(9, fields.get("d_in", 24))) < 1e-5


def test_delta_keeps_digits_where_the_mean_of_the_stream_is_large():
    """As well as the wide form: LayerNorm needs the centred length, delta that of the whole stream."""
    model = trained("delta", d_in=64, d_z=512, offset=1.0).double()
    assert error(model, torch.randn(40, 64, dtype=torch.float64) + 30) < 1e-12


@pytest.mark.parametrize("pathway", ["delta/value", "delta/erase-and-add"])
def test_counting_and_measuring_decide_for_delta_too(pathway, monkeypatch):
    deep = trained(pathway, depth=32)  # a narrow block reads all earlier hidden vectors
    assert narrow(deep) is deep
    assert narrow_gain(deep).speed is None
    wide = trained(pathway, d_z=1024, depth=3)
    gates, n, h = 1 + (pathway == "delta/value"), 24, 8
    rows = 2 * h + gates + 1  # for W_1, W_2ᵀ, the gates and the mean
    weights = n * (n + 3 * rows + 7) + h * rows * 3 + 3 * h * (h + 1) + 3 * h * 7
    assert narrow_gain(wide, measure=False).narrow_macs == weights
    assert isthmus.cost(narrow(wide, measure=False)).params == weights + 3 * gates
    for speed in (1.04, 1.06):
        monkeypatch.setattr("isthmus.export.narrow_form._speed", lambda *given, speed=speed: speed)
        assert (narrow(wide) is wide) == (speed < 1.05)


@pytest.mark.parametrize("pathway", ["scaled", "layerscale", {"name": "delayed", "lag": 0}], ids=str)
def test_what_the_matrices_hold_is_saved_as_plain(pathway):
    converted: Any = narrow(trained(pathway), force=True)
    assert "pathway" not in converted.config.model_dump(mode="json")


def count_sums(seen, n=24, h=8, depth=6, d_out=7):
    """Weights of a narrow form by sums, where place l sees update i or not; update i is made at place i − 1."""
    total = n * (min(n, 60) + depth * h + d_out) + depth * h * d_out
    for place in range(depth):
        total += h * h * sum(seen(place, update) for update in range(1, place + 1))
    for update in range(1, depth + 1):
        readers = [place for place in range(update, depth) if seen(place, update)]
        if readers:  # its inner product with the stream that it joins, and its length
            total += h * n + h * h * (1 + sum(seen(readers[0], other) for other in range(1, update)))
    return total


@pytest.mark.parametrize(
    ("pathway", "weights"),
    [
        ("gained", count_sums(lambda place, update: True)),
        ("ladder", count_sums(lambda place, update: update <= place - 1)),
        ({"name": "delayed", "lag": 3}, count_sums(lambda place, update: update <= place - 3)),
        ({"name": "delayed", "group": 2}, count_sums(lambda place, update: update <= place // 2 * 2)),
        ("parallel", count_sums(lambda place, update: False)),
        ("reversible", count_sums(lambda place, update: (place - update) % 2 == 0)),
        ("weighted", 24 * (24 + 11 * 8 + 7) + 64 * 15 + 6 * 8 * 7 + 64 * 15 + 6 * 7 * 8 // 6),
        ("streams/static-4", 24 * (24 + 11 * 8 + 7) + 64 * 15 + 6 * 8 * 7 + 64 * 15 + 6 * 7 * 8 // 6),
        ("injected", sum((24 + 8 * place) * (8 + min(24 + 8 * place, 60)) for place in range(6)) + 7 * (24 + 6 * 8)),
    ],
)
def test_fixed_weights_cost_what_they_connect(pathway, weights):
    converted = narrow(built(pathway=pathway, depth=6), force=True)
    cost = isthmus.cost(converted)
    assert (cost.params, cost.macs) == (weights, weights)


@pytest.mark.parametrize("pathway", ["ladder", "reversible", "weighted", "injected", "delta"])
def test_the_narrow_form_of_a_pathway_is_saved_and_loaded(pathway, tmp_path):
    model: Any = narrow(trained(pathway), force=True)
    write_model(tmp_path / "narrow.safetensors", model, model.state_dict(), model.config.model_dump(mode="json"))
    x = torch.randn(5, 24)
    assert torch.equal(isthmus.load(tmp_path / "narrow.safetensors").model(x), model(x))


def test_weights_that_depend_on_the_row_are_refused():
    for pathway in ("attended", "streams", "highway", "mobius", "parcae", "post_norm"):
        with pytest.raises(UserError, match="depend on the row"):
            narrow(built(pathway=pathway))
    with pytest.raises(UserError, match="those of attended depend on the row"):
        isthmus.create_model("narrow_mlp", d_in=3, d_out=2, d_z=9, d_h=2, depth=2, pathway="attended")
    with pytest.raises(UserError, match="narrow form of delta needs channels=1, not 4; `--to onnx`"):
        narrow(built(pathway="delta/value-4"))


def test_a_model_without_a_narrow_form_is_named():
    with pytest.raises(UserError, match="Linear has no narrow form; hourglass_mlp and conventional_mlp have one"):
        narrow(torch.nn.Linear(2, 2))
    with pytest.raises(UserError, match="narrow_mlp has no narrow form"):
        narrow(narrow(built(), force=True))
