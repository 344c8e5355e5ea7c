"""Compares the times of two ways to do the same work.

Rounds are interleaved, because the speed of a shared machine changes by the minute, and the result is the median of the
rounds' ratios. A ratio is our time over the rival's; the bar is its upper limit.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

Work = Callable[[], object]
CALLS, SECONDS = 3, 0.15
"""The least number and duration of timed calls. One call before them is not timed, because it starts with the rival's
memory and threads."""


def load() -> float:
    return round(os.getloadavg()[0], 2)


def compare_times(measured: str, ours: Work, rival: Work, rounds: int, bar: float) -> dict[str, Any]:
    """Milliseconds of both as a row; see :func:`time_rounds`."""
    before = load()
    return row(measured, "ms", time_rounds(ours, rival, rounds), bar, before)


def time_rounds(ours: Work, rival: Work, rounds: int) -> list[tuple[float, float]]:
    """Milliseconds of both, round by round; every other round begins with the rival."""
    ours(), rival()  # the first calls pay for memory and kernels
    pairs = []
    for number in range(rounds):
        if number % 2:
            own, other = _milliseconds(ours), _milliseconds(rival)
        else:
            other, own = _milliseconds(rival), _milliseconds(ours)
        pairs.append((own, other))
    return pairs


def row(measured: str, unit: str, pairs: Sequence[tuple[float, float]], bar: float, before: float) -> dict[str, Any]:
    """A row from (ours, the rival's) of each round; ``before`` is the load average at the start."""
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
