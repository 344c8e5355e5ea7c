"""A regressor, a classifier and a denoiser."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, OneToOneFeatureMixin, RegressorMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from isthmus.sklearn.fitting import Hourglass, Loss, moments, one_line, standardise


class HourglassRegressor(RegressorMixin, Hourglass):
    """Least squares; several targets at once if ``y`` has several columns."""

    _alpha = 1.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit ``y``, of one or several columns, to the rows of ``X``. A row of weight 2 counts as two rows."""
        X, y = self._validate(X, y)
        counted, weights = self._learn_scales(X, sample_weight)
        columns = y.reshape(len(y), -1)
        self.target_mean_, self.target_scale_ = moments(columns[counted], weights, "y")
        self.target_shape_ = y.shape[1:]
        targets = standardise(columns[counted], self.target_mean_, self.target_scale_)
        self._fit_network(
            self._scale(X[counted]), targets, weights, columns.shape[1], lambda out, y: (out - y).square().mean(1)
        )
        return self

    def _validate(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        with one_line():
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y holds {y.dtype}, such as {y.flat[0]!r}, where a regression needs numbers")
        with np.errstate(over="ignore"):
            targets = y.astype(X.dtype)
        if not np.isfinite(targets).all():
            raise ValueError(f"y holds numbers beyond {X.dtype}, which is the type of X; give X as float64")
        return X, targets

    def _width(self, X: np.ndarray, y: Any) -> int:
        return math.prod(y.shape[1:])

    def predict(self, X: Any) -> np.ndarray:
        """One value per row, or one per column of ``y``, in the units of ``y``."""
        with np.errstate(over="ignore"):
            values: np.ndarray = self._outputs(X) * self.target_scale_ + self.target_mean_
        if not np.isfinite(values).all():
            raise ValueError(f"predictions overflow {values.dtype}; fit y divided by a constant")
        return values.reshape(len(values), *self.target_shape_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², the mean over the columns of ``y``; scaled first, so that no unit of ``y`` under- or overflows."""
        predicted, truth = self.predict(X).astype(np.float64), np.asarray(y, dtype=np.float64)
        exponents = np.frexp(np.abs(truth).max(axis=0))[1]
        return float(
            r2_score(np.ldexp(truth, -exponents), np.ldexp(predicted, -exponents), sample_weight=sample_weight)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class HourglassClassifier(ClassifierMixin, Hourglass):
    """Cross-entropy over the classes in ``y``."""

    _alpha = 10.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classes ``y`` to the rows of ``X``. A row of weight 2 counts as two rows."""
        X, y = self._validate(X, y)
        counted, weights = self._learn_scales(X, sample_weight)
        # Rows of weight 0 are ignored, and so is a class that only such rows have.
        self.classes_, labels = np.unique(y[counted], return_inverse=True)
        strata = labels if np.bincount(labels).min() >= 2 else None
        loss: Loss = lambda out, y: nn.functional.cross_entropy(out, y, reduction="none")  # noqa: E731
        self._fit_network(self._scale(X[counted]), labels, weights, len(self.classes_), loss, strata)
        return self

    def _validate(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        with one_line():
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        return X, y

    def _width(self, X: np.ndarray, y: Any) -> int:
        return len(np.unique(y))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class for every row; columns are ordered as in ``classes_``."""
        logits = self._outputs(X)
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: np.ndarray = raised / raised.sum(axis=1, keepdims=True)
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row."""
        outputs = self._outputs(X)
        chosen: np.ndarray = self.classes_[outputs.argmax(axis=1)]
        return chosen


class HourglassDenoiser(OneToOneFeatureMixin, TransformerMixin, Hourglass):
    """Fit on clean rows, transform noisy ones.

    Its default network is larger than the others': noise keeps it from memorising rows.

    :param noise: how much noise is added in training, in standard deviations of the columns.
    """

    _alpha = 0.01

    def __init__(
        self, d_z: int = 64, d_h: int = 16, depth: int = 2, *, noise: float = 0.25, norm: str = "layer", **others: Any
    ) -> None:
        super().__init__(d_z, d_h, depth, norm=norm, **others)
        self.noise = noise

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn to restore the clean rows of ``X``; ``y`` is ignored."""
        X, _ = self._validate(X, y)
        counted, weights = self._learn_scales(X, sample_weight)
        clean = self._scale(X[counted])
        self._fit_network(clean, clean, weights, X.shape[1], lambda out, y: (out - y).square().mean(1))
        return self

    def _validate(self, X: Any, y: Any) -> tuple[np.ndarray, Any]:
        with one_line():
            return validate_data(self, X, dtype=[np.float64, np.float32]), y

    def _width(self, X: np.ndarray, y: Any) -> int:
        return X.shape[1]

    def transform(self, X: Any) -> np.ndarray:
        """The rows without their noise, in the units of ``X``."""
        restored: np.ndarray = self._outputs(X) * self.scale_ + self.mean_
        return restored

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the mean squared error on clean rows with noise of this level, the columns in standard deviations.

        The noise is the same in every call. Less noise is easier to remove: compare denoisers of equal ``noise``.
        """
        X = self._validate_rows(X)
        clean = self._scale(X)
        noisy = clean.copy()
        noisy[:, :-1] += self.noise * np.random.default_rng(0).normal(size=X.shape)
        return -float(((self._compute(noisy) - clean[:, :-1]) ** 2).mean())

    def _augment(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Add noise that depends on a row's content and not on its position, so that weight 2 equals two rows."""
        width = y.shape[1] - 1
        pool = torch.randn(_POOL + width, generator=generator, dtype=torch.float32).to(y)
        start = (y.double().sum(dim=1) * 1e6).round().long() % _POOL
        noise = pool.unfold(0, width, 1)[start]
        return torch.cat([y[:, :width] + self.noise * noise, y[:, width:]], dim=1), y[:, :width]


_POOL = 2**14
"""How many different noises a row can get."""
