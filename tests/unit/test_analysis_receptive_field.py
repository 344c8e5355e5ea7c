"""Receptive fields: connections against the explicit matrices, influence against autograd's Jacobian, and runs."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from isthmus.analysis import receptive_field as analysis
from isthmus.analysis.receptive_field import (
    applies,
    connections,
    draw,
    fields,
    find_inputs,
    influence,
    of_run,
    spread,
    squared_derivatives,
)
from isthmus.analysis.steps import steps_of
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.record import find_run
from isthmus.core.registry import create_model
from isthmus.layers.permuted_kronecker import PermutedKronecker
from isthmus.training.run import run

SHAPES: dict[str, Any] = {"input_shape": (1, 8, 8), "output_shape": (10,), "patch": 2}


def mixer(name: str = "s_mixer", **fields: Any) -> Any:
    torch.manual_seed(0)
    return create_model(name, **SHAPES | {"C": 6, "depth": 2, "permutation_seed": 3} | fields).eval()


MODELS: dict[str, dict[str, Any]] = {
    "normal": {},
    "random": {"permutation": "random"},
    "one random block": {"permutation": "random", "random_blocks": (2,)},
    "mlp": {"name": "mlp_mixer", "gamma": 1.5, "permutation": "random"},
    "other tokens": {"S": 5, "permutation": "random"},
    "sparse": {"name": "sw_mlp", "m": 64, "p": 0.05, "mask_seed": 1},
    "sparse mlp": {"name": "sw_mlp", "m": 64, "p": 0.05, "mask_seed": 1, "block": "mlp", "gamma": 1.5},
    "dense": {"name": "sw_mlp", "m": 64, "p": 1.0, "mask_seed": 1},
}


def built(kind: str) -> Any:
    given = MODELS[kind]
    if given.get("name") == "sw_mlp":
        return create_model(**SHAPES | {"depth": 2} | given).eval()
    return mixer(**given)


def explicit(layer: Any) -> Tensor:
    """Ones where W_eff has a weight."""
    if isinstance(layer, PermutedKronecker):
        with torch.no_grad():
            layer.weight.fill_(1)
        return layer.effective_weight()
    with torch.no_grad():
        layer.values.fill_(1)
    return (layer.weight() != 0).float().detach()


@pytest.mark.parametrize("kind", MODELS)
def test_fields_are_the_zeros_of_the_product_of_explicit_matrices(kind: str) -> None:
    path = steps_of(built(kind))
    found = None
    size = explicit(list(path[-1].layers.values())[-1]).shape[0]
    units = list(range(0, size, 7))
    products = []
    for step in path:
        through = torch.eye(explicit(next(iter(step.layers.values()))).shape[1])
        around = through
        for layer in step.layers.values():
            through = explicit(layer) @ through
        for layer in step.skip:
            around = explicit(layer) @ around
        found = through + around if found is None else (through + around) @ found
        products.append(found[units] > 0)
    names = [step.name for step in path]
    assert len(names) == (4 if names[0] == "token_1" else 2)
    for measured, product in zip(fields(path, size, units), products, strict=True):
        assert torch.equal(measured, product)


def test_one_layer_backwards_by_hand() -> None:
    """Token mixing of 16 tokens: what reaches a unit of channel 2 is channel 2, entries 32 to 47 of vec(X)."""
    layer = next(iter(steps_of(mixer())[0].layers.values()))
    reached = torch.zeros(1, 96, dtype=torch.bool)
    reached[0, 2 * 16 + 5] = True
    assert find_inputs(layer, reached).nonzero()[:, 1].tolist() == list(range(32, 48))


def test_a_normal_mixer_sees_all_patches_at_once_and_a_permuted_one_later() -> None:
    """Of C = S units at a rate of 1/√m: 1 − (1 − 1/S)^S of the patches, and of the units in the second step."""
    shape: dict[str, Any] = {"input_shape": (1, 16, 16), "C": 64, "depth": 3}
    normal = connections(mixer(**shape))
    random = connections(mixer(**shape, permutation="random"))
    assert normal is not None
    assert random is not None
    assert normal["units"] == [1 / 64, 1, 1, 1, 1, 1]
    assert normal["patches"] == [1] * 6
    assert random["units"][0] == pytest.approx(1 / math.sqrt(64 * 64), rel=0.1)
    assert random["patches"][0] == pytest.approx(1 - (1 - 1 / 64) ** 64, abs=0.02)
    assert random["units"][1] == pytest.approx(1 - math.exp(-1), abs=0.05)
    assert random["units"][-1] == 1
    assert torch.tensor(random["maps"][0]).shape == (8, 8)
    assert torch.tensor(random["maps"][0]).mean() == pytest.approx(1 / 64, rel=0.1)


def test_fields_never_shrink() -> None:
    model = mixer(permutation="random", depth=4)
    path = steps_of(model)
    found = list(fields(path, 96, range(96)))
    for before, after in pairwise(found):
        assert bool((after | ~before).all())


def test_models_of_other_layers_have_no_count() -> None:
    assert connections(create_model("imixer", **SHAPES, C=6, depth=1)) is None


def test_the_spread_counts_pixels() -> None:
    assert spread(torch.ones(4, 5)) == pytest.approx(1)
    assert spread(torch.eye(4)) == pytest.approx(1 / 4)
    assert spread(torch.zeros(4, 5)) == 0
    assert spread(torch.full((4, 5), 1e-300, dtype=torch.float64)) == pytest.approx(1)


def test_the_derivatives_are_the_jacobian_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the probe along each channel in turn, instead of along random directions."""
    model = mixer(depth=1)
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    middle = 2 * 4 + 2
    expected = torch.zeros(8, 8)
    for image in images:
        jacobian: Any = torch.autograd.functional.jacobian(lambda x: dict(model.trajectory(x))["x_1"], image[None])
        expected += jacobian[0, middle, :, 0, 0].square().sum(0) / len(images)
    found = torch.zeros(8, 8)
    for direction in torch.eye(6):
        monkeypatch.setattr(torch, "randn", lambda shape, along=direction, **rest: along.expand(shape))
        found += squared_derivatives(model, iter([images[:2].clone(), images[2:].clone()]))["x_1"]
    torch.testing.assert_close(found, expected)


