"""A study is its runs: whoever carries them out, and however often it is interrupted, the records are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.config import StudyConfig, study_config
from isthmus.record import MODEL, read_record
from isthmus.run import Options
from isthmus.studies.command import answer
from isthmus.studies.executors import Advanced, Finished, LocalWorkers, ThisProcess
from isthmus.studies.study import carry_out, plan

BASE: dict[str, Any] = {
    "source": {"name": "digits"},
    "task": {"name": "denoise"},
    "model": {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1},
    "train": {"epochs": 2},
    "threads": 1,
}


def small(**changes: Any) -> StudyConfig:
    models = [
        {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1},
        {"name": "conventional_mlp", "d_z": 32, "d_h": 64, "depth": 1},
    ]
    return study_config({"name": "small", "base": BASE, "candidates": models, "seeds": [0, 1]} | changes)


def weights(config: StudyConfig) -> dict[str, str]:
    return {record.id: record.files[MODEL] for record in plan(config, Options()).records()}


@pytest.mark.slow
def test_workers_and_this_process_leave_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name, executor in (("one", ThisProcess()), ("two", LocalWorkers(2))):
        monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / name))
        carry_out(plan(small(), Options()), executor, Options(), lambda trial, event: None)
        found.append(weights(small()))
    assert found[0] == found[1]
    assert len(found[0]) == 4


def test_what_is_on_record_is_not_trained_again(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    carry_out(plan(small(seeds=[0]), Options()), ThisProcess(), Options(), lambda trial, event: events.append(event))
    assert sum(isinstance(event, Finished) for event in events) == 2
    assert max(event.fraction for event in events if isinstance(event, Advanced)) == 1
    study = plan(small(), Options())
    assert len(study.remaining) == 2
    carry_out(study, ThisProcess(), Options(), lambda trial, event: None)
    monkeypatch.setattr("isthmus.run._train", lambda *arguments: pytest.fail("trained again"))
    carry_out(plan(small(), Options()), ThisProcess(), Options(), lambda trial, event: None)


def test_a_run_that_fails_does_not_stop_the_others() -> None:
    diverging = small(learning_rates=[1e-3, 900.0], seeds=[0])
    study = plan(diverging, Options())
    carry_out(study, ThisProcess(), Options(), lambda trial, event: None)
    statuses = sorted(read_record(folder).status for folder in study.folders)
    assert statuses.count("finished") >= 2
    assert len(statuses) == 4


def test_the_answer_is_a_table_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(small(), workers=1, out=tmp_path / "page", as_json=False)
    said = capsys.readouterr().out
    assert "Hourglass" in said
    assert "Conventional" in said
    assert (tmp_path / "page" / "index.html").stat().st_size > 1_000_000
    answer(small(), workers=1, out=tmp_path / "page", as_json=True)
    lines = json.loads(capsys.readouterr().out)["candidates"]
    assert {len(line["seeds"]) for line in lines} == {2}


def test_seeds_come_outermost_and_rates_are_tried_for_each_candidate() -> None:
    runs = small(learning_rates=[1e-3, 2e-3]).runs()
    assert [run.seed for run in runs] == [0] * 4 + [1] * 4
    assert [run.train.learning_rate for run in runs[:4]] == [1e-3, 2e-3, 1e-3, 2e-3]
