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
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

Array = np.ndarray

_in_one_thread = ThreadpoolController().wrap(limits=1, user_api="blas")
"""For the same bits with any number of cores. Beside the workers of a study, more threads wait for each other."""

_ITERATIONS = 40
_JITTER = 1e-9
_PRIOR = {"epochs": (math.log(2), 0.7), "f": (0.0, 1.0), "g": (math.log(0.2), 1.0), "h": (0.0, 1.0),
          "noise": (math.log(1e-3), 1.0)}  # fmt: skip
"""Means and deviations of the logarithms of the length over epochs and of the variances; lengths of features follow."""

NOISE_OF_FOLDS = (math.log(0.05), 1.5)
"""Of a single fold or seed, as a share of the variance of all networks: its logarithm, and how far off that may be."""
_CLIP = 10.0


@dataclass
class Observations:
    """Qualities that were seen: a row of features, the logarithm of the epoch, and the value, larger being better."""

    features: Array
    epochs: Array
    values: Array
    counts: Array | None = None
    """Of how many independent measurements each value is the mean (default: one)."""

    @property
    def shares(self) -> Array:
        """Of the noise of a single measurement, what each value has."""
        return np.ones(len(self.values)) if self.counts is None else 1 / self.counts


class Surrogate:
    """A belief about every network at every epoch, given some observations."""

    @_in_one_thread  # type: ignore[untyped-decorator]
    def __init__(self, seen: Observations, noise: tuple[float, float] = _PRIOR["noise"]) -> None:
        self.centre, self.scale = float(seen.values.mean()), float(seen.values.std()) or 1.0
        count = seen.features.shape[1]
        # Distances grow with the root of the number of features, and so do the lengths that are expected.
        lengths = [(math.log(max(count, 1)) / 2 - 1, 1.0)] * count  # none if a study has one candidate
        priors = _PRIOR | {"noise": noise}
        self._mean, self._deviation = np.array([*lengths, *priors.values()]).T
        self._shares = seen.shares
        # A row per pair, so that both loops over features are one product each. Each pair of observations counts once,
        # and so does each pair of networks, which have several observations.
        one, other = np.tril_indices(len(seen.values))
        self._flat = other * len(seen.values) + one  # in a matrix as LAPACK stores it, column by column
        self._twice = np.where(one == other, 1.0, 2.0)
        self._squares, self._pair = _list_squares(seen.features)
        apart, self._gap = _list_squares(seen.epochs[:, None])
        self._apart = apart[:, 0]
        values = (seen.values - self.centre) / self.scale
        options = {"maxiter": _ITERATIONS}
        found = minimize(self.loss, self._mean, args=(values,), jac=True, method="L-BFGS-B", options=options)
        self.hyperparameters = found.x
        self.observe(seen)

    @_in_one_thread  # type: ignore[untyped-decorator]
    def observe(self, seen: Observations) -> None:
        """Believe these observations instead, with the same hyperparameters."""
        self.seen = seen
        covariance = self._covary(seen.features, seen.epochs) + np.diag(self._noise * seen.shares + _JITTER)
        self._factor = cho_factor(covariance, lower=True)
        self._weights = cho_solve(self._factor, (seen.values - self.centre) / self.scale)

    @_in_one_thread  # type: ignore[untyped-decorator]
    def predict(self, features: Array, epochs: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the quality, without noise."""
        shared = self._covary(features, epochs)
        explained = solve_triangular(self._factor[0], shared, lower=True)
        variance = np.exp(self.hyperparameters[-4:-1]).sum() - (explained**2).sum(0)
        return self.centre + self.scale * (shared.T @ self._weights), self.scale * np.sqrt(np.maximum(variance, 1e-12))

    def loss(self, point: Array, values: Array) -> tuple[float, Array]:
        """Minus the logarithm of the posterior density of hyperparameters, up to a constant, and its gradient."""
        f, g, h, noise = np.exp(point[-4:])
        scales = np.exp(-2 * point[:-5])
        likeness, slope = _matern(np.sqrt(self._squares @ scales))
        apart = self._apart / math.exp(2 * point[-5])
        nearness, slope_near = _matern(np.sqrt(apart))
        alike, near = likeness.take(self._pair), nearness.take(self._gap)
        over_epochs = f + g * near
        count = len(values)
        covariance = np.empty(count**2)
        covariance[self._flat] = alike * over_epochs + h * near
        covariance[:: count + 1] += noise * self._shares + _JITTER
        # LAPACK itself: on matrices of this size, checks would take as long as the arithmetic.
        factor, has_failed = dpotrf(covariance.reshape(count, count, order="F"), lower=True)
        if has_failed:
            return 1e10, np.zeros_like(point)
        weights, inverse = dpotrs(factor, values, lower=True)[0], dpotri(factor, lower=True)[0]
        rest = self._twice * (inverse.T - np.outer(weights, weights)).take(self._flat)
        off = (point - self._mean) / self._deviation
        loss = values @ weights / 2 + np.log(factor.diagonal()).sum() + off @ off / 2
        gradient = np.array(
            [
                *((np.bincount(self._pair, rest * over_epochs) * slope) @ self._squares * scales),
                (rest * (g * alike + h)) @ (slope_near * apart).take(self._gap),
                f * (rest @ alike), g * (rest @ (alike * near)), h * (rest @ near),
                noise * ((inverse.diagonal() - weights**2) @ self._shares),
            ]
        )  # fmt: skip
        return float(loss), gradient / 2 + off / self._deviation

    @property
    def _noise(self) -> float:
        return math.exp(self.hyperparameters[-1])

    def _covary(self, features: Array, epochs: Array) -> Array:
        """Covariances of the observations with others."""
        point = self.hyperparameters
        lengths, (f, g, h) = np.exp(point[:-5]), np.exp(point[-4:-1])
        alike, _ = _matern(cdist(self.seen.features / lengths, features / lengths))
        near, _ = _matern(np.abs(self.seen.epochs[:, None] - epochs) / math.exp(point[-5]))
        return alike * (f + g * near) + h * near


def clip_worst(values: Array) -> Array:
    """One that is worse than the best by more than ten times the median's distance says no more than that."""
    clipped: Array = np.maximum(values, values.max() - _CLIP * (values.max() - np.median(values)))
    return clipped


def _list_squares(rows: Array) -> tuple[Array, Array]:
    """Squared differences of all pairs of different rows, and where each pair of rows is among them."""
    different, place = np.unique(rows, axis=0, return_inverse=True)
    first, second = np.tril_indices(len(different))
    one, other = place[np.array(np.tril_indices(len(rows)))]
    high, low = np.maximum(one, other), np.minimum(one, other)
    return (different[first] - different[second]) ** 2, high * (high + 1) // 2 + low


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
