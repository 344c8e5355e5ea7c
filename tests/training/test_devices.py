"""Two processes with half a batch each are one process with the whole batch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

import pytest

from isthmus.config import run_config
from isthmus.record import read_metrics
from isthmus.run import prepare, run

pytestmark = pytest.mark.slow
pytest.importorskip("lightning_fabric")


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.filterwarnings("ignore")
def test_two_processes_give_the_losses_of_one(accumulate: int) -> None:
    losses = {}
    for devices in (1, 2):
        train: dict[str, Any] = {"epochs": 3, "batch_size": 100, "accumulate": accumulate, "devices": devices}
        config = run_config(
            {
                "source": {"name": "digits"},
                "task": {"name": "denoise"},
                "model": {"name": "hourglass_mlp", "d_z": 96, "d_h": 24, "depth": 2},
                "train": train,
                "threads": 1,
            }
        )
        record = run(config)
        assert record.status == "finished"
        losses[devices] = [line["loss"] for line in read_metrics(prepare(config).folder)]
    assert len(losses[1]) == len(losses[2]) >= 6
    assert losses[2] == pytest.approx(losses[1], abs=1e-6)


COMPARE_COMPILED = """
from isthmus.config import run_config
from isthmus.record import read_metrics
from isthmus.run import prepare, run
losses = []
for compiled in (False, True):
    settings = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1}
    settings["model"] = {"name": "hourglass_mlp", "d_z": 96, "d_h": 24, "depth": 2}
    config = run_config(settings | {"train": {"epochs": 1, "batch_size": 100, "compile": compiled}})
    run(config)
    losses.append([line["loss"] for line in read_metrics(prepare(config).folder)])
print(max(abs(a - b) for a, b in zip(*losses, strict=True)))
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_trains_to_the_same_losses() -> None:
    """In a process of its own, because compiled code and the tests' shape checks do not mix."""
    finished = subprocess.run([sys.executable, "-c", COMPARE_COMPILED], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout) < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_a_divergence_ends_both_processes_with_the_reason() -> None:
    train = {"epochs": 1, "batch_size": 5000, "optimizer": "sgd", "learning_rate": 1000, "devices": 2}
    config = run_config(
        {
            "source": {"name": "digits"},
            "task": {"name": "denoise", "noise_std": 100},
            "model": {"name": "hourglass_mlp", "d_z": 96, "d_h": 24, "depth": 8, "init": "xavier", "norm": "none"},
            "train": train | {"epochs": 4},
            "threads": 1,
        }
    )
    record = run(config)
    assert record.status == "failed"
    assert "not finite" in record.reason
