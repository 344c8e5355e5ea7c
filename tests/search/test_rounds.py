"""The rounds of a search: which looks are trained together, and all rounds, which default tests shorten."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import isthmus
from isthmus.core.config import run_config
from isthmus.core.record import RECORD
from isthmus.search.display import Silence
from isthmus.search.engine import _Search
from isthmus.search.race import FOLDS, Network, Race, Round
from isthmus.studies.executors import CRASHES, Ended, Event, ThisProcess
from isthmus.training.loop import Stopped
from isthmus.training.prepare import Options, learn_task, load_data
from isthmus.training.run import run
from tests.listeners import stop_after
from tests.search.houses import write_houses

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


def test_a_run_whose_worker_was_killed_is_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its network would drop out, and a kill would change the answer."""
    kills, events = Counter[str](), ThisProcess.events

    def lose(executor: ThisProcess, timeout: float) -> list[Event]:
        if executor.waiting is not None:
            jobs, _ = executor.waiting
            if kills[jobs[0].id] < allowed:
                kills.update(job.id for job in jobs)
                executor.waiting = None
                return [Ended(job.id, "crashed", "its process was killed") for job in jobs]
        return events(executor, timeout)

    monkeypatch.setattr(ThisProcess, "events", lose)
    source = {"name": "table", "path": str(write_houses(tmp_path / "table.csv")), "targets": ["price"], "folds": FOLDS}
    given: dict[str, Any] = {"source": source, "task": {"name": "regression"}, "threads": 1}
    model = {"name": "hourglass_mlp", "d_z": 4, "d_h": 2, "depth": 1}
    for rate, allowed in ((1e-2, CRASHES - 1), (1e-3, CRASHES)):
        train = {"epochs": 1, "stack": 8, "learning_rate": rate}
        config = run_config(given | {"model": model, "train": train})
        network, task = Network(0, config), learn_task(config.task, load_data(config.source))
        race = Race([network], task, Options(), ThisProcess(), time.monotonic() + 600)
        race.carry_out([(network, look) for look in range(2)])
        assert race.has_ended(network, 0) == race.has_ended(network, 1) == (allowed < CRASHES)
        assert len(race.failures) == 2 * (allowed == CRASHES)


def test_runs_that_other_code_began_are_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade, nobody cleans the runs of an interrupted search one by one; finished ones stay as they are."""
    source = {"name": "table", "path": str(write_houses(tmp_path / "table.csv")), "targets": ["price"], "folds": FOLDS}
    model = {"name": "hourglass_mlp", "d_z": 4, "d_h": 2, "depth": 1}
    given = {"source": source, "task": {"name": "regression"}, "threads": 1, "model": model}
    config = run_config(given | {"train": {"epochs": 20, "stack": 8}})
    network, task, said = Network(0, config), learn_task(config.task, load_data(config.source)), list[str]()

    def race() -> Race:
        return Race([network], task, Options(), ThisProcess(), time.monotonic() + 600, say=said.append)

    first = race()
    first.carry_out([(network, 0)])
    record = (first.run(network, 0).folder / RECORD).read_bytes()
    for look in (1, 2):
        with pytest.raises(Stopped):
            run(first.run(network, look), Options(), stop_after(5))
        assert (first.run(network, look).folder / "state.json").exists()
    monkeypatch.setattr("isthmus.training.prepare.code_version", lambda *modules: {"version": "0", "digest": "other"})
    again = race()
    again.carry_out([(network, look) for look in range(3)])
    assert all(again.has_ended(network, look) for look in range(3))
    assert said == ["unfinished trainings that another version of the code began start again"]
    assert (first.run(network, 0).folder / RECORD).read_bytes() == record
