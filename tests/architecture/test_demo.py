"""`isthmus demo`: a study of both shapes, a search, and what to type for one's own data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus.cli import demo
from isthmus.cli.main import app
from isthmus.core.config import StudyConfig, study_config
from isthmus.core.record import read_record, run_folders
from isthmus.recipes import mlps
from isthmus.search import engine


def tiny_study() -> StudyConfig:
    base = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "train": {"epochs": 1}, "threads": 1}
    models = [mlps.conventional(16, 32, 1), mlps.hourglass(65, 4, 1)]
    return study_config({"name": "demo", "base": base, "candidates": models})


def run(*options: str) -> str:
    result = CliRunner().invoke(app, ["demo", "--workers", "1", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


@pytest.mark.slow
def test_a_repeated_demo_shows_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlps, "demo", tiny_study)
    original = engine.find

    def find(*given: Any, **settings: Any) -> Any:
        return original(*given, **settings | {"budget": 300, "settings": ["train.epochs=2"]})

    monkeypatch.setattr(engine, "find", find)
    shown = run("--out", str(tmp_path / "page"))
    assert "d_z  d_h  depth" in shown
    assert "gradient boosting" in shown
    assert [(tmp_path / page / "index.html").exists() for page in ("page", f"page/{demo.TABLE}")] == [True, True]
    *_, enter, predict, last = shown.rstrip().splitlines()
    assert "isthmus find my.csv --target price" in enter
    trained = [folder for folder in run_folders() if read_record(folder).config["source"]["name"] == "bikes"]
    assert predict.split()[2] in {folder.name for folder in trained}
    assert predict.split()[3].endswith("examples/bikes.csv")
    assert last.strip() == "isthmus --help"

    monkeypatch.setattr(engine, "find", None)  # nothing is searched again
    assert run("--out", str(tmp_path / "page")) == shown
    content = json.loads(run("--json"))
    assert {"page", "candidates", "trials", "find"} <= set(content)
    assert content["find"]["best"]["run"] == predict.split()[2]
