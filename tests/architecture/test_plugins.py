"""Another package adds one of every kind, and nothing here changes for it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import isthmus
from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.core.record import find_run
from isthmus.core.registry import catalogue, find, presets
from isthmus.core.titles import model_title
from isthmus.search.networks import list_networks
from isthmus.search.race import Round
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

    def complete(self, signature, seed):
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
MOMENTUM = '''
"""An MLP whose updates keep moving the stream: its pathway carries a second stream, the momentum."""
import torch
from torch import nn

from isthmus.core.protocols import ModelConfig
from isthmus.core.space import FittedSpace
from isthmus.layers.residual import Block, Branch, Pathway, ResidualModel, Stack

TITLE_FIELDS = ("width", "depth")


def search_space(signature, budget):
    if len(signature.input_shape) == 1:
        yield FittedSpace(model={"name": "momentum_mlp"}, vary={"depth": (2, 4)}, width="width", low=2)


class Momentum(Pathway):
    def __init__(self):
        super().__init__()
        self.friction = nn.Parameter(torch.tensor(0.5))

    def start(self, x):
        return x, torch.zeros_like(x)

    def read(self, state, place):
        return state[0], None

    def write(self, state, place, known, update, scale):
        speed = self.friction * state[1] + scale * update
        return state[0] + speed, speed

    def finish(self, state):
        return state[0]

    def transform(self, state, function):
        return function(state[0]), function(state[1])


class MomentumBlock(Block):
    def __init__(self, width):
        super().__init__()
        self.map = nn.Linear(width, width)

    def branches(self):
        return (Branch("map", lambda x: self.map(x).tanh()),)


class MomentumConfig(ModelConfig):
    d_in: int | None = None
    d_out: int | None = None
    width: int = 8
    depth: int = 2

    def complete(self, signature, seed):
        return self.model_copy(update={"d_in": signature.input_shape[0], "d_out": signature.output_shape[0]})


class MomentumMLP(ResidualModel):
    Config = MomentumConfig

    def __init__(self, config):
        super().__init__()
        self.config, self.input_shape = config, (config.d_in,)
        self.stem = nn.Linear(config.d_in, config.width)
        self.blocks = Stack([MomentumBlock(config.width) for _ in range(config.depth)], Momentum())
        self.head = nn.Linear(config.width, config.d_out)

    def embed(self, x):
        return self.stem(x)

    def read_out(self, stream):
        return self.head(stream)
'''
LEAKY = '''
"""A pathway of another package: the stream leaks."""
from isthmus.layers.residual import OneStream, PathwayConfig

PRESETS = {"leaky/slow": {"name": "leaky", "kept": 0.99}, "slow": "leaky/slow"}
TITLE_FIELDS = {"leaky": ("kept",)}


class LeakyConfig(PathwayConfig):
    kept: float = 0.9


class Leaky(OneStream):
    Config = LeakyConfig
    formula = "x ← kept · x + u"

    def __init__(self, config, layout):
        super().__init__()
        self.kept = config.kept

    def write(self, state, place, known, update, scale):
        return self.kept * state + scale * update
'''
WORST = '''
"""Regression that is judged by its worst row, and predicts from files of one number per line."""
import numpy as np
import torch
from torchmetrics import MaxMetric

from isthmus.core.prediction import Prediction, Predictor
from isthmus.tasks.regression import Regression


class WorstError(MaxMetric):
    higher_is_better = False


class LinePredictor(Predictor):
    options = frozenset({"trace"})

    def __init__(self, trained, trace=False):
        self.trained, self.trace = trained, trace

    @torch.no_grad()
    def predict(self, files, out, progress=None):
        for file in files:
            row = np.loadtxt(file, np.float32)[None]
            value = self.trained.task.decode(self.trained.model(self.trained.task.encode(row))).item()
            lines = (f"{file}: {value:.1f}",) + (f"of {row.size} numbers",) * self.trace
            yield Prediction(str(file), lines, {"value": value})


class WorstRegression(Regression):
    predictor = LinePredictor

    def metrics(self, split):
        metrics = super().metrics(split)
        metrics.add_metrics({"worst_error": WorstError()})
        return metrics

    def measure(self, metrics, output, target):
        super().measure(metrics, output, target)
        metrics["worst_error"].update((output - target).abs())
'''
NEURONS = """
from isthmus.core.costs import CostKind


def count(config, threads):
    return getattr(config, "width", 1) * getattr(config, "depth", 1)


