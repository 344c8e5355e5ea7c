"""Estimators for people with arrays: Hourglass networks with scikit-learn's ``fit``, ``predict`` and ``transform``.

The loop is a short one of its own. ``training/loop.py`` serves runs: it journals, validates through metrics, draws by
(seed, stream, step) and resumes bit for bit, all of which costs more than a step on a few hundred rows. Here all rows
are one batch as long as they are few, in the precision of the array that was given. So a row of weight 2 is two rows
and one of weight 0 is none, to the last digits: scikit-learn checks that.

Columns are standardised, and so are the targets of a regression. The networks have no biases, so every input gets a
column of ones. ``alpha`` is scikit-learn's: half of it times the squared weights is added to the sum of the rows'
losses, so that it matters less the more rows there are.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, RegressorMixin, TransformerMixin
from sklearn.model_selection import train_test_split
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from isthmus.errors import UserError
from isthmus.registry import create_model

_ONE_BATCH = 4096
"""As many rows are one batch, unless ``batch_size`` says otherwise."""
_BATCH = 512
_ROWS_AT_ONCE = 8192

Loss = Callable[[Tensor, Tensor], Tensor]  # of each row


class _Hourglass(BaseEstimator):
    """What the estimators share: their parameters, the network and how it is trained."""

    _alpha: float
    """Where ``alpha`` is ``"auto"``."""

    def __init__(
        self,
        d_z: int = 32,
        d_h: int = 8,
        depth: int = 1,
        *,
        norm: str = "none",
        activation: str = "gelu",
        w_in: str = "trainable",
        init: str = "zero_w2",
        learning_rate: float = 0.01,
        alpha: float | str = "auto",
        batch_size: int | str = "auto",
        max_iter: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.d_z = d_z
        self.d_h = d_h
        self.depth = depth
        self.norm = norm
        self.activation = activation
        self.w_in = w_in
        self.init = init
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _prepared(self, X: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, np.ndarray]:
        """Which rows count, and their weights; scales are learned from them."""
        _check_numbers(self)
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        counted = weights > 0
        if not counted.any():
            raise ValueError("every sample_weight is zero; at least one row must count")
        self.mean_, self.scale_ = _moments(X[counted], weights[counted])
        return counted, weights[counted]

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        columns = (X - self.mean_) / self.scale_
        return np.concatenate([columns, np.ones_like(columns[:, :1])], axis=1)

    def _fit_network(
        self, inputs: np.ndarray, targets: np.ndarray, weights: np.ndarray, d_out: int, loss: Loss, strata: Any = None
    ) -> None:
        draw = check_random_state(self.random_state)
        seed = int(draw.randint(np.iinfo(np.int32).max))
        held_out = None
        if self.early_stopping:
            rest, out = train_test_split(
                np.arange(len(inputs)), test_size=self.validation_fraction, random_state=seed, stratify=strata
            )
            held_out = self._tensors(inputs[out], targets[out], weights[out] / weights[out].sum())
            inputs, targets, weights = inputs[rest], targets[rest], weights[rest]
        self.model_ = self._network(inputs.shape[1], d_out, seed, inputs.dtype)
        rows = self._tensors(inputs, targets, weights / weights.sum())
        alpha = float(self._alpha if self.alpha == "auto" else self.alpha)
        self._train(rows, held_out, loss, alpha / float(weights.sum()), seed)

    def _network(self, d_in: int, d_out: int, seed: int, dtype: np.dtype) -> nn.Module:
        names = ("d_z", "d_h", "depth", "norm", "activation", "w_in", "init")
        fields = {name: _plain(getattr(self, name)) for name in names}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                model = create_model(
                    "hourglass_mlp", d_in=d_in, d_out=d_out, w_in_seed=seed, allow_any_shape=True, **fields
                )
            except UserError as error:
                raise ValueError(str(error)) from None
        return model.to(_device(self.device), _torch_dtype(dtype))

    def _tensors(self, *arrays: np.ndarray) -> tuple[Tensor, ...]:
        return tuple(torch.tensor(array, device=_device(self.device)) for array in arrays)

    def _train(
        self, rows: tuple[Tensor, ...], held_out: tuple[Tensor, ...] | None, loss: Loss, penalty: float, seed: int
    ) -> None:
        model, inputs = self.model_.train(), rows[0]
        generator = torch.Generator().manual_seed(seed)
        size = self._rows_at_once(len(inputs))
        steps = self.max_iter * math.ceil(len(inputs) / size)
        # Not AdamW: a penalty in the loss, as in ridge regression, leaves a smoother function than shrunk weights.
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate, weight_decay=penalty, fused=True)
        best, best_state, waited, step = math.inf, None, 0, 0
        self.loss_curve_: list[float] = []
        self.n_iter_: int = 0
        for epoch in range(1, self.max_iter + 1):
            total = inputs.new_zeros(())
            for index in _batches(len(inputs), size, generator):
                optimizer.param_groups[0]["lr"] = self.learning_rate * _schedule(step, steps)
                x, y, w = rows if index is None else tuple(part[index] for part in rows)
                x, y = self._shown(x, y, generator)
                value = (w * loss(model(x), y)).sum() / (1 if index is None else w.sum())
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                optimizer.step()
                step += 1
                total += value.detach() * (1 if index is None else w.sum())
            self.loss_curve_.append(float(total))
            self.n_iter_ = epoch
            if not math.isfinite(self.loss_curve_[-1]):
                raise ValueError(
                    f"training diverged in iteration {epoch}; try learning_rate={self.learning_rate / 10:g}"
                )
            if self.verbose:
                print(f"iteration {epoch}, loss {self.loss_curve_[-1]:.6g}", file=sys.stderr)
            if held_out is not None:
                now = self._held_out_loss(held_out, loss)
                waited += 1
                if now < best:
                    best, best_state, waited = now, copy.deepcopy(model.state_dict()), 0
                if waited >= self.n_iter_no_change:
                    break
        if best_state is not None:
            model.load_state_dict(best_state)
            self.best_loss_ = best
        model.eval()

    def _rows_at_once(self, rows: int) -> int:
        if self.batch_size == "auto":
            return rows if rows <= _ONE_BATCH else _BATCH
        return min(rows, int(self.batch_size))

    def _shown(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return x, y

    @torch.no_grad()
    def _held_out_loss(self, held_out: tuple[Tensor, ...], loss: Loss) -> float:
        x, y, w = held_out
        x, y = self._shown(x, y, torch.Generator().manual_seed(0))
        return float((w * loss(self.model_(x), y)).sum())

    @torch.no_grad()
    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        dtype = _torch_dtype(X.dtype)
        if next(self.model_.parameters()).dtype != dtype:
            dtype = next(self.model_.parameters()).dtype
        inputs = torch.tensor(self._scaled(X), device=_device(self.device), dtype=dtype)
        parts = [self.model_(part) for part in inputs.split(_ROWS_AT_ONCE)]
        outputs: np.ndarray = torch.cat(parts).cpu().numpy().astype(X.dtype, copy=False)
        return outputs


class HourglassRegressor(RegressorMixin, _Hourglass):
    """Least squares; several targets at once if ``y`` has several columns."""

    _alpha = 1.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
        counted, weights = self._prepared(X, sample_weight)
        columns = y.reshape(len(y), -1).astype(X.dtype)
        self.target_mean_, self.target_scale_ = _moments(columns[counted], weights)
        self.target_shape_ = y.shape[1:]
        targets = (columns[counted] - self.target_mean_) / self.target_scale_
        self._fit_network(
            self._scaled(X[counted]), targets, weights, columns.shape[1], lambda out, y: (out - y).square().mean(1)
        )
        return self

    def predict(self, X: Any) -> np.ndarray:
        values: np.ndarray = self._outputs(X) * self.target_scale_ + self.target_mean_
        return values.reshape(len(values), *self.target_shape_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class HourglassClassifier(ClassifierMixin, _Hourglass):
    """Cross-entropy over the classes in ``y``."""

    _alpha = 10.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        counted, weights = self._prepared(X, sample_weight)
        self.classes_, labels = np.unique(y, return_inverse=True)
        labels = labels[counted]
        strata = labels if np.bincount(labels).min(initial=2, where=np.bincount(labels) > 0) >= 2 else None
        loss: Loss = lambda out, y: nn.functional.cross_entropy(out, y, reduction="none")  # noqa: E731
        self._fit_network(self._scaled(X[counted]), labels, weights, len(self.classes_), loss, strata)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        logits = self._outputs(X)
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: np.ndarray = raised / raised.sum(axis=1, keepdims=True)
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        outputs = self._outputs(X)
        chosen: np.ndarray = self.classes_[outputs.argmax(axis=1)]
        return chosen


class HourglassDenoiser(OneToOneFeatureMixin, TransformerMixin, _Hourglass):
    """Fit on clean rows, transform noisy ones. ``noise`` is in standard deviations of the columns.

    Its defaults are larger than those of the others: noise keeps it from learning rows by heart.
    """

    _alpha = 0.01

    def __init__(
        self,
        d_z: int = 64,
        d_h: int = 16,
        depth: int = 2,
        *,
        noise: float = 0.25,
        norm: str = "layer",
        activation: str = "gelu",
        w_in: str = "trainable",
        init: str = "zero_w2",
        learning_rate: float = 0.01,
        alpha: float | str = "auto",
        batch_size: int | str = "auto",
        max_iter: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        super().__init__(
            d_z, d_h, depth, norm=norm, activation=activation, w_in=w_in, init=init, learning_rate=learning_rate,
            alpha=alpha, batch_size=batch_size, max_iter=max_iter, early_stopping=early_stopping,
            validation_fraction=validation_fraction, n_iter_no_change=n_iter_no_change, random_state=random_state,
            device=device, verbose=verbose,
        )  # fmt: skip
        self.noise = noise

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        if not self.noise > 0:
            raise ValueError(f"noise={self.noise} must be above 0")
        counted, weights = self._prepared(X, sample_weight)
        clean = self._scaled(X[counted])
        self._fit_network(clean, clean, weights, X.shape[1], lambda out, y: (out - y).square().mean(1))
        return self

    def transform(self, X: Any) -> np.ndarray:
        restored: np.ndarray = self._outputs(X) * self.scale_ + self.mean_
        return restored

    def _shown(self, x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Noise that depends on a row's content and not on its place: a row of weight 2 is two equal rows."""
        width = y.shape[1] - 1
        pool = torch.randn(_POOL + width, generator=generator, dtype=torch.float32).to(y)
        start = (y.double().sum(dim=1) * 1e6).round().long() % _POOL
        noise = pool.unfold(0, width, 1)[start]
        return torch.cat([y[:, :width] + self.noise * noise, y[:, width:]], dim=1), y[:, :width]


