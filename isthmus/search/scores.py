"""How good predictions are on test rows, and the interval that covers other rows and other seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.core.draws import numpy_generator

_DRAWS, _BLOCKS = 1_000, 2_000


@dataclass(frozen=True)
class Score:
    """A quality that follows from sums over rows, so that other draws of the rows cost one matrix product."""

    measure: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Predictions and targets to what is summed: (rows, sums)."""
    conclude: Callable[[np.ndarray], np.ndarray]
    """Means over rows (..., sums) to qualities (...); NaN where there is none."""

    def __call__(self, predicted: np.ndarray, targets: np.ndarray) -> float:
        return float(self.conclude(self.measure(predicted, targets).mean(axis=0)))


def _measure_values(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Per output: target, its square and the squared error, in units in which the targets vary by one."""
    targets, predicted = targets.astype(np.float64), predicted.astype(np.float64)
    deviation = targets.std(axis=0)
    varies = deviation > 0
    centred = (targets - targets.mean(axis=0))[:, varies] / deviation[varies]
    errors = (targets - predicted)[:, varies] / deviation[varies]
    return np.stack([centred, centred**2, errors**2], axis=-1).reshape(len(targets), -1)


def _conclude_values(means: np.ndarray) -> np.ndarray:
    """R², the mean over outputs that vary."""
    if not means.shape[-1]:
        return np.full(means.shape[:-1], math.nan)
    centre, square, error = np.moveaxis(means.reshape(*means.shape[:-1], -1, 3), -1, 0)
    variation = square - centre**2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.mean(np.where(variation > 0, 1 - error / variation, math.nan), axis=-1))


def _measure_labels(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return (predicted == targets).astype(np.float64)[:, None]


score_values = Score(_measure_values, _conclude_values)
accuracy = Score(_measure_labels, lambda means: np.asarray(means[..., 0]))
SCORES: Mapping[str, Score] = {"regression": score_values, "classification": accuracy}
"""Tasks whose predictions are scored row by row."""


def bootstrap(
    predictions: Sequence[np.ndarray], targets: np.ndarray, score: Score, rival: np.ndarray | None = None
) -> tuple[float, float]:
    """The 95 % interval of a score, or of its lead over a rival's, over other test rows and over other seeds.

    Of many rows, random blocks are drawn instead of single rows.
    """
    generator, rows = numpy_generator(0, "bootstrap"), len(targets)
    blocks = min(rows, _BLOCKS)
    order, starts = generator.permutation(rows), np.arange(blocks) * rows // blocks
    sizes = np.diff([*starts, rows])
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=_DRAWS).astype(np.float64)
    seeds = generator.integers(len(predictions), size=_DRAWS)

    def draw_scores(one: np.ndarray) -> np.ndarray:
        sums = np.add.reduceat(score.measure(one, targets)[order], starts, axis=0)
        return score.conclude(drawn @ sums / (drawn @ sizes)[:, None])

    values = np.stack([draw_scores(one) for one in predictions])[seeds, np.arange(_DRAWS)]
    if rival is not None:
        values = values - draw_scores(rival)
    known = values[np.isfinite(values)]
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (math.nan, math.nan)
    if score is accuracy and rival is None:  # a bootstrap of rows that are all right has no spread
        shares = [score(one, targets) for one in predictions]
        low, high = min(low, _wilson(min(shares), rows)[0]), max(high, _wilson(max(shares), rows)[1])
    return float(low), float(high)


def _wilson(share: float, rows: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    centre, half = share + z**2 / (2 * rows), z * math.sqrt(share * (1 - share) / rows + (z / (2 * rows)) ** 2)
    return (centre - half) / (1 + z**2 / rows), (centre + half) / (1 + z**2 / rows)