NEURONS = CostKind("Neurons", "neurons", count)
ODD = CostKind("Luck (odds)", "odds", lambda config, threads: 1.5, quantity="luck", is_measured=True)
"""
SPEED = '''
"""How far each branch moves the stream."""
from isthmus.analysis.pictures import finish, page, save
from isthmus.analysis.trained_run import measure_once

SCHEMA = "waves.speed/1"


def applies(model, task):
    return None if hasattr(model, "steps") else "it has no branches"


def of_run(run, data_dir=None):
    def measure(opened):
        x = next(opened.test_inputs(8, 8))
        return {"speeds": [float(step.update.detach().norm()) for step in opened.model.steps(x)]}

    return measure_once(run, "speed", SCHEMA, measure, applies, data_dir)


def summary(found):
    return {"fastest branch": max(found["speeds"])}


def draw(found, folder):
    figure, ((axis,),) = page(1, 1)
    axis.plot(found["speeds"])
    finish(axis, "speed", "branch", "norm")
    return [save(figure, folder / "speed.png")]
'''
RECIPES = """
from isthmus.core.config import study_config


def momentum_study():
    return study_config({
        "name": "momentum",
        "base": {
            "source": {"name": "waves", "rows": 80}, "task": {"name": "worst_regression"}, "threads": 1,
            "train": {"epochs": 2, "batch_size": 16, "learning_rate": 0.01},
        },
        "spaces": [{"model": {"name": "momentum_mlp", "depth": 2}, "vary": {"width": [4, 8, 16]}}],
        "quality": "worst_error", "cost": "neurons", "budget": {"neurons": 20},
    })
"""
ENTRY_POINTS = """
[isthmus.models]
affine = PACKAGE:Affine
hourglass_mlp = PACKAGE:Affine
broken = PACKAGE.broken:Nothing
momentum_mlp = PACKAGE.momentum:MomentumMLP

[isthmus.pathways]
leaky = PACKAGE.leaky:Leaky

[isthmus.sources]
waves = PACKAGE:Waves

[isthmus.tasks]
patient_regression = PACKAGE:PatientRegression
worst_regression = PACKAGE.worst:WorstRegression

[isthmus.costs]
neurons = PACKAGE.neurons:NEURONS
luck = PACKAGE.neurons:ODD

[isthmus.analyses]
speed = PACKAGE.speed

[isthmus.recipes]
momentum-study = PACKAGE.recipes:momentum_study
"""
MODULES = {"momentum": MOMENTUM, "leaky": LEAKY, "worst": WORST, "neurons": NEURONS, "speed": SPEED, "recipes": RECIPES}
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
    for name, text in MODULES.items():
        (folder / package / f"{name}.py").write_text(text.strip())
    information = folder / f"{package}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS.replace("PACKAGE", package))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    _install(tmp_path / "site", "waves_and_maps")
    monkeypatch.syspath_prepend(tmp_path / "site")
    catalogue.cache_clear()
    presets.cache_clear()
    with pytest.warns(UserWarning, match="is ignored"):
        catalogue("models")
    yield "waves_and_maps"
    catalogue.cache_clear()
    presets.cache_clear()
    for name in [name for name in sys.modules if name.startswith("waves_and_maps")]:
        del sys.modules[name]


def test_its_parts_are_listed_created_and_counted(installed: str) -> None:
    assert "affine" in isthmus.list_models()
    home = f"{installed}:Affine"
    listed = {"meaning": f"defined in {home}", "group": "Other models", "home": home}
    assert call("models", "--json").json()["affine"] == listed
    assert isthmus.create_model("affine", d_in=3, d_out=1)
    assert call("describe", "affine", "d_in=3", "d_out=2", "--json").json()["params"] == 8
    assert "d_in" in call("describe", "affine").out


def test_its_pathway_and_preset_work_in_our_models(installed: str) -> None:
    fields = {"d_in": 3, "d_out": 2, "d_z": 8, "d_h": 2, "depth": 2}
    model: Any = isthmus.create_model("hourglass_mlp", **fields, pathway="slow")
    assert (type(model.blocks.pathway).__name__, model.blocks.pathway.kept) == ("Leaky", 0.99)
    assert model_title(model.config.model_dump()).endswith("pathway=leaky(kept=0.99)")
    assert call("pathways", "--json").json()["leaky"]["formula"] == "x ← kept · x + u"


def _train(folder: Path) -> str:
    (folder / "waves.yaml").write_text(TRAINING)
    identity: str = call("train", folder / "waves.yaml", "--json").json()["id"]
    return identity


def test_its_architecture_is_searched_if_it_declares_a_space(installed: str) -> None:
    names = [each["model"]["name"] for each in list_networks(Signature((3,), (1,)), "regression", 100, 1_000)]
    assert "momentum_mlp" in names
    assert "affine" not in names
    assert "broken" not in names


def test_its_architecture_takes_part_in_find(installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is trained beside one of ours; the others are left out for the sake of time."""

    def list_some(*arguments: Any) -> list[dict[str, Any]]:
        networks = {each["model"]["name"]: each for each in reversed(list_networks(*arguments))}
        return [networks["hourglass_mlp"], networks["momentum_mlp"]]

    monkeypatch.setattr("isthmus.search.engine.list_networks", list_some)
    monkeypatch.setattr("isthmus.search.engine.list_references", lambda task: [])
    monkeypatch.setattr("isthmus.search.engine.SEEDS", 1)
    monkeypatch.setattr("isthmus.search.race.ROUNDS", {True: (Round(range(1), 2),), False: (Round(range(1), 2),)})
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    found = isthmus.find(
        x, x.sum(axis=1), task="regression", budget="200", within="10m", workers=1,
        settings=["train.epochs=3"], progress=False,
    )  # fmt: skip
    trained = {each["model"]["name"]: each["values"] for each in found.content["networks"]}
    assert trained.keys() == {"hourglass_mlp", "momentum_mlp"}
    assert all(trained.values())


