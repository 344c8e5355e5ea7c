"""A study reads its data once, lets its task learn once, and prepares each run once; changed data are never stale."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.cli.complete import complete_study
from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.core.registry import find
from isthmus.studies.executors import Job, work
from isthmus.studies.plan import Plan
from isthmus.training.prepare import Options

SMALL = {"seeds": [0, 1], "learning_rates": [1e-3, 3e-3], "rates_on": "first_seed", "pruning": {"rungs": [1]}}


def write_table(path: Path, seed: int = 0) -> Path:
    x = np.random.default_rng(seed).normal(size=(60, 3))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "c", "y"], *np.column_stack([x, x.prod(axis=1)]).tolist()])
    return path


def count(patch: pytest.MonkeyPatch, target: Any, name: str, key: Callable[..., str | None]) -> Counter[str]:
    """Counts the calls of a function by ``key(result, *arguments)``."""
    counted: Counter[str] = Counter()
    function = getattr(target, name)

    def counting(*arguments: Any, **more: Any) -> Any:
        result = function(*arguments, **more)
        if (found := key(result, *arguments)) is not None:
            counted[found] += 1
        return result

    patch.setattr(target, name, counting)
    return counted


def test_a_study_of_a_csv_reads_learns_and_prepares_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import isthmus.core.record
    import isthmus.sources.arrays
    import isthmus.studies.executors
    import isthmus.studies.plan
    import isthmus.training.run

    parsed = count(monkeypatch, isthmus.sources.arrays, "read_table", lambda result, path, *more: str(path))
    learned = count(monkeypatch, find("tasks", "regression"), "learn", lambda *given: "learned")
    prepared = [
        count(monkeypatch, module, "prepare", lambda run, *given: run.id)
        for module in (isthmus.studies.plan, isthmus.studies.executors, isthmus.training.run)
    ]
    read = count(
        monkeypatch, isthmus.core.record, "read_sealed",
        lambda result, path: path.parent.name if path.name == "record.json" else None,
    )  # fmt: skip
    data = write_table(tmp_path / "table.csv")
    study = complete_study(plan_of(data, **SMALL), Options())
    assert study.is_complete
    records = study.records()
    assert len(records) >= 6
    assert parsed == {str(data): 1}
    assert learned == {"learned": 1}
    assert max(sum(prepared, Counter()).values()) == 1
    # By the run, which returns what it finds on disk, and by the study, whose run another process may have trained.
    assert read.keys() >= {record.id for record in records}
    assert max(read.values()) <= 2


def plan_of(path: Path, **fields: Any) -> Plan:
    source = {"name": "arrays", "path": str(path), "targets": ["y"]}
    base = {"source": source, "task": {"name": "regression"}, "train": {"epochs": 3 if fields else 1}, "threads": 1}
    models = [{"name": "hourglass_mlp", "d_z": 8, "d_h": d_h, "depth": 1} for d_h in ((2, 4) if fields else (2,))]
    return Plan.of(study_config({"name": "changed", "base": base, "candidates": models, **fields}), Options())


def test_a_worker_never_trains_on_stale_rows(tmp_path: Path) -> None:
    """A worker keeps its data between jobs; a file that changed meanwhile is read again, or refused."""

    def job(plan: Plan) -> Job:
        run = plan.run(plan.candidates[0].model, 1e-3, 0)
        return Job(run.id, run.config.model_dump_json())

    def carry_out(job: Job) -> Any:
        return work([job], Options(), lambda event: None, lambda: False)[0]

    path = write_table(tmp_path / "table.csv")
    first = job(plan_of(path))
    assert carry_out(first).how == "done"
    write_table(path, seed=1)
    second = job(plan_of(path))
    assert second.id != first.id
    assert json.loads(second.settings) == json.loads(first.settings)
    assert carry_out(second).how == "done", "the rows were read again"
    ended = carry_out(first)
    assert (ended.how, ended.id) == ("refused", first.id)
    assert "the data have changed" in ended.reason
    complete_study(plan_of(path), Options())
    write_table(path)
    with pytest.raises(UserError, match="differs in data"):
        complete_study(plan_of(path), Options())
