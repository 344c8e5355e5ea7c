"""The first losses of tiny runs, to the digit: a change here is a change of what a config means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.config import run_config
from isthmus.record import METRICS
from isthmus.run import prepare, run

GOLDEN = Path(__file__).with_name("first_losses.json")

RUNS = {
    "hourglass denoise": ("hourglass_mlp", {"d_z": 80, "d_h": 16, "depth": 2}, {"name": "denoise"}),
    "conventional denoise": ("conventional_mlp", {"d_z": 64, "d_h": 80, "depth": 1}, {"name": "denoise"}),
    "hourglass super-resolution": (
        "hourglass_mlp",
        {"d_z": 80, "d_h": 16, "depth": 2, "w_in": "orthogonal", "norm": "rms", "activation": "silu"},
        {"name": "super_resolution", "flips": True},
    ),
    "hourglass classification": ("hourglass_mlp", {"d_z": 80, "d_h": 16, "depth": 2}, {"name": "classification"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_first_losses_are_the_recorded_ones(name: str) -> None:
    model, shape, task = RUNS[name]
    settings = {"source": {"name": "digits"}, "task": task, "model": {"name": model, **shape}, "train": {"epochs": 2}}
    config = run_config(settings | {"threads": 1})
    run(config)
    lines = [json.loads(line) for line in (prepare(config).folder / METRICS).read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    golden = json.loads(GOLDEN.read_text())
    # Other processors sum in another order; a change of meaning is far larger than this.
    assert losses == pytest.approx(golden[name], rel=1e-4)
