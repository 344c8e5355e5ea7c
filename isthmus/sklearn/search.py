"""The choice of a shape under a budget of parameters, by cross-validation."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state, get_tags


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
        # A copy, so that the estimator stays as it was given; the folds would each repeat what is wrong.
        estimator = clone(self.estimator)
        rows, targets = estimator._validated(X, y)
        self._columns, self._outputs = rows.shape[1], estimator._width(rows, targets)
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
        within = get_tags(self.estimator)
        tags.target_tags, tags.transformer_tags = within.target_tags, within.transformer_tags
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
