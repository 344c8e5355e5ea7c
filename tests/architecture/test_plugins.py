"""Another package brings a model, a source and a task, and nothing here changes for it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import isthmus
from isthmus.core.errors import UserError
from isthmus.core.registry import catalogue, find
from tests.command_line import call

PARTS = """
import numpy as np
import torch
from torch import nn

from isthmus.core.protocols import Component, Data, ModelConfig, Source, Split
from isthmus.tasks.regression import Regression


class AffineConfig(ModelConfig):
    d_in: int | None = None
    d_out: int | None = None

    def completed(self, signature, seed):
        return self.model_copy(update={"d_in": signature.input_shape[0], "d_out": signature.output_shape[0]})


class Affine(nn.Module):
    Config = AffineConfig

    def __init__(self, config):
        super().__init__()
        self.config, self.input_shape = config, (config.d_in,)
        self.map = nn.Linear(config.d_in, config.d_out)

    def forward(self, x):
        return self.map(x)

    def trajectory(self, x):
        yield "output", self.map(x)


class WavesConfig(Component):
    rows: int = 60


class Waves(Source):
    Config = WavesConfig

    def __init__(self, config):
        self.config = config

    def load(self, data_dir):
        x = np.sin(np.arange(3 * self.config.rows, dtype=np.float32) ** 2).reshape(-1, 3)
        splits = [Split(part, part @ np.float32([[1], [2], [3]])) for part in np.array_split(x, 3)]
        return Data(*splits, fingerprint="waves")


class PatientRegression(Regression):
    objective = "mse"
    maximise = False
"""
ENTRY_POINTS = """
[isthmus.models]
affine = PACKAGE:Affine
hourglass_mlp = PACKAGE:Affine
broken = PACKAGE.broken:Nothing

[isthmus.sources]
waves = PACKAGE:Waves

[isthmus.tasks]
patient_regression = PACKAGE:PatientRegression
"""
COLLISION = "PACKAGE:Affine is ignored: 'hourglass_mlp' is taken by isthmus.models.hourglass:ResidualMLP"
TRAINING = """
source: {name: waves, rows: 80}
task: {name: patient_regression}
model: {name: affine}
train: {epochs: 30, batch_size: 16, learning_rate: 0.05}
threads: 1
"""


def _install(folder: Path, package: str) -> None:
    """What an installer leaves behind."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text(textwrap.dedent(PARTS))
    (folder / package / "broken.py").write_text("this is not Python")
    information = folder / f"{package}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS.replace("PACKAGE", package))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    _install(tmp_path / "site", "waves_and_maps")
    monkeypatch.syspath_prepend(tmp_path / "site")
    catalogue.cache_clear()
    with pytest.warns(UserWarning, match="is ignored"):
        catalogue("models")
    yield "waves_and_maps"
    catalogue.cache_clear()
    sys.modules.pop("waves_and_maps", None)


def test_its_parts_are_listed_created_and_counted(installed: str) -> None:
    assert "affine" in isthmus.list_models()
    assert call("models", "--json").json()["affine"] == f"{installed}:Affine"
    assert isthmus.create_model("affine", d_in=3, d_out=1)
    assert call("describe", "affine", "d_in=3", "d_out=2", "--json").json()["params"] == 8
    assert "d_in" in call("describe", "affine").out


def test_its_parts_train_and_predict(installed: str, tmp_path: Path) -> None:
    (tmp_path / "waves.yaml").write_text(TRAINING)
    (tmp_path / "rows.csv").write_text("0.1,0.2,0.3\n")
    record = call("train", tmp_path / "waves.yaml", "--json").json()
    assert record["objective"] == "mse"
    assert record["metrics"]["test"]["mse"] < 0.01
    results = call("predict", record["id"], tmp_path / "rows.csv", "--out", tmp_path / "out", "--json").json()
    assert float(Path(results[str(tmp_path / "rows.csv")]).read_text()) == pytest.approx(1.4, abs=0.1)
    assert type(isthmus.load(record["id"])).__name__ == "Affine"
    assert call("report", record["id"], "--out", tmp_path / "page").code == 0


def test_a_name_that_is_taken_stays_ours(installed: str) -> None:
    assert find("models", "hourglass_mlp").__module__ == "isthmus.models.hourglass"


def test_a_broken_file_of_another_package_is_named(installed: str) -> None:
    with pytest.raises(UserError, match=f"'broken' cannot be loaded from {installed}.broken:Nothing"):
        isthmus.create_model("broken")


def test_it_is_found_by_the_program(tmp_path: Path) -> None:
    _install(tmp_path / "site", "waves_too")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "isthmus", "models"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert "waves_too:Affine" in done.stdout
    assert COLLISION.replace("PACKAGE", "waves_too") in done.stderr
