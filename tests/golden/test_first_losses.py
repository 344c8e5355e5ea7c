"""The first losses of tiny runs, to the digit: a change here is a change of what a config means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.config import run_config
from isthmus.core.record import read_metrics
from isthmus.training.prepare import prepare
from isthmus.training.run import run

GOLDEN = Path(__file__).with_name("first_losses.json")

RECURRENT: dict[str, Any] = {"d": 16, "num_heads": 2, "iterations": 3, "patch": 4}
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "hourglass denoise": ("hourglass_mlp", {"d_z": 80, "d_h": 16, "depth": 2}, {"name": "denoise"}),
    "conventional denoise": ("conventional_mlp", {"d_z": 64, "d_h": 80, "depth": 1}, {"name": "denoise"}),
    "hourglass super-resolution": (
        "hourglass_mlp",
        {"d_z": 80, "d_h": 16, "depth": 2, "w_in": "orthogonal", "norm": "rms", "activation": "silu"},
        {"name": "super_resolution", "flips": True},
    ),
    "hourglass classification": ("hourglass_mlp", {"d_z": 80, "d_h": 16, "depth": 2}, {"name": "classification"}),
    "hyper_set classification": ("hyper_set", RECURRENT, {"name": "classification"}),
    "hyper_set classification from X_0": (
        "hyper_set",
        RECURRENT | {"step_sizes": "X_0", "time_mlp": False, "ff_ratio": 2, "positions": "learned"},
        {"name": "classification"},
    ),
    # Learned steps start at zero, so that another sign of the update could be learned as well; fixed ones tell.
    "hyper_set classification, fixed steps": (
        "hyper_set",
        RECURRENT | {"step_sizes": "fixed", "activation": "gelu"},
        {"name": "classification"},
    ),
    "recurrent_transformer classification": ("recurrent_transformer", RECURRENT, {"name": "classification"}),
    "crate classification": ("crate", RECURRENT, {"name": "classification"}),
    "crate_t classification": ("crate_t", RECURRENT, {"name": "classification"}),
}


def first_losses(name: str) -> list[float]:
    model, shape, task = RUNS[name]
    settings: dict[str, Any] = {"source": {"name": "digits"}, "task": task, "model": {"name": model, **shape}}
    config = run_config(settings | {"train": {"epochs": 2}, "threads": 1})
    run(config)
    return [line["loss"] for line in read_metrics(prepare(config).folder)]


@pytest.mark.parametrize("name", RUNS)
def test_first_losses_are_the_recorded_ones(name: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    # Other processors sum in another order; a change of meaning is far larger than this.
    assert first_losses(name) == pytest.approx(golden[name], rel=1e-4)


if __name__ == "__main__":  # records them anew: ISTHMUS_HOME=$(mktemp -d) python -m tests.golden.test_first_losses
    GOLDEN.write_text(json.dumps({name: first_losses(name) for name in RUNS}, indent=2) + "\n")
