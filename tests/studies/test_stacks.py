"""Studies whose runs train in stacks: the same records as of runs alone in their stacks, with any number of workers."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.core.config import study_config
from isthmus.core.record import read_record
from isthmus.studies.executors import Advanced, Ended, Executor, Job, LocalWorkers, ThisProcess, work
from isthmus.studies.plan import Plan
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.prepare import Options
from isthmus.training.run import run, run_together
from tests.training.bits import weights

FIELDS: dict[str, Any] = {
    "learning_rates": [3e-3, 1e-2],
    "seeds": [0, 1],
    "candidates": [{"name": "hourglass_mlp", "d_z": 16, "d_h": d_h, "depth": 1} for d_h in (2, 4, 8)],
    "pruning": {"rungs": [2], "keep": 0.0, "margin": 0.0},
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).normal(size=(120, 3))
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "c", "y"], *np.column_stack([x, x.prod(axis=1)]).tolist()])
    return tmp_path / "table.csv"


def make_study(table: Path, folder: Path, name: str = "stacked", **fields: Any) -> Study:
    source = {"name": "arrays", "path": str(table), "targets": ["y"]}
    train = {"epochs": 4, "batch_size": 32, "stack": 4}
    base = {"source": source, "task": {"name": "regression"}, "train": train, "threads": 1}
    plan = Plan.of(study_config(FIELDS | {"name": name, "base": base} | fields), Options())
    folder.mkdir(exist_ok=True)
    return Study(plan, Storage(f"sqlite:///{folder}/study.db", name, plan.maximise))


def carry_out(study: Study, executor: Executor) -> list[dict[str, Any]]:
    study.carry_out(executor, lambda trial, run, event: None)
    return study.outcomes()


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs each call trained together."""
    sizes, train = list[int](), run_together

    def counting(runs: Any, *more: Any) -> Any:
        sizes.append(len(runs))
        return train(runs, *more)

    monkeypatch.setattr("isthmus.studies.executors.run_together", counting)
    return sizes


def test_rates_and_seeds_of_a_candidate_train_together_rung_by_rung(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: list[int]
) -> None:
    study = make_study(table, tmp_path / "one")
    outcomes = carry_out(study, ThisProcess())
    pruned = sum(outcome["state"] == "pruned" for outcome in outcomes)
    assert pruned
    assert together == [4] * (3 + 3 - pruned), "each candidate to the rung, and those that are left to the end"
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "alone"))
    alone = {each.id: each for proposal in study.plan.candidates for each in study.plan.runs(proposal).values()}
    for folder in study.folders[:3]:
        run(alone[folder.name])
        assert weights(folder) == weights(alone[folder.name].folder)
        assert read_record(folder).metrics == read_record(alone[folder.name].folder).metrics


@pytest.mark.slow
def test_workers_come_to_the_same_results(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for number, executor in enumerate((ThisProcess(), LocalWorkers(2))):
        monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / str(number)))
        found.append(carry_out(make_study(table, tmp_path / str(number)), executor))
    assert found[0] == found[1]


class Fragile(ThisProcess):
    """A process that dies with the first stack that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []

    def start(self, jobs: Any, options: Options) -> None:
        self.given.append(len(jobs))
        super().start(jobs, options)

    def events(self, timeout: float) -> list[Ended | Advanced]:
        if self.given == [4] and self.waiting is not None:
            jobs, self.waiting = self.waiting[0], None
            return [Ended(job.id, "crashed", "it died") for job in jobs]
        return super().events(timeout)


def test_runs_that_lost_their_process_train_alone(table: Path, tmp_path: Path) -> None:
    """One of them may take the others with it again."""
    executor = Fragile()
    outcomes = carry_out(
        make_study(table, tmp_path / "one", candidates=FIELDS["candidates"][:1], pruning=None), executor
    )
    assert executor.given == [4, 1, 1, 1, 1]
    assert [outcome["state"] for outcome in outcomes] == ["finished"]


def test_a_stack_that_fails_is_tried_run_by_run(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("isthmus.studies.executors.run_together", fail)
    plan = make_study(table, tmp_path / "one").plan
    runs = list(plan.runs(plan.candidates[0]).values())
    jobs = [Job(each.id, each.config.model_dump_json(), prepared=each) for each in runs]
    ended = work(jobs, Options(), lambda event: None, lambda: False)
    assert Counter(each.how for each in ended) == {"done": 4}
    assert all(each.has_ended for each in runs)
