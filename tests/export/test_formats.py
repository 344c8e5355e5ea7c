"""Every registered model in every format: the same outputs for any number of rows, read back from the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

import isthmus
from isthmus.core.errors import UserError
from isthmus.export import fold
from isthmus.export.formats import TOLERANCE, compare_outputs, read_format, write_format
from isthmus.export.torch_format import read_program, trace_program, write_program
from isthmus.training.exported import FILES
from tests.conformance.small_models import CASES, SMALL, build, inputs, stepped

EVERY_TIME = {"hourglass_mlp-0", "sw_mlp-0", "vit-0"}
"""`test_tokens.py` exports hyper_set. The other cases are slow."""
EXPORTED = [
    pytest.param(*case.values, id=case.id, marks=() if case.id in EVERY_TIME else pytest.mark.slow) for case in CASES
]


def is_anderson(fields: dict[str, Any]) -> bool:
    return fields.get("solver") == "anderson"


@pytest.mark.parametrize(("name", "fields"), EXPORTED)
def test_onnx_and_torch_programs_give_the_same(name: str, fields: dict[str, Any], tmp_path: Path) -> None:
    model = stepped(name, fields).eval()
    exported = trace_program(model)
    write_program(tmp_path / "model.pt2", exported)
    compare_outputs(model, read_program(tmp_path / "model.pt2"), tmp_path)
    if is_anderson(fields):  # it solves linear equations
        return
    write_format(tmp_path / "model.onnx", model, "onnx")
    runtime = read_format(tmp_path / "model.onnx", "onnx")
    for rows in (1, 2, 5):
        x = inputs(model, rows)
        with torch.no_grad():
            torch.testing.assert_close(runtime(x), model(x), rtol=TOLERANCE, atol=TOLERANCE)
    (batch, *_) = onnx.load(tmp_path / "model.onnx").graph.input[0].type.tensor_type.shape.dim
    assert batch.dim_param


@pytest.mark.parametrize(("name", "fields"), CASES)
def test_weights_are_whole(name: str, fields: dict[str, Any], tmp_path: Path) -> None:
    """Nothing has to be drawn again, and the model is the registered one."""
    model = stepped(name, fields).eval()
    file = tmp_path / FILES["safetensors"]
    write_format(file, model, "safetensors")
    torch.manual_seed(5)
    before = torch.get_rng_state()
    loaded: Any = isthmus.load(file).model
    assert torch.equal(before, torch.get_rng_state())
    assert loaded.config == model.config
    assert torch.equal(loaded(inputs(model)), model(inputs(model)))
    assert all(torch.equal(a, b) for a, b in zip(loaded.buffers(), model.buffers(), strict=True))
    loaded.train()(inputs(model)).sum().backward()


def test_folding_leaves_plain_layers_and_the_model_as_it_was() -> None:
    cases = [("hourglass_mlp", 2), ("imixer", 0), ("sw_mlp", 0)]
    for name, number in cases:
        model = stepped(name, SMALL[name][number]).eval()
        kinds = [type(module) for module in model.modules()]
        plain = fold(model)
        assert {type(module).__name__ for module in plain.modules()}.isdisjoint(
            {"FixedProjection", "SpectralLinear", "SparseLinear"}
        )
        assert [type(module) for module in model.modules()] == kinds
        with torch.no_grad():
            torch.testing.assert_close(plain(inputs(model)), model(inputs(model)), rtol=1e-5, atol=1e-6)


def test_an_operator_that_onnx_lacks_is_named(tmp_path: Path) -> None:
    fields = next(fields for fields in SMALL["imixer"] if is_anderson(fields)) | {"iterations": 2, "depth": 1}
    with pytest.raises(UserError, match=r"this model has no ONNX form: ONNX has no operator for torch's aten\.\w+"):
        write_format(tmp_path / "model.onnx", build("imixer", fields).eval(), "onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_that_differs_is_no_export(tmp_path: Path) -> None:
    one, other = build("hourglass_mlp", SMALL["hourglass_mlp"][1]), build("hourglass_mlp", SMALL["hourglass_mlp"][1], 1)
    with pytest.raises(UserError, match=r"model\.onnx differs from the model by .* nothing was exported"):
        compare_outputs(one.eval(), other.eval(), tmp_path / "model.onnx")


@pytest.mark.parametrize("tolerance", [TOLERANCE, math.inf])
def test_outputs_that_are_not_numbers_are_no_export(tolerance: float, tmp_path: Path) -> None:
    model, other = (build("hourglass_mlp", SMALL["hourglass_mlp"][1]).eval() for _ in range(2))
    next(other.parameters()).data.fill_(math.nan)
    for one, another in ((model, other), (other, model)):
        with pytest.raises(UserError, match=r"model\.onnx differs from the model by nan"):
            compare_outputs(one, another, tmp_path / "model.onnx", tolerance)
