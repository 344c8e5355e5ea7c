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

_CHEAP = 0.2
"""Share of the time for all folds of the references that are quick. Slower ones get theirs last, if there is time."""

_LOOKED_AT = 10_000
"""Rows in which a column that gives the target away is looked for."""


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
    """Fit each to all rows but the test rows, and to every fold, as far as time allows; the quickest ones first.

    ``whole`` has training and validation rows together, and its test rows in the order that refits see.
    """
    pool = whole.train if whole else join(folds[0].train, folds[0].validation)
    test = features((whole or folds[0]).test)
    cheap, waiting = _CHEAP * (ends - time.monotonic()), list[tuple[float, Reference]]()

    def measure(reference: Reference, data: Data) -> tuple[Predict, float]:
        predict, seconds = _fit(reference, data.train, min(reference.rows, len(data.train)))
        assert data.validation.targets is not None
        reference.values.append(score(predict(features(data.validation)), data.validation.targets))
        return predict, seconds

    for place, reference in enumerate(references):
        if should_stop():
            return
        # Half of its share: the other halves are for the folds.
        share = (ends - time.monotonic()) / (len(references) - place) / 2
        predict, reference.rows = _fit_most(reference, pool, time.monotonic() + share)
        reference.predictions = predict(test)
        predict, seconds = measure(reference, folds[0])
        reference.first_predictions = predict(features(folds[0].test))
        if seconds * (len(folds) - 1) > cheap:
            waiting.append((seconds, reference))
            continue
        for data in folds[1:]:
            if should_stop():
                return
            cheap -= measure(reference, data)[1]
    for seconds, reference in sorted(waiting, key=lambda each: each[0]):
        for data in folds[1:]:
            if time.monotonic() + seconds > ends or should_stop():
                return
            measure(reference, data)


def _fit_most(reference: Reference, split: Split, ends: float) -> tuple[Predict, int]:
    """A model fitted to as many rows as time allows, by the time that fewer rows took; and its rows."""
    rows = min(max(100, min(1_000, _FIRST_VALUES // max(1, split.inputs[0].size))), len(split))
    predict, seconds = _fit(reference, split, rows)
    growth = float(_GROWTH)
    while rows < len(split) and time.monotonic() + growth * seconds < ends:
        rows, before = min(_GROWTH * rows, len(split)), seconds
        predict, seconds = _fit(reference, split, rows)
        growth = max(_GROWTH, seconds / before)  # some grow faster than their rows
    return predict, rows


def find_giveaway(data: Data) -> str | None:
    """The input column of a table whose features go together with a target most; None without such columns."""
    names = [column["name"] for column in data.table.get("encoder", {}).get("columns", ())]
    if not names or data.train.targets is None:
        return None
    rows, targets = features(data.train)[:_LOOKED_AT], data.train.targets[:_LOOKED_AT]
    answers = np.eye(len(data.classes))[targets] if targets.ndim == 1 else targets
    with np.errstate(all="ignore"):
        x, y = ((part - part.mean(0)) / part.std(0) for part in (rows, answers))  # constant ones become NaN
        together = np.nan_to_num(np.abs(x.T @ y) / len(rows)).max(1)
    feature = data.columns[int(together.argmax())]
    return max((name for name in names if feature.startswith(name)), key=len)


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
    are_values = targets.ndim == 2
    # Gradient boosting stops early by an absolute tolerance, which would end it at once in small units.
    scale = _measure_spread(targets) if are_values else np.ones(1)
    # One thread: the cores train networks, and OpenMP's threads wait for each other on busy ones.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a solver that stops early is still a reference
        model.fit(features(Split(split.inputs[chosen])), targets / scale if are_values else targets)

    def predict(rows: np.ndarray) -> np.ndarray:
        with threadpool_limits(1):
            values = np.asarray(model.predict(rows))
        return values.reshape(len(rows), -1) * scale if are_values else values

    return predict, time.monotonic() - began


def _measure_spread(targets: np.ndarray) -> np.ndarray:
    """The standard deviation of each output; 1 for one that is constant."""
    spread: np.ndarray = targets.std(axis=0, dtype=np.float64)
    return np.where(spread > 0, spread, 1.0)
