"""All rounds of a search, which default tests shorten: thirty trainings of the last two networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import isthmus
from isthmus.search.race import FOLDS, Round

ROUNDS = {True: (Round(range(2), 8), Round(range(2, FOLDS), 4), Round(range(FOLDS, 10), 2), Round(range(10, 15), 1))}


@pytest.mark.slow
def test_the_last_two_networks_are_looked_at_fifteen_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.search.race.ROUNDS", ROUNDS)
    x = np.random.default_rng(0).normal(size=(80, 3))
    settings = ["train.epochs=2"]
    found = isthmus.find(x, x[:, 0] - x[:, 1], budget="300", within="10m", workers=1, settings=settings, progress=False)
    looks = sorted((each["looks"] for each in found.content["networks"]), reverse=True)
    assert looks[:2] == [15, 15]
    assert looks[2:4] == [10, 10]
    assert looks[4:8] == [5, 5, 5, 5]
    assert found.content["is_whole"]
