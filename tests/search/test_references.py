"""References are fitted to as many rows as their time allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isthmus.core.protocols import Split
from isthmus.search import references
from isthmus.search.references import Reference


class Clock:
    """A time that only the fits below advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Slow:
    """A model whose fit takes a second for 1,000 rows and grows with a power of the rows."""

    def __init__(self, clock: Clock, power: float) -> None:
        self.clock, self.power = clock, power

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> Slow:
        self.clock.now += (len(inputs) / 1_000) ** self.power
        return self

    def predict(self, inputs: np.ndarray) -> Any:
        return np.zeros(len(inputs))


@pytest.mark.parametrize(
    ("power", "seconds", "rows"),
    [(1.0, 3.0, 1_000), (1.0, 30.0, 16_000), (1.0, 300.0, 50_000), (1.5, 30.0, 4_000), (2.0, 30.0, 4_000)],
)
def test_a_fit_that_would_take_too_long_is_not_begun(
    power: float, seconds: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(references, "time", clock)
    split = Split(np.zeros((50_000, 2), np.float32), np.zeros((50_000, 1), np.float32))
    _, fitted, last = references._fit_most(Reference("slow", lambda: Slow(clock, power), []), split, seconds)
    assert fitted == rows
    assert last == pytest.approx((rows / 1_000) ** power)
    assert clock.now <= seconds