def test_its_parts_train_and_predict(installed: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("0.1,0.2,0.3\n")
    record = call("train", find_run(_train(tmp_path)) / "config.json", "--json").json()
    assert record["objective"] == "mse"
    assert record["metrics"]["test"]["mse"] < 0.01
    results = call("predict", record["id"], tmp_path / "rows.csv", "--out", tmp_path / "out", "--json").json()
    lines = Path(results[str(tmp_path / "rows.csv")]).read_text().splitlines()
    assert lines[0] == "row,predicted"
    assert float(lines[1].removeprefix("0,")) == pytest.approx(1.4, abs=0.1)
    assert type(isthmus.load(record["id"]).model).__name__ == "Affine"
    assert call("report", record["id"], "--out", tmp_path / "page").code == 0


def test_one_of_each_kind_works_together(installed: str, tmp_path: Path) -> None:
    """Source, task, metric, model, pathway, cost, recipe and analysis in a study, and on its best run."""
    described = call("describe", "momentum_mlp", "d_in=3", "d_out=1", "width=4", "--json").json()
    assert (described["neurons"], described["params"]) == (8, 16 + 2 * 20 + 1 + 5)
    found = call("study", "momentum-study", "--workers", "1", "--out", tmp_path / "page", "--json").json()
    assert [each["costs"] for each in found["candidates"]] == [{"neurons": 8}, {"neurons": 16}], "20 is the budget"
    assert all((each["objective"], each["maximise"]) == ("worst_error", False) for each in found["candidates"])
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert '<option value="neurons">Neurons' in page
    assert "worst error" in page

    best = found["candidates"][0]["run_ids"][0]
    model: Any = isthmus.load(best).model
    assert [name for name, _ in model.trajectory(torch.ones(1, 3))] == ["x_0", "map_1", "x_1", "map_2", "x_2", "output"]
    (tmp_path / "row.txt").write_text("0.1\n0.2\n0.3\n")
    (predicted,) = call("predict", best, tmp_path / "row.txt", "--json").json()
    shown = call("predict", best, tmp_path / "row.txt", "--trace").out
    assert f"row.txt: {predicted['value']:.1f}\nof 3 numbers" in shown
    refused = call("predict", best, tmp_path / "row.txt", "--iterations", "2")
    assert "--iterations does not apply to task worst_regression" in refused.err
    answer = call("analyze", best, "--json").json()
    assert answer["summary"]["speed"]["fastest branch"] == max(answer["found"]["speed"]["speeds"])
    assert all(Path(file).is_file() for file in answer["figures"])
    assert "it has no branches" in call("analyze", _train(tmp_path), "--only", "speed").err


def test_its_measured_cost_is_kept_by_the_study(installed: str, tmp_path: Path) -> None:
    changes = ("cost=luck", "budget={}")
    found = call("study", "momentum-study", *changes, "--workers", "1", "--out", tmp_path / "page", "--json").json()
    assert [each["costs"] for each in found["candidates"]] == [{"luck": 1.5}] * 3
    assert "luck_odds" in (tmp_path / "page" / "candidates.csv").read_text()
    assert "luck is measured when a study runs" in call("study", "momentum-study", 'budget={"luck": 3}').err
    assert "unknown cost 'neuron'; did you mean 'neurons'?" in call("study", "momentum-study", "cost=neuron").err
    assert "unknown cost 'neuron'; did you mean" in call("study", "momentum-study", 'budget={"neuron": 3}').err


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
