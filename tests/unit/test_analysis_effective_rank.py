"""Effective rank: the formula, and the readings of a trained run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isthmus.analysis import effective_rank as analysis
from isthmus.analysis.effective_rank import effective_rank, of_run
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.record import RunRecord, find_run, read_record
from isthmus.training.loading import load_model, load_task
from isthmus.training.prepare import load_data
from isthmus.training.run import run

seeds = st.integers(0, 2**32 - 1)


def obvious(matrix: np.ndarray) -> float:
    sigma = np.linalg.svd(matrix, compute_uv=False)
    p = sigma / sigma.sum()
    return float(np.exp(-sum(x * np.log(x) for x in p if x > 0)))


def drawn(seed: int, rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(seeds, st.integers(1, 12), st.integers(1, 12))
def test_it_is_the_obvious_formula_whichever_side_is_longer(seed, rows, columns):
    matrix = drawn(seed, rows, columns)
    assert effective_rank(matrix) == pytest.approx(obvious(matrix.numpy()), rel=1e-10)


@given(seeds, st.integers(2, 20), st.integers(2, 20))
def test_one_direction_has_rank_one(seed, rows, columns):
    assert effective_rank(drawn(seed, rows, 1) @ drawn(seed + 1, 1, columns)) == pytest.approx(1, abs=1e-9)


@given(seeds, st.integers(1, 30))
def test_equal_directions_all_count(seed, size):
    orthogonal = torch.linalg.qr(drawn(seed, size, size)).Q
    assert effective_rank(orthogonal) == pytest.approx(size, rel=1e-10)


@given(seeds, st.floats(1e-6, 1e6), st.booleans())
def test_neither_scale_nor_transposition_matters(seed, scale, negative):
    matrix = drawn(seed, 9, 5)
    changed = -scale * matrix if negative else scale * matrix
    assert effective_rank(changed) == pytest.approx(effective_rank(matrix), rel=1e-9)
    assert effective_rank(matrix.T) == pytest.approx(effective_rank(matrix), rel=1e-9)


def test_two_singular_values_by_hand():
    """σ = 3 and 1: p = 3/4 and 1/4, the entropy is 0.5623, and its exponential 1.7548."""
    assert effective_rank(torch.tensor([[3.0, 0.0], [0.0, 1.0]])) == pytest.approx(1.7548, abs=1e-4)


def test_a_matrix_of_zeros_has_no_direction():
    assert effective_rank(torch.zeros(3, 4)) == 0


@pytest.fixture
def trained() -> RunRecord:
    model = {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 2}
    train = {"epochs": 1, "batch_size": 400}
    settings: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "super_resolution"}, "threads": 1}
    return run(run_config(settings | {"model": model, "train": train}))


def test_a_run_is_read_in_every_way_and_the_answer_kept_beside_its_record(trained, monkeypatch):
    before = (find_run(trained.id) / "record.json").read_bytes()
    found = of_run(trained.id)
    assert set(found["ranks"]) == set(analysis.READINGS)
    assert (found["run"], found["rows"], found["width"]) == (trained.id, 300, 70)
    model: Any = load_model(trained.id)
    products = [obvious((block.W2.weight @ block.W1.weight).double().detach().numpy()) for block in model.blocks]
    assert found["ranks"]["W2W1_mean"] == pytest.approx(np.mean(products), rel=1e-4)
    assert found["ranks"]["W2W1_last"] == pytest.approx(products[-1], rel=1e-4)
    assert found["ranks"]["W2W1_last"] <= 8 + 1e-6
    assert found["ranks"]["W_out"] == pytest.approx(obvious(model.W_out.weight.detach().numpy()), rel=1e-4)
    file = find_run(trained.id) / "analysis" / "effective_rank.json"
    assert json.loads(file.read_text())["ranks"] == found["ranks"]
    monkeypatch.setattr("isthmus.analysis.trained_run.load_model", lambda *given: pytest.fail("measured again"))
    assert of_run(trained.id) == found
    assert (find_run(trained.id) / "record.json").read_bytes() == before
    assert read_record(find_run(trained.id)) == trained


def test_the_states_are_those_before_the_output_on_the_test_inputs(trained):
    model: Any = load_model(trained.id)
    task = load_task(trained.id)
    data = load_data(run_config(trained.config).source)
    batch = task.evaluation_batch(torch.from_numpy(data.test.inputs), None, "test", 0)
    with torch.no_grad():
        *_, (_, states), (_, output) = model.trajectory(batch.input)
    assert states.shape == (300, 70)
    torch.testing.assert_close(model.W_out(states), output)
    ranks, z = of_run(trained.id)["ranks"], states.double().numpy()
    assert ranks["z_L"] == pytest.approx(obvious(z), rel=1e-4)
    assert ranks["z_L_centred"] == pytest.approx(obvious(z - z.mean(axis=0)), rel=1e-4)


def test_other_data_under_the_same_name_is_refused(trained, monkeypatch):
    data = load_data(run_config(trained.config).source)
    changed = type(data)(data.train, data.validation, data.test, "other")
    monkeypatch.setattr("isthmus.analysis.trained_run.load_data", lambda source, where: changed)
    with pytest.raises(UserError, match="trained on other data than digits"):
        of_run(trained.id)


def test_a_damaged_answer_is_named(trained):
    of_run(trained.id)
    file: Path = find_run(trained.id) / "analysis" / "effective_rank.json"
    file.write_text(file.read_text().replace('"rows": 300', '"rows": 301'))
    with pytest.raises(UserError, match="damaged or was altered"):
        of_run(trained.id)
