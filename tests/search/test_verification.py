"""`isthmus verify-shape`: the papers' shapes at the budget, trained like the found network, and the comparison."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import isthmus
from isthmus.api.verification import (
    _recognise,
    compare_shapes,
    list_shapes,
    plan_verification,
    say,
    scale_shapes,
    verify_shape,
)  # fmt: skip
from isthmus.cli.complete import complete_study
from isthmus.cli.main import app
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.interrupts import requests_to_stop
from isthmus.core.protocols import Signature
from isthmus.core.registry import create_model
from isthmus.search.answer import Answer
from isthmus.studies.fronts import summarise
from isthmus.training.prepare import Options
from tests.command_line import call
from tests.papers.networks import Fabricated, size

ROWS, IMAGES = Signature((12,), (1,)), Signature((3, 32, 32), (10,))


@pytest.mark.parametrize(("signature", "budget", "number"), [(ROWS, 5_000, 2), (IMAGES, 400_000, 6)])
def test_shapes_fill_the_budget_and_keep_their_proportions(signature, budget, number):
    scaled = scale_shapes(signature, budget)
    assert len(scaled) == len(list_shapes(signature, budget)) == number
    for title, model in scaled.items():
        shapes: dict[str, Any] = {"input_shape": signature.input_shape, "output_shape": signature.output_shape}
        if model["name"].endswith("_mlp"):
            shapes = {"d_in": int(np.prod(signature.input_shape)), "d_out": signature.output_shape[0]}
        params = isthmus.cost(create_model(**model, **shapes)).params
        assert 0.6 * budget < params <= budget, title
    ours = scaled["Hourglass MLP"]
    assert ours["d_h"] / ours["d_z"] == pytest.approx(1560 / 3546, abs=0.02)
    assert (ours["depth"], scaled["conventional MLP"]["depth"]) == (4, 3)


def test_a_shape_that_does_not_fit_is_left_out():
    assert scale_shapes(ROWS, 20) == {}


CONFIG = run_config(
    {
        "source": {"name": "digits", "validation": 0}, "task": {"name": "denoise"}, "threads": 1,
        "model": {"name": "hourglass_mlp", "d_in": 64, "d_out": 64, "d_z": 70, "d_h": 8, "depth": 2},
        "train": {"epochs": 3, "stop_epoch": 2, "select": "last", "learning_rate": 3e-3, "final_learning_rate": 2e-3},
    }
).model_dump(mode="json")  # fmt: skip
SHAPES: dict[str, Any] = {
    "one": {"name": "hourglass_mlp", "d_z": 66, "d_h": 16, "depth": 1},
    "other": {"name": "conventional_mlp", "d_z": 40, "d_h": 48, "depth": 1},
}


def test_all_are_trained_alike_with_validation_rows_and_three_rates():
    study = plan_verification(CONFIG, list(SHAPES.values()), 4)
    assert study.base.source.validation > 0  # type: ignore[attr-defined]
    assert (study.base.train.select, study.base.train.stop_epoch, study.base.train.epochs) == ("best", None, 3)
    assert study.rates == (0.001, 0.003, 0.009)
    assert (study.rates_on, study.seeds) == ("first_seed", (0, 1, 2, 3))
    assert [model.name for model in study.candidates] == ["hourglass_mlp", "hourglass_mlp", "conventional_mlp"]


def test_the_found_network_is_compared_by_seed_and_all_are_decided_together():
    study = plan_verification(CONFIG, list(SHAPES.values()), 4)

    def quality(model: dict[str, Any], rate: float, seed: int) -> float:
        lead = {70: 1.0, 66: 0.5, 40: 1.0}[model["d_z"]]
        return 20 + lead + 3 * seed + 0.01 * ((seed * model["d_z"]) % 3) + rate

    found = compare_shapes(Fabricated(study, quality, (64, 64)).records(), CONFIG["model"], SHAPES)
    assert found["found"]["parameters"] == size(CONFIG["model"], 64, 64)
    assert {name: shape["decision"] for name, shape in found["shapes"].items()} == {
        "one": "ahead",
        "other": "undecided",
    }
    assert found["shapes"]["one"]["lead"]["rule"] == "paired over 4 seeds"
    assert found["shapes"]["one"]["lead"]["difference"] == pytest.approx(0.5, abs=0.02)
    told = say(found | {"search": {"is_whole": False, "networks": 1}})
    assert told[2] == "The search had time for 1 network only; repeat the command with a longer --within."
    assert len(say(found | {"search": {"is_whole": True, "networks": 9}})) == 2
    assert told[0].startswith("The found network is ahead of one: +0.5")
    assert told[1].startswith("The found network is not told from other")


def test_a_shape_of_equal_size_with_other_settings_is_not_the_found_network():
    model = CONFIG["model"] | {"activation": "relu", "d_z": 66, "d_h": 16, "depth": 1}
    study = plan_verification(CONFIG | {"model": model}, list(SHAPES.values()), 2)
    candidates = summarise(Fabricated(study, lambda model, rate, seed: 20 + rate, (64, 64)).records())
    for order in (candidates, candidates[::-1]):
        activations = {}
        for name, settings in (("found", model), ("one", SHAPES["one"])):
            candidate = _recognise(order, settings)
            assert candidate is not None
            activations[name] = candidate.settings["model"]["activation"]
        assert activations == {"found": "relu", "one": "gelu"}


def test_ctrl_c_during_the_search_ends_the_command(monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: Any, **__: Any) -> Answer:
        with requests_to_stop():
            os.kill(os.getpid(), signal.SIGTERM)
        return Answer({"name": "digits-1", "best": {"run": "none"}})

    monkeypatch.setattr("isthmus.search.engine.find", interrupted)
    told = call("verify-shape", "my.csv")
    assert (told.code, told.err) == (143, "isthmus: stopped; repeat the command to resume\n")


def test_without_a_finished_run_there_is_no_answer():
    with pytest.raises(UserError, match="has no finished run"):
        compare_shapes([], CONFIG["model"], SHAPES)


@pytest.mark.slow
def test_a_run_is_verified_from_end_to_end():
    trained = isthmus.train(CONFIG, progress=False)
    answer = Answer({"name": "digits-1", "best": {"run": trained.id}, "is_whole": True, "networks": []})
    with pytest.raises(UserError, match="gives no interval"):
        verify_shape(answer, 20_000, 1, Options(), complete_study)
    found = verify_shape(answer, 20_000, 2, Options(), complete_study, 1)
    assert set(found["shapes"]) == {"Hourglass MLP", "conventional MLP"}
    assert all(shape["parameters"] <= 20_000 for shape in found["shapes"].values())
    assert verify_shape(answer, 20_000, 2, Options(), complete_study, 1) == found, "from records"


@pytest.mark.slow
def test_the_command_finds_and_verifies(tmp_path: Path):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(120, 3))
    lines = [",".join(f"{value:.4f}" for value in [*row, row[0] * row[1] + row[2]]) for row in rows]
    (tmp_path / "my.csv").write_text("\n".join(["a,b,c,y", *lines]) + "\n")
    given = [
        "verify-shape",
        str(tmp_path / "my.csv"),
        "--target",
        "y",
        "--budget",
        "2k",
        "--within",
        "8s",
        "--seeds",
        "2",
    ]
    told = CliRunner().invoke(app, [*given, "--workers", "1", "--out", str(tmp_path / "out")])
    assert told.exit_code == 0, told.output
    found = json.loads((tmp_path / "out" / "verification.json").read_text())
    assert found["schema"] == "isthmus.verification/1"
    assert len(found["found"]["values"]) == 2
    assert "The found network is" in told.stdout
