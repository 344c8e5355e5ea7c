"""Two ways of doing the same work, measured against each other: one form of row, whatever is compared.

The rounds are interleaved, because a shared machine changes its speed by the minute; what counts is the median of the
rounds' ratios. A ratio is ours over the rival's, and its bar is what it may be at most.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

Work = Callable[[], object]
CALLS, SECONDS = 3, 0.15
"""Timed in a row, at least so many and for at least so long, so that work that is over sooner is repeated more often:
the first calls after a rival's find memory and threads as the rival left them, and the very first is not timed."""


def load() -> float:
    return round(os.getloadavg()[0], 2)


def compare_times(measured: str, ours: Work, rival: Work, rounds: int, bar: float) -> dict[str, Any]:
    """Milliseconds of both, in so many rounds of which every other begins with the rival."""
    before = load()
    ours(), rival()  # the first calls pay for memory and kernels
    pairs = []
    for number in range(rounds):
        if number % 2:
            own, other = _milliseconds(ours), _milliseconds(rival)
        else:
            other, own = _milliseconds(rival), _milliseconds(ours)
        pairs.append((own, other))
    return row(measured, "ms", pairs, bar, before)


def row(measured: str, unit: str, pairs: Sequence[tuple[float, float]], bar: float, before: float) -> dict[str, Any]:
    """Of pairs (ours, the rival's), one for each round; ``before`` is the load at the beginning."""
    return {
        "measured": measured,
        "unit": unit,
        "ours": float(f"{statistics.median(own for own, _ in pairs):.4g}"),
        "rival's": float(f"{statistics.median(other for _, other in pairs):.4g}"),
        "ratio": round(statistics.median(own / other for own, other in pairs), 3),
        "bar": round(bar, 3),
        "load before": before,
        "load after": load(),
    }


def _milliseconds(work: Work) -> float:
    work()
    calls, began = 0, time.perf_counter()
    while calls < CALLS or time.perf_counter() - began < SECONDS:
        work()
        calls += 1
    return 1e3 * (time.perf_counter() - began) / calls
