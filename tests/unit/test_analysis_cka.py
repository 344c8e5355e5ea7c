"""Minibatch CKA: the formula, its invariances, what has no variation, and comparisons of trained runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from isthmus.analysis import trained_run
from isthmus.analysis.cka import applies, cka, draw, of_run, summary, u_centred_gram
from isthmus.analysis.trained_run import TrainedRun, round_values
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.record import find_run
from isthmus.core.registry import create_model
from isthmus.training.loading import load_model
from isthmus.training.run import run

seeds = st.integers(0, 2**32 - 1)
rows = st.integers(4, 12)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def hsic(k: np.ndarray, other: np.ndarray) -> float:
    """The unbiased estimate term by term (Song et al. 2007, eq. 5)."""
    n = len(k)
    k, other = k - np.diag(np.diag(k)), other - np.diag(np.diag(other))
    ones = np.ones(n)
    middle = (ones @ k @ ones) * (ones @ other @ ones) / ((n - 1) * (n - 2))
    return float((np.trace(k @ other) + middle - 2 / (n - 2) * (ones @ k @ other @ ones)) / (n * (n - 3)))


def obvious(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    """Minibatch CKA of two layers, batch by batch, as it is printed."""
    of_x = [x.numpy() @ x.numpy().T for x in first]
    of_y = [y.numpy() @ y.numpy().T for y in second]
    between = np.mean([hsic(x, y) for x, y in zip(of_x, of_y, strict=True)])
    return float(between / np.sqrt(np.mean([hsic(x, x) for x in of_x]) * np.mean([hsic(y, y) for y in of_y])))


def of_layers(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    return float(cka([[x] for x in first], [[y] for y in second]))


@given(seeds, st.lists(rows, min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 6))
def test_it_is_the_printed_formula_for_any_batches_and_widths(seed, sizes, width, other_width):
    first = [drawn(seed + i, n, width) for i, n in enumerate(sizes)]
    second = [drawn(seed + 99 + i, n, other_width) + first[i][:, :1] for i, n in enumerate(sizes)]
    assert of_layers(first, second) == pytest.approx(obvious(first, second), abs=1e-9)


@given(seeds, rows)
def test_the_products_of_centred_grams_are_the_unbiased_estimate(seed, n):
    x, y = drawn(seed, n, 3), drawn(seed + 1, n, 5) + 100  # and a mean changes nothing
    product = float((u_centred_gram(x) * u_centred_gram(y)).sum()) / (n * (n - 3))
    assert product == pytest.approx(hsic((x @ x.T).numpy(), ((y - 100) @ (y - 100).T).numpy()), rel=1e-7, abs=1e-9)


@given(seeds, rows, st.floats(1e-3, 1e3), st.booleans())
def test_rotation_scale_and_shift_change_nothing(seed, n, scale, negative):
    x, y = drawn(seed, n, 5), drawn(seed + 1, n, 4) + drawn(seed, n, 5)[:, :4]
    turn = torch.linalg.qr(drawn(seed + 2, 5, 5)).Q
    changed = (-scale if negative else scale) * x @ turn + drawn(seed + 3, 5)
    assert of_layers([changed], [y]) == pytest.approx(of_layers([x], [y]), abs=1e-8)
    assert of_layers([x], [y]) == pytest.approx(of_layers([y], [x]), abs=1e-12)


@given(seeds, rows, st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_a_layer_is_like_itself(seed, n, kind):
    x = drawn(seed, n, 7).to(kind)
    assert of_layers([x], [x.clone()]) == pytest.approx(1, abs=1e-5)


def test_a_stretch_along_one_direction_is_seen():
    """Otherwise the invariances above would hold for a constant."""
    x = drawn(0, 50, 5)
    assert of_layers([x], [x * torch.tensor([10.0, 1, 1, 1, 1])]) < 0.9
    assert abs(of_layers([x], [drawn(1, 50, 5)])) < 0.3


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=300)
@given(st.data(), rows, st.integers(1, 4), st.integers(1, 4))
def test_it_is_a_number_between_minus_one_and_one_for_any_features(data, n, width, other_width):
    x = torch.from_numpy(data.draw(arrays.arrays(np.float32, (n, width), elements=finite)))
    y = torch.from_numpy(data.draw(arrays.arrays(np.float32, (n, other_width), elements=finite)))
    value = of_layers([x], [y])
    assert -1 <= value <= 1
    alone = of_layers([x], [x])
    assert alone == 0 or alone == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3e38, 1e-40])
@pytest.mark.parametrize("n", [4, 5, 128])
def test_constant_features_align_with_nothing(value, n):
    constant, x = torch.full((n, 3), value), drawn(0, n, 5).float()
    assert of_layers([constant], [x]) == 0
    assert of_layers([constant], [constant]) == 0


def test_variation_that_is_only_rounding_counts_as_constant():
    noise = 1 + 6e-8 * torch.randint(-1, 2, (128, 30), generator=torch.Generator().manual_seed(0)).float()
    assert noise.std() > 0
    assert of_layers([noise], [noise]) == 0


@pytest.mark.parametrize("n", [4, 7, 30])
def test_rows_that_are_all_equally_far_apart_have_nothing_to_align(n):
    """HSIC's unbiased estimate is then 0, and only rounding is left: not a number to divide by."""
    turn = torch.linalg.qr(drawn(0, n, n)).Q
    for simplex in (torch.eye(n), (torch.eye(n, dtype=torch.float64) @ turn).float()):
        assert of_layers([simplex], [simplex]) == 0
        assert of_layers([simplex], [drawn(0, n, 5)]) == 0


