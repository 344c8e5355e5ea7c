"""What a study expects of networks that it has not trained: a Gaussian process over their features and epochs.

    quality(x, t) = f(x) + g(x, t) + h(t) + noise        t: logarithm of the epoch

f is what a network keeps from its first epoch to its last, g what it gains or loses against the others meanwhile, and h
what all of them gain. The kernels are Matérn 5/2 (f and g share a length per feature), the hyperparameters maximise
their posterior. Qualities and features are standardised, so that units do not matter.

Costs are known before training, so the expected gain of hypervolume has a closed form: the front is a staircase over
the logarithm of the cost, and above every stair the gain is its width times an expected improvement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import ndtr

Array = np.ndarray

_ITERATIONS = 40
_JITTER = 1e-9
_PRIOR = {"epochs": (math.log(2), 0.7), "f": (0.0, 1.0), "g": (math.log(0.2), 1.0), "h": (0.0, 1.0),
          "noise": (math.log(1e-3), 1.0)}  # fmt: skip
"""Means and deviations of the logarithms of the length over epochs and of the variances; lengths of features follow."""


@dataclass
class Observations:
    """Qualities that were seen: a row of features, the logarithm of the epoch, and the value, larger being better."""

    features: Array
    epochs: Array
    values: Array


class Surrogate:
    """A belief about every network at every epoch, given some observations."""

    def __init__(self, seen: Observations) -> None:
        self.centre, self.scale = float(seen.values.mean()), float(seen.values.std()) or 1.0
        count = seen.features.shape[1]
        # Distances grow with the root of the number of features, and so do the lengths that are expected.
        lengths = [(math.log(count) / 2 - 1, 1.0)] * count
        self._mean, self._deviation = np.array([*lengths, *_PRIOR.values()]).T
        self._squares = (seen.features[:, None] - seen.features) ** 2, (seen.epochs[:, None] - seen.epochs) ** 2
        values = (seen.values - self.centre) / self.scale
        options = {"maxiter": _ITERATIONS}
        found = minimize(self.loss, self._mean, args=(values,), jac=True, method="L-BFGS-B", options=options)
        self.hyperparameters = found.x
        self.observe(seen)

    def observe(self, seen: Observations) -> None:
        """Believe these observations instead, with the same hyperparameters."""
        self.seen = seen
        covariance = self._covary(seen.features, seen.epochs) + self._noise * np.eye(len(seen.values))
        self._factor = cho_factor(covariance, lower=True)
        self._weights = cho_solve(self._factor, (seen.values - self.centre) / self.scale)

    def predict(self, features: Array, epochs: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the quality, without noise."""
        shared = self._covary(features, epochs)
        explained = solve_triangular(self._factor[0], shared, lower=True)
        variance = np.exp(self.hyperparameters[-4:-1]).sum() - (explained**2).sum(0)
        return self.centre + self.scale * (shared.T @ self._weights), self.scale * np.sqrt(np.maximum(variance, 1e-12))

    def loss(self, point: Array, values: Array) -> tuple[float, Array]:
        """Minus the logarithm of the posterior density of hyperparameters, up to a constant, and its gradient."""
        f, g, h, noise = np.exp(point[-4:])
        squares = self._squares[0] / np.exp(2 * point[:-5])
        apart = self._squares[1] / math.exp(2 * point[-5])
        alike, slope = _matern(np.sqrt(squares.sum(-1)))
        near, slope_near = _matern(np.sqrt(apart))
        over_epochs = f + g * near
        covariance = alike * over_epochs + h * near + (noise + _JITTER) * np.eye(len(values))
        try:
            factor = cho_factor(covariance, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(point)
        weights = cho_solve(factor, values)
        rest = cho_solve(factor, np.eye(len(values))) - np.outer(weights, weights)
        off = (point - self._mean) / self._deviation
        loss = values @ weights / 2 + np.log(np.diag(factor[0])).sum() + off @ off / 2
        gradient = np.array(
            [
                *np.einsum("ij,ijk->k", rest * over_epochs * slope, squares),
                np.sum(rest * (g * alike + h) * slope_near * apart),
                f * np.sum(rest * alike), g * np.sum(rest * alike * near), h * np.sum(rest * near),
                noise * np.trace(rest),
            ]
        )  # fmt: skip
        return float(loss), gradient / 2 + off / self._deviation

    @property
    def _noise(self) -> float:
        return math.exp(self.hyperparameters[-1]) + _JITTER

    def _covary(self, features: Array, epochs: Array) -> Array:
        """Covariances of the observations with others."""
        point = self.hyperparameters
        lengths, (f, g, h) = np.exp(point[:-5]), np.exp(point[-4:-1])
        differences = (self.seen.features / lengths)[:, None] - features / lengths
        alike, _ = _matern(np.sqrt((differences**2).sum(-1)))
        near, _ = _matern(np.abs(self.seen.epochs[:, None] - epochs) / math.exp(point[-5]))
        return alike * (f + g * near) + h * near


def _matern(distance: Array) -> tuple[Array, Array]:
    """The kernel, and the factor that makes a squared distance the derivative by the logarithm of its length."""
    root = math.sqrt(5) * distance
    fading = np.exp(-root)
    return (1 + root + root**2 / 3) * fading, 5 / 3 * (1 + root) * fading


def expected_gain(
    costs: Array, mean: Array, deviation: Array, front: Sequence[tuple[float, float]], reference: tuple[float, float]
) -> Array:
    """How much hypervolume each candidate is expected to add to a front.

    ``costs`` are logarithms, as in ``front`` (cost and quality of trained networks, larger quality being better) and in
    ``reference`` (the highest cost and the worst quality that count).
    """
    starts, heights = [-math.inf], [reference[1]]
    for cost, quality in sorted(front):
        if quality > heights[-1]:
            starts.append(cost)
            heights.append(quality)
    ends = np.array([*starts[1:], reference[0]])
    widths = np.maximum(0.0, ends - np.maximum(np.array(starts), costs[:, None]))
    above = (mean[:, None] - np.array(heights)) / deviation[:, None]
    improvement = above * ndtr(above) + np.exp(-(above**2) / 2) / math.sqrt(2 * math.pi)
    gain: Array = deviation * (widths * improvement).sum(1)
    return gain
