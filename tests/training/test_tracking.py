"""TensorBoard and MLflow show runs; they cannot change or stop one."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.config import run_config
from isthmus.core.files import home
from isthmus.core.record import MODEL, find_run, read_metrics, read_record, run_folders, runs_folder
from isthmus.training import tracking
from isthmus.training.loop import Stopped
from isthmus.training.prepare import Options
from isthmus.training.run import run
from isthmus.training.tracking import Tracker, Tracking, tracking_uri
from tests.command_line import TINY, call, tiny
from tests.listeners import stop_after
from tests.studies.drivers import BASE

CONFIG = run_config(TINY | {"train": {"epochs": 3, "batch_size": 400}})
STUDY = {
    "name": "small",
    "base": BASE | {"train": {"epochs": 1, "batch_size": 400}},
    "spaces": [{"model": {"name": "hourglass_mlp", "depth": 1, "d_z": 70}, "vary": {"d_h": [4, 8]}}],
}


@pytest.fixture(autouse=True)
def _nothing_failed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "_failed_at", {})


class Broken(Tracker):
    """Fails in one of its calls."""

    def __init__(self, call: str) -> None:
        if call == "open":
            raise OSError("no such\nserver")
        setattr(self, call, self._fail)

    def _fail(self, *arguments: Any) -> None:
        raise OSError("no such\nserver")


@pytest.mark.parametrize("broken", ["open", "line", "finish", "close"])
def test_a_tracker_that_fails_costs_one_line(
    broken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "MLflow", lambda *arguments: Broken(broken))
    monkeypatch.setattr(tracking, "require_packages", lambda wanted: None)
    shown = Tracking(mlflow="https://me:secret@server")
    record = run(run_config(TINY), Options(tracking=shown))
    assert record.status == "finished"
    assert record.files == read_record(find_run(record.id)).files
    run(run_config(TINY | {"seed": 1}), Options(tracking=shown))
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "isthmus: MLflow at https://me:***@server failed, and training continues without it: no such server"


def test_a_place_that_failed_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def refuse(uri: str, *arguments: Any) -> Tracker:
        tries.append(uri)
        return Broken("open")

    monkeypatch.setattr(tracking, "MLflow", refuse)
    monkeypatch.setattr(tracking, "require_packages", lambda wanted: None)
    options = Options(tracking=Tracking(mlflow="https://server"))
    for seed in range(2):
        run(run_config(TINY | {"seed": seed}), options)
    assert len(tries) == 1
    monkeypatch.setattr(tracking, "_PAUSE", 0.0)
    run(run_config(TINY | {"seed": 2}), options)
    assert len(tries) == 2


@pytest.mark.parametrize(("package", "title"), [("tensorboard", "TensorBoard"), ("mlflow", "MLflow")])
def test_a_missing_package_is_one_line_before_anything_is_trained(
    package: str, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else found(name))
    words = [f"--{package}"] + (["auto"] if package == "mlflow" else [])
    answer = call("train", tiny(tmp_path), *words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"isthmus: --{package} needs {title}: pip install 'isthmus[{package}]'\n"
    assert list(run_folders()) == []


def test_a_search_without_data_or_home_does_not_open_a_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failure would be a second line above the error."""
    place = tmp_path / "tracked"
    (tmp_path / "file").touch()
    for data, folder in (("missing.csv", "home"), ("digits", "file/home")):
        monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / folder))
        answer = call("find", data, "--mlflow", str(place), "--workers", "1")
        assert (answer.code, answer.err.count("\n"), place.exists()) == (2, 1, False)


def test_the_places_of_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri("https://server:5000") == "https://server:5000"
    assert tracking_uri(str(tmp_path / "here")) == f"sqlite:///{tmp_path / 'here' / 'mlflow.db'}"
    assert tracking_uri("auto") == f"sqlite:///{home() / 'mlflow' / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://elsewhere")
    assert tracking_uri("auto") == "https://elsewhere"


def test_the_runs_of_a_study_have_tensorboard_logs(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    answer = call("study", tmp_path / "study.json", "--workers", 1, "--tensorboard", "--out", tmp_path / "page")
    assert answer.code == 0
    assert f"tensorboard --logdir {runs_folder()}" in answer.out
    folders = list(run_folders())
    assert len(folders) == 2
    assert all(list((folder / "tensorboard").glob("events.out.tfevents.*")) for folder in folders)


@pytest.fixture
def client(tmp_path: Path) -> Any:
    """MLflow's own client of a local folder."""
    pytest.importorskip("mlflow")
    return tracking._open_client(tracking_uri(str(tmp_path / "mlflow")))


def runs_of(client: Any, experiment: str) -> list[Any]:
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's
def test_mlflow_shows_a_run_and_changes_no_bit(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(CONFIG)
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "other"))
    options = Options(tracking=tracking.prepare_tracking(True, str(tmp_path / "mlflow")), command="isthmus train x")
    with pytest.raises(Stopped):
        run(CONFIG, options, stop_after(4))
    (begun,) = runs_of(client, "isthmus")
    assert begun.info.status == "KILLED"
    record = run(CONFIG, options)
    assert record.files[MODEL] == plain.files[MODEL]
    assert record.metrics == plain.metrics
    (seen,) = runs_of(client, "isthmus")
    assert seen.info.run_id == begun.info.run_id, "a resumed run goes on as one run of MLflow"
    assert seen.info.status == "FINISHED"
    assert seen.data.tags["isthmus.run"] == record.id
    assert seen.data.tags["isthmus.command"] == "isthmus train x"
    assert seen.data.params["model.d_h"] == "8"
    assert seen.data.params["train.epochs"] == "3"
    assert seen.data.metrics["test/psnr"] == record.metrics["test"]["psnr"]
    assert seen.data.metrics["cost/params"] == record.cost["params"]
    logged = {line["step"]: line["loss"] for line in read_metrics(find_run(record.id)) if line["split"] == "validation"}
    history = client.get_metric_history(seen.info.run_id, "validation/loss")
    assert {metric.step: metric.value for metric in history} == logged


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_shows_the_runs_of_a_study_from_several_processes(client: Any, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(STUDY | {"seeds": [0, 1]}))
    words = ["--workers", 2, "--mlflow", tmp_path / "mlflow", "--out", tmp_path / "page", "--json"]
    answer = call("study", tmp_path / "study.json", *words)
    assert answer.code == 0
    assert "failed" not in answer.err
    seen = runs_of(client, "small")
    assert {each.data.tags["isthmus.run"] for each in seen} == {folder.name for folder in run_folders()}
    assert len(seen) == 4
    assert {each.info.status for each in seen} == {"FINISHED"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_server_that_does_not_answer_stops_no_training(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    answer = call("train", tiny(tmp_path), "--mlflow", "http://127.0.0.1:9")
    assert answer.code == 0
    (line,) = (line for line in answer.err.splitlines() if "MLflow" in line)
    assert line.startswith("isthmus: MLflow at http://127.0.0.1:9 failed, and training continues without it: ")
