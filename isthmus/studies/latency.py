"""The latency of a model on this machine: the median time of a forward pass, in milliseconds."""

from __future__ import annotations

import statistics
import time

import torch

from isthmus.core.protocols import ModelConfig
from isthmus.core.registry import find
from isthmus.training.counting import example_input
from isthmus.training.run import arithmetic

BATCH = 32
_REPEATS, _LEAST_SECONDS = 15, 0.2


@torch.no_grad()
def latency(config: ModelConfig, threads: int) -> float:
    """Milliseconds for a forward pass of 32 rows, with random weights."""
    model: torch.nn.Module = find("models", config.name)(config)
    model.eval()
    rows = example_input(model, BATCH)
    times: list[float] = []
    with arithmetic(threads):
        while len(times) < _REPEATS + 3 or sum(times) < _LEAST_SECONDS:
            start = time.perf_counter()
            model(rows)
            times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[3:])  # the first ones allocate
