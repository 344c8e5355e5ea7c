"""A surrogate predicts as textbook formulas do, and its expected gain is the mean of simulated gains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import ndtri
from threadpoolctl import threadpool_info, threadpool_limits

from isthmus.studies.surrogate import Observations, Surrogate, expected_gain
from isthmus.studies.volumes import Reference, area


def observe(rows: int = 12, seed: int = 0, unit: float = 1.0) -> Observations:
    draw = np.random.default_rng(seed)
    features, epochs = draw.random((rows, 3)), np.log(draw.choice([2, 6, 20], rows))
    return Observations(features, epochs, unit * (np.sin(3 * features[:, 0]) + features[:, 1] + 0.3 * epochs))


def test_the_expected_gain_is_the_mean_of_simulated_gains() -> None:
    front = [(1.0, 3.0), (2.0, 2.5), (3.0, 4.0), (4.0, 5.0)]  # the second is dominated
    reference = Reference(math.exp(5.0), 1.0)
    costs, mean, deviation = (
        np.array([0.0, 2.5, 4.0, 5.0]),
        np.array([3.2, 4.5, 3.0, 9.0]),
        np.array([1.0, 0.5, 2.0, 1.0]),
    )
    normal = ndtri((np.arange(4_000) + 0.5) / 4_000)  # evenly spread draws, whose mean is precise

    def simulate(cost: float, mean: float, deviation: float) -> float:
        points = [(math.exp(c), q) for c, q in front]
        before = area(points, reference)
        gains = [area([*points, (math.exp(cost), mean + deviation * z)], reference) - before for z in normal]
        return float(np.mean(gains))

    found = expected_gain(costs, mean, deviation, front, (5.0, 1.0))
    expected = [simulate(*each) for each in zip(costs, mean, deviation, strict=True)]
    assert found == pytest.approx(expected, rel=0.01, abs=1e-9)
    assert found[-1] == 0.0, "as costly as the reference"


def test_without_a_front_the_gain_is_above_the_worst_quality() -> None:
    assert expected_gain(np.array([1.0]), np.array([7.0]), np.array([1e-9]), [], (3.0, 5.0)) == pytest.approx([4.0])


def test_predictions_are_those_of_the_textbook() -> None:
    seen = observe()
    surrogate = Surrogate(seen)
    point = surrogate.hyperparameters
    lengths, length, (f, g, h, noise) = np.exp(point[:3]), math.exp(point[3]), np.exp(point[4:])

    def kernel(r: float) -> float:
        return (1 + math.sqrt(5) * r + 5 / 3 * r**2) * math.exp(-math.sqrt(5) * r)

    def covary(x: np.ndarray, t: float, z: np.ndarray, u: float) -> float:
        near = kernel(abs(t - u) / length)
        return kernel(math.sqrt((((x - z) / lengths) ** 2).sum())) * (f + g * near) + h * near

    rows = list(zip(seen.features, seen.epochs, strict=True))
    inverse = np.linalg.inv(
        [[covary(*one, *two) + (i == j) * (noise + 1e-9) for j, two in enumerate(rows)] for i, one in enumerate(rows)]
    )
    x, t = np.array([0.2, 0.9, 0.4]), math.log(20)
    shared = np.array([covary(*row, x, t) for row in rows])
    centre, scale = seen.values.mean(), seen.values.std()
    mean, deviation = surrogate.predict(x[None], np.array([t]))
    assert mean == pytest.approx([centre + scale * shared @ inverse @ ((seen.values - centre) / scale)])
    assert deviation == pytest.approx([scale * math.sqrt(f + g + h - shared @ inverse @ shared)])


def observe_again(seen: Observations) -> Observations:
    """Some of the networks at two epochs, as means of several measurements."""
    features = np.concatenate([seen.features, seen.features[:5]])
    epochs = np.concatenate([seen.epochs, np.full(5, math.log(40))])
    values = np.concatenate([seen.values, seen.values[:5] + 0.1])
    return Observations(features, epochs, values, np.arange(len(values)) % 3 + 1.0)


def test_the_posterior_is_that_of_the_textbook() -> None:
    seen = observe_again(observe())
    surrogate = Surrogate(seen)
    values = (seen.values - surrogate.centre) / surrogate.scale
    assert seen.counts is not None
    for seed in range(3):
        point = np.random.default_rng(seed).normal(-0.5, 0.7, 8)
        lengths, length, (f, g, h, noise) = np.exp(point[:3]), math.exp(point[3]), np.exp(point[4:])

        def kernel(distance: np.ndarray) -> np.ndarray:
            return (1 + math.sqrt(5) * distance + 5 / 3 * distance**2) * np.exp(-math.sqrt(5) * distance)

        near = kernel(np.abs(seen.epochs[:, None] - seen.epochs) / length)
        alike = kernel(np.sqrt((((seen.features[:, None] - seen.features) / lengths) ** 2).sum(-1)))
        covariance = alike * (f + g * near) + h * near + np.diag(noise / seen.counts + 1e-9)
        off = (point - surrogate._mean) / surrogate._deviation
        expected = values @ np.linalg.solve(covariance, values) + np.linalg.slogdet(covariance)[1] + off @ off
        assert surrogate.loss(point, values)[0] == pytest.approx(expected / 2)


@pytest.mark.parametrize("seen", [observe(), observe_again(observe())])
def test_the_gradient_of_the_posterior_is_right(seen: Observations) -> None:
    surrogate = Surrogate(seen)
    values = (seen.values - surrogate.centre) / surrogate.scale
    for seed in range(3):
        point = np.random.default_rng(seed).normal(-0.5, 0.7, 8)
        wrong = check_grad(lambda p: surrogate.loss(p, values)[0], lambda p: surrogate.loss(p, values)[1], point)
        assert wrong < 1e-4 * np.linalg.norm(surrogate.loss(point, values)[1])


def test_units_change_no_prediction() -> None:
    places, epochs = np.random.default_rng(1).random((5, 3)), np.full(5, math.log(20))
    plain, small = (Surrogate(observe(unit=unit)).predict(places, epochs) for unit in (1.0, 2.0**-60))
    assert np.array_equal(plain[0] * 2.0**-60, small[0])
    assert np.array_equal(plain[1] * 2.0**-60, small[1])


def test_it_learns_what_epochs_add() -> None:
    """Networks that were seen early only are expected to gain what others have gained."""
    draw = np.random.default_rng(0)
    features = draw.random((10, 2))
    early, late = features[:, 0], features[:, 0] + 2.0
    whole = Observations(
        np.concatenate([features, features[:6]]),
        np.log(np.repeat([2.0, 20.0], [10, 6])),
        np.concatenate([early, late[:6]]),
    )
    mean, deviation = Surrogate(whole).predict(features[6:], np.full(4, math.log(20)))
    assert mean == pytest.approx(late[6:], abs=0.2)
    assert np.all(deviation < 0.5)


def test_a_surrogate_computes_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """More threads change the last digits, and wait for each other where workers use the cores."""

    def count_threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    seen = observe()
    with threadpool_limits(2, user_api="blas"):
        assert count_threads() == {2}
        used = set[int]()
        for name in ("loss", "_covary"):
            inner = getattr(Surrogate, name)

            def spy(self: Surrogate, *given: np.ndarray, inner: Any = inner) -> Any:
                used.update(count_threads())
                return inner(self, *given)

            monkeypatch.setattr(Surrogate, name, spy)
        surrogate = Surrogate(seen)
        surrogate.predict(seen.features, seen.epochs)
        surrogate.observe(seen)
        assert used == {1}
        assert count_threads() == {2}


def test_a_single_candidate_needs_no_features() -> None:
    seen = Observations(np.empty((3, 0)), np.log([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 2.5]))
    mean, deviation = Surrogate(seen).predict(np.empty((1, 0)), np.log([8.0]))
    assert mean[0] > 1.5
    assert deviation[0] > 0
