"""A regressor, a classifier and a denoiser."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, OneToOneFeatureMixin, RegressorMixin, TransformerMixin
from sklearn.metrics import r2_score
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from isthmus.sklearn.fitting import Hourglass, moments, standardise
from isthmus.sklearn.settings import one_line


class HourglassRegressor(RegressorMixin, Hourglass):
    """Least squares; several targets at once if ``y`` has several columns."""

    _alpha = 1.0
    target_mean_: np.ndarray
    target_scale_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit ``y``, of one or several columns, to the rows of ``X``. A row of weight 2 counts as two rows."""
        return self._learn(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one epoch on these rows, from the present weights, and update means and scales with them."""
        return self._learn(X, y, sample_weight, one_pass=True)

    def _validate(self, X: Any, y: Any, continues: bool = False) -> tuple[np.ndarray, np.ndarray]:
        with one_line():
            X, y = validate_data(self, X, y, **self._accepted_rows(continues), multi_output=True, y_numeric=True)
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y holds {y.dtype}, such as {y.flat[0]!r}, where a regression needs numbers")
        with np.errstate(over="ignore"):
            targets = y.astype(X.dtype)
        if not np.isfinite(targets).all():
            raise ValueError(f"y holds numbers beyond {X.dtype}, which is the type of X; give X as float64")
        if continues and y.shape[1:] != self.target_shape_:
            now, before = (math.prod(shape) for shape in (y.shape[1:], self.target_shape_))
            raise ValueError(f"y has {now} columns, but the fitted network has {before} outputs")
        return X, targets

    def _prepare_targets(self, y: np.ndarray, weights: np.ndarray, earlier: float) -> tuple[np.ndarray, int]:
        columns = y.reshape(len(y), -1)
        before = (self.target_mean_, self.target_scale_, earlier) if earlier else None
        self.target_mean_, self.target_scale_ = moments(columns, weights, "y", before)
        self.target_shape_ = y.shape[1:]
        return standardise(columns, self.target_mean_, self.target_scale_), columns.shape[1]

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean(1)

    def _score(self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        if len(targets) < 2:
            return math.nan  # as r2_score, which also warns
        errors = weights @ (outputs - targets) ** 2 * (self.target_scale_ != 0)
        spreads = weights @ (targets - weights @ targets) ** 2
        # For a constant column, r2_score is 1 if it is predicted exactly, and 0 otherwise.
        scores = np.where(spreads > 0, 1 - errors / np.where(spreads > 0, spreads, 1), errors == 0)
        return float(scores.mean())

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
    """Cross-entropy over the classes in ``y``.

    :param class_weight: weights of the classes, by which those of the rows are multiplied: a dict such as
        ``{"no": 1, "yes": 5}``; ``"balanced"``, which gives every class the same sum of weights; or None.
    """

    _alpha = 10.0

    def __init__(self, d_z: int = 32, d_h: int = 8, depth: int = 1, *, class_weight: Any = None, **others: Any) -> None:
        super().__init__(d_z, d_h, depth, **others)
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classes ``y`` to the rows of ``X``. A row of weight 2 counts as two rows."""
        return self._learn(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None, classes: Any = None) -> Self:
        """Train for one epoch on these rows, from the present weights, and update means and scales with them.

        The first call needs ``classes``: all that will ever occur in ``y``.
        """
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all rows at once, which partial_fit does not have; "
                "set a dict of weights, such as {0: 1, 1: 5}"
            )
        if not hasattr(self, "model_"):
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit, such as classes=[0, 1]")
            self.classes_ = unique_labels(classes)
        elif classes is not None and not np.array_equal(unique_labels(classes), self.classes_):
            raise ValueError(f"classes={_names(unique_labels(classes))}, but the network has {_names(self.classes_)}")
        return self._learn(X, y, sample_weight, one_pass=True)

    def _validate(self, X: Any, y: Any, continues: bool = False) -> tuple[np.ndarray, np.ndarray]:
        with one_line():
            X, y = validate_data(self, X, y, **self._accepted_rows(continues))
        check_classification_targets(y)
        return X, y

    def _weigh(self, y: np.ndarray, weights: np.ndarray, one_pass: bool, continues: bool) -> np.ndarray:
        # Rows of weight 0 are ignored, and so is a class that only such rows have.
        found = np.unique(y[weights > 0])
        if not (one_pass or continues):
            self.classes_ = found
        elif len(unknown := np.setdiff1d(found, self.classes_)):
            raise ValueError(f"y holds {_names(unknown)}, but the network's classes are {_names(self.classes_)}")
        elif not one_pass and len(found) < len(self.classes_):
            missing = np.setdiff1d(self.classes_, found)
            raise ValueError(f"y holds no {_names(missing)}, but warm_start needs the classes of the last fit")
        if self.class_weight is None:
            return weights
        known = np.isin(y, self.classes_)
        labels = np.searchsorted(self.classes_, y[known])
        if isinstance(self.class_weight, str):
            sums = np.bincount(labels, weights[known])
            by_class = sums.sum() / (len(sums) * sums)
        else:
            by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=y[known])
        weighed = np.zeros_like(weights)
        with np.errstate(over="ignore"):
            weighed[known] = weights[known] * by_class[labels]
            total = weighed.sum()
        if not 0 < total < math.inf:
            raise ValueError(f"the weights of the rows sum to {total:g} with class_weight={self.class_weight!r}")
        return weighed

    def _prepare_targets(self, y: np.ndarray, weights: np.ndarray, earlier: float) -> tuple[np.ndarray, int]:
        return np.searchsorted(self.classes_, y), len(self.classes_)

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def _score(self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        return float(np.average(outputs.argmax(axis=1) == targets, weights=weights))

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
        return self._learn(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train for one epoch on these rows, from the present weights, and update means and scales with them."""
        return self._learn(X, y, sample_weight, one_pass=True)

    def _validate(self, X: Any, y: Any, continues: bool = False) -> tuple[np.ndarray, np.ndarray]:
        with one_line():
            X = validate_data(self, X, **self._accepted_rows(continues))
        return X, X

    def _prepare_targets(self, y: np.ndarray, weights: np.ndarray, earlier: float) -> tuple[np.ndarray, int]:
        return self._scale(y), y.shape[1]

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean(1)

    def _score(self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        return -float(weights @ ((outputs - targets) ** 2).mean(axis=1))

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


def _names(classes: np.ndarray) -> str:
    return ", ".join(map(str, classes.tolist()))
