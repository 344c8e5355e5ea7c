"""Every recipe builds, says how it is run, and survives its way through a file."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.core.config import RunConfig, StudyConfig, read_settings, run_config, study_config
from isthmus.core.registry import catalogue, find
from isthmus.training.prepare import prepare

RECIPES = sorted(catalogue("recipes"))
TRAININGS = [name for name in RECIPES if isinstance(find("recipes", name)(), RunConfig)]


def _again(config: Any, settings: dict[str, Any]) -> Any:
    return (run_config if isinstance(config, RunConfig) else study_config)(settings)


def _runs(config: Any) -> list[RunConfig]:
    if isinstance(config, RunConfig):
        return [config]
    return [
        config.run(model, rate, seed) for model in config.candidates for rate in config.rates for seed in config.seeds
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_a_complete_config(name: str) -> None:
    config = find("recipes", name)()
    assert isinstance(config, RunConfig | StudyConfig)
    assert config == find("recipes", name)(), "a recipe is a constant"
    for run in _runs(config):
        assert RunConfig.model_validate(run.model_dump()) == run


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_its_command_or_protocol(name: str) -> None:
    words = inspect.getdoc(find("recipes", name)) or ""
    commands = (f"`isthmus train {name}`", f"`isthmus study {name}`", f"`isthmus {name}`")
    assert any(command in words for command in commands) or "paper's" in words
    assert "the same " not in words.partition(": ")[2], "as what? Lists show each recipe by itself"


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_recipe_survives_a_file(name: str, suffix: str, tmp_path: Path) -> None:
    config = find("recipes", name)()
    settings = config.model_dump(mode="json")
    file = tmp_path / f"config.{suffix}"
    file.write_text(json.dumps(settings) if suffix == "json" else yaml.safe_dump(settings))
    again = _again(config, read_settings(file))
    assert again == config
    if isinstance(config, RunConfig):
        assert again.run_id("data") == config.run_id("data")


@pytest.mark.parametrize("name", TRAININGS)
def test_only_what_differs_from_the_defaults_names_a_run(name: str) -> None:
    config = find("recipes", name)()
    short = run_config(config.model_dump(mode="json", exclude_defaults=True))
    assert short.run_id("data") == config.run_id("data") != config.run_id("other data")
    assert config.model_copy(update={"seed": 1}).run_id("data") != config.run_id("data")


def test_all_runs_of_the_demo_are_different() -> None:
    runs = _runs(find("recipes", "demo")())
    assert len({run.run_id("data") for run in runs}) == len(runs) > 1


def test_run_ids_stay_what_they_were() -> None:
    """A new id would orphan every run that people have: change it only with the schema version."""
    settings = {
        "source": {"name": "digits"},
        "task": {"name": "denoise", "flips": True},
        "model": {"name": "hourglass_mlp", "d_z": 80, "d_h": 8, "depth": 2},
        "train": {"epochs": 5, "learning_rate": 5e-4},
        "seed": 3,
    }
    assert run_config(settings).run_id("data") == "b66c1473703eae47"


def test_the_config_that_a_run_writes_names_the_same_run() -> None:
    config = find("recipes", "mnist5k-denoise")()
    prepared = prepare(config)
    written = run_config(json.loads(json.dumps(prepared.config.model_dump(mode="json"))))
    assert prepare(written).id == prepared.id
