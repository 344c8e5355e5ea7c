"""Replacement of a single block: what changes, what stays, the networks of Figure S.4, and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from isthmus.analysis.block_replacement import (
    applies,
    draw,
    normal_blocks,
    of_run,
    replace_block,
    summary,
    trained_configs,
)
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.record import find_run, read_record
from isthmus.core.registry import create_model
from isthmus.training.loading import load_model
from isthmus.training.run import run

SHAPES: dict[str, Any] = {"input_shape": (1, 8, 8), "output_shape": (10,), "patch": 2, "C": 6}


def mixer(name: str = "s_mixer", **fields: Any) -> Any:
    torch.manual_seed(0)
    return create_model(name, **SHAPES | {"depth": 4} | fields).eval()


@pytest.mark.parametrize("name", ["s_mixer", "mlp_mixer"])
@pytest.mark.parametrize("block", [1, 2, 4])
@torch.no_grad()
def test_up_to_the_replaced_block_nothing_changes_and_its_weights_stay(name: str, block: int) -> None:
    model = mixer(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    changed = replace_block(model, block, seed=5)
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    plain, other = dict(model.trajectory(x)), dict(changed.trajectory(x))
    torch.testing.assert_close(other[f"x_{block - 1}"], plain[f"x_{block - 1}"])
    assert not torch.allclose(other[f"token_{block}"], plain[f"token_{block}"])
    assert all(torch.equal(value, before[key]) for key, value in changed.state_dict().items())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    torch.testing.assert_close(dict(model.trajectory(x))["output"], plain["output"])
    assert [part.random for part in changed.blocks] == [number == block for number in (1, 2, 3, 4)]


@torch.no_grad()
def test_it_is_the_network_with_that_block_random_and_another_seed_is_another() -> None:
    model = mixer()
    same = mixer(permutation="random", random_blocks=(3,), permutation_seed=5)
    same.load_state_dict(model.state_dict())
    x = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(replace_block(model, 3, 5)(x), same(x))
    assert not torch.allclose(replace_block(model, 3, 6)(x), same(x))


@torch.no_grad()
def test_blocks_that_are_random_already_keep_their_permutations() -> None:
    model = mixer(permutation="random", random_blocks=(2,), permutation_seed=9)
    changed = replace_block(model, 4, seed=5)
    assert [part.random for part in changed.blocks] == [False, True, False, True]
    x = torch.randn(3, 1, 8, 8)
    plain, other = dict(model.trajectory(x)), dict(changed.trajectory(x))
    torch.testing.assert_close(other["x_3"], plain["x_3"])
    assert not torch.allclose(other["x_4"], plain["x_4"])


def test_which_models_it_fits() -> None:
    assert normal_blocks(mixer()) == [1, 2, 3, 4]
    assert normal_blocks(mixer(permutation="random", random_blocks=(2,))) == [1, 3, 4]
    assert applies(mixer(), "classification") is None
    assert applies(mixer(permutation="random"), "classification") == "all its blocks are random already"
    other = create_model("hourglass_mlp", d_in=4, d_out=2, d_z=5, d_h=3, depth=1)
    assert applies(other, "classification") == "its blocks have no permutation"


def test_figure_s4_is_trained_with_one_random_block() -> None:
    configs = trained_configs({"name": "s_mixer", "C": 8, "depth": 4, "permutation": "random"})
    assert configs[0] == {"name": "s_mixer", "C": 8, "depth": 4}
    assert [config.get("random_blocks") for config in configs] == [None, (1,), (2,), (3,), (4,)]
    kinds = []
    for config in configs:
        model: Any = create_model(**SHAPES | config)
        kinds.append([number for number, block in enumerate(model.blocks, start=1) if block.random])
    assert kinds == [[], [1], [2], [3], [4]]


def trained(**model: Any) -> str:
    config = {
        "source": {"name": "digits"}, "task": {"name": "classification"}, "threads": 1,
        "model": {"name": "s_mixer", "patch": 2, "C": 8, "depth": 2} | model,
        "train": {"epochs": 6, "batch_size": 100, "learning_rate": 0.005},
    }  # fmt: skip
    return run(run_config(config)).id


def test_a_run_loses_accuracy_and_the_answer_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = trained()
    found = of_run(identity)
    record = read_record(find_run(identity))
    assert found["metric"] == record.objective == "accuracy"
    assert found["whole"] == pytest.approx(record.metrics["test"]["accuracy"])
    assert found["blocks"] == [1, 2]
    assert [len(draws) for draws in found["replaced"]] == [3, 3]
    assert len(set(found["replaced"][0])) > 1
    assert sum(found["replaced"][0]) / 3 < found["whole"] - 0.1
    assert set(summary(found)) == {
        "test accuracy, as trained", "block 1 replaced, not retrained", "block 2 replaced, not retrained"
    }  # fmt: skip
    (file,) = draw(found, tmp_path)
    with Image.open(file) as picture:
        assert picture.format == "PNG"
    monkeypatch.setattr("isthmus.analysis.trained_run.load_model", lambda *given: pytest.fail("measured again"))
    assert of_run(identity) == found
    model: Any = load_model(identity)  # and the run is what it was
    assert not any(block.random for block in model.blocks)


def test_what_is_not_finite_is_left_out(tmp_path: Path) -> None:
    found = {
        "model": "s_mixer", "run": "a", "metric": "psnr", "whole": None, "blocks": [1, 2],
        "replaced": [[None] * 3, [1.0, None, 2.0]],
    }  # fmt: skip
    assert summary(found) == {"test psnr, as trained": "–", "block 2 replaced, not retrained": "1.5 ± 0.5"}
    assert draw(found, tmp_path)[0].is_file()


def test_a_run_without_normal_blocks_is_refused() -> None:
    with pytest.raises(UserError, match="all its blocks are random already"):
        of_run(trained(permutation="random", depth=1))
