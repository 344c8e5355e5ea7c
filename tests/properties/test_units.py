"""Metrics and choices do not depend on the units of a table: metres or kilometres, the same network is the best."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.protocols import Data, Split
from isthmus.studies.executors import ThisProcess
from isthmus.studies.fronts import best, front, summarise
from isthmus.training.prepare import prepare
from isthmus.training.run import run
from tests.studies.drivers import opened

TRAIN = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01}


def table(seed: int, outputs: int = 1, offset: float = 0.0, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, of which some columns are constant in training only, and noisy targets."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(96, 5)) * [1, 0.01, 30, 1, 1] + offset
    x[:64, 3] = 0.7  # constant in the training rows, and not in the others
    x[:64, 4] = 0
    y = np.tanh(x[:, :1] - offset) + 0.5 * (x[:, 2:3] - offset) / 30 + noise * generator.normal(size=(96, outputs))
    return x, y + offset


def data_of(x: np.ndarray, y: np.ndarray) -> Data:
    """As the source for arrays stores them, in float32."""
    inputs, targets = x.astype(np.float32), y if y.dtype.kind == "i" else y.astype(np.float32)
    train, validation, test = (Split(inputs[p], targets[p]) for p in (slice(0, 64), slice(64, 80), slice(80, 96)))
    fingerprint = hashlib.sha256(inputs.tobytes() + targets.tobytes()).hexdigest()
    return Data(train, validation, test, fingerprint, classes=("a", "b", "c") if y.dtype.kind == "i" else ())


def metrics_of(x: np.ndarray, y: np.ndarray, **task: Any) -> dict[str, dict[str, float]]:
    """Of a whole run, as its record has them."""
    name = "classification" if y.dtype.kind == "i" else "regression"
    config = run_config(
        {
            "source": {"name": "arrays", "path": "given.npz"},
            "task": {"name": name, **task},
            "model": {"name": "hourglass_mlp", "d_z": 12, "d_h": 4, "depth": 1},
            "train": TRAIN,
            "threads": 1,
        }
    )
    record = run(prepare(config, data=data_of(x, y)))
    assert record.status == "finished", record.reason
    return record.metrics


powers_of_two = st.integers(-40, 40).map(lambda k: 2.0**k)
powers_of_ten = st.integers(-15, 15).map(lambda k: 10.0**k)


@settings(max_examples=8)
@given(st.integers(0, 9), st.integers(1, 2), powers_of_two, powers_of_two, st.sampled_from([0.0, 1.0, -64.0]))
def test_a_power_of_two_changes_no_bit_of_a_regression(
    seed: int, outputs: int, inputs: float, targets: float, offset: float
) -> None:
    x, y = table(seed, outputs, offset)
    plain, scaled = metrics_of(x, y), metrics_of(x * inputs, y * targets)
    for split in ("validation", "test"):
        assert scaled[split]["r2"] == plain[split]["r2"]
        assert scaled[split]["loss"] == plain[split]["loss"], "it is of standardised targets"
        assert scaled[split]["mse"] == plain[split]["mse"] * targets**2


@settings(max_examples=8)
@given(st.integers(0, 9), st.integers(1, 2), powers_of_ten, powers_of_ten)
def test_a_power_of_ten_hardly_changes_a_regression(seed: int, outputs: int, inputs: float, targets: float) -> None:
    x, y = table(seed, outputs)
    plain, scaled = metrics_of(x, y), metrics_of(x * inputs, y * targets)
    for split in ("validation", "test"):
        assert scaled[split]["r2"] == pytest.approx(plain[split]["r2"], abs=1e-5)
        assert scaled[split]["mse"] == pytest.approx(plain[split]["mse"] * targets**2, rel=1e-4)


@settings(max_examples=6)
@given(st.integers(0, 9), powers_of_two, powers_of_ten)
def test_units_do_not_change_a_classification(seed: int, two: float, ten: float) -> None:
    x, y = table(seed)
    labels = np.digitize(y[:, 0], [-0.7, 0.7])
    plain, scaled, near = (metrics_of(x * unit, labels) for unit in (1.0, two, ten))
    assert scaled == plain
    for split in ("validation", "test"):
        assert near[split]["accuracy"] == plain[split]["accuracy"]
        assert near[split]["loss"] == pytest.approx(plain[split]["loss"], abs=1e-5)


@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e-13, 1e15])
def test_noise_is_not_explained_in_any_unit(unit: float) -> None:
    """Targets in metres of a tenth of a millimetre once had an R² of exactly 1."""
    x, y = table(0, noise=10.0)
    assert metrics_of(x, unit * y)["test"]["r2"] < 0.5


def test_a_column_that_is_constant_in_training_is_ignored() -> None:
    x, y = table(0)
    changed = x.copy()
    changed[64:, 3:] *= 1e6
    assert metrics_of(changed, y) == metrics_of(x, y)


def test_an_unscaled_target_has_the_same_r2_with_any_offset() -> None:
    """Where targets are not standardised, training depends on units; what is measured of it is right all the same."""
    found = metrics_of(*table(0), standardise_targets=False)
    far = metrics_of(*table(0, offset=4096.0), standardise_targets=False)
    assert found["test"]["r2"] > -10
    assert far["test"]["r2"] < -1e4, "the network cannot get that far in three epochs"


@pytest.mark.parametrize("split", ["validation", "test"])
def test_targets_that_are_all_the_same_have_no_r2(split: str) -> None:
    x, y = table(0)
    y[{"validation": slice(64, 80), "test": slice(80, 96)}[split]] = 0.1
    with pytest.raises(UserError, match=f"every target in {split} is the same"):
        metrics_of(x, y)


def test_a_target_that_is_constant_in_training_alone_is_refused() -> None:
    x, y = table(0, outputs=2)
    y[:64, 1] = 0.1
    with pytest.raises(UserError, match=r"target 2 of 2 is 0\.1 .* not in validation"):
        metrics_of(x, y)


def test_a_constant_target_among_others_counts_for_nothing() -> None:
    x, y = table(0, outputs=2)
    y[:, 1] = 0.1
    found = metrics_of(x, y)
    assert found == metrics_of(x, y * [1, 2**30])
    assert 0 < found["test"]["mse"] < 10
    assert found["test"]["r2"] < 1


def choices(folder: Path, inputs: float, targets: float, quality: str | None) -> tuple[Any, ...]:
    """Everything that a study decides: who is stopped, the learning rates, the front, and the best."""
    x, y = table(3)
    file = folder / f"{inputs}-{targets}.npz"
    np.savez(file, x=x * inputs, y=y * targets)
    source = {"name": "arrays", "path": str(file), "targets": "y", "validation": 0.25, "test": 0.25}
    study = opened(
        {
            "name": hashlib.sha256(f"{file.name} {quality}".encode()).hexdigest(),
            "base": {"source": source, "task": {"name": "regression"}, "train": TRAIN | {"epochs": 2}, "threads": 1},
            "spaces": [{"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": [8, 12], "d_h": [2, 4]}}],
            "learning_rates": [1e-3, 1e-2],
            "quality": quality,
            "pruning": {"rungs": [1], "keep": 0.25, "margin": 0.0},
        }
    )
    study.carry_out(ThisProcess(), lambda trial, run, event: None)
    candidates = summarise(study.records(), quality=quality)
    described = [(item.settings["model"], item.learning_rate) for item in front(candidates)]
    qualities = [item.metrics["r2"] for item in candidates]
    states = [trial["state"] for trial in study.outcomes()]
    return (states, described, best(candidates).settings["model"]), qualities


@pytest.mark.parametrize("quality", [None, "mse"])
def test_units_change_no_choice_of_a_study(quality: str | None, tmp_path: Path) -> None:
    plain, qualities = choices(tmp_path, 1.0, 1.0, quality)
    assert {"pruned", "finished"} == set(plain[0])
    assert choices(tmp_path, 2.0**-40, 2.0**40, quality) == (plain, qualities)
    chosen, near = choices(tmp_path, 1e15, 1e-15, quality)
    assert chosen == plain
    np.testing.assert_allclose(near, qualities, rtol=0, atol=1e-5)
