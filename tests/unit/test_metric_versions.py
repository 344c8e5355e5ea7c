"""What an older version measured in another way is measured again or left out, and never compared with today's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.core.config import RunConfig, run_config
from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed, sha256, write_sealed
from isthmus.core.record import (
    METRIC_VERSIONS,
    METRICS,
    RECORD,
    REMEASURED,
    RunRecord,
    read_record,
    run_folders,
    runs_folder,
)
from isthmus.core.registry import catalogue, find
from isthmus.export import export_run
from isthmus.reports import write_report
from isthmus.reports.sections import gather
from isthmus.reports.text import answer
from isthmus.studies.fronts import summarise
from isthmus.studies.runs import overview
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.exported import read_exported
from isthmus.training.run import run
from tests.studies.drivers import carry_out, forbid_training, opened

WRONG = 1.0
"""What an older version found for noise."""


@pytest.fixture
def base(tmp_path: Path) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 3))
    np.savez(tmp_path / "noise.npz", x=x, y=1e-4 * (x[:, 0] + generator.normal(size=60)))
    source = {"name": "arrays", "path": str(tmp_path / "noise.npz"), "targets": "y"}
    train = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01}
    return {"source": source, "task": {"name": "regression"}, "train": train, "threads": 1}


@pytest.fixture
def config(base: dict[str, Any]) -> Callable[[int], RunConfig]:
    model = {"name": "hourglass_mlp", "d_z": 8, "d_h": 4, "depth": 1}
    return lambda seed: run_config(base | {"model": model, "seed": seed})


def make_older(folder: Path) -> None:
    """A run as an older version left it: its R² is of another kind, and neither record nor log say of which."""
    content = read_sealed(folder / RECORD)
    assert content.pop("metric_versions") == {"r2": 2}
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    for values in (*content["metrics"].values(), *(line for line in lines if "r2" in line)):
        values["r2"] = WRONG
        values.pop("metric_versions", None)
    for line in lines:
        line.pop("check", None)
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    content["files"][METRICS] = sha256(folder / METRICS)
    write_sealed(folder / RECORD, content)


def older(config: RunConfig) -> tuple[RunRecord, Path]:
    """The record as it is today, and the folder with what an older version would have written."""
    record = run(config)
    make_older(runs_folder() / record.id)
    return record, runs_folder() / record.id


def test_readers_of_records_know_the_versions_that_the_tasks_declare() -> None:
    declared = {name: dict(find("tasks", name).metric_versions) for name in catalogue("tasks")}
    assert {name: versions for name, versions in declared.items() if versions} == METRIC_VERSIONS


def test_an_older_metric_is_not_read(config: Callable[[int], RunConfig]) -> None:
    today, folder = older(config(0))
    record = read_record(folder)
    assert record.outdated_metrics == {"r2"}
    assert record.quality() is record.quality("validation") is None
    assert WRONG not in record.metrics["test"].values()
    assert record.metrics["test"]["mse"] == today.metrics["test"]["mse"]


def test_it_is_measured_again_from_the_stored_weights(
    config: Callable[[int], RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    today, folder = older(config(0))
    before = (folder / RECORD).read_bytes()
    forbid_training(monkeypatch)
    record = run(config(0))
    assert record.metrics == today.metrics
    assert record == read_record(folder)
    assert not record.outdated_metrics
    assert (folder / RECORD).read_bytes() == before, "a finished record never changes"
    monkeypatch.setattr("isthmus.training.results.evaluate", lambda *arguments: pytest.fail("measured once more"))
    assert run(config(0)) == record


@pytest.mark.parametrize("damage", ["another run's", "other weights", "cut short"])
def test_what_was_measured_again_is_of_these_weights(damage: str, config: Callable[[int], RunConfig]) -> None:
    today, folder = older(config(0))
    run(config(0))
    content = read_sealed(folder / REMEASURED)
    if damage == "cut short":
        (folder / REMEASURED).write_text("{")
    else:
        write_sealed(folder / REMEASURED, content | {"run" if damage == "another run's" else "model": "0"})
    assert read_record(folder).quality() is None
    assert run(config(0)).quality() == today.quality()


def test_older_runs_stand_in_no_front_with_newer_ones(config: Callable[[int], RunConfig]) -> None:
    _, folder = older(config(0))
    records = [read_record(folder), run(config(1))]
    (candidate,) = summarise(records)
    assert (candidate.seeds, candidate.failed) == ((1,), 0)
    assert summarise(records[:1]) == []
    (by_error,) = summarise(records, quality="mse")
    assert by_error.seeds == (0, 1), "the squared error is what it was"
    assert summarise(records, quality="r2") == summarise(records)


def test_whoever_shows_older_runs_says_that_they_are_not_comparable(
    config: Callable[[int], RunConfig], tmp_path: Path
) -> None:
    _, folder = older(config(0))
    (line,) = overview()
    assert line["status"] == "finished"
    assert "not comparable" in line["test"]
    ((section,), _) = gather([folder])
    assert [run.folder for run in section.outdated_runs] == [folder]
    assert section.failed_runs == []
    assert str(folder) in answer(section)[0]
    assert not any("r2" in line for line in section.runs[0].metrics)
    page = write_report([folder], tmp_path / "report", "older", "")
    assert "not comparable" in page.read_text()
    assert "r2" not in read_exported(export_run(folder, "safetensors", tmp_path / "out").folder).metrics


@pytest.fixture
def study(base: dict[str, Any]) -> Callable[..., Study]:
    space = {"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": [8], "d_h": [2, 4]}}
    return lambda **changes: opened({"name": "noise", "base": base, "spaces": [space]} | changes)


def without_version(stored_config: Callable[[Storage], dict[str, Any] | None]) -> Callable[[Storage], dict[str, Any]]:
    """What an older version wrote down of a study when it began."""
    return lambda storage: {
        name: value for name, value in (stored_config(storage) or {}).items() if name != "metric_versions"
    }


def test_a_study_of_an_older_version_is_not_gone_on_with(
    study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = study()
    carry_out(first)
    wanted = [asdict(candidate) for candidate in summarise(first.records())]
    for folder in run_folders():
        make_older(folder)
    with monkeypatch.context() as patched:
        patched.setattr(Storage, "stored_config", without_version(Storage.stored_config))
        with pytest.raises(UserError, match=r"older version.*another name"):
            study()
    forbid_training(monkeypatch)
    again = study(name="again")
    carry_out(again)
    assert [asdict(candidate) for candidate in summarise(again.records())] == wanted
    assert all(trial["quality"] < WRONG for trial in again.outcomes())


def test_no_rung_is_decided_by_an_older_log(study: Callable[..., Study]) -> None:
    carry_out(study())
    for folder in run_folders():
        make_older(folder)
    with pytest.raises(UserError, match="runs clean"):
        carry_out(study(name="again", pruning={"rungs": [1]}))
