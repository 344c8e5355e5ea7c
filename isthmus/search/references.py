"""What a network must beat: the mean or the majority, a linear model, gradient boosting, and our default estimator.

They see the same encoded features, training rows and folds as the networks. Where time is short they are fitted to a
part of the rows, and the answer says so.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.core.draws import numpy_generator
from isthmus.core.protocols import Data, Split

Predict = Callable[[np.ndarray], np.ndarray]
_FIRST_VALUES, _GROWTH = 100_000, 4
"""Values (rows × features) of the first fit, and how many times as many rows the next one gets, as time allows."""


@dataclass
class Reference:
    """A model that is not ours to tune."""

    title: str
    make: Callable[[], Any]
    values: list[float]
    """Its quality in each fold, or on the validation rows."""
    predictions: np.ndarray | None = None
    """Of the test rows, after a fit to training and validation rows."""
    first_predictions: np.ndarray | None = None
    """Of the test rows of the first fold, after a fit to its training rows; their order may differ."""
    rows: int = 0
    """Rows of that fit."""


def list_references(task: str) -> list[Reference]:
    """The references of a task, the fastest first; none for tasks that restore images."""
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.multioutput import MultiOutputRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from isthmus.sklearn import HourglassClassifier, HourglassRegressor

    if task == "regression":
        makers: dict[str, Callable[[], Any]] = {
            "the mean": DummyRegressor,
            "ridge regression": lambda: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15))),
            "our default estimator": lambda: HourglassRegressor(random_state=0),
            "gradient boosting": lambda: MultiOutputRegressor(HistGradientBoostingRegressor(random_state=0)),
        }
    elif task == "classification":
        makers = {
            "the most frequent class": lambda: DummyClassifier(strategy="most_frequent"),
            "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
            "our default estimator": lambda: HourglassClassifier(random_state=0),
            "gradient boosting": lambda: HistGradientBoostingClassifier(random_state=0),
        }
    else:
        makers = {}
    return [Reference(title, make, []) for title, make in makers.items()]


def fit_references(
    references: Sequence[Reference],
    folds: Sequence[Data],
    whole: Data | None,
    score: Callable[[np.ndarray, np.ndarray], float],
    ends: float,
    should_stop: Callable[[], bool],
) -> None:
    """Fit each to all rows but the test rows, and to every fold, as far as time allows.

    ``whole`` has training and validation rows together, and its test rows in the order that refits see.
    """
    pool = whole.train if whole else join(folds[0].train, folds[0].validation)
    test = features((whole or folds[0]).test)
    for place, reference in enumerate(references):
        if should_stop():
            return
        # Half of its share for the fit whose test figures are shown, half for the folds.
        share = (ends - time.monotonic()) / (len(references) - place) / 2
        predict, rows, seconds = _fit_most(reference, pool, time.monotonic() + share)
        reference.predictions, reference.rows = predict(test), rows
        began = time.monotonic()
        for number, data in enumerate(folds):
            if number > 0 and (time.monotonic() - began + seconds > share or should_stop()):
                break
            predict, _ = _fit(reference, data.train, min(rows, len(data.train)))
            if number == 0:
                reference.first_predictions = predict(features(data.test))
            assert data.validation.targets is not None
            reference.values.append(score(predict(features(data.validation)), data.validation.targets))


def _fit_most(reference: Reference, split: Split, ends: float) -> tuple[Predict, int, float]:
    """A model fitted to as many rows as time allows, by the time that fewer rows took; its rows and seconds."""
    rows = min(max(100, min(1_000, _FIRST_VALUES // max(1, split.inputs[0].size))), len(split))
    predict, seconds = _fit(reference, split, rows)
    growth = float(_GROWTH)
    while rows < len(split) and time.monotonic() + growth * seconds < ends:
        rows, before = min(_GROWTH * rows, len(split)), seconds
        predict, seconds = _fit(reference, split, rows)
        growth = max(_GROWTH, seconds / before)  # some grow faster than their rows
    return predict, rows, seconds


def join(*splits: Split) -> Split:
    targets = [split.targets for split in splits if split.targets is not None]
    return Split(np.concatenate([split.inputs for split in splits]), np.concatenate(targets))


def features(split: Split) -> np.ndarray:
    return split.inputs.reshape(len(split), -1).astype(np.float32, copy=False)


def _fit(reference: Reference, split: Split, rows: int) -> tuple[Predict, float]:
    """A fitted model, and the seconds it took; fewer rows than there are, are drawn."""
    from threadpoolctl import threadpool_limits

    began = time.monotonic()
    chosen = numpy_generator(0, "reference").permutation(len(split))[:rows] if rows < len(split) else slice(None)
    assert split.targets is not None
    model, targets = reference.make(), split.targets[chosen]
    # One thread: the cores train networks, and OpenMP's threads wait for each other on busy ones.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a solver that stops early is still a reference
        model.fit(features(Split(split.inputs[chosen])), targets)

    def predict(rows: np.ndarray) -> np.ndarray:
        with threadpool_limits(1):
            values = np.asarray(model.predict(rows))
        return values.reshape(len(rows), -1) if targets.ndim == 2 else values

    return predict, time.monotonic() - began