def test_random_directions_have_the_mean_of_all_channels() -> None:
    model = mixer(depth=1)
    image = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    jacobian: Any = torch.autograd.functional.jacobian(lambda x: dict(model.trajectory(x))["x_1"], image)
    found = squared_derivatives(model, iter([image.repeat(2000, 1, 1, 1)]))["x_1"]
    assert found.sum() == pytest.approx(float(jacobian[0, 2 * 4 + 2].square().sum()), rel=0.1)


def test_before_any_mixing_only_the_own_patch_counts() -> None:
    found = influence(mixer(), iter([torch.rand(4, 1, 8, 8)]))
    assert found["steps"] == ["x_0", "x_token_1", "x_1", "x_token_2", "x_2"]
    inside = torch.tensor(found["maps"][0])[4:6, 4:6]
    assert torch.tensor(found["maps"][0]).count_nonzero() == inside.count_nonzero() == 4
    assert found["spread"][0] <= 4 / 64
    assert torch.tensor(found["maps"][1]).count_nonzero() > 60
    assert found["spread"][-1] > found["spread"][0]


def test_large_images_give_maps_of_a_bounded_size() -> None:
    model = create_model("s_mixer", input_shape=(1, 96, 80), output_shape=(2,), patch=16, C=4, depth=1)
    found = influence(model, iter([torch.rand(1, 1, 96, 80)]))
    assert torch.tensor(found["maps"][0]).shape == (64, 64)


def test_derivatives_that_overflow_are_named() -> None:
    model = mixer()
    with torch.no_grad():
        model.stem.linear.weight.fill_(torch.inf)
    with pytest.raises(UserError, match="finite derivatives"):
        influence(model, iter([torch.rand(2, 1, 8, 8)]))


def test_models_it_does_not_fit_are_told_why() -> None:
    assert applies(mixer(), "classification") is None
    assert applies(built("sparse"), "classification") is None
    mlp = create_model("hourglass_mlp", d_in=4, d_out=2, d_z=5, d_h=3, depth=1)
    assert applies(mlp, "classification") == "it does not work on images"


def trained(**model: Any) -> str:
    config = {
        "source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1,
        "model": {"patch": 2, "depth": 2} | model, "train": {"epochs": 1, "batch_size": 400},
    }  # fmt: skip
    return run(run_config(config)).id


def test_a_run_is_measured_once_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = trained(name="mlp_mixer", C=6, permutation="random")
    found = of_run(identity)
    assert found["connections"]["steps"] == ["token_1", "channel_1", "token_2", "channel_2"]
    assert 0 < found["connections"]["units"][0] < 0.5
    files = draw(found, tmp_path)
    assert [file.name for file in files] == [
        "receptive_field.png", "receptive_field-connections.png", "receptive_field-influence.png"
    ]  # fmt: skip
    for file in files:
        with Image.open(file) as picture:
            assert picture.format == "PNG"
    assert analysis.summary(found)["units reached, token_1"] == found["connections"]["units"][0]
    monkeypatch.setattr("isthmus.analysis.trained_run.load_model", lambda *given: pytest.fail("measured again"))
    assert of_run(identity) == found
    assert (find_run(identity) / "analysis" / "receptive_field.json").is_file()


def test_runs_without_a_count_or_without_maps_are_drawn_too(tmp_path: Path) -> None:
    implicit = of_run(trained(name="imixer", C=6))
    assert implicit["connections"] is None
    assert [file.name for file in draw(implicit, tmp_path)] == ["receptive_field.png", "receptive_field-influence.png"]
    sparse = of_run(trained(name="sw_mlp", m=64, p=0.1))
    assert sparse["connections"]["patches"] == []
    assert [file.name for file in draw(sparse, tmp_path)] == ["receptive_field.png", "receptive_field-influence.png"]


def test_a_run_on_rows_is_refused() -> None:
    with pytest.raises(UserError, match=r"receptive_field does not apply to run .*: it does not work on images"):
        of_run(run_of_rows())


def run_of_rows() -> str:
    config = {
        "source": {"name": "digits"}, "task": {"name": "super_resolution"}, "threads": 1,
        "model": {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1}, "train": {"epochs": 1, "batch_size": 400},
    }  # fmt: skip
    return run(run_config(config)).id
