"""Convergence by layer and maps by iteration, from a trained iMixer to numbers and pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from isthmus.analysis import fixed_point as analysis
from isthmus.analysis.trained_run import TrainedRun
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.record import RunRecord, find_run
from isthmus.training.loading import load_model
from isthmus.training.run import run


def trained(**fields: Any) -> RunRecord:
    model = {"name": "imixer", "patch": 2, "C": 12, "depth": 2, "iterations": 2, **fields}
    settings: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "classification"}, "threads": 1}
    return run(run_config(settings | {"model": model, "train": {"epochs": 1, "batch_size": 300}}))


def test_a_run_is_measured_once_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = trained()
    before = (find_run(record.id) / "record.json").read_bytes()
    found = analysis.of_run(record.id)
    assert (found["run"], found["rows"], found["trained_iterations"]) == (record.id, 16, 2)
    assert [[len(step) for step in layer] for layer in found["norms"]] == [[16] * 8] * 2
    assert torch.tensor(found["maps"]).shape == (9, 6, 4, 4)
    file = find_run(record.id) / "analysis" / "fixed_point.json"
    assert json.loads(file.read_text())["norms"] == found["norms"]

    first = analysis.typical(found["norms"][0][0])
    assert analysis.typical(found["norms"][0][7]) < first / 2  # a norm of 0.9 brings iterates together
    assert analysis.typical(found["cosines"][0][7]) > 0.99

    summary = analysis.summary(found)
    assert summary["n"] == 2
    assert summary["next step, first layer"] == analysis.typical(found["norms"][0][2])
    assert float(summary["next step, worst layer"]) >= float(summary["next step, first layer"])

    paths = analysis.draw(found, tmp_path)
    assert [path.name for path in paths] == ["fixed_point.png", "fixed_point-maps.png"]
    for path in paths:
        with Image.open(path) as picture:
            assert min(picture.size) > 300
    monkeypatch.setattr("isthmus.analysis.trained_run.load_model", lambda *given: pytest.fail("measured again"))
    assert analysis.of_run(record.id) == found
    assert (find_run(record.id) / "record.json").read_bytes() == before


def test_the_numbers_are_those_of_the_models_own_iterates() -> None:
    """The trajectory of the trained model has the first n iterates; norms are divided by √(S C), S C = 16 · 12."""
    record = trained(norm="batch", batch_statistics="per_iteration", iterations=3)
    found = analysis.of_run(record.id)
    model: Any = load_model(record.id)
    x = next(TrainedRun(record.id).test_inputs(16, 16))
    with torch.no_grad():
        steps = dict(model.trajectory(x))
    for layer in (1, 2):
        for a in range(3):
            before, after = steps[f"x_{layer}_{a}"].flatten(1), steps[f"x_{layer}_{a + 1}"].flatten(1)
            norms = (after - before).norm(dim=1) / math.sqrt(16 * 12)
            torch.testing.assert_close(torch.tensor(found["norms"][layer - 1][a]), norms)
            cosines = torch.cosine_similarity(after, before)
            torch.testing.assert_close(torch.tensor(found["cosines"][layer - 1][a]), cosines)
    token = steps["token_2"][0].T[found["channels"]].unflatten(1, (4, 4))
    torch.testing.assert_close(torch.tensor(found["maps"][3]), token, rtol=0, atol=2e-3 * float(token.abs().max()))


def test_what_leaves_the_numbers_is_drawn_all_the_same(tmp_path: Path) -> None:
    model: Any = load_model(trained(norm="none").id)
    for mixer in model.mixers:
        mixer.down[1].weight.data *= 1e20
    found = analysis.measure(model, torch.randn(5, 1, 8, 8))
    assert None in found["norms"][0][-1]
    assert json.dumps(found, allow_nan=False)
    assert math.isnan(float(analysis.summary(found)["next step, worst layer"]))
    assert all(path.is_file() for path in analysis.draw(found, tmp_path))


def test_other_models_have_no_fixed_point() -> None:
    record = trained(hierarchy=1)
    with pytest.raises(UserError, match="its token mixing iterates to no fixed point"):
        analysis.of_run(record.id)
    assert analysis.applies(torch.nn.Linear(2, 2), "classification") is not None
