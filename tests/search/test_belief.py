"""What a search expects of each size, from what it has trained."""

from __future__ import annotations

import math

import pytest

from isthmus.core.config import run_config
from isthmus.search.belief import Tried, believe


def tried(width: int, quality: float | None, epochs: int = 10) -> Tried:
    model = {"name": "hourglass_mlp", "d_in": 4, "d_out": 1, "d_z": width, "d_h": max(1, width // 4), "depth": 1}
    given = {
        "source": {"name": "digits"},
        "task": {"name": "classification"},
        "model": model,
        "train": {"epochs": epochs},
    }
    return Tried(run_config(given), 8 * width, quality, 5 if quality is not None else 0)


def test_the_band_covers_what_was_trained_and_is_wider_where_little_was() -> None:
    known = [tried(width, 1 - 1 / math.log2(width)) for width in (4, 8, 16, 32, 64)]
    band = believe([*known, tried(2048, None)], maximise=True)
    assert [row["params"] for row in band] == sorted(row["params"] for row in band)
    means = [row["mean"] for row in band]
    assert means == sorted(means), "of the best up to each size"
    for each, row in zip(known, band, strict=True):
        assert row["params"] == each.params
        assert row["low"] <= (each.quality or 0.0) <= row["high"]
    far = believe([*known[:-1], tried(2048, 0.95, epochs=10)], maximise=True)[-1]
    assert far["high"] - far["low"] > band[-1]["high"] - band[-1]["low"], "alone at its size"


def test_an_error_is_better_when_it_is_smaller() -> None:
    qualities = [(4, 0.5), (8, 0.3), (16, 0.2), (32, 0.15)]
    up = believe([tried(width, -error) for width, error in qualities], maximise=True)
    down = believe([tried(width, error) for width, error in qualities], maximise=False)
    assert [row["mean"] for row in down] == pytest.approx([-row["mean"] for row in up])
    assert all(row["low"] <= row["mean"] <= row["high"] for row in down)


def test_few_networks_say_nothing() -> None:
    assert believe([tried(4, 0.5), tried(8, 0.6), tried(16, 0.7), tried(32, None)], maximise=True) == []
