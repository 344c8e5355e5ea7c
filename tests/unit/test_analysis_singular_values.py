"""Largest singular values: against whole spectra, of random weights against theory, and of trained runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from isthmus.analysis import shape_theory as theory
from isthmus.analysis.singular_values import (
    applies,
    draw,
    largest_singular_value,
    masked_weight,
    of_exponents,
    of_run,
    of_widths,
    summary,
)
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.record import RunRecord, find_run
from isthmus.core.registry import create_model
from isthmus.training.loading import load_model
from isthmus.training.run import run


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.05, 1), st.integers(0, 1000))
def test_it_is_the_first_of_the_whole_spectrum(rows, columns, p, seed):
    weight = masked_weight(rows, columns, p, seed)
    expected = np.linalg.svd(weight.toarray(), compute_uv=False)[0]
    assert largest_singular_value(weight) == pytest.approx(expected, abs=1e-7)
    assert largest_singular_value(torch.from_numpy(weight.toarray())) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("shape", [(700, 560), (560, 700)])
def test_iteration_finds_the_same(shape: tuple[int, int]) -> None:
    weight = masked_weight(*shape, 0.05, 0)
    assert largest_singular_value(weight) == pytest.approx(np.linalg.norm(weight.toarray(), 2), rel=1e-6)


def test_a_matrix_of_zeros_has_none():
    assert largest_singular_value(torch.zeros(4, 5)) == 0
    assert largest_singular_value(masked_weight(20, 20, 1e-9, 0)) == 0


def test_random_masked_weights_are_those_of_section_4_3():
    weight = masked_weight(1500, 1000, 0.1, 0)
    assert weight.nnz / weight.shape[0] / weight.shape[1] == pytest.approx(0.1, rel=0.02)
    assert weight.data.mean() == pytest.approx(0, abs=1e-3)
    assert weight.data.var() == pytest.approx(1 / (0.1 * 1000), rel=0.02)  # N(0, 1/m) times 1/√p


@pytest.mark.slow
def test_at_equal_omega_a_wider_sparse_mlp_has_larger_singular_values_and_a_mixer_has_not():
    """Figure 4, right, at an eighth of its Ω, where it shows within seconds."""
    omega, gamma = 2**16, 2.0
    pairs = [(each.S, each.C) for each in theory.shapes(omega, gamma, [4, 12, 32])]
    found = of_widths(pairs, omega, gamma, trials=3)
    means = [line["sw_mlp"]["mean"] for line in found["widths"]]
    assert means == sorted(means)
    assert means[-1] > found["dense_edge"] == pytest.approx(1 + np.sqrt(2))
    for line in found["widths"]:
        assert line["sw_mlp"]["mean"] == pytest.approx(line["edge"], rel=0.015)
        assert line["edge"] < line["printed_edge"]
        assert line["mixer"]["mean"] < found["dense_edge"]
        assert theory.sparse_connections(line["m"], line["p"], gamma) == pytest.approx(omega)
    first = [of_widths(pairs[:1], omega, gamma, trials=1) for _ in range(2)]
    assert first[0] == first[1]


def test_the_largest_grows_with_the_scaling_exponent():
    """Figure S.1, right; scaled so that the squares of all singular values have mean 1."""
    found = of_exponents([0, 0.5, 1.0], omega=400, trials=3)
    means = [line["largest"]["mean"] for line in found["exponents"]]
    assert means == sorted(means)
    dense = found["exponents"][0]
    assert dense["m"] == 20
    assert np.square(dense["values"]).mean() == pytest.approx(1, abs=1e-3)
    assert dense["values"][0] == pytest.approx(2, abs=0.4)


def trained(**model: Any) -> RunRecord:
    settings: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "classification"}, "threads": 1}
    return run(run_config(settings | {"model": {"patch": 2, "depth": 2} | model, "train": {"epochs": 1}}))


def test_a_sparse_run_is_measured_with_the_scale_of_its_masks():
    record = trained(name="sw_mlp", m=160, p=0.08, block="mlp", gamma=1.5)
    found = of_run(record.id)
    model: Any = load_model(record.id)
    lines = {line["layer"]: line for line in found["layers"]}
    assert list(lines) == ["block_1.W1", "block_1.W2", "block_2.W1", "block_2.W2"]
    for number, block in enumerate(model.blocks, start=1):
        for name in ("W1", "W2"):
            weight = getattr(block, name).weight().detach().double().numpy()
            line = lines[f"block_{number}.{name}"]
            assert line["trained"] == pytest.approx(np.linalg.norm(weight, 2), rel=1e-6)
            assert (line["rows"], line["columns"], line["p"]) == (*weight.shape, 0.08)
            assert line["start"] == pytest.approx(line["edge"], rel=0.15)
            assert line["start"] != line["trained"]
            assert line["edge"] > line["dense_edge"]
    assert lines["block_1.W1"]["dense_edge"] == pytest.approx(theory.dense_edge(1.5), rel=0.05)


@pytest.mark.parametrize("permutation", ["commutation", "random"])
def test_a_mixers_weight_has_the_singular_values_of_its_effective_weight(permutation):
    record = trained(name="mlp_mixer", C=12, gamma=2, permutation=permutation)
    found = of_run(record.id)
    model: Any = load_model(record.id)
    assert [line["layer"] for line in found["layers"]][:4] == [
        "token_1.fc1", "token_1.fc2", "channel_1.fc1", "channel_1.fc2",
    ]  # fmt: skip
    effective = model.blocks[0].token_mixing.fc1.effective_weight().double()
    assert found["layers"][0]["trained"] == pytest.approx(float(torch.linalg.matrix_norm(effective, 2)), rel=1e-6)
    assert found["layers"][0]["edge"] == found["layers"][0]["dense_edge"]
    assert found["layers"][0]["start"] == pytest.approx(found["layers"][0]["edge"], rel=0.2)


def test_a_run_is_measured_once_and_drawn(monkeypatch, tmp_path):
    record = trained(name="s_mixer", C=6)
    before = (find_run(record.id) / "record.json").read_bytes()
    found = of_run(record.id)
    monkeypatch.setattr("isthmus.analysis.trained_run.load_model", None)
    assert of_run(record.id) == found
    assert (find_run(record.id) / "analysis" / "singular_values.json").is_file()
    assert (find_run(record.id) / "record.json").read_bytes() == before
    assert summary(found)["largest of all"] == max(line["trained"] for line in found["layers"])
    for path in draw(found, tmp_path):
        with Image.open(path) as picture:
            assert picture.size[0] > 400
        assert Path(path).parent == tmp_path


def test_a_model_without_mixing_is_refused():
    model: dict[str, Any] = {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1}
    reason = applies(create_model(**model, d_in=4, d_out=2), "classification")
    assert reason == "it has no mixing and no masked weights"
    settings: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1}
    record = run(run_config(settings | {"model": model, "train": {"epochs": 1, "batch_size": 400}}))
    with pytest.raises(UserError, match="singular_values does not apply to run"):
        of_run(record.id)
