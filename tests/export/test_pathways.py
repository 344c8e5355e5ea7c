"""Every pathway in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import isthmus
from isthmus.core.registry import catalogue, component, presets
from isthmus.export import narrow
from isthmus.export.formats import TOLERANCE, compare_outputs, read_format, write_format
from isthmus.export.torch_format import read_program, trace_program, write_program
from isthmus.training.exported import FILES
from tests.conformance.small_models import SMALL, build, inputs

NAMES = list({component("pathways", name): name for name in [*presets(), *catalogue("pathways")]}.values())
EVERY_TIME = {"ladder"}
MLP = {**SMALL["hourglass_mlp"][0], "depth": 5, "init": "pytorch"}
CASES = [
    pytest.param(
        "hourglass_mlp", {**MLP, "pathway": name}, id=name, marks=() if name in EVERY_TIME else pytest.mark.slow
    )
    for name in NAMES
] + [
    pytest.param("mlp_mixer", {**SMALL["mlp_mixer"][2], "pathway": name}, id=f"mixer-{name}", marks=pytest.mark.slow)
    for name in ("attended", "streams", "streams/mhc-2", "delta/value-4", "injected", "reversible")
]


def build_trained(model: str, fields: dict[str, Any]) -> Any:
    """A network whose pathway has other values than at the start."""
    network = build(model, fields).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "pathway" in name:
                parameter += 0.1 * torch.randn_like(parameter)
    return network


@pytest.mark.parametrize(("model", "fields"), CASES)
def test_every_format_gives_the_same(model: str, fields: dict[str, Any], tmp_path: Path) -> None:
    compare_formats(build_trained(model, fields), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "ladder",
        "parallel",
        "reversible",
        "weighted",
        "streams/static-2",
        "injected",
        "none",
        "delta/value",
        "delta/erase-and-add",
    ],
)
def test_every_format_takes_the_narrow_form(name: str, tmp_path: Path) -> None:
    network = build_trained("hourglass_mlp", {**MLP, "pathway": name})
    converted = narrow(network, force=True)
    compare_formats(converted, tmp_path)
    compare_outputs(network, read_format(tmp_path / "model.onnx", "onnx"), tmp_path)


def compare_formats(network: Any, tmp_path: Path) -> None:
    write_format(tmp_path / FILES["safetensors"], network, "safetensors")
    loaded: Any = isthmus.load(tmp_path / FILES["safetensors"]).model
    assert torch.equal(loaded(inputs(network)), network(inputs(network)))
    write_program(tmp_path / "model.pt2", trace_program(network))
    compare_outputs(network, read_program(tmp_path / "model.pt2"), tmp_path)
    write_format(tmp_path / "model.onnx", network, "onnx")
    runtime = read_format(tmp_path / "model.onnx", "onnx")
    for rows in (1, 5):
        x = inputs(network, rows)
        with torch.no_grad():
            torch.testing.assert_close(runtime(x), network(x), rtol=TOLERANCE, atol=TOLERANCE)
