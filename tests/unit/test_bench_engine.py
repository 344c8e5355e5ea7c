"""The benchmark of `isthmus find` against tuned rivals: which rows count, and each method at its smallest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import optuna
import pytest
from sklearn import datasets

from benchmarks import engine, older, tuned
from benchmarks.estimators import DataSet
from benchmarks.find import compare, summarise
from benchmarks.tuned import Problem
from tests.command_line import call

WINE = DataSet("wine", True, lambda seed: datasets.load_wine(return_X_y=True))


def test_only_rows_that_every_method_has_seen_count() -> None:
    cells = [
        {"data": "a", "seed": 0, "method": method, "score": score} for method, score in (("find", 0.9), ("linear", 0.8))
    ]
    cells.append({"data": "b", "seed": 0, "method": "find", "score": 0.1})
    rows = engine.pivot(cells, ("find", "linear"))
    assert rows == [{"data": "a", "split": 0, "find": 0.9, "linear": 0.8}]
    (line,) = compare(rows, ("find", "linear"))
    assert (line["ranks ahead"], line["better on"]) == (1, 1)


def _cell(method: str, score: float | None, seed: int = 0) -> dict[str, object]:
    cell = {"data": "wine", "seed": seed, "method": method, "within": 5, "seconds": 1.0, "score": score}
    return cell | ({"score": 0.0, "reason": "ValueError: no rows"} if score is None else {})


def test_a_cell_without_an_answer_is_measured_once_more_and_then_ranked_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, calls, methods = tmp_path / "cells.jsonl", list[str](), ["find", "linear"]

    def measure_cell(data: DataSet, seed: int, method: str, *_: object) -> dict[str, object]:
        calls.append(method)
        return _cell(method, -0.5 if method == "find" else None)

    monkeypatch.setattr(engine, "_measure_cell", measure_cell)
    once = engine.measure(1, 5, kept, lambda line: None, [WINE], methods)
    assert calls == methods
    assert engine.pivot(once, methods) == [], "the row is not complete yet"
    assert [each["attempts"] for each in engine.list_failures(once)] == [1]
    twice = engine.measure(1, 5, kept, lambda line: None, [WINE], methods)
    assert calls == ["find", "linear", "linear"]
    assert engine.measure(1, 5, kept, pytest.fail, [WINE], methods) == twice == engine.measure(0, 5, kept, pytest.fail)
    rows = engine.pivot(twice, methods)
    assert rows == [{"data": "wine", "split": 0, "find": -0.5, "linear": None}]
    assert [line["rank of find"] for line in summarise(rows, methods, methods)] == [1, 1]
    (line,) = compare(rows, methods)
    assert (line["ranks ahead"], line["better on"]) == (1, 1), "no answer is worse than a negative score"
    assert engine.list_failures(twice)[0]["reason"] == "ValueError: no rows"


def test_an_answer_takes_the_place_of_a_failure() -> None:
    merged = engine.merge([_cell("find", None), _cell("find", 0.5), _cell("find", None, seed=1)])
    assert [(cell["score"], cell.get("attempts")) for cell in merged.values()] == [(0.5, None), (None, 1)]


def test_an_interrupted_comparison_resumes_from_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are those of one data set, whose cells alone are complete."""
    out, words = tmp_path / "engine.json", ["bench", "engine", "--within", "5", "--json"]
    cells = [_cell(method, None if method == "linear" else 0.5) | {"attempts": 2} for method in engine.SHOWN]
    engine.restore([*cells, _cell("find", None, seed=1)], tmp_path / "first.jsonl")
    monkeypatch.chdir(Path(engine.__file__).parent.parent)
    call(*words, "--seeds", "0", "--cells", tmp_path / "first.jsonl", "--out", out)
    stored = json.loads(out.read_text())
    assert [line["splits"] for line in stored["summary"]] == [1, 1]
    assert {line["low"] for line in stored["comparisons"]} == {None}
    again = call(*words, "--seeds", "0", "--cells", tmp_path / "second.jsonl", "--out", out).json()
    assert again["summary"] == stored["summary"]
    assert json.loads(out.read_text())["cells"] == stored["cells"]
    assert [(each["method"], each["attempts"]) for each in again["without an answer"]] == [("linear", 2), ("find", 1)]


