"""int8 weights: which layers, what they cost, and that the figures are of the network in the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

import isthmus
from benchmarks import int8 as bench
from isthmus.core.errors import UserError
from isthmus.core.protocols import SplitName, Task
from isthmus.core.registry import component, find
from isthmus.export.formats import write_format
from isthmus.export.int8_format import (
    Choice,
    Policy,
    choose_layers,
    default_tolerance,
    find_layers,
    quantise,
    read_graph,
)
from isthmus.export.onnx_format import read_onnx
from isthmus.models.hourglass import MLPConfig, ResidualMLP
from isthmus.training.loop import Rows, evaluate
from isthmus.training.prepare import load_data
from tests.command_line import call, train, write_table
from tests.export.small_runs import Pointwise, train_alone

SHAPE = {"name": "hourglass_mlp", "d_z": 256, "d_h": 64, "depth": 1}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_alone(tmp_path_factory.mktemp("run"), model=SHAPE, train={"epochs": 3, "batch_size": 64})


@pytest.fixture(scope="module")
def digits() -> tuple[Task, dict[SplitName, Rows]]:
    data = load_data(component("sources", {"name": "digits"}))
    config = component("tasks", {"name": "denoise"})
    task: Task = find("tasks", config.name)(config)
    task.learn(data)
    splits: tuple[SplitName, ...] = ("validation", "test")
    return task, {split: Rows.of(data.split(split), CPU) for split in splits}


def test_an_int8_export_is_small_and_its_metrics_are_its_own(
    run: Path, tmp_path: Path, digits: tuple[Task, dict[SplitName, Rows]]
) -> None:
    plain = call("export", run, "--to", "onnx", "--out", tmp_path / "plain", "--json").json()
    found = call("export", run, "--to", "onnx", "--int8", "--out", tmp_path / "small", "--json").json()
    assert len(found["int8"]["layers"]) == 4
    assert found["int8"]["chosen"]["bytes"] == found["bytes"] == (tmp_path / "small" / "model.onnx").stat().st_size
    assert found["bytes"] < 0.3 * plain["bytes"]
    assert 0 < found["error"] < 0.1
    stored = json.loads((tmp_path / "small" / "export.json").read_text())
    assert stored["int8"]["chosen"]["layers"] == found["int8"]["chosen"]["layers"] != []
    task, rows = digits

    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = network(x.flatten(1))
            return y

    network = read_onnx(tmp_path / "small" / "model.onnx")
    again = evaluate(Flat(), task, rows["test"], "test", CPU)
    assert stored["metrics"] == pytest.approx(again, rel=1e-5)
    float32 = json.loads((tmp_path / "plain" / "export.json").read_text())["metrics"]
    assert 0 < abs(again["psnr"] - float32["psnr"]) < 0.1
    card = (tmp_path / "small" / "README.md").read_text()
    assert "4 of 4 layers are int8 (`W_in`, `blocks.0.W1`" in card
    images = np.random.default_rng(0).random((3, 8, 8)).astype(np.float32)
    ours, theirs = (isthmus.load(each).predict(images).astype(float) for each in (tmp_path / "small", run))
    assert 0 < np.abs(ours - theirs).max() <= 5  # of 255


def copying_network() -> ResidualMLP:
    """It copies its input. Beside the image its stream carries a number that is ten thousand times as large, so that 8
    bits of the signal before W_out leave nothing of the image."""
    model = ResidualMLP(MLPConfig(name="hourglass_mlp", d_in=64, d_out=64, d_z=80, d_h=8, depth=1))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        weights = cast("Any", model)
        weights.W_in.weight.normal_(0, 1e-3, generator=generator)
        weights.W_in.weight[:64] += torch.eye(64)
        weights.W_in.weight[64] = 1e4 / 64
        weights.W_out.weight.zero_()
        weights.W_out.weight[:, :64] += torch.eye(64)
    return model.eval()


def choose(model: nn.Module, digits: tuple[Task, dict[SplitName, Rows]], folder: Path, **settings: Any) -> Choice:
    write_format(folder / "model.onnx", model, "onnx")
    return choose_layers(folder / "model.onnx", model, *digits, **settings)


def test_a_sensitive_layer_stays_float32(digits: tuple[Task, dict[SplitName, Rows]], tmp_path: Path) -> None:
    model = copying_network()
    choice = choose(model, digits, tmp_path)
    assert max(choice.sensitivity, key=lambda name: choice.sensitivity[name]) == "W_out"
    assert choice.sensitivity["W_out"] > 1
    assert "W_out" not in choice.chosen.layers
    assert "W_in" in choice.chosen.layers
    assert choice.loss(choice.uniform) > 1
    assert choice.loss(choice.chosen) < 0.1
    assert choice.loss(choice.chosen, "validation") <= choice.tolerance == 0.1
    assert choice.uniform.bytes < choice.chosen.bytes < choice.float32.bytes
    choice.write(tmp_path / "model.onnx", model)
    types = {each.name: each.data_type for each in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert types["W_out.weight.transposed"] == TensorProto.FLOAT
    assert types["W_in.weight.transposed_quantized"] == TensorProto.INT8
    assert "W_in.weight" not in types


def test_the_tolerance_decides(digits: tuple[Task, dict[SplitName, Rows]], tmp_path: Path) -> None:
    model = copying_network()
    generous = choose(model, digits, tmp_path, tolerance=100.0)
    assert generous.chosen.layers == generous.uniform.layers == tuple(generous.layers.values())
    assert generous.some is not None
    assert generous.loss(generous.some) < generous.loss(generous.uniform)
    assert default_tolerance("psnr", 20) == 0.1
    assert default_tolerance("accuracy", 0.9) == 0.002
    assert default_tolerance("loss", 0.5) == 0.005


@pytest.mark.slow
def test_layers_can_be_chosen_by_latency(digits: tuple[Task, dict[SplitName, Rows]], tmp_path: Path) -> None:
    choice = choose(copying_network(), digits, tmp_path, cost="latency")
    assert choice.loss(choice.chosen, "validation") <= 0.1
    assert all(policy.latency for policy in (choice.float32, choice.uniform, choice.chosen))


@pytest.mark.slow
def test_a_table_s_graph_takes_raw_columns_and_is_int8(tmp_path: Path) -> None:
    x, _ = write_table(tmp_path / "table.csv")
    record = train(
        tmp_path,
        source={"name": "arrays", "path": str(tmp_path / "table.csv"), "targets": "y"},
        task={"name": "regression"}, model={"name": "hourglass_mlp", "d_z": 64, "d_h": 16, "depth": 1},
        train={"epochs": 2, "batch_size": 32},
    )  # fmt: skip
    found = call("export", record["id"], "--to", "onnx", "--int8", "--out", tmp_path / "small", "--json").json()
    types = {each.data_type for each in onnx.load(tmp_path / "small" / "model.onnx").graph.initializer}
    assert (TensorProto.INT8 in types) == bool(found["int8"]["chosen"]["layers"]) == True  # noqa: E712
    wanted = isthmus.load(record["id"]).predict(x)
    assert np.abs(isthmus.load(tmp_path / "small").predict(x) - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("name", "fields", "layers"),
    [
        ("mlp_mixer", {"input_shape": (1, 8, 8), "output_shape": (10,), "patch": 2, "C": 8, "depth": 1, "gamma": 2}, 4),
        (
            "hourglass_vit",
            {
                "input_shape": (1, 8, 8), "output_shape": (10,), "patch": 2, "d_z": 24, "d_h": 12, "depth": 1,
                "num_heads": 3,
            },
            6,
        ),
    ],
)  # fmt: skip
def test_layers_have_the_names_of_the_model_s_parameters(
    name: str, fields: dict[str, Any], layers: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = isthmus.create_model(name, **fields)
    write_format(tmp_path / "model.onnx", model, "onnx")
    graph = read_graph(tmp_path / "model.onnx")
    found = find_layers(graph, model)
    known = {parameter.removesuffix(".weight") for parameter, _ in model.named_parameters()}
    assert len(found) == layers
    assert {layer.name for layer in found} <= known
    quantise(graph, found, tmp_path / "small.onnx")
    x = torch.rand(5, 1, 8, 8)
    wanted = model.eval()(x)
    assert (read_onnx(tmp_path / "small.onnx")(x) - wanted).abs().max() < 0.1 * wanted.abs().max()


def test_weights_that_two_products_share_are_turned_once(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], "first", transB=1),
        helper.make_node("Gemm", ["h", "w", "b"], ["y"], "second", transB=1),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    constants = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.ones(4, np.float32), "b")]
    graph = helper.make_graph(nodes, "shared", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    (layer,) = find_layers(read_graph(tmp_path / "model.onnx"), nn.Identity())
    assert layer.nodes == ("first.product", "second.product")
    quantise(read_graph(tmp_path / "model.onnx"), [layer], tmp_path / "small.onnx")
    x = torch.rand(5, 4)
    wanted = x.numpy() @ weight.T @ weight.T + 1
    np.testing.assert_allclose(read_onnx(tmp_path / "small.onnx")(x), wanted, atol=0.05 * np.abs(wanted).max())


def test_a_model_without_matrices_is_refused(digits: tuple[Task, dict[SplitName, Rows]], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no matrix of weights that onnxruntime can make int8$"):
        choose(Pointwise(), digits, tmp_path)


def test_a_run_without_validation_rows_is_refused(digits: tuple[Task, dict[SplitName, Rows]], tmp_path: Path) -> None:
    task, rows = digits
    without = rows | {"validation": Rows(rows["validation"].inputs[:0], None)}
    with pytest.raises(UserError, match="kept no validation rows"):
        choose(copying_network(), (task, without), tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "torch", "--int8"], "--int8 applies to onnx, not to torch; type --to onnx"),
        (["--to", "onnx", "--int8", "--cost", "size"], "--cost 'size'"),
        (["--to", "onnx", "--int8", "--tolerance", "-1"], "--tolerance -1.0 must be 0 or more"),
        (["--to", "onnx", "--tolerance", "1"], "--cost and --tolerance choose int8 layers; type --int8 too"),
    ],
)
def test_bad_input_is_one_line(run: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    answer = call("export", run, *arguments, "--out", tmp_path / "small")
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer
    assert said in answer.err
    assert not (tmp_path / "small").exists()


def test_bytes_are_a_cost_of_a_study() -> None:
    count: Callable[..., float] = find("costs", "bytes").compute
    assert count(MLPConfig(name="hourglass_mlp", d_in=64, d_out=64, d_z=80, d_h=8, depth=1), 1) == 4 * (
        2 * 64 * 80 + 2 * 8 * 80
    )


def test_a_policy_per_layer_is_on_the_front_if_it_loses_less_than_int8_everywhere() -> None:
    def policy(size: int, quality: float, *layers: str) -> Policy:
        return Policy(layers, size, size, quality, {"psnr": quality}, 1.0)

    float32, uniform = policy(400, 20.0), policy(100, 19.9, "a", "b")
    for quality, answer in ((19.95, True), (20.1, True), (19.9, False), (19.8, False)):
        mixed = policy(200, quality, "a")
        choice = Choice("psnr", True, "bytes", 0.1, {}, {}, float32, uniform, mixed, None, ())
        assert bench.is_on_front(choice, mixed) is answer
        row = bench.describe("network", choice)
        assert (row["per layer on the front"], row["per layer above int8"]) == (answer, answer)
    assert bench.summarise([row])["a policy per layer is on the front or above int8"] == 0


@pytest.mark.slow
def test_the_benchmark_describes_a_network() -> None:
    network = bench.networks()["digits classes, MLP-Mixer"]
    brief = network.model_copy(update={"train": network.train.model_copy(update={"epochs": 1})})
    (row,) = bench.measure(lambda _: None, {"mixer": brief})
    assert (row["network"], row["objective"], row["layers"]) == ("mixer", "accuracy", 6)
    assert row["written bytes"] < 1
    # Token mixing multiplies from the left and stays float32; the file also holds the graph.
    assert 0.25 < row["int8 weights"] < row["int8 bytes"] < 1
    assert row["float32 ms"] > 0
    assert row["int8 ms"] / row["float32 ms"] == pytest.approx(row["int8 time"], rel=0.05)
    assert bench.summarise([row, row])["networks"] == 2
    assert len(bench.networks()) == 6
