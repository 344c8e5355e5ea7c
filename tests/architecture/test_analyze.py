"""``isthmus analyze``: which analyses there are, what they promise, and what a person sees."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import isthmus.analysis
from isthmus.analysis.analyze import analyze
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed
from isthmus.core.record import find_run
from isthmus.core.registry import catalogue, create_model, find
from isthmus.training.run import run
from tests.command_line import call

FOLDER = Path(isthmus.analysis.__file__).parent


def trained(**model: Any) -> str:
    config = {
        "source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1,
        "model": model or {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 2},
        "train": {"epochs": 1, "batch_size": 400},
    }  # fmt: skip
    return run(run_config(config)).id


def test_an_analysis_is_found_by_being_there() -> None:
    ours = {"block_replacement", "cka", "effective_rank", "effective_weights", "receptive_field"}
    assert ours <= set(catalogue("analyses"))
    assert not {"analyze", "trained_run", "pictures", "steps"} & set(catalogue("analyses"))


@pytest.mark.parametrize("name", catalogue("analyses"))
def test_every_analysis_keeps_the_promise_of_the_folder(name: str) -> None:
    module = find("analyses", name)
    assert list(inspect.signature(module.of_run).parameters)[:2] == ["run", "data_dir"]
    assert list(inspect.signature(module.draw).parameters) == ["found", "folder"]
    assert list(inspect.signature(module.summary).parameters) == ["found"]
    assert f"isthmus.analysis.{name}/" in module.SCHEMA
    for model in (
        create_model("hourglass_mlp", d_in=4, d_out=2, d_z=5, d_h=3, depth=1),
        create_model("s_mixer", input_shape=(1, 8, 8), output_shape=(3,), patch=2, C=4, depth=1),
        create_model("monarch_mlp", d_in=16, d_out=2),
    ):
        reason = module.applies(model.eval(), "classification")
        assert reason is None or (isinstance(reason, str) and reason)


@pytest.mark.parametrize("name", catalogue("analyses"))
def test_analyses_do_not_import_each_other(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    imported = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {f"isthmus.analysis.{other}" for other in catalogue("analyses")}
    assert "isthmus.analysis" not in imported


def test_a_person_sees_numbers_reasons_and_files() -> None:
    identity = trained()
    answer = call("analyze", identity)
    assert answer.code == 0, answer
    assert "mean of the diagonal" in answer.out
    assert "block_replacement does not apply: its blocks have no permutation" in answer.out
    place = find_run(identity) / "analysis"
    for file in ("cka.png", "effective_rank.png"):
        assert str(place / file) in answer.out
        assert (place / file).is_file()
    assert read_sealed(place / "cka.json")["run"] == identity
    assert "cka" in answer.err  # progress, where nobody watches, is a line for each


def test_a_program_reads_the_same() -> None:
    identity = trained(name="s_mixer", patch=2, C=4, depth=1)
    answer = call("analyze", identity, "--json").json()
    place = find_run(identity) / "analysis"
    assert answer["run"] == identity
    assert {"cka", "receptive_field", "effective_weights", "block_replacement"} <= set(answer["found"])
    assert "effective_rank" in answer["does_not_apply"]
    assert set(answer["found"]).isdisjoint(answer["does_not_apply"])
    assert set(answer["found"]) | set(answer["does_not_apply"]) == set(catalogue("analyses"))
    for name, found in answer["found"].items():
        assert found == json.loads(json.dumps(read_sealed(place / f"{name}.json")))
        assert answer["summary"][name]
    assert all(Path(file).is_file() for file in answer["figures"])


def test_one_analysis_alone_and_two_runs_compared() -> None:
    first, second = trained(), trained(name="conventional_mlp", d_z=40, d_h=60, depth=2)
    assert set(call("analyze", first, "--only", "effective_rank", "--json").json()["found"]) == {"effective_rank"}
    compared = call("analyze", first, "--against", second, "--json").json()
    assert set(compared["found"]) == {"cka"}
    assert compared["found"]["cka"]["against"] == second
    untrained = call("analyze", first, "--against", "untrained", "--only", "cka", "--json").json()
    assert untrained["found"]["cka"]["against"] == "untrained"


def test_what_is_no_number_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = trained()
    monkeypatch.setattr(find("analyses", "cka"), "summary", lambda found: {"a": float("nan"), "b": 1.0, "c": "text"})
    shown = call("analyze", identity, "--only", "cka", "--json").json()["summary"]["cka"]
    assert shown == {"a": "–", "b": 1.0, "c": "text"}


def test_mistakes_are_one_line_each() -> None:
    identity = trained()
    for given, said in {
        ("nothing",): "there is no run 'nothing'",
        (identity, "--only", "ckaa"): "unknown analysis 'ckaa'; did you mean 'cka'?",
        (identity, "--only", "block_replacement"): "does not apply to run",
        (identity, "--only", "effective_rank", "--against", identity): "leave out --against",
        (identity, "--against", "nothing"): "there is no run 'nothing'",
    }.items():
        answer = call("analyze", *given)
        assert answer.code == 2
        assert said in answer.err
        assert "Traceback" not in answer.err
        assert answer.out == ""


def test_a_run_that_failed_has_nothing_to_analyse() -> None:
    config = {
        "source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1,
        "model": {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1, "init": "pytorch"},
        "train": {"epochs": 20, "batch_size": 50, "optimizer": "sgd", "learning_rate": 1000},
    }  # fmt: skip
    record = run(run_config(config))
    assert record.status == "failed"
    with pytest.raises(UserError, match="failed and left no weights"):
        analyze(record.id)
