"""The rounds of a search: which looks are trained together, and all rounds, which default tests shorten."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import isthmus
from isthmus.search.display import Silence
from isthmus.search.engine import _Search
from isthmus.search.race import FOLDS, Round
from isthmus.studies.executors import ThisProcess
from isthmus.training.run import Options

ROUNDS = {True: (Round(range(2), 8), Round(range(2, FOLDS), 4), Round(range(FOLDS, 10), 2), Round(range(10, 15), 1))}


@pytest.mark.slow
def test_the_last_two_networks_are_looked_at_fifteen_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.search.race.ROUNDS", ROUNDS)
    x = np.random.default_rng(0).normal(size=(80, 3))
    settings = ["train.epochs=2"]
    found = isthmus.find(x, x[:, 0] - x[:, 1], budget="300", within="10m", workers=1, settings=settings, progress=False)
    looks = sorted((each["looks"] for each in found.content["networks"]), reverse=True)
    assert looks[:2] == [15, 15]
    assert looks[2:4] == [10, 10]
    assert looks[4:8] == [5, 5, 5, 5]
    assert found.content["is_whole"]


@pytest.mark.slow
def test_looks_at_networks_of_one_shape_train_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks that differ in their penalty, and folds; a network without a stack trains alone."""
    monkeypatch.setattr("isthmus.search.race.ROUNDS", {True: (Round(range(2), 1),)})
    started, start = list[list[dict[str, Any]]](), ThisProcess.start

    def watch(executor: ThisProcess, jobs: Any, options: Any) -> None:
        started.append([json.loads(job.settings) for job in jobs])
        start(executor, jobs, options)

    monkeypatch.setattr(ThisProcess, "start", watch)
    x = np.random.default_rng(0).normal(size=(80, 3))
    settings = ["train.epochs=2"]
    isthmus.find(x, x[:, 0] - x[:, 1], budget="1k", within="10m", workers=1, settings=settings, progress=False)
    looks = [jobs for jobs in started if jobs[0]["source"]["folds"]]
    assert all(len({str(job["model"]) for job in jobs}) == 1 for jobs in looks)
    linear = next(jobs for jobs in looks if jobs[0]["model"]["depth"] == 0)
    assert {job["train"]["stack"] for job in linear} == {8}
    assert len({job["train"]["weight_decay"] for job in linear}) == 3
    assert {job["source"]["fold"] for job in linear} == {0, 1}
    started.clear()
    other = [*settings, "train.clip_norm=1.0"]
    isthmus.find(x, x[:, 0] - x[:, 1], budget="1k", within="10m", workers=1, settings=other, progress=False)
    assert {len(jobs) for jobs in started} == {1}, "what cannot be stacked is not"


@pytest.mark.parametrize(
    ("early", "loading", "within", "alone"),
    [(True, 1.0, 15.0, False), (True, 2.0, 15.0, True), (False, 1.0, 15.0, True), (False, 1.0, 60.0, False)],
)
def test_workers_that_would_start_too_late_are_not_used(
    early: bool, loading: float, within: float, alone: bool
) -> None:
    question, executor = cast("Any", SimpleNamespace(seconds=loading)), cast("Any", object())
    search = _Search(question, 1000, Options(), Silence(), 0.0, within, executor, 1.0, early)
    assert isinstance(search.executor, ThisProcess) == alone
