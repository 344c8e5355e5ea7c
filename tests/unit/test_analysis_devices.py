"""Analyses compute where the model is: each on a stand-in for a GPU, against its numbers on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils._pytree import tree_flatten

from isthmus.analysis.analyze import analyze
from isthmus.core.config import run_config
from isthmus.core.record import find_run
from isthmus.training.loading import load_model
from isthmus.training.run import run
from tests.elsewhere import DEVICE, elsewhere, stay_here
from tests.unit.token_runs import SETTINGS, TOKENIZER, masked

FORWARD = {"depth_mixing", "expansion"}
"""They differentiate forward, which the stand-in cannot."""
MODELS: dict[str, dict[str, Any]] = {
    "hourglass": {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 2},
    "mixer": {"name": "s_mixer", "patch": 2, "C": 4, "depth": 2},
    "imixer": {"name": "imixer", "patch": 2, "C": 4, "depth": 2, "norm": "none"},
}


def train(name: str) -> str:
    if name == "sudoku":
        return run(run_config(SETTINGS)).id
    if name == "masked":
        return run(run_config(masked(run(run_config(TOKENIZER)).id))).id
    shared = {"source": {"name": "digits"}, "task": {"name": "classification"}, "threads": 1}
    return run(run_config({**shared, "model": MODELS[name], "train": {"epochs": 1, "batch_size": 400}})).id


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, "sudoku", "masked"])
def test_numbers_do_not_depend_on_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = train(name)
    here = {each: found for each, found in analyze(identity)["found"].items() if each not in FORWARD}
    assert {"cka", "contributions"} & here.keys()
    for file in (find_run(identity) / "analysis").glob("*.json"):
        file.unlink()
    for module in ("analysis.trained_run", "training.tokenizers"):
        monkeypatch.setattr(f"isthmus.{module}.best_device", lambda: DEVICE)
    for module in ("analysis.analyze", "analysis.trained_run", "training.tokenizers"):
        monkeypatch.setattr(f"isthmus.{module}.load_model", stay_here(load_model))
    with elsewhere():
        there = analyze(identity, list(here))["found"]
    (values, form), (expected, expected_form) = tree_flatten(there), tree_flatten(here)
    assert form == expected_form
    for value, other in zip(values, expected, strict=True):
        assert value == (pytest.approx(other, rel=1e-4, abs=1e-6) if isinstance(other, float) else other)
