"""Scores of predictions and their intervals, against slow and obvious forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import r2_score

from isthmus.search.scores import accuracy, bootstrap, score_values


@given(st.integers(0, 2**32), st.integers(-15, 15), st.integers(1, 3))
def test_values_are_scored_by_r2_in_any_units(seed: int, power: int, outputs: int) -> None:
    draw = np.random.default_rng(seed)
    targets = draw.normal(size=(20, outputs))
    predicted = targets + draw.normal(size=targets.shape)
    expected = r2_score(targets, predicted)
    assert score_values(predicted, targets) == pytest.approx(expected, abs=1e-9)
    assert score_values(predicted * 10.0**power, targets * 10.0**power) == pytest.approx(expected, abs=1e-9)


def test_outputs_that_do_not_vary_are_left_out() -> None:
    targets = np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
    assert score_values(targets, targets) == 1
    assert math.isnan(score_values(targets[:, 1:], targets[:, 1:]))


def r2(targets: np.ndarray, predicted: np.ndarray) -> float:
    return float(1 - np.square(targets - predicted).sum() / np.square(targets - targets.mean()).sum())


def share(targets: np.ndarray, predicted: np.ndarray) -> float:
    return float((targets == predicted).mean())


def resample(
    predictions: list[np.ndarray], targets: np.ndarray, score: Callable[..., float], rival: np.ndarray | None
) -> list[float]:
    """The bootstrap as it is defined: rows drawn one by one."""
    draw, values = np.random.default_rng(1), []
    for _ in range(1_000):
        rows = draw.integers(len(targets), size=len(targets))
        one = predictions[draw.integers(len(predictions))]
        lead = 0.0 if rival is None else score(targets[rows], rival[rows])
        values.append(score(targets[rows], one[rows]) - lead)
    return [float(bound) for bound in np.quantile(values, [0.025, 0.975])]


@pytest.mark.parametrize("rows", [60, 5_000])
@pytest.mark.parametrize("has_rival", [False, True])
def test_the_interval_is_that_of_rows_drawn_one_by_one(rows: int, has_rival: bool) -> None:
    draw = np.random.default_rng(0)
    targets = np.sort(draw.normal(size=(rows, 1)), axis=0)  # sorted: blocks of neighbours would be too alike
    predictions = [targets + 0.5 * draw.normal(size=targets.shape) for _ in range(3)]
    rival = targets + 0.6 * draw.normal(size=targets.shape) if has_rival else None
    found = bootstrap(predictions, targets, score_values, rival)
    expected = resample(predictions, targets, r2, rival)
    assert found == pytest.approx(expected, abs=0.15 * (expected[1] - expected[0]))
    labels = (targets[:, 0] > 0).astype(np.int64)
    guesses = [(one[:, 0] > 0).astype(np.int64) for one in predictions]
    other = None if rival is None else (rival[:, 0] > 0).astype(np.int64)
    expected = resample(guesses, labels, share, other)
    assert bootstrap(guesses, labels, accuracy, other) == pytest.approx(expected, abs=0.2 * (expected[1] - expected[0]))
