"""`isthmus find` against what people reach for on a table: a linear model, scikit-learn's MLP, our default estimator.

Every method learns the same three quarters of the rows; the score is R² or accuracy on the rest, which none has seen.
Gradient boosting and a random forest are shown beside them and not ranked. A search that ends before its time has
carried out all rounds, so that more time, or a busy machine with more time, gives the same answer: ``processor
seconds`` tell whether two cores do its work within the time. Measured splits are kept, so that a long measurement can
be interrupted.
"""

from __future__ import annotations

import json
import math
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import isthmus
from benchmarks.estimators import DATA, DataSet
from benchmarks.processes import empty_home
from isthmus.core.files import read_json_lines
from isthmus.core.interrupts import was_interrupted
from isthmus.sklearn import HourglassClassifier, HourglassRegressor

RANKED = ("linear", "scikit-learn's MLP", "default estimator", "find")
SHOWN = (*RANKED, "gradient boosting", "random forest")


def measure(
    splits: int, within: str, path: Path, tell: Callable[[str], None], data: Sequence[DataSet] = DATA
) -> list[dict[str, Any]]:
    """A row for each data set and split; those in the file at ``path`` are not measured again."""
    rows = read_json_lines(path, ("data", "split", "within"))
    known = {(row["data"], row["split"], row["within"]) for row in rows}
    for split in range(splits):
        for each in data:
            if (each.name, split, within) not in known:
                rows.append(_measure_split(each, split, within))
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                tell(f"{each.name}, split {split}: " + ", ".join(f"{name} {rows[-1][name]:.4f}" for name in SHOWN))
    return [row for row in rows if row["within"] == within and row["split"] < splits]


def _measure_split(data: DataSet, split: int, within: str) -> dict[str, Any]:
    X, y = data.load(split)
    train_X, test_X, train_y, test_y = train_test_split(X, y, random_state=split, stratify=y if data.classes else None)
    row: dict[str, Any] = {"data": data.name, "split": split, "within": within}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # iterations that end before convergence
        for name, model in _rivals(data.classes, split).items():
            row[name] = round(float(model.fit(train_X, train_y).score(test_X, test_y)), 4)
    with empty_home():
        began, used = time.monotonic(), _processor_seconds()
        answer = isthmus.find(
            _table(train_X, train_y), "target", test=_table(test_X, test_y), within=within, progress=False,
            task="classification" if data.classes else "regression",
        )  # fmt: skip
        if was_interrupted():  # it answers with the best so far, which is not what is measured
            raise KeyboardInterrupt
        row["find"] = round(float(answer.content["test"]["values"][0]), 4)
        row |= {"network": answer.content["best"]["title"], "is whole": answer.content["is_whole"]}
        row |= {
            "seconds": round(time.monotonic() - began, 1),
            "processor seconds": round(_processor_seconds() - used, 1),
        }
    return row


def _rivals(classes: bool, seed: int) -> dict[str, Any]:
    if classes:
        return {
            "linear": make_pipeline(StandardScaler(), LogisticRegressionCV(max_iter=500)),
            "scikit-learn's MLP": make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
            "default estimator": HourglassClassifier(random_state=seed),
            "gradient boosting": HistGradientBoostingClassifier(random_state=seed),
            "random forest": RandomForestClassifier(random_state=seed),
        }
    network = make_pipeline(StandardScaler(), MLPRegressor(random_state=seed))
    return {
        "linear": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15))),
        "scikit-learn's MLP": TransformedTargetRegressor(network, transformer=StandardScaler()),
        "default estimator": HourglassRegressor(random_state=seed),
        "gradient boosting": HistGradientBoostingRegressor(random_state=seed),
        "random forest": RandomForestRegressor(random_state=seed),
    }


def _table(X: np.ndarray, y: np.ndarray) -> Any:
    import pandas

    return pandas.DataFrame(X, columns=[f"x{number}" for number in range(X.shape[1])]).assign(target=y)


def _processor_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def summarise(
    rows: Sequence[Mapping[str, Any]], ranked: Sequence[str] = RANKED, shown: Sequence[str] = SHOWN
) -> list[dict[str, Any]]:
    """Mean scores of each data set with the rank of `find`, then all mean ranks.

    Data sets count alike, also while some of them have more splits than others.
    """
    lines, by_data = [], list[dict[str, float]]()
    for name in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == name]
        scores = {method: _mean_score(mine, method) for method in shown}
        by_data.append(_mean_ranks(mine, ranked))
        lines.append({"data": name, "splits": len(mine), **scores, "rank of find": by_data[-1]["find"]})
    ranks = {method: round(statistics.fmean(each[method] for each in by_data), 3) for method in ranked}
    absent = dict.fromkeys(shown) | ranks
    return [*lines, {"data": "mean rank", "splits": len(rows), **absent, "rank of find": ranks["find"]}]


def _mean_score(rows: Sequence[Mapping[str, Any]], method: str) -> float | None:
    """Over the splits on which it has an answer."""
    scores = [row[method] for row in rows if row[method] is not None]
    return round(statistics.fmean(scores), 4) if scores else None


def _mean_ranks(rows: Sequence[Mapping[str, Any]], ranked: Sequence[str]) -> dict[str, float]:
    """A method without an answer is the last."""
    from scipy.stats import rankdata

    ranks = [rankdata([math.inf if row[method] is None else -row[method] for method in ranked]) for row in rows]
    return dict(zip(ranked, np.mean(ranks, axis=0).round(3).tolist(), strict=True))


def _is_better(rows: Sequence[Mapping[str, Any]], rival: str) -> bool:
    """Whether `find` has the higher mean score of the splits on which both have an answer."""
    both = [row for row in rows if row["find"] is not None and row[rival] is not None]
    if not both:
        return any(row["find"] is not None for row in rows)
    return statistics.fmean(row["find"] for row in both) > statistics.fmean(row[rival] for row in both)


def compare(rows: Sequence[Mapping[str, Any]], ranked: Sequence[str] = RANKED) -> list[dict[str, Any]]:
    """By how many ranks `find` is ahead of each rival: the mean over data sets, with its 95 % interval.

    It is better on a data set if its mean score there is higher, over the splits on which both have an answer. A single
    data set has no interval.
    """
    from scipy.stats import t

    by_data = [[row for row in rows if row["data"] == name] for name in dict.fromkeys(row["data"] for row in rows)]
    ranks, lines = [_mean_ranks(each, ranked) for each in by_data], []
    for rival in (method for method in ranked if method != "find"):
        leads = [each[rival] - each["find"] for each in ranks]
        mean = statistics.fmean(leads)
        low = high = None
        if len(leads) > 1:
            half = float(t.ppf(0.975, len(leads) - 1)) * statistics.stdev(leads) / len(leads) ** 0.5
            low, high = round(mean - half, 3), round(mean + half, 3)
        better = sum(_is_better(each, rival) for each in by_data)
        lines.append({"find against": rival, "ranks ahead": round(mean, 3), "low": low, "high": high,
                      "better on": better, "data sets": len(leads)})  # fmt: skip
    return lines
