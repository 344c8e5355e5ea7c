"""``train.recompute`` keeps less for the gradient and changes no bit of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.record import read_metrics, read_record
from isthmus.training.loop import recompute_blocks
from isthmus.training.prepare import prepare
from isthmus.training.run import run
from tests.conformance.small_models import IMAGE, SMALL, build, inputs
from tests.training.bits import weights, without_time

DIGITS = {"patch": 4, "iterations": 3, "d": 16, "num_heads": 2}
RUNS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("hourglass_mlp", {"d_z": 40, "d_h": 8, "depth": 4}, {"accumulate": 2, "clip_norm": 1.0}),
    ("hourglass_mlp", {"d_z": 40, "d_h": 8, "depth": 4, "pathway": "mhc", "init": "pytorch"}, {"average": 0.9}),
    ("vit", {"patch": 4, "d_z": 12, "d_h": 6, "num_heads": 2, "depth": 3, "drop_path": 0.3}, {}),
    ("s_mixer", {"patch": 4, "C": 10, "depth": 2, "S": 6, "drop_path": 0.3}, {}),
    ("imixer", {"patch": 4, "C": 10, "depth": 2, "norm": "none", "drop_path": 0.3}, {}),
    ("recurrent_transformer", {**DIGITS, "embedding_dropout": 0.2, "pathway": "attended"}, {}),
    ("hyper_set", {**DIGITS, "embedding_dropout": 0.2}, {}),
    ("crate", DIGITS, {}),
]


def config(model: str, fields: dict[str, Any], **train: Any) -> Any:
    settings: dict[str, Any] = {
        "source": {"name": "digits", "validation": 700, "test": 700},
        "task": {"name": "classification"},
        "model": {"name": model, **fields},
        "train": {"epochs": 1, "batch_size": 100, **train},
        "threads": 1,
    }
    return run_config(settings)


@pytest.mark.parametrize(("model", "fields", "train"), RUNS, ids=[f"{name} {n}" for n, (name, *_) in enumerate(RUNS)])
def test_a_run_has_the_same_bits(model: str, fields: dict[str, Any], train: dict[str, Any]) -> None:
    """Dropout and drop path draw again what the forward pass drew."""
    folders: list[Path] = []
    for more in ({}, {"recompute": True}):
        prepared = prepare(config(model, fields, **train, **more))
        assert run(prepared).status == "finished"
        folders.append(prepared.folder)
    stored, recomputed = folders
    assert stored != recomputed
    assert weights(stored) == weights(recomputed)
    assert without_time(stored) == without_time(recomputed)
    assert "recompute" not in read_record(stored).config["train"]
    assert read_record(recomputed).config["train"]["recompute"] is True
    assert read_metrics(recomputed)


def count_saved(model: str, fields: dict[str, Any], recompute: bool) -> int:
    """Numbers that autograd keeps, without weights, as the cost ``saved_values`` counts them."""
    network = build(model, fields)
    if recompute:
        recompute_blocks(network)
    known = {tensor.untyped_storage()._cdata for tensor in (*network.parameters(), *network.buffers())}
    saved: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        network(inputs(network))
    return sum(tensor.numel() for key, tensor in saved.items() if key not in known)


@pytest.mark.parametrize(
    ("model", "fields", "most"),
    [
        ("hourglass_mlp", {**SMALL["hourglass_mlp"][0], "depth": 16}, 0.5),
        ("conventional_mlp", {**SMALL["conventional_mlp"][0], "depth": 16}, 0.2),
        ("vit", {**SMALL["vit"][1], "depth": 8}, 0.2),
        ("mlp_mixer", {**SMALL["mlp_mixer"][0], "depth": 8}, 0.3),
        ("recurrent_transformer", IMAGE, 0.3),
        ("hyper_set", IMAGE, 0.3),
    ],
)
def test_less_is_kept_for_the_gradient(model: str, fields: dict[str, Any], most: float) -> None:
    stored, recomputed = (count_saved(model, fields, recompute) for recompute in (False, True))
    assert 0 < recomputed <= most * stored


@pytest.mark.parametrize(
    ("model", "fields", "train", "says"),
    [
        ("dense_mlp", {"hidden": (9, 7)}, {}, "train.recompute=true needs a residual network; dense_mlp has no blocks"),
        ("imixer", {"patch": 4, "C": 10, "depth": 2}, {}, "changes with every pass, so no block can be computed again"),
        ("imixer", {"patch": 4, "C": 10, "depth": 2, "norm": "batch"}, {}, "changes with every pass"),
        ("hourglass_mlp", {"d_z": 40, "d_h": 8, "depth": 1}, {"stack": 2}, "recompute=True; leave stack out"),
    ],
)
def test_what_cannot_be_computed_again_is_one_line(
    model: str, fields: dict[str, Any], train: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError) as refused:
        prepare(config(model, fields, **train, recompute=True))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list((home() / "runs").glob("*"))