def test_a_constant_batch_among_others_counts_as_nothing_aligned():
    x = drawn(0, 20, 5)
    assert of_layers([x, torch.ones(8, 5)], [x, torch.ones(8, 5)]) == pytest.approx(1)
    assert of_layers([x, torch.ones(8, 5)], [x, drawn(1, 8, 5)]) < 1


def test_too_few_rows_other_rows_and_overflow_are_named():
    with pytest.raises(UserError, match="at least 4 rows, not of 3"):
        of_layers([drawn(0, 3, 5)], [drawn(1, 3, 5)])
    with pytest.raises(UserError, match="at least one batch of 4 rows"):
        of_layers([], [])
    with pytest.raises(UserError, match="different numbers"):
        of_layers([drawn(0, 5, 5)], [drawn(1, 6, 5)])
    with pytest.raises(UserError, match="finite features"):
        of_layers([torch.full((5, 5), torch.inf)], [drawn(1, 5, 5)])


def test_features_are_what_blocks_add_to_the_skip():
    mlp: Any = create_model("hourglass_mlp", d_in=5, d_out=2, d_z=9, d_h=4, depth=2, init="pytorch")
    x = torch.randn(6, 5)
    steps = dict(mlp.trajectory(x))
    named = {step.name: step.update for step in mlp.steps(x)}
    assert list(named) == ["block_1", "block_2"]
    torch.testing.assert_close(named["block_2"], mlp.blocks[1].W2(steps["h_2"]))


def test_models_without_blocks_are_told_why():
    assert applies(create_model("monarch_mlp", d_in=5, d_out=2), "classification") is not None


def trained(seed: int = 0, source: str = "digits", **model: Any) -> str:
    """A run of moments."""
    shape = {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 2, "init": "pytorch"} | model
    config = {
        "source": {"name": source}, "task": {"name": "super_resolution"}, "threads": 1, "seed": seed,
        "model": shape, "train": {"epochs": 1, "batch_size": 400},
    }  # fmt: skip
    return run(run_config(config)).id


