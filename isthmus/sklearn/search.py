"""Search for the best shape under a parameter budget, by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_regressor
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metaestimators import available_if

from isthmus.core.units import amount
from isthmus.sklearn.fitting import Hourglass, moments
from isthmus.sklearn.settings import check_settings, is_count, is_number
from isthmus.studies.budget import widest_mlp
from isthmus.studies.decisions import describe_settings, spread_out, to_columns
from isthmus.studies.surrogate import NOISE_OF_FOLDS, Observations, Surrogate, clip_worst, expected_gain

_STARTS = 4
"""Shapes that are scored before the first is chosen by what others scored."""
_SHARES = (4, 16)
"""By which the budget is divided for smaller networks."""


class ShapeSearchCV(BaseSearchCV):
    """Finds the shape (``d_z``, ``d_h``, ``depth``) of an Hourglass estimator that is best under a parameter budget.

    Wide–narrow–wide and conventional shapes of each depth use the whole budget; the best is refitted on all rows.

    :param estimator: an estimator of ``isthmus.sklearn``, or a Pipeline that ends with one.
    :param budget: the largest number of parameters that a network may have, such as 3000, ``"3k"`` or ``"1.5M"``.
    :param depths: the numbers of blocks to try.
    :param narrowness: the ratios ``d_h / d_z`` to try; a conventional network has one above 1.
    :param n_iter: how many shapes to score (default: all of these). With a number, shapes that use a quarter and a
        sixteenth of the budget compete too, and a Gaussian process of the scores so far chooses each next shape.
    :param random_state: one seed for every shape; by default each keeps the estimator's.

    The other parameters are those of scikit-learn's ``GridSearchCV``.
    """

    def __init__(
        self,
        estimator: Any,
        budget: int | str = 10_000,
        *,
        depths: tuple[int, ...] = (1, 2, 4),
        narrowness: tuple[float, ...] = (0.125, 0.25, 0.5, 2.0),
        n_iter: int | None = None,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
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
        self.n_iter = n_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Score every shape by cross-validation and refit the best; ``params`` go to the estimator's ``fit``."""
        _check_counts(self.budget, self.depths, self.narrowness, self.n_iter)
        # On a copy, and before the folds, which would each repeat the same error.
        rows, network, self._prefix = _find_network(clone(self.estimator), X, y)
        check_settings(network)
        rows, targets = network._validate(rows, y)
        for name, values in {"X": rows, "y": targets}.items() if is_regressor(network) else [("X", rows)]:
            moments(values.reshape(len(values), -1), np.ones(len(values), rows.dtype), name)
        d_in, d_out = rows.shape[1] + 1, network._width(rows, targets)

        def count_extra(shape: dict[str, int]) -> int:
            """Parameters of the pathway."""
            pathway = network.set_params(**shape)._network(d_in, d_out, 0, rows.dtype).blocks.pathway
            return sum(parameter.numel() for parameter in pathway.parameters())

        extra = None if network.pathway == "plain" else count_extra
        budget = amount(self.budget)
        self._shapes = list_shapes(budget, d_in, d_out, self.depths, self.narrowness, extra)
        for share in _SHARES if self.n_iter is not None else ():
            with suppress(ValueError):  # so small a budget may hold no network
                smaller = list_shapes(budget // share, d_in, d_out, self.depths, self.narrowness, extra)
                self._shapes += [shape for shape in smaller if shape not in self._shapes]
        network.set_params(**self._shapes[0])._network(d_in, d_out, 0, rows.dtype)
        try:
            super().fit(X, y, **params)
        finally:
            del self._shapes, self._prefix
        return self

    @available_if(lambda self: hasattr(self.estimator, "transform"))  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> np.ndarray:
        """Fit, then transform the same rows with the best estimator."""
        restored: np.ndarray = self.fit(X, y, **params).transform(X)
        return restored

    def _run_search(self, evaluate_candidates: Any) -> None:
        """Evaluate every shape, or those that are chosen one by one; with the same seed if one is given."""
        shapes, more = self._shapes, dict[str, int]()
        if self.random_state is not None:
            more["random_state"] = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

        def evaluate(places: Sequence[int]) -> Any:
            chosen = [shapes[place] | more for place in places]
            return evaluate_candidates([{self._prefix + name: each[name] for name in each} for each in chosen])

        if self.n_iter is None or self.n_iter >= len(shapes):
            evaluate(range(len(shapes)))
            return
        features = to_columns([describe_settings({}, shape) for shape in shapes])
        tried = spread_out(features, min(self.n_iter, _STARTS), 0)
        results = evaluate(tried)
        while len(tried) < self.n_iter:
            name = "mean_test_score" if "mean_test_score" in results else f"mean_test_{self.refit}"
            if name not in results:
                raise ValueError("n_iter needs one score to search by; name it, such as refit='r2'")
            tried.append(_choose_next(features, tried, np.asarray(results[name])))
            results = evaluate(tried[-1:])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        within = get_tags(self.estimator)
        tags.target_tags, tags.transformer_tags = within.target_tags, within.transformer_tags
        return tags


def _find_network(estimator: Any, X: Any, y: Any) -> tuple[Any, Hourglass, str]:
    """The rows that reach the network, the network's estimator, and the prefix of its parameters in a Pipeline."""
    prefix = ""
    while isinstance(estimator, Pipeline):
        if len(estimator.steps) > 1 and isinstance(estimator[-1], Pipeline | Hourglass):
            X = estimator[:-1].fit_transform(X, y)
        prefix, estimator = f"{prefix}{estimator.steps[-1][0]}__", estimator[-1]
    if not isinstance(estimator, Hourglass):
        raise ValueError(
            f"estimator={type(estimator).__name__} must be one of those in isthmus.sklearn, or a Pipeline "
            "that ends with one"
        )
    return X, estimator, prefix


def _choose_next(features: np.ndarray, tried: Sequence[int], scores: np.ndarray) -> int:
    """The shape of which the largest gain is expected over the best one tried."""
    known, instant = np.isfinite(scores), np.zeros(len(features))  # a shape that could not be fitted has no score
    gain = np.ones(len(features))
    if known.any():
        places, values = np.array(tried)[known], clip_worst(scores[known])
        surrogate = Surrogate(Observations(features[places], instant[places], values), NOISE_OF_FOLDS)
        mean, deviation = surrogate.predict(features, instant)
        # A front over a cost that all have alike is the best score.
        gain = expected_gain(instant, mean, deviation, [(0.0, float(values.max()))], (1.0, float(values.min())))
    gain[list(tried)] = -1.0
    return int(gain.argmax())


def list_shapes(
    budget: int,
    d_in: int,
    d_out: int,
    depths: tuple[int, ...],
    narrowness: tuple[float, ...],
    extra: Callable[[dict[str, int]], int] | None = None,
) -> list[dict[str, int]]:
    """For every depth and every ratio d_h / d_z, the widest network with at most ``budget`` parameters.

    ``extra`` counts those that a pathway adds to a shape.
    """
    found = []
    for depth, ratio in product(depths, narrowness):
        left = budget
        while fit := widest_mlp(left, d_in, d_out, ratio, depth):
            shape = {"d_z": fit[0], "d_h": fit[1], "depth": depth}
            own = fit[0] * (d_in + d_out + 2 * depth * fit[1])
            if extra is None or (over := own + extra(shape) - budget) <= 0:
                found.append(shape)
                break
            left = own - over
    if not found:
        raise ValueError(f"budget={budget} holds no network of {d_in - 1} features and {d_out} outputs")
    return found


def _check_counts(budget: Any, depths: Any, narrowness: Any, n_iter: Any) -> None:
    if not is_count(amount(budget)):
        raise ValueError(f"budget={budget!r} must be a whole number above 0, such as 3000 or '3k'")
    if not (n_iter is None or is_count(n_iter)):
        raise ValueError(f"n_iter={n_iter!r} must be None or a whole number above 0, such as 10")
    if not (_is_several(depths) and all(map(is_count, depths))):
        raise ValueError(f"depths={depths!r} must be whole numbers above 0, such as (1, 2)")
    if not (_is_several(narrowness) and all(is_number(ratio) and ratio > 0 for ratio in narrowness)):
        raise ValueError(f"narrowness={narrowness!r} must be numbers above 0, such as (0.25, 0.5)")


def _is_several(values: Any) -> bool:
    return isinstance(values, Sequence | np.ndarray) and len(values) > 0
