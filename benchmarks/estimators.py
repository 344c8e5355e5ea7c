"""The estimators with their fixed defaults against scikit-learn's MLP of equally many parameters, on its own data.

The rival gets what ours does by itself: standardised columns, and standardised targets in a regression. It has one
hidden layer, as by default, whose width gives it our number of parameters. Both learn the same rows with the same seed
in turns; the score is R² or accuracy on a quarter of the rows that neither has seen.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isthmus.sklearn import HourglassClassifier, HourglassRegressor
from isthmus.training.devices import arithmetic

ROWS = 500
"""Of generated data."""
TIME_BAR = 2.0


class DataSet(NamedTuple):
    name: str
    classes: bool
    load: Callable[[int], tuple[np.ndarray, np.ndarray]]


def _stored(load: Callable[..., Any]) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    return lambda seed: load(return_X_y=True)


def _classification(seed: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = datasets.make_classification(ROWS, random_state=seed)
    return X, y


DATA = (
    DataSet("diabetes", False, _stored(datasets.load_diabetes)),
    DataSet("friedman1", False, lambda seed: datasets.make_friedman1(ROWS, noise=1.0, random_state=seed)),
    DataSet("friedman2", False, lambda seed: datasets.make_friedman2(ROWS, noise=125.0, random_state=seed)),
    DataSet("friedman3", False, lambda seed: datasets.make_friedman3(ROWS, noise=0.1, random_state=seed)),
    DataSet("digits", True, _stored(datasets.load_digits)),
    DataSet("breast cancer", True, _stored(datasets.load_breast_cancer)),
    DataSet("wine", True, _stored(datasets.load_wine)),
    DataSet("classification", True, _classification),
)


def measure(
    seeds: int, threads: int, tell: Callable[[str], None], data: Sequence[DataSet] = DATA
) -> list[dict[str, Any]]:
    """A row for each data set and seed."""
    rows = []
    with arithmetic(threads):
        _fitted(HourglassRegressor(max_iter=1), *datasets.make_friedman1(20, random_state=0))  # torch's first step
        for each in data:
            rows += [_row(each, seed) for seed in range(seeds)]
            ours, other = (statistics.fmean(row[name] for row in rows[-seeds:]) for name in ("ours", "rival's"))
            tell(f"{each.name}: {ours:.4f} against {other:.4f}")
    return rows


def _row(data: DataSet, seed: int) -> dict[str, Any]:
    X, y = data.load(seed)
    parts = train_test_split(X, y, random_state=seed, stratify=y if data.classes else None)
    train_X, test_X, train_y, test_y = parts
    ours: Any = (HourglassClassifier if data.classes else HourglassRegressor)(random_state=seed)
    own_seconds = _fitted(ours, train_X, train_y)
    params = sum(parameter.numel() for parameter in ours.model_.parameters())
    rival, network = _rival(data.classes, params, X.shape[1], len(np.unique(y)) if data.classes else 1, seed)
    rival_seconds = _fitted(rival, train_X, train_y)
    return {
        "data": data.name,
        "seed": seed,
        "score": "accuracy" if data.classes else "R²",
        "ours": round(float(ours.score(test_X, test_y)), 4),
        "rival's": round(float(rival.score(test_X, test_y)), 4),
        "parameters": params,
        "rival's parameters": _parameters(network(rival)),
        "seconds": round(own_seconds, 3),
        "rival's seconds": round(rival_seconds, 3),
    }


def _rival(
    classes: bool, params: int, columns: int, outputs: int, seed: int
) -> tuple[Any, Callable[[Any], MLPClassifier | MLPRegressor]]:
    outputs = 1 if outputs == 2 else outputs  # its output for two classes is one number
    width = max(1, round((params - outputs) / (columns + 1 + outputs)))
    if classes:
        return make_pipeline(
            StandardScaler(), MLPClassifier(hidden_layer_sizes=(width,), random_state=seed)
        ), lambda fitted: fitted[-1]
    network = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(width,), random_state=seed))
    scaled = TransformedTargetRegressor(network, transformer=StandardScaler())
    return scaled, lambda fitted: fitted.regressor_[-1]


def _parameters(network: Any) -> int:
    return sum(array.size for array in (*network.coefs_, *network.intercepts_))


def _fitted(estimator: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Seconds of a fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the rival's 200 iterations do not always converge
        began = time.perf_counter()
        estimator.fit(X, y)
        return time.perf_counter() - began


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each data set, then all: the mean rank (1 is better, ties share) and our time over the rival's."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    lines = [_line(name, [row for row in rows if row["data"] == name]) for name in names]
    return [*lines, {**_line("all", rows), "ours": None, "rival's": None}]


def _line(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "data": name,
        "ours": round(statistics.fmean(row["ours"] for row in rows), 4),
        "rival's": round(statistics.fmean(row["rival's"] for row in rows), 4),
        "rank": round(statistics.fmean(1.5 + 0.5 * np.sign(row["rival's"] - row["ours"]) for row in rows), 3),
        "rank at most": 1.5,
        "time": round(statistics.geometric_mean(row["seconds"] / row["rival's seconds"] for row in rows), 3),
        "time at most": TIME_BAR,
    }