def test_a_run_with_itself_and_the_answer_kept(monkeypatch):
    identity = trained()
    found = of_run(identity)
    values = torch.tensor(found["cka"])
    assert found["layers"] == found["layers_against"] == ["block_1", "block_2"]
    assert found["mean_diagonal"] == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(values, values.T)
    assert found["rows"] == 300
    assert 0 < values[0, 1] < 0.999
    opened = TrainedRun(identity)
    model: Any = load_model(identity)
    layers = [[step.update.double() for step in model.steps(x)] for x in opened.test_inputs(300, 128, 4)]
    assert [len(batch[0]) for batch in layers] == [128, 128, 44]
    expected = obvious([batch[0].detach() for batch in layers], [batch[1].detach() for batch in layers])
    assert found["cka"][0][1] == pytest.approx(expected, abs=1e-6)
    monkeypatch.setattr("isthmus.analysis.trained_run.load_model", lambda *given: pytest.fail("measured again"))
    assert of_run(identity) == of_run(identity, against=identity) == found
    assert json.loads((find_run(identity) / "analysis" / "cka.json").read_text())["cka"] == found["cka"]


def test_two_runs_of_different_width_and_depth(tmp_path: Path):
    narrow, wide = trained(), trained(1, d_z=90)
    found = of_run(narrow, against=wide)
    turned = of_run(wide, against=narrow)
    torch.testing.assert_close(torch.tensor(found["cka"]), torch.tensor(turned["cka"]).T)
    assert found["mean_diagonal"] == pytest.approx(np.diag(found["cka"]).mean())
    assert 0 < found["mean_diagonal"] < 0.999
    assert summary(found)["compared with"] == wide
    deep = of_run(narrow, against=trained(depth=3))
    assert deep["mean_diagonal"] is None
    assert summary(deep)["mean of the diagonal"] == "– (2 layers against 3)"
    assert summary(deep)["mean of all pairs"] == pytest.approx(np.mean(deep["cka"]))
    assert np.shape(deep["cka"]) == (2, 3)
    (file,) = draw(deep, tmp_path)
    assert file.name == f"cka-{deep['against']}.png"
    with Image.open(file) as picture:
        assert picture.format == "PNG"
        assert picture.size[0] > 200


def test_a_run_with_its_untrained_self():
    identity = trained()
    found = of_run(identity, against="untrained")
    assert found["against"] == "untrained"
    assert found["mean_diagonal"] < of_run(identity)["mean_diagonal"]
    assert (find_run(identity) / "analysis" / "cka-untrained.json").is_file()
    zero = of_run(trained(init="zero_w2"), against="untrained")  # its blocks add nothing before they are trained
    assert zero["cka"] == [[0, 0], [0, 0]]


def test_runs_of_other_data_are_not_compared():
    first, second = trained(), trained(source="mnist5k", d_z=200)
    with pytest.raises(UserError, match=r"same rows.*digits and mnist5k"):
        of_run(first, against=second)


def test_other_data_under_the_same_name_is_refused(monkeypatch):
    identity = trained()
    data = TrainedRun(identity).data
    monkeypatch.setattr(
        trained_run, "load_data", lambda *given: type(data)(data.train, data.validation, data.test, "other")
    )
    with pytest.raises(UserError, match="trained on other data than digits"):
        of_run(identity)


def test_rows_are_drawn_once_for_every_run_of_the_same_data():
    first, second = TrainedRun(trained()), TrainedRun(trained(1))
    for a, b in zip(first.test_inputs(250, 100), second.test_inputs(250, 100), strict=True):
        assert torch.equal(a, b)
    assert [len(x) for x in first.test_inputs(250, 100)] == [100, 100, 50]
    assert [len(x) for x in first.test_inputs(203, 100, least=4)] == [100, 100]
    rows = torch.cat([x.flatten(1) for x in first.test_inputs(1000, 100)])
    assert len(rows) == len(first.data.test) == 300
    whole = first.task.evaluation_batch(torch.from_numpy(first.data.test.inputs), None, "test", 0).input.flatten(1)
    assert not torch.equal(rows, whole)
    assert torch.equal(rows.double().sum(1).sort().values, whole.double().sum(1).sort().values)


def test_numbers_for_pictures_keep_their_leading_digits():
    assert round_values(torch.tensor([[123.456, 0.04], [-1.0, 0.0]]), 4) == [[123.5, 0.0], [-1.0, 0.0]]
    assert round_values(torch.tensor([1.23456e-9])) == [pytest.approx(1.235e-9)]
    assert round_values(torch.zeros(2, 1)) == [[0.0], [0.0]]
