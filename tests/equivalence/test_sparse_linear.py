"""Sparse products against the masked dense layer in float64, the drawn mask, its cost, and the SW-MLP made of it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import isthmus
from benchmarks.sparse import MaskedLinear
from isthmus.core.draws import key
from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.layers import sparse_linear
from isthmus.layers.sparse_linear import SparseLinear, connections, positions, sampled_product, sparse_product
from isthmus.papers.widesparse.table_s3 import Trained
from isthmus.training.checkpoint import fingerprints

sides = st.integers(1, 12)
densities = st.floats(0.01, 1.0)
seeds = st.integers(0, 2**62)


def layer(columns: int, rows: int, density: float, seed: int, **fields: Any) -> SparseLinear:
    torch.manual_seed(seed % 1000)
    made = SparseLinear(columns, rows, density, seed, **fields).double()
    if made.bias is not None:
        nn.init.normal_(made.bias)
    return made


@given(sides, sides, densities, seeds)
def test_the_mask_is_a_set_of_places_and_its_size_is_known_beforehand(rows, columns, density, seed):
    places = positions(rows, columns, density, seed, "a")
    assert places.tolist() == sorted(set(places.tolist()))
    assert len(places) == connections(rows, columns, density, seed, "a")
    assert all(0 <= place < rows * columns for place in places.tolist())
    assert torch.equal(places, positions(rows, columns, density, seed, "a"))


def test_every_entry_of_the_mask_is_one_independently_with_probability_p():
    """1,600 masks of four entries: every one of the 16 masks comes as often as Bernoulli(p) makes it, to 4.5 σ."""
    for p in (0.3, 0.7):
        counts = torch.zeros(16)
        for seed in range(1600):
            counts[sum(2**place for place in positions(2, 2, p, seed, "").tolist())] += 1
        ones = torch.tensor([number.bit_count() for number in range(16)])
        expected = 1600 * p**ones * (1 - p) ** (4 - ones)
        assert ((counts - expected).abs() <= 4.5 * expected.sqrt()).all()


def test_the_number_of_connections_is_binomial():
    size, p = 1000 * 1000, 0.02
    counts = torch.tensor([connections(1000, 1000, p, seed, "") for seed in range(400)], dtype=torch.float64)
    spread = math.sqrt(size * p * (1 - p))
    assert counts.mean().item() == pytest.approx(size * p, abs=5 * spread / 20)
    assert counts.std().item() == pytest.approx(spread, rel=0.2)


def test_a_mask_of_a_matrix_that_fits_nowhere_is_drawn_in_the_memory_of_its_ones():
    one = SparseLinear(400_000, 400_000, 1e-7, 0)  # 640 GB
    assert len(one.values) == pytest.approx(16_000, abs=600)
    assert one(torch.zeros(1, 400_000)).shape == (1, 400_000)


def test_streams_and_seeds_draw_different_masks():
    first, *others = (positions(30, 30, 0.1, seed, stream).tolist() for seed, stream in [(0, "a"), (0, "b"), (1, "a")])
    assert all(first != other for other in others)


@settings(max_examples=40)
@given(sides, sides, densities, seeds, st.sampled_from([1, 3, 16, 33]))
def test_products_in_single_precision_are_those_of_the_weight_in_double(columns, rows, density, seed, batch):
    """The kernel of single precision is another one; rows without a connection, and masks without any, included."""
    made = SparseLinear(columns, rows, density, seed, compute="sparse")
    weight = made.weight().detach().double()
    for transposed, width, matrix in ((False, columns, weight), (True, rows, weight.T)):
        x = torch.randn(width, batch)
        y = sparse_product(x, made.values.detach(), made.pattern(), transposed)
        assert y.dtype == torch.float32
        torch.testing.assert_close(y.double(), matrix @ x.double(), rtol=1e-5, atol=1e-5)


@settings(max_examples=40)
@given(sides, sides, densities, seeds, st.integers(1, 4), st.booleans(), st.sampled_from(["sparse", "dense"]))
def test_outputs_and_gradients_are_those_of_the_masked_dense_layer(columns, rows, p, seed, batch, bias, compute):
    ours = layer(columns, rows, p, seed, scale=1.5, bias=bias, compute=compute)
    places = positions(rows, columns, p, seed, "")
    weight = torch.zeros(rows * columns, dtype=torch.float64)
    weight[places] = ours.values.detach()
    weight = weight.view(rows, columns).requires_grad_()
    chosen = torch.zeros(rows * columns, dtype=torch.float64).index_fill(0, places, 1.5).view(rows, columns)
    x = torch.randn(2, batch, columns, dtype=torch.float64, requires_grad=True)
    again = x.detach().clone().requires_grad_()
    y, expected = ours(x), nn.functional.linear(again, weight * chosen, ours.bias)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(ours.weight(), weight * chosen)
    gradient = torch.randn_like(y)
    y.backward(gradient)
    expected.backward(gradient)
    torch.testing.assert_close(x.grad, again.grad)
    assert weight.grad is not None
    torch.testing.assert_close(ours.values.grad, weight.grad.flatten()[places])


def test_gradients_of_the_operators_and_of_their_gradients():
    one = layer(7, 9, 0.3, 1, compute="sparse")
    pattern = one.pattern()
    x, y = (torch.randn(size, 4, dtype=torch.float64, requires_grad=True) for size in (7, 9))
    values = one.values.detach().requires_grad_()
    cases: list[tuple[Any, tuple[Tensor, ...]]] = [
        (lambda x, v: sparse_product(x, v, pattern, False), (x, values)),
        (lambda y, v: sparse_product(y, v, pattern, True), (y, values)),
        (lambda y, x: sampled_product(y, x, pattern), (y, x)),
    ]
    for function, inputs in cases:
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


def test_the_operators_keep_torchs_rules():
    one = layer(7, 9, 0.3, 1, compute="sparse")
    x, y, values = torch.randn(7, 4), torch.randn(9, 4), torch.randn(len(one.values))
    for tensor in (x, y, values):
        tensor.requires_grad_()
    rules = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(sparse_product, (x, values, one.pattern(), False), test_utils=rules)
    torch.library.opcheck(sparse_product, (y, values, one.pattern(), True), test_utils=rules)
    torch.library.opcheck(sampled_product, (y, x, one.pattern()), test_utils=rules)


def test_sparse_up_to_a_density_and_dense_above_unless_asked_otherwise():
    limit = sparse_linear.SPARSE_UP_TO
    assert SparseLinear(20, 20, limit, 0).sparse
    assert not SparseLinear(20, 20, limit + 0.01, 0).sparse
    assert SparseLinear(20, 20, 0.9, 0, compute="sparse").sparse
    assert not SparseLinear(20, 20, 0.01, 0, compute="dense").sparse


def test_what_has_no_sparse_kernel_is_computed_densely(monkeypatch):
    one = layer(20, 30, 0.1, 3)
    x = torch.randn(5, 20, dtype=torch.float64)
    expected = one(x)
    monkeypatch.setattr(sparse_linear, "_DEVICES", ())
    monkeypatch.setattr(sparse_linear, "sparse_product", None)
    torch.testing.assert_close(one(x), expected)


def test_no_connections_at_all_is_a_layer_of_zeros():
    one = SparseLinear(5, 6, 1e-12, 0)
    x = torch.randn(3, 5, requires_grad=True)
    y = one(x)
    y.sum().backward()
    assert len(one.values) == 0
    assert not y.any()
    assert x.grad is not None
    assert not x.grad.any()


def test_mixed_precision_takes_what_a_neighbour_gives():
    one = SparseLinear(20, 30, 0.05, 3)
    x = torch.randn(5, 20).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = one(x)
        y.sum().backward()  # within, as a careless loop would
    torch.testing.assert_close(y, one(x.float()))
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16
    torch.testing.assert_close(x.grad.float(), one.weight().sum(0).expand(5, -1), atol=0.01, rtol=0.01)


def test_training_holds_at_most_a_fifteenth_of_the_masked_dense_layers_memory():
    def held(module: nn.Module) -> int:
        trained = Trained(module, lambda y: y.square().mean())
        trained.step(torch.randn(4, 512))
        return trained.held_bytes()

    assert 15 * held(SparseLinear(512, 512, 0.02, 0)) <= held(MaskedLinear(512, 512, 0.02))


def test_the_starting_weights_have_variance_one_over_columns_whatever_the_density():
    for p in (0.05, 1.0):
        assert layer(400, 300, p, 0).values.std().item() == pytest.approx(1 / 20, rel=0.05)


@pytest.mark.parametrize("density", [0.0, -0.1, 1.1, math.nan])
def test_a_density_that_is_none(density):
    with pytest.raises(UserError, match=r"above 0 and at most 1"):
        SparseLinear(4, 4, density, 0)


# The model.

IMAGE: dict[str, Any] = {"input_shape": (2, 8, 12), "patch": 4, "output_shape": (5,), "mask_seed": 1}  # six tokens


def sw_mlp(**fields: Any) -> Any:
    torch.manual_seed(0)
    return isthmus.create_model("sw_mlp", **IMAGE | {"m": 60, "p": 0.1, "depth": 2} | fields).double().eval()


def images(rows: int = 3) -> Tensor:
    return torch.randn(rows, 2, 8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def normal(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()


def test_a_single_layer_block_by_its_formula():
    model = sw_mlp()
    steps = dict(model.trajectory(images()))
    x = steps["x_0"]
    for i, block in enumerate(model.blocks, start=1):
        update = nn.functional.gelu(normal(x) @ block.W.weight().T + block.W.bias)
        torch.testing.assert_close(steps[f"block_{i}"], update)
        x = x + update
        torch.testing.assert_close(steps[f"x_{i}"], x)
    torch.testing.assert_close(steps["output"], model.head.linear(x))


def test_an_mlp_block_by_its_formula_ends_with_a_matrix():
    model = sw_mlp(block="mlp", gamma=1.5, bias=False)
    steps = dict(model.trajectory(images()))
    block = model.blocks[0]
    assert block.W1.weight().shape == (90, 60)
    expected = nn.functional.gelu(normal(steps["x_0"]) @ block.W1.weight().T) @ block.W2.weight().T
    torch.testing.assert_close(steps["block_1"], expected)


def test_the_ones_of_the_mask_are_one_or_keep_the_size_of_a_product():
    plain, scaled = (sw_mlp(mask_scale=kind).blocks[0].W for kind in ("one", "inverse_root"))
    torch.testing.assert_close(plain.weight() * math.sqrt(10), scaled.weight())
    wide: Any = isthmus.create_model("sw_mlp", **IMAGE | {"m": 3000, "p": 0.02, "depth": 1})
    x = torch.randn(50, 3000)
    assert wide.blocks[0].W(x).std().item() == pytest.approx(1, rel=0.05)


def test_the_vector_enters_unchanged_where_the_patches_give_it_and_through_a_mask_elsewhere():
    whole = sw_mlp(m=60)  # 6 tokens of 10 channels
    torch.testing.assert_close(whole.embed(images()), whole.stem(images()).flatten(1))
    odd = sw_mlp(m=50)
    assert (odd.enter.columns, odd.enter.rows) == (54, 50)
    swept = sw_mlp(m=60, S=15)  # C = 4
    assert (swept.enter.columns, swept.enter.rows) == (24, 60)
    assert sw_mlp(m=50, per_patch=False).enter.columns == 2 * 8 * 12
    assert isinstance(sw_mlp(m=192, per_patch=False).enter, nn.Identity)


def test_pooling_classifies_the_mean_of_the_normalised_tokens():
    model = sw_mlp(pool=True, S=12)
    *_, (_, x), (_, output) = model.trajectory(images())
    tokens = normal(x.view(3, 12, 5))
    torch.testing.assert_close(output, model.head.head.linear(tokens.mean(1)))


@pytest.mark.parametrize(("m", "head"), [(60, "TokenHead"), (50, "FlatHead")])
def test_an_image_comes_from_tokens_where_there_are_some_else_from_the_vector(m, head):
    model = sw_mlp(m=m, output_shape=(3, 16, 24))
    assert type(model.head).__name__ == head
    assert model(images()).shape == (3, 3, 16, 24)


def test_sparse_and_dense_computation_are_the_same_network():
    sparse, dense = (sw_mlp(compute=how, block="mlp", gamma=2) for how in ("sparse", "dense"))
    dense.load_state_dict(sparse.state_dict())
    torch.testing.assert_close(sparse(images()), dense(images()))


def test_the_cost_is_that_of_the_connections():
    model = sw_mlp(m=600, p=0.01, bias=False)
    kept = sum(len(block.W.values) for block in model.blocks)
    stem, head = model.stem.linear.weight.numel(), 600 * 5
    counted = isthmus.cost(model)
    assert kept == pytest.approx(2 * 0.01 * 600**2, rel=0.05)
    assert counted.macs == kept + 6 * stem + head
    assert counted.training_flops == 3 * 2 * kept + 2 * 2 * 6 * stem + 3 * 2 * head
    assert counted.params == kept + stem + head + 2 * 2 * 600


def test_a_network_of_terabytes_is_counted_but_not_built():
    imagenet = {"input_shape": (3, 224, 224), "output_shape": (1000,), "patch": 14, "m": 150_528, "depth": 16}
    fields: dict[str, Any] = {**imagenet, "block": "mlp", "gamma": 4, "p": 1.0, "mask_seed": 0}
    assert isthmus.cost({"name": "sw_mlp", **fields}).params > 2.9e12  # Table S.3: 23.2 TB of weights and masks
    with pytest.raises(UserError, match="this machine has") as raised:
        isthmus.create_model("sw_mlp", **fields)
    assert "\n" not in str(raised.value)
    assert "m=150528" in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"p": 0.0}, "p=0 is outside of"),
        ({"p": 1.5}, "p=1.5 is outside of"),
        ({"S": 7}, "S=7 tokens do not divide m=60"),
        ({"m": 50, "pool": True}, "no multiple of the image's 6"),
        ({"gamma": 2}, "gamma=2 is for block=mlp"),
        ({"patch": 5}, "patch=5 does not divide"),
    ],
)
def test_what_cannot_be_built_is_said_in_a_line(fields, message):
    with pytest.raises(UserError, match=message):
        sw_mlp(**fields)


def test_a_run_draws_the_masks_from_its_own_seed():
    config = sw_mlp(mask_seed=None).config
    completed = config.complete(Signature((2, 8, 12), (5,)), seed=3)
    assert completed.mask_seed == key(3, "mask")


def test_a_checkpoint_remembers_the_mask():
    one, same, other = (fingerprints(sw_mlp(mask_seed=seed)) for seed in (1, 1, 2))
    assert one == same
    assert one.keys() == {"blocks.0.W", "blocks.1.W"}
    assert max(abs(a - b) for name in one for a, b in zip(one[name], other[name], strict=True)) > 1e-2
