"""Managing runs deletes nothing that is not a run of ours, and overriding settings loses nothing that was said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from isthmus.cli.main import app
from isthmus.core.config import override, read_settings, run_config
from isthmus.core.errors import UserError
from isthmus.core.record import CONFIG, METRICS, read_record, run_folders, runs_folder
from isthmus.core.registry import create_model
from isthmus.studies.runs import overview, removable

TINY: dict[str, Any] = {
    "source": {"name": "digits"},
    "task": {"name": "denoise"},
    "model": {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1},
    "train": {"epochs": 1},
}


def begun(name: str) -> Path:
    folder = runs_folder() / name
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps(run_config(TINY).model_dump(mode="json")))
    return folder


def test_a_run_without_its_config_is_listed_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    folder = tmp_path / "runs" / "0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / METRICS).write_text("")
    assert [(line["run"], line["status"]) for line in overview()] == [(folder.name, "damaged")]


def test_clean_touches_no_folder_that_is_not_among_our_runs(tmp_path: Path) -> None:
    project = tmp_path / "thesis"
    project.mkdir()
    (project / CONFIG).write_text("{}")
    with pytest.raises(UserError, match="not among the runs"):
        removable([str(project)], failed=False)
    assert CliRunner().invoke(app, ["runs", "clean", str(project), "--yes"]).exit_code != 0
    assert project.exists()


def test_clean_leaves_the_run_in_use_and_removes_the_others() -> None:
    names = ["0" * 16, "1" * 16, "2" * 16]
    folders = [begun(name) for name in names]
    with FileLock(folders[0] / ".lock"):
        result = CliRunner().invoke(app, ["runs", "clean", "--yes"])
    assert result.exit_code == 0
    assert [folder.name for folder in run_folders()] == names[:1]


def test_an_unfinished_run_is_called_unfinished() -> None:
    with pytest.raises(UserError, match="has not finished"):
        read_record(begun("3" * 16))


def test_a_study_can_be_renamed_and_another_component_drops_the_fields_of_the_old_one() -> None:
    study = {"name": "small", "base": TINY, "seeds": [0]}
    renamed = override(study, ["name=other", "base.model.name=sw_mlp"])
    assert renamed["name"] == "other"
    assert renamed["seeds"] == [0]
    assert renamed["base"]["model"] == {"name": "sw_mlp"}


def test_the_order_of_overrides_does_not_matter() -> None:
    given = ["task.flips=true", "task.name=super_resolution", "source.split_seed=3", "source.name=mnist5k"]
    for order in (given, given[::-1]):
        settings = override(TINY, order)
        assert settings["task"] == {"name": "super_resolution", "flips": True}
        assert settings["source"] == {"name": "mnist5k", "split_seed": 3}


@pytest.mark.parametrize("field", ["d_h", "depth", "w_in_seed"])
def test_true_is_not_a_number(field: str) -> None:
    shape = {"d_in": 4, "d_out": 4, "d_z": 8, "d_h": 2, "depth": 1}
    with pytest.raises(UserError, match=f"{field}=true"):
        create_model("hourglass_mlp", **shape | {field: True})
    assert create_model("hourglass_mlp", **shape, allow_any_shape=True) is not None


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", "seed: 1\nthreads: 1\nseed: 2\n"), ("a.json", '{"train": {"epochs": 1, "epochs": 2}}')],
)
def test_a_field_that_is_given_twice_is_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match="given twice"):
        read_settings(tmp_path / name)
