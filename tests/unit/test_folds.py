"""Cross-validation folds, runs without validation rows, and trainings that end before their schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.config import RunConfig, run_config
from isthmus.core.errors import UserError
from isthmus.core.record import read_metrics, runs_folder
from isthmus.sources.splits import FoldedSplits
from isthmus.training.prepare import load_data
from isthmus.training.run import run


def folded(**fields) -> FoldedSplits:
    return FoldedSplits(name="arrays", **fields)


@given(rows=st.integers(20, 200), folds=st.integers(2, 7), repeat=st.integers(0, 3), classes=st.integers(0, 4))
def test_folds_divide_the_rows_that_are_not_for_the_test(rows, folds, repeat, classes):
    labels = np.arange(rows) % classes if classes else None
    draws = [folded(folds=folds, fold=repeat * folds + fold).draw(rows, labels) for fold in range(folds)]
    test = set(folded().draw(rows, labels)[2])
    validated = np.concatenate([validation for _, validation, _ in draws])
    assert sorted([*validated, *test]) == list(range(rows))
    for train, validation, held_out in draws:
        assert set(held_out) == test
        assert sorted([*train, *validation, *test]) == list(range(rows))
        if labels is not None:
            expected = len(validation) / (rows - len(test)) * np.bincount(np.delete(labels, list(test)))
            assert np.abs(np.bincount(labels[validation], minlength=len(expected)) - expected).max() <= 2


def test_repeated_folds_are_drawn_again():
    first, again = (set(folded(folds=5, fold=fold).draw(100)[1]) for fold in (0, 5))
    assert first != again


def test_without_validation_rows_the_test_rows_stay():
    kept, gone = folded(split_seed=3).draw(100), folded(split_seed=3, validation=0).draw(100)
    assert len(gone[1]) == 0
    assert set(kept[2]) == set(gone[2])
    assert set(gone[0]) == set(kept[0]) | set(kept[1])


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"fold": 1}, "source.folds"), ({"folds": 3, "validation": 0}, "source.validation"), ({"folds": 1}, "folds")],
)
def test_folds_that_cannot_be_are_refused(fields, word):
    with pytest.raises(ValueError, match=word):
        folded(**fields)


@pytest.fixture
def table(tmp_path):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(120, 4)).astype(np.float32) + 3
    path = tmp_path / "table.npz"
    np.savez(path, inputs=inputs, y=inputs @ generator.normal(size=4) + 5)
    return str(path)


def config(table: str, source: dict | None = None, **train) -> RunConfig:
    return run_config(
        {
            "source": {"name": "arrays", "path": table, "targets": ["y"], "kind": "regression", **(source or {})},
            "task": {"name": "regression", "ones": True},
            "model": {"name": "hourglass_mlp", "d_z": 2, "d_h": 1, "depth": 0, "norm": "none"},
            "train": {"epochs": 40, "batch_size": 1000, "learning_rate": 0.1, "schedule": "cosine"} | train,
            "threads": 1,
        }
    )


def test_a_network_without_blocks_is_linear_regression(table):
    record = run(config(table, optimizer="adam"))
    assert record.metrics["test"]["r2"] > 0.999
    assert record.cost["params"] == 2 * (5 + 1)  # four columns and one of ones


def test_a_run_without_validation_rows_measures_the_test_rows_only(table):
    record = run(config(table, {"validation": 0}, select="last"))
    assert record.metrics["validation"] == {}
    assert record.metrics["test"]["r2"] > 0.99
    assert record.data["rows"] == {"train": 108, "validation": 0, "test": 12}
    with pytest.raises(UserError, match=r"train\.select=last"):
        run(config(table, {"validation": 0}))


def test_a_stopped_training_keeps_the_learning_rates_of_its_schedule(table):
    whole, stopped = run(config(table)), run(config(table, stop_epoch=10))
    assert (whole.steps, stopped.steps) == (40, 10)
    logs = [read_metrics(runs_folder() / record.id) for record in (whole, stopped)]
    values = [{(line["step"], line["split"]): line["loss"] for line in log} for log in logs]
    assert values[1].items() <= values[0].items()
    with pytest.raises(UserError, match="stop_epoch"):
        config(table, stop_epoch=41)


def test_a_fold_is_another_run_on_the_same_test_rows(table):
    folds = [load_data(config(table, {"folds": 5, "fold": fold}).source) for fold in range(2)]
    assert folds[0].test.inputs.shape == folds[1].test.inputs.shape
    np.testing.assert_array_equal(np.sort(folds[0].test.inputs, axis=0), np.sort(folds[1].test.inputs, axis=0))
    runs = {run(config(table, {"folds": 5, "fold": fold}, epochs=1)).id for fold in range(2)}
    assert len(runs) == 2
