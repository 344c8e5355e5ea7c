"""Effective weights: pictures and numbers against the explicit matrix, for normal, permuted and masked layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from isthmus.analysis.effective_weights import (
    aligned_share,
    applies,
    corner,
    density,
    draw,
    measure_layers,
    of_run,
    summary,
    whole,
)
from isthmus.analysis.steps import entries, steps_of
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.record import find_run
from isthmus.core.registry import create_model
from isthmus.layers.permuted_kronecker import PermutedKronecker
from isthmus.training.run import run

SHAPES: dict[str, Any] = {"input_shape": (1, 8, 8), "output_shape": (10,), "patch": 2, "depth": 2}
MODELS: dict[str, dict[str, Any]] = {
    "normal": {"name": "s_mixer", "C": 6},
    "random": {"name": "s_mixer", "C": 6, "permutation": "random", "permutation_seed": 1},
    "normal mlp": {"name": "mlp_mixer", "C": 6, "gamma": 1.5},
    "random mlp": {"name": "mlp_mixer", "C": 6, "gamma": 1.5, "permutation": "random", "permutation_seed": 1},
    "normal, other tokens": {"name": "mlp_mixer", "C": 6, "gamma": 2, "S": 5},
    "sparse": {"name": "sw_mlp", "m": 96, "p": 0.08, "mask_seed": 1},
    "dense": {"name": "sw_mlp", "m": 96, "p": 1.0, "mask_seed": 1},
}


def built(kind: str) -> Any:
    torch.manual_seed(0)
    return create_model(**SHAPES | MODELS[kind])


def explicit(layer: Any) -> Tensor:
    weight: Tensor = layer.effective_weight() if isinstance(layer, PermutedKronecker) else layer.weight()
    return weight.detach()


def layers(kind: str) -> list[Any]:
    return [layer for step in steps_of(built(kind)) for layer in step.layers.values()]


@pytest.mark.parametrize("kind", MODELS)
def test_entries_are_those_of_the_explicit_matrix(kind: str) -> None:
    for layer in layers(kind):
        matrix = torch.zeros(layer.effective_shape)
        count = 0
        for part in entries(layer):
            matrix[part.rows, part.columns] = part.values
            count += len(part.values)
        torch.testing.assert_close(matrix, explicit(layer))
        assert count == explicit(layer).count_nonzero()
        assert density(layer) == pytest.approx(count / matrix.numel())


@pytest.mark.parametrize("kind", ["normal", "random", "sparse"])
def test_a_picture_shows_the_largest_entry_of_each_cell(kind: str) -> None:
    for layer in layers(kind):
        matrix = explicit(layer).abs()
        assert matrix.shape == (96, 96)
        torch.testing.assert_close(whole(layer, cells=1000), matrix)  # small enough to be shown as it is
        torch.testing.assert_close(whole(layer, cells=24), functional.max_pool2d(matrix[None], 4)[0])
        torch.testing.assert_close(corner(layer, 7), matrix[:7, :7])


def test_cells_of_a_matrix_that_they_do_not_divide() -> None:
    layer = layers("random mlp")[0]
    matrix = explicit(layer).abs()
    assert matrix.shape == (144, 96)
    found = whole(layer, cells=10)
    assert found.shape == (10, 10)
    assert found.max() == matrix.max()
    assert found[0, 0] == matrix[:15, :10].max()  # rows 0 to 14 and columns 0 to 9 fall into the first tenth


def obvious_share(step: Any, name: str, S_in: int, S_out: int) -> float:
    """Entry by entry of the explicit matrix."""
    layer = step.layers[name]
    names = list(step.layers)
    axis = step.name.partition("_")[0]

    def owner(unit: int, tokens: int, hidden: int | None) -> int:
        if hidden is not None:
            return unit // hidden
        return unit // tokens if axis == "token" else unit % tokens

    width_out, width_in = layer.weight.shape
    matrix = explicit(layer)
    same = sum(
        owner(int(row), S_out, None if name == names[-1] else width_out)
        == owner(int(column), S_in, None if name == names[0] else width_in)
        for row, column in matrix.nonzero()
    )
    return same / int(matrix.count_nonzero())


@pytest.mark.parametrize("kind", ["normal", "random", "normal mlp", "random mlp", "normal, other tokens"])
def test_alignment_is_complete_in_normal_mixers_and_chance_in_permuted_ones(kind: str) -> None:
    model = built(kind)
    tokens_in = 16
    for step in steps_of(model):
        for name, layer in step.layers.items():
            share = aligned_share(step, name, tokens_in, model.config.inner_tokens)
            assert share == pytest.approx(obvious_share(step, name, tokens_in, model.config.inner_tokens))
            assert isinstance(layer, PermutedKronecker)
            assert share is not None
            assert share == 1 if "normal" in kind else share < 2.5 / layer.copies
        tokens_in = model.config.inner_tokens


def test_density_is_one_over_copies_or_the_mask_s() -> None:
    token, channel = layers("random")[:2]
    assert (density(token), density(channel)) == (1 / 6, 1 / 16)
    assert density(layers("sparse")[0]) == pytest.approx(0.08, abs=0.01)
    assert density(layers("dense")[0]) == 1


def test_zero_weights_are_no_connections() -> None:
    layer = layers("normal")[0]
    with torch.no_grad():
        layer.weight[0] = 0
    assert density(layer) == pytest.approx(15 / 16 / 6)


def test_each_kind_of_block_is_pictured_once() -> None:
    model = create_model(
        "s_mixer", **SHAPES | {"depth": 4}, C=6, permutation="random", random_blocks=(2, 4), permutation_seed=1
    )
    lines = measure_layers(model)
    assert len(lines) == 8
    pictured = [line["layer"] for line in lines if "whole" in line]
    assert pictured == ["token_1.fc", "channel_1.fc", "token_2.fc", "channel_2.fc"]
    assert [line["random"] for line in lines] == [False, False, True, True] * 2


def test_models_of_other_layers_are_told_why() -> None:
    assert applies(built("normal"), "classification") is None
    mlp = create_model("hourglass_mlp", d_in=4, d_out=2, d_z=5, d_h=3, depth=1)
    assert "no permuted-Kronecker or masked layers" in str(applies(mlp, "classification"))


def trained(**model: Any) -> str:
    config = {
        "source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1,
        "model": model, "train": {"epochs": 1, "batch_size": 400},
    }  # fmt: skip
    return run(run_config(config)).id


@pytest.mark.parametrize("kind", ["random mlp", "sparse"])
def test_a_run_is_measured_once_and_drawn(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = trained(**{"patch": 2, "depth": 2} | MODELS[kind])
    found = of_run(identity)
    (file,) = draw(found, tmp_path)
    with Image.open(file) as picture:
        assert picture.format == "PNG"
    lines = summary(found)
    first = "token_1.fc1, 144×96" if kind == "random mlp" else "block_1.W, 96×96"
    assert str(lines[first]).startswith("density 0.")
    assert ("aligned" in str(lines[first])) == (kind == "random mlp")
    monkeypatch.setattr("isthmus.analysis.trained_run.load_model", lambda *given: pytest.fail("measured again"))
    assert of_run(identity) == found
    assert (find_run(identity) / "analysis" / "effective_weights.json").is_file()


def test_a_run_of_other_layers_is_refused() -> None:
    with pytest.raises(UserError, match="effective_weights does not apply to run"):
        of_run(trained(name="hourglass_mlp", d_z=70, d_h=8, depth=1))
