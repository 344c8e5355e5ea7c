"""The time that a forward pass takes on this machine."""

from __future__ import annotations

import statistics
import time
from typing import Any

from isthmus.core.costs import CostKind
from isthmus.core.protocols import ModelConfig
from isthmus.core.registry import find

NAMES = {"latency": "LATENCY"}

BATCH = 32
_REPEATS, _LEAST_SECONDS = 15, 0.2


def measure(config: ModelConfig, threads: int) -> float:
    """The median time of 32 rows, in milliseconds. Weights are drawn: they do not change the time."""
    import torch

    from isthmus.training.counting import example_input
    from isthmus.training.devices import arithmetic

    model: Any = find("models", config.name)(config)
    model.eval()
    rows = example_input(model, BATCH)
    times: list[float] = []
    with arithmetic(threads), torch.no_grad():
        while len(times) < _REPEATS + 3 or sum(times) < _LEAST_SECONDS:
            start = time.perf_counter()
            model(rows)
            times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[3:])  # the first passes allocate memory


LATENCY = CostKind("Latency (ms per batch)", "ms", measure, quantity="latency", is_measured=True)
