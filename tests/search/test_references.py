"""References are fitted to as many rows as their time allows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from isthmus.core.protocols import Split
from isthmus.core.registry import component
from isthmus.search import references
from isthmus.search.references import Reference, find_giveaway
from isthmus.search.scores import score_values
from isthmus.training.prepare import load_data


@pytest.mark.parametrize("target", ["total", "kind"])
def test_the_column_that_gives_the_target_away_is_found(target: str, tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    rows = [(draws.normal(), draws.choice(["red", "blue", "grey"]), draws.normal()) for _ in range(200)]
    lines = [f"{a},{word},{b},{10 * b + 0.1 * a},{'yes' if word == 'red' else 'no'},7" for a, word, b in rows]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["area,colour,partly,total,kind,same", *lines]))
    data = load_data(component("sources", {"name": "table", "path": str(path), "targets": [target]}))
    assert find_giveaway(data) == {"total": "partly", "kind": "colour"}[target]
    assert find_giveaway(replace(data, table={})) is None


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
    _, fitted = references._fit_most(Reference("slow", lambda: Slow(clock, power), []), split, seconds)
    assert fitted == rows
    assert clock.now <= seconds


class Steady:
    """A model whose first fit takes long, because it imports, and every other one the same time."""

    def __init__(self, clock: Clock, fits: list[float]) -> None:
        self.clock, self.fits = clock, fits

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> Steady:
        self.clock.now += self.fits.pop(0) if len(self.fits) > 1 else self.fits[0]
        return self

    def predict(self, inputs: np.ndarray) -> Any:
        return np.zeros((len(inputs), 1))


def test_a_quick_reference_is_fitted_to_every_fold_however_little_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise verdicts about it rest on the test rows alone."""
    clock = Clock()
    monkeypatch.setattr(references, "time", clock)
    rows = Split(np.zeros((100, 2), np.float32), np.zeros((100, 1), np.float32))
    folds = [cast("Any", SimpleNamespace(train=rows, validation=rows, test=rows))] * 5
    seconds = {"quick": [2.0, 0.05], "slow": [4.0, 1.5], "slower": [0.5], "late": [0.02]}
    fitted = [Reference(name, partial(Steady, clock, each), []) for name, each in seconds.items()]
    references.fit_references(fitted, folds, None, lambda predicted, truth: 0.0, 10.0, lambda: False)
    assert {each.title: len(each.values) for each in fitted} == {"quick": 5, "slow": 1, "slower": 3, "late": 5}
    assert all(each.predictions is not None and each.first_predictions is not None for each in fitted)
    assert clock.now <= 10


def test_units_do_not_change_a_reference() -> None:
    """From 10,000 rows on, gradient boosting stops where its loss changes by less than 1e-7, whatever the unit."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(10_300, 3)).astype(np.float32)
    y = (np.tanh(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:] + 0.3 * draws.normal(size=(len(x), 1))).astype(np.float32)
    (boosting,) = [each for each in references.list_references("regression") if each.title == "gradient boosting"]

    def score(unit: float) -> float:
        targets = (unit * y.astype(np.float64)).astype(np.float32)
        predict, _ = references._fit(boosting, Split(x[:10_100], targets[:10_100]), 10_100)
        return score_values(predict(x[10_100:]), targets[10_100:])

    plain = score(1.0)
    assert plain > 0.8
    assert score(2.0**-60) == plain
    assert score(1e-4) == pytest.approx(plain, abs=1e-3)
