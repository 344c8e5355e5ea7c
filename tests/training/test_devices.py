"""Two processes with half a batch each are one process with the whole batch."""

from __future__ import annotations

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
