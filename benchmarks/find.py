"""`isthmus find` against what people reach for on a table: a linear model, scikit-learn's MLP, our default estimator.

Every method learns the same three quarters of the rows; the score is R² or accuracy on the rest, which none has seen.
Gradient boosting and a random forest are shown beside them and not ranked. A search that ends before its time has
carried out all rounds, so that more time, or a busy machine with more time, gives the same answer: ``processor
seconds`` tell whether two cores do its work within the time. Measured splits are kept, so that a long measurement can
be interrupted.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from isthmus.core.interrupts import was_interrupted
from isthmus.sklearn import HourglassClassifier, HourglassRegressor

RANKED = ("linear", "scikit-learn's MLP", "default estimator", "find")
SHOWN = (*RANKED, "gradient boosting", "random forest")


def measure(
    splits: int, within: str, path: Path, tell: Callable[[str], None], data: Sequence[DataSet] = DATA
) -> list[dict[str, Any]]:
    """A row for each data set and split; those in the file at ``path`` are not measured again."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
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
    with _scratch_home():
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


@contextmanager
def _scratch_home() -> Iterator[None]:
    before = os.environ.get("ISTHMUS_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ISTHMUS_HOME"] = folder
        try:
            yield
        finally:
            os.environ.pop("ISTHMUS_HOME")
            os.environ |= {"ISTHMUS_HOME": before} if before is not None else {}


def _processor_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def summarise(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean scores of each data set with the rank of `find`, then all mean ranks."""
    lines = []
    for name in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == name]
        scores = {method: round(statistics.fmean(row[method] for row in mine), 4) for method in SHOWN}
        lines.append({"data": name, "splits": len(mine), **scores, "rank of find": _mean_ranks(mine)["find"]})
    ranks = _mean_ranks(rows)
    absent = dict.fromkeys(SHOWN) | ranks
    return [*lines, {"data": "mean rank", "splits": len(rows), **absent, "rank of find": ranks["find"]}]


def _mean_ranks(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    from scipy.stats import rankdata

    ranks = [rankdata([-row[method] for method in RANKED]) for row in rows]
    return dict(zip(RANKED, np.mean(ranks, axis=0).round(3).tolist(), strict=True))


def compare(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By how many ranks `find` is ahead of each rival: the mean over data sets, with its 95 % interval."""
    from scipy.stats import t

    names, lines = list(dict.fromkeys(row["data"] for row in rows)), []
    by_data = [_mean_ranks([row for row in rows if row["data"] == name]) for name in names]
    for rival in RANKED[:-1]:
        leads = [ranks[rival] - ranks["find"] for ranks in by_data]
        mean = statistics.fmean(leads)
        half = (
            float(t.ppf(0.975, len(leads) - 1)) * statistics.stdev(leads) / len(leads) ** 0.5 if leads[1:] else np.nan
        )
        lines.append({"find against": rival, "ranks ahead": round(mean, 3), "low": round(mean - half, 3),
                      "high": round(mean + half, 3), "data sets": len(leads)})  # fmt: skip
    return lines
