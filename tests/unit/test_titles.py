"""What a network is called in lists, study lines and pages: by the fields that its own file names."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from isthmus.core.config import run_config
from isthmus.core.record import CONFIG, runs_folder
from isthmus.core.registry import catalogue, component, find
from isthmus.core.titles import _declared_title_fields, model_title, title_fields
from isthmus.reports.sections import Run, read_setting, varying_settings
from isthmus.studies.fronts import COSTS, summarise
from isthmus.studies.runs import overview
from tests.unit.fabricated_runs import record

OURS = {name: home for name, home in catalogue("models").items() if home.startswith("isthmus.")}
MIXER = {"name": "mlp_mixer", "patch": 2, "C": 8, "depth": 2, "permutation": "random"}
TINY = {"source": {"name": "digits"}, "task": {"name": "classification"}, "model": MIXER}


def complete(model: dict[str, Any]) -> dict[str, Any]:
    return component("models", model).model_dump(mode="json")


@pytest.mark.parametrize("name", OURS)
def test_a_model_says_which_of_its_fields_tell_networks_apart(name: str) -> None:
    fields = _declared_title_fields(name)
    assert fields
    assert set(fields) <= find("models", name).Config.model_fields.keys()


@pytest.mark.parametrize("home", sorted({home.partition(":")[0] for home in OURS.values()}))
def test_no_two_variants_have_one_title(home: str) -> None:
    variants = [complete(variant) for variant in importlib.import_module(home).VARIANTS.values()]
    titles = [model_title(variant) for variant in variants]
    assert titles
    assert len(set(titles)) == len(titles)
    assert all(title.startswith(variant["name"]) for title, variant in zip(titles, variants, strict=True))


@pytest.mark.parametrize(
    ("model", "title"),
    [
        (MIXER, "mlp_mixer C=8 patch=2 depth=2 gamma=4 permutation=random"),
        (MIXER | {"S": 9, "token_hidden": 7}, "mlp_mixer C=8 S=9 patch=2 depth=2 gamma=4 token_hidden=7 "
                                              "permutation=random"),
        ({"name": "sw_mlp", "m": 60, "p": 0.1, "depth": 2}, "sw_mlp m=60 p=0.1 depth=2 block=single"),
        ({"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1}, "hourglass_mlp d_z=70 d_h=8 depth=1"),
    ],
)  # fmt: skip
def test_titles(model: dict[str, Any], title: str) -> None:
    assert model_title(complete(model)) == title


def test_what_a_study_varies_is_said_too() -> None:
    model = complete({"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1, "init": "xavier"})
    assert model_title(model, ["d_h", "init"]) == "hourglass_mlp d_z=70 d_h=8 depth=1 init=xavier"


def test_a_model_that_says_nothing_or_is_not_installed_is_called_by_its_sizes() -> None:
    model = {
        "name": "of_another_package",
        "d_in": 64,
        "width": 32,
        "rate": 0.5,
        "bias": True,
        "mask_seed": 3,
        "S": None,
    }
    assert title_fields(model) == {"width": 32, "rate": 0.5}


def test_lists_and_pages_call_a_mixer_by_its_own_fields() -> None:
    config = run_config(TINY).model_dump(mode="json")
    folder = runs_folder() / ("4" * 16)
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps(config))
    (line,) = overview()
    assert line["model"] == model_title(config["model"])
    run = Run(folder, record(config=config))
    assert run.settings.startswith("C 8, patch 2, depth 2, gamma 4.0, permutation random, learning rate ")


def test_columns_of_candidates_are_those_of_their_models() -> None:
    config = run_config(TINY).model_dump(mode="json")
    metrics, cost = {"validation": {"psnr": 20.0}, "test": {"psnr": 21.5}}, dict.fromkeys(COSTS, 1)
    candidates = summarise([record(config=config, metrics=metrics, cost=cost)])
    names = varying_settings(candidates)
    assert names == [f"model.{name}" for name in ("patch", "C", "depth", "permutation", "gamma")]
    assert read_setting(candidates[0], "model.S") == ""