def test_the_reason_is_what_the_method_printed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LATE", 240.0)  # a busy machine
    reason = engine._run("find", tmp_path, 5, 0)  # there are no rows
    assert "FileNotFoundError" in reason
    assert reason.endswith("exit code 1")


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_older_study_without_a_run_predicts_the_constant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    y = np.array([0, 1, 1]) if task == "classification" else np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    np.savez(tmp_path / "train.npz", x=np.zeros((3, 2), np.float32), y=y)
    np.savez(tmp_path / "test.npz", x=np.zeros((4, 2), np.float32))
    predicted, facts = older.study_shape(tmp_path, task, 100, time.monotonic())
    assert predicted.tolist() == ([1] * 4 if task == "classification" else [[1.0, 1.0]] * 4)
    assert facts["network"] == "constant"
    assert facts["seconds beyond the time"] > 0


@pytest.mark.parametrize("make", engine.TUNED.values())
@pytest.mark.parametrize("classes", [False, True])
def test_tuned_networks_stay_within_the_budget(make: tuned.Make, classes: bool) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(60) % 3 if classes else generator.normal(size=(60, 1)).astype(np.float32)
    problem, kept = Problem(generator.normal(size=(60, 9)).astype(np.float32), y, 600, 0), 0
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(40):
        try:
            model = make(study.ask(), problem)
        except optuna.TrialPruned:
            continue
        kept += 1
        if kept == 1:
            fitted = tuned._fit(model, problem, np.arange(60))
            network = getattr(fitted, "regressor_", fitted)
            parts = network[-1] if hasattr(network, "steps") else network
            params = (
                sum(array.size for array in (*parts.coefs_, *parts.intercepts_))
                if hasattr(parts, "coefs_")
                else sum(each.numel() for each in parts.model_.parameters())
            )
            assert params <= 600
            assert tuned.predict(fitted, problem.x).shape[0] == 60
    assert 0 < kept < 40, "some are within the budget and some are not"


def test_a_cell_is_kept_and_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LATE", 240.0)  # a busy machine
    kept = tmp_path / "cells.jsonl"
    first = engine.measure(1, 5, kept, print, [WINE], ["linear"])
    assert 0.8 < first[0]["score"] <= 1
    assert engine.measure(1, 5, kept, pytest.fail, [WINE], ["linear"]) == first
    assert engine.measure(0, 5, kept, pytest.fail) == first, "what is kept is summarised without measuring"
    environment = os.environ | {"ISTHMUS_HOME": f"{tmp_path}/home"}
    orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environment)
    with engine._nothing_left(tmp_path):
        pass
    assert orphan.wait(10) == -9


@pytest.mark.parametrize("make", engine.TUNED.values())
def test_tuned_networks_learn(make: tuned.Make) -> None:
    x, y = datasets.load_wine(return_X_y=True)
    widths = {"layers": 1, "width 0": 32, "d_z": 16, "depth": 1, "d_h / d_z": 2.0}
    training = {"activation": "relu", "alpha": 0.1, "learning rate": 0.01, "batch": 128, "early stopping": False}
    problem = Problem(x.astype(np.float32), y, 5_000, 0)
    model = make(optuna.trial.FixedTrial(widths | training), problem)
    fitted = tuned._fit(model, problem, np.arange(0, len(y), 2))
    assert problem.score(tuned.predict(fitted, problem.x[1::2]), y[1::2]) > 0.9


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("method", ["find", *engine.TUNED, engine.OLD])
def test_every_method_answers(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_LATE", 240.0)  # a busy machine
    for seconds in (40 if method == engine.OLD else 15, 150):
        (cell,) = engine.measure(1, seconds, tmp_path / "cells.jsonl", print, [WINE], [method])
        assert "reason" not in cell
        assert 0 <= cell["score"] <= 1
        if cell["network"] != "constant":  # the older study's answer if no run of it has ended
            return
    pytest.fail(str(cell))