_POOL = 2**14
"""Places at which a row's noise may begin."""


class ShapeSearchCV(BaseSearchCV):
    """The shape (``d_z``, ``d_h``, ``depth``) of an Hourglass estimator under a budget of parameters, by validation.

    Wide–narrow–wide shapes and conventional ones of three depths each fill the budget; what scores best is refitted.
    """

    def __init__(
        self,
        estimator: Any,
        budget: int = 10_000,
        *,
        depths: tuple[int, ...] = (1, 2, 4),
        narrowness: tuple[float, ...] = (0.125, 0.25, 0.5, 2.0),
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: str = "2*n_jobs",
        error_score: Any = np.nan,
        return_train_score: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            estimator, scoring=scoring, n_jobs=n_jobs, refit=refit, cv=cv, verbose=verbose, pre_dispatch=pre_dispatch,
            error_score=error_score, return_train_score=return_train_score,
        )  # fmt: skip
        self.budget = budget
        self.depths = depths
        self.narrowness = narrowness
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Score every shape by cross-validation and refit the best; ``params`` go to the estimator's ``fit``."""
        if y is None and get_tags(self.estimator).target_tags.required:
            raise ValueError(f"{type(self.estimator).__name__} requires y to be passed, but the target y is None")
        shape = np.asarray(X).shape
        self._columns = shape[1] if len(shape) == 2 else 1
        self._outputs = _width_of(self.estimator, y, self._columns)
        try:
            super().fit(X, y, **params)
        finally:
            del self._columns, self._outputs
        return self

    def _run_search(self, evaluate_candidates: Any) -> None:
        """Every candidate starts from the same seed, if one is given."""
        found = shapes(self.budget, self._columns + 1, self._outputs, self.depths, self.narrowness)
        if self.random_state is not None:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            found = [{**shape, "random_state": seed} for shape in found]
        evaluate_candidates(found)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags = get_tags(self.estimator).target_tags
        return tags


