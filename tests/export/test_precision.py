"""int8 weights as an axis of a study: measured once, stored beside the run, and on the front of the study's cost."""

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.api.study import plan_study
from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.core.protocols import Data
from isthmus.core.record import RECORD, read_record
from isthmus.core.registry import component
from isthmus.export import precision
from isthmus.export.precision import Versions, find_versions
from isthmus.reports.sections import Section, gather
from isthmus.studies.fronts import Candidate, front, summarise
from isthmus.studies.plan import Plan
from isthmus.training.prepare import Options, load_data
from tests.command_line import call
from tests.export.small_runs import Pointwise, train_alone
from tests.studies.drivers import BASE, settings

STUDY: dict[str, Any] = {"cost": "bytes", "precision": ["float32", "int8"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = {"name": "hourglass_mlp", "d_z": 80, "d_h": 16, "depth": 1}
    return train_alone(tmp_path_factory.mktemp("run"), model=shape, train={"epochs": 3, "batch_size": 64})


@pytest.fixture(scope="module")
def data() -> Data:
    return load_data(component("sources", {"name": "digits"}))


@pytest.fixture
def measure(run: Path, data: Data, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[list[Candidate], Versions]]:
    monkeypatch.setenv("ISTHMUS_HOME", str(run.parents[1]))
    record = read_record(run)
    candidates = summarise([record], {"bytes": {record.id: 4.0 * record.cost["params"]}})
    return lambda: (candidates, find_versions(candidates, "bytes", data))


def refuse(*_: Any) -> None:
    raise AssertionError("measured again")


def test_a_trained_network_is_on_the_front_with_int8_weights_too(
    measure: Callable[[], tuple[list[Candidate], Versions]], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = (run / RECORD).read_bytes()
    (trained,), found = measure()
    versions = {each.precision: each for each in found.candidates}
    assert versions.keys() == {"int8", "mixed"}
    assert found.costs == pytest.approx({run.name: 4 * trained.params}, rel=0.01)
    assert versions["int8"].costs["bytes"] < versions["mixed"].costs["bytes"] < trained.costs["bytes"]
    assert 0.25 < versions["int8"].costs["bytes"] / trained.costs["bytes"] < 0.3
    for version in versions.values():
        assert version.metrics.keys() == trained.metrics.keys()
        assert 0 < abs(version.mean - trained.mean) < 0.1
        assert 0 < abs(version.validation - trained.validation) < 0.1
    assert versions["int8"].identity in {each.identity for each in front([trained, *found.candidates], "bytes")}
    assert (run / RECORD).read_bytes() == record

    monkeypatch.setattr(precision, "choose_int8", refuse)
    assert measure() == ([trained], found)
    path = run / "analysis" / "int8-bytes.json"
    text = path.read_text()
    path.write_text(text.replace('"weights": ', '"weights": 1'))
    with pytest.raises(UserError, match="damaged or was altered"):
        measure()
    path.write_text(text)


def test_versions_compete_only_at_the_cost_that_they_change(
    measure: Callable[[], tuple[list[Candidate], Versions]], run: Path
) -> None:
    (trained,), found = measure()
    (section,) = gather([run], (), {"bytes": found.costs}, None, found.candidates)[0]
    assert isinstance(section, Section)
    assert section.costs[:2] == ("bytes", "params")
    assert section.at("params") == list(section.candidates)
    assert {each.precision for each in section.at("bytes")} == {"float32", "int8", "mixed"}
    assert section.front_at("params") == {trained.identity}


def test_a_network_that_cannot_be_int8_is_one_line(
    measure: Callable[[], tuple[list[Candidate], Versions]], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run / "analysis" / "int8-bytes.json"
    path.unlink(missing_ok=True)
    monkeypatch.setattr(precision, "load_model", lambda _: Pointwise().eval())
    for _ in range(2):  # measured, then read
        _, found = measure()
        (note,) = found.notes
        assert note.startswith("No int8 version of hourglass_mlp")
        assert note.endswith("has no matrix of weights that onnxruntime can make int8.")
        assert not found.candidates
        monkeypatch.setattr(precision, "choose_int8", refuse)
    path.unlink()


def test_precision_at_its_default_is_in_no_identity() -> None:
    plain = study_config(settings())
    assert "precision" not in plain.model_dump(mode="json")
    assert "precision" not in Plan.of(plain, Options()).identity
    assert Plan.of(study_config(settings(**STUDY)), Options()).identity["precision"] == ["float32", "int8"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"precision": ["int8"]}, "must be [float32] or [float32, int8]"),
        ({"precision": ["float32", "int8"]}, "precision=int8 does not change cost=params; use cost=bytes"),
        ({"precision": ["int4"]}, "precision"),
    ],
)
def test_bad_precision_is_one_line(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(settings(**changes)))
    answer = call("study", tmp_path / "study.json")
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer
    assert said in answer.err


def test_the_missing_extra_is_named_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnx" else find(name))
    with pytest.raises(UserError, match=r"precision=int8 needs onnx: pip install isthmus\[export\]"):
        plan_study(settings(**STUDY), (), Options())


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["bytes", "latency"])
def test_a_study_shows_int8_on_its_front_and_page(cost: str, tmp_path: Path) -> None:
    space = {"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": [65, 128], "d_h": [16]}}
    given = settings(**STUDY, spaces=[space], seeds=[0, 1], base=BASE | {"train": {"epochs": 3}}) | {"cost": cost}
    (tmp_path / "study.json").write_text(json.dumps(given))
    command = ("study", tmp_path / "study.json", "--workers", 1, "--out", tmp_path / "page")
    first = call(*command, "--json").json()["candidates"]
    precisions = {each["precision"] for each in first}
    assert precisions - {"mixed"} == {"float32", "int8"}
    assert "mixed" in precisions or cost == "latency"  # a busy machine may time no set of layers as fast enough
    again = call(*command, "--json").json()["candidates"]
    assert again == first  # read, not measured: a latency would differ
    if cost == "bytes":
        assert {each["precision"] for each in first if each["on_front"]} >= {"int8"}
    page = (tmp_path / "page" / "index.html").read_text()
    assert "Open markers: int8 weights" in page
    assert "Precision: of the " in page
    with (tmp_path / "page" / "int8.csv").open() as file:
        assert {row["precision"] for row in csv.DictReader(file)} == precisions - {"float32"}
    with (tmp_path / "page" / "candidates.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2