def shapes(
    budget: int, d_in: int, d_out: int, depths: tuple[int, ...], narrowness: tuple[float, ...]
) -> list[dict[str, int]]:
    """For every depth and every ratio d_h / d_z, the widest network with at most ``budget`` parameters."""
    found = []
    for depth in depths:
        for ratio in narrowness:
            # d_z (d_in + d_out) + 2 depth ratio d_z² = budget
            a, b = 2 * depth * ratio, d_in + d_out
            d_z = int((-b + math.sqrt(b * b + 4 * a * budget)) / (2 * a))
            d_h = max(1, int(ratio * d_z))
            while d_z >= 1 and d_z * (b + 2 * depth * d_h) > budget:
                d_z -= 1
            if d_z >= 1:
                found.append({"d_z": d_z, "d_h": d_h, "depth": depth})
    if not found:
        raise ValueError(f"budget={budget} holds no network of {d_in - 1} features and {d_out} outputs")
    return found


def _width_of(estimator: Any, y: Any, columns: int) -> int:
    if y is None or isinstance(estimator, HourglassDenoiser):
        return columns
    if isinstance(estimator, HourglassClassifier):
        return len(np.unique(y))
    shape = np.asarray(y).shape
    return shape[1] if len(shape) == 2 else 1


def _moments(columns: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation; a constant column has 1."""
    weights = weights / weights.sum()
    mean = weights @ columns
    deviation = np.sqrt(weights @ (columns - mean) ** 2)
    negligible = deviation <= 10 * np.finfo(columns.dtype).eps * np.abs(mean)
    return mean, np.where(negligible | (deviation == 0), 1, deviation).astype(columns.dtype)


def _batches(rows: int, size: int, generator: torch.Generator) -> Iterator[Tensor | None]:
    """All rows at once is None: nothing is drawn and nothing copied."""
    if size >= rows:
        yield None
    else:
        yield from torch.randperm(rows, generator=generator).split(size)


def _schedule(step: int, steps: int) -> float:
    """A short warm-up, then half a cosine to zero."""
    warm = max(1, steps // 20)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _plain(value: Any) -> Any:
    """numpy's numbers, which a grid search hands over, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    return torch.float32 if dtype == np.float32 else torch.float64


def _device(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(f"device={name!r} is none that torch knows; try 'cpu' or 'cuda'") from None


def _check_numbers(estimator: _Hourglass) -> None:
    for name in ("learning_rate", "max_iter", "n_iter_no_change"):
        if not getattr(estimator, name) > 0:
            raise ValueError(f"{name}={getattr(estimator, name)!r} must be above 0")
    if estimator.alpha != "auto" and not (isinstance(estimator.alpha, Real) and estimator.alpha >= 0):
        raise ValueError(f"alpha={estimator.alpha!r} must be 'auto' or a number from 0")
    if estimator.batch_size != "auto" and not (isinstance(estimator.batch_size, Integral) and estimator.batch_size > 0):
        raise ValueError(f"batch_size={estimator.batch_size!r} must be 'auto' or a number above 0")
    if not 0 < estimator.validation_fraction < 1:
        raise ValueError(f"validation_fraction={estimator.validation_fraction!r} must be between 0 and 1")
