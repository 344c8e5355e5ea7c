"""ONNX graphs whose weights are int8 where that costs little quality: onnxruntime quantises, we choose the layers.

A layer is a matrix of weights that multiplies a signal from the right. onnxruntime stores it as int8 with a scale for
each output and quantises the signal to 8 bits while it runs (``quantize_dynamic``). The layers are chosen by measured
sensitivity:

1. Each layer alone is made int8; its loss of quality on validation data, by the bytes or the time that it saves, is its
   sensitivity.
2. Layers are added in this order, and every set is measured.
3. The cheapest set whose loss on validation data is within the tolerance is the policy.

The policy, float32 and int8 everywhere are then measured on test data, and timed in one interleaved run.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError, quiet
from isthmus.core.protocols import SplitName, Task
from isthmus.export.graphs import GraphModel, first_line, make_example
from isthmus.export.onnx_format import INSTALL, read_onnx
from isthmus.training.loop import Rows, evaluate

CostName = Literal["bytes", "latency"]
COSTS: tuple[CostName, ...] = get_args(CostName)
ROWS = 32
"""Of a timed batch."""
_ROUNDS, _LEAST_SECONDS = 31, 0.005
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Layer:
    """A matrix of weights and the products that use it. ``key`` is the same in every graph of the same weights."""

    key: str
    name: str
    nodes: tuple[str, ...]
    shape: tuple[int, int]


@dataclass(frozen=True)
class Policy:
    """Which layers are int8, and what this costs. ``latency`` is in milliseconds per 32 rows."""

    layers: tuple[str, ...]
    bytes: int
    """Of the file."""
    weights: int
    """Bytes of the weights in the file, with the scales of those that are int8."""
    validation: float
    test: dict[str, float] | None = None
    latency: float | None = None


@dataclass(frozen=True)
class Choice:
    """The chosen policy among those that were measured. Qualities are of the objective."""

    objective: str
    maximise: bool
    cost: CostName
    tolerance: float
    layers: dict[str, str]
    """The names of all that can be int8, by their keys."""
    sensitivity: dict[str, float]
    """The loss of quality on validation data if this layer alone is int8."""
    float32: Policy
    uniform: Policy
    chosen: Policy
    some: Policy | None
    """Of the sets that save at least half of what int8 everywhere saves, the one with the least validation loss."""
    measured: tuple[Policy, ...]
    """All sets of layers, in the order in which layers were added."""

    def write(self, file: Path, model: nn.Module) -> None:
        """Make the chosen layers of the graph in ``file``, which has the same weights, int8."""
        graph = read_graph(file)
        wanted = {key for key, name in self.layers.items() if name in self.chosen.layers}
        quantise(graph, [layer for layer in find_layers(graph, model) if layer.key in wanted], file)

    @property
    def mixed(self) -> Policy | None:
        """The chosen policy; ``some`` if the chosen one has no layer or all of them as int8."""
        return self.some if self.chosen.layers in ((), self.uniform.layers) else self.chosen

    def loss(self, policy: Policy, split: Literal["validation", "test"] = "test") -> float:
        """How much quality it loses against float32; negative if it gains."""
        if split == "validation":
            difference = self.float32.validation - policy.validation
        else:
            assert self.float32.test is not None
            assert policy.test is not None
            difference = self.float32.test[self.objective] - policy.test[self.objective]
        return difference if self.maximise else -difference


def default_tolerance(metric: str, value: float) -> float:
    """0.1 dB, 0.2 points of an accuracy, 0.002 of R², or one part in a hundred of any other metric."""
    if metric.startswith("psnr"):
        return 0.1
    return 0.002 if metric == "r2" or metric.endswith("accuracy") else abs(value) / 100


def read_graph(path: Path) -> Any:
    """An ONNX graph with products of matrices in place of ``Gemm``, which onnxruntime cannot make int8 by itself.

    Its own replacement transposes a matrix once for every node that uses it, which is wrong for shared weights.
    """
    try:
        import onnx
        from onnxruntime.quantization.quant_utils import add_pre_process_metadata
    except ImportError:
        raise UserError(f"int8 files need onnx and onnxruntime: {INSTALL}") from None
    model = onnx.load(path)
    nodes = list(_replace_gemms(model.graph))
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    for field, content in (("node", nodes), ("initializer", kept)):
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(content)
    add_pre_process_metadata(model)
    return model


def _replace_gemms(graph: Any) -> Iterator[Any]:
    from onnx import helper, numpy_helper

    known = {tensor.name: tensor for tensor in graph.initializer}
    for node in list(graph.node):
        settings = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        plain = all(settings.get(name, 1.0) == 1.0 for name in ("alpha", "beta")) and not settings.get("transA", 0)
        if node.op_type != "Gemm" or not plain or node.input[1] not in known:
            yield node
            continue
        weight = node.input[1]
        if settings.get("transB", 0):
            weight = f"{node.input[1]}.transposed"
            if weight not in known:
                turned = np.ascontiguousarray(numpy_helper.to_array(known[node.input[1]]).T)
                known[weight] = numpy_helper.from_array(turned, weight)
                graph.initializer.append(known[weight])
        has_bias = len(node.input) > 2
        product = f"{node.output[0]}.product" if has_bias else node.output[0]
        yield helper.make_node("MatMul", [node.input[0], weight], [product], f"{node.name}.product")
        if has_bias:
            yield helper.make_node("Add", [product, node.input[2]], list(node.output), f"{node.name}.bias")


def find_layers(graph: Any, model: nn.Module) -> list[Layer]:
    """The matrices that onnxruntime can make int8, by the names of the model's parameters where they have one."""
    from onnx import TensorProto, numpy_helper

    names: dict[str, str] = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            matrix = parameter.detach().cpu().numpy()
            names |= {_digest(matrix): name, _digest(matrix.T): name}
    constant: dict[str, Any] = {each.name: each for each in graph.graph.initializer}
    found: dict[str, Layer] = {}
    for node in graph.graph.node:
        tensor = constant.get(node.input[1]) if node.op_type == "MatMul" else None
        if tensor is not None and tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2:
            key = _digest(numpy_helper.to_array(tensor))
            name = names.get(key, tensor.name.removesuffix(".transposed")).removesuffix(".weight")
            known = found.get(key, Layer(key, name, (), tuple(tensor.dims)))
            found[key] = replace(known, nodes=(*known.nodes, node.name))
    return list(found.values())


def _digest(matrix: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(matrix).tobytes()).hexdigest()[:16]


def quantise(graph: Any, layers: Iterable[Layer], path: Path) -> None:
    """Write the graph with these layers as int8; without any, as it is."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    nodes = [name for layer in layers for name in layer.nodes]
    if not nodes:
        onnx.save(graph, path)
        return
    copy = type(graph)()
    copy.CopyFrom(graph)
    try:
        with quiet(""):
            quantize_dynamic(
                copy, path, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8,
                nodes_to_quantize=nodes,
            )  # fmt: skip
    except Exception as error:  # onnxruntime and onnx raise many types
        raise UserError(f"onnxruntime cannot make this model int8: {first_line(error)}") from None


def count_weights(path: Path) -> int:
    """The bytes of the constants of a graph."""
    import onnx
    from onnx import numpy_helper

    return sum(numpy_helper.to_array(tensor).nbytes for tensor in onnx.load(path).graph.initializer)


def choose_layers(
    file: Path, model: nn.Module, task: Task, rows: dict[SplitName, Rows], cost: CostName = "bytes",
    tolerance: float | None = None, tell: Callable[[str], None] = lambda _: None, quality: str | None = None,
) -> Choice:  # fmt: skip
    """Measure which layers of the graph in ``file`` can be int8; the graph is that of the model alone.

    ``quality`` is the metric that decides (default: the task's objective).
    """
    if not len(rows["validation"]):
        raise UserError("this run kept no validation rows, which choose the int8 layers")
    graph = read_graph(file)
    layers = find_layers(graph, model)
    if not layers:
        name = getattr(getattr(model, "config", None), "name", "this model")
        raise UserError(f"{name} has no matrix of weights that onnxruntime can make int8")
    with tempfile.TemporaryDirectory() as folder:
        measurement = _Measurement(graph, layers, model, task, rows, cost, Path(folder), tell, quality)
        return measurement.choose(tolerance)


class _Measurement:
    """Writes graphs with int8 layers into a folder, and measures them."""

    def __init__(
        self, graph: Any, layers: list[Layer], model: nn.Module, task: Task, rows: dict[SplitName, Rows],
        cost: CostName, folder: Path, tell: Callable[[str], None], quality: str | None,
    ) -> None:  # fmt: skip
        self.graph, self.layers, self.task, self.rows, self.cost = graph, layers, task, rows, cost
        self.folder, self.tell, self.example = folder, tell, make_example(model, ROWS)
        self.row_shape: tuple[int, ...] = model.input_shape  # type: ignore[assignment]
        self.objective = quality or task.objective
        self.maximise = task.directions()[self.objective]
        self.float32 = self._measure([])

    def choose(self, tolerance: float | None) -> Choice:
        if tolerance is None:
            tolerance = default_tolerance(self.objective, self.float32.validation)
        losses, order = self._rank()
        measured = [self.float32]
        for number in range(1, len(order) + 1):
            self.tell(f"{number} of {len(order)} layers together")
            measured.append(self._measure(order[:number]))
        everywhere = measured[-1] if len(order) == len(self.layers) else self._measure(self.layers)
        known = measured if self.cost == "bytes" else self._with_latency(measured)
        allowed = [policy for policy in known if self._loss(policy) <= tolerance]
        chosen = min(allowed, key=lambda policy: policy.bytes if self.cost == "bytes" else policy.latency or 0.0)
        half = (self.float32.bytes + everywhere.bytes) / 2
        some = [policy for policy in measured if policy.layers != everywhere.layers and policy.bytes <= half]
        kept = [self.float32, everywhere, chosen, *([min(some, key=self._loss)] if some else [])]
        tested = self._with_latency([replace(policy, test=self._evaluate(policy, "test")) for policy in kept])
        return Choice(
            objective=self.objective, maximise=self.maximise, cost=self.cost, tolerance=tolerance,
            layers={layer.key: layer.name for layer in self.layers},
            sensitivity={layer.name: losses[layer.key] for layer in self.layers},
            float32=tested[0], uniform=tested[1], chosen=tested[2], some=tested[3] if some else None,
            measured=tuple(measured),
        )  # fmt: skip

    def _rank(self) -> tuple[dict[str, float], list[Layer]]:
        """The loss of each layer alone, and the layers that save anything, by their loss for what they save."""
        alone = []
        for number, layer in enumerate(self.layers):
            self.tell(f"layer {number + 1} of {len(self.layers)} alone: {layer.name}")
            alone.append(self._measure([layer]))
        keys = [layer.key for layer in self.layers]
        losses = dict(zip(keys, map(self._loss, alone), strict=True))
        savings = dict(zip(keys, self._savings(alone), strict=True))
        useful = [layer for layer in self.layers if savings[layer.key] > 0]
        useful.sort(key=lambda layer: (max(losses[layer.key], 0.0) / savings[layer.key], -savings[layer.key]))
        return losses, useful

    def _loss(self, policy: Policy) -> float:
        difference = self.float32.validation - policy.validation
        return difference if self.maximise else -difference

    def _savings(self, policies: Sequence[Policy]) -> list[float]:
        """The bytes or the milliseconds that each saves."""
        if self.cost == "bytes":
            return [self.float32.bytes - policy.bytes for policy in policies]
        base, *others = self._with_latency([self.float32, *policies])
        return [(base.latency or 0.0) - (other.latency or 0.0) for other in others]

    def _file(self, policy: Policy) -> Path:
        return self.folder / f"{hashlib.sha256(repr(policy.layers).encode()).hexdigest()[:16]}.onnx"

    def _measure(self, layers: Sequence[Layer]) -> Policy:
        policy = Policy(tuple(layer.name for layer in self.layers if layer in layers), 0, 0, 0.0)
        file = self._file(policy)
        quantise(self.graph, layers, file)
        size, validation = file.stat().st_size, self._evaluate(policy, "validation")[self.objective]
        return replace(policy, bytes=size, weights=count_weights(file), validation=validation)

    def _evaluate(self, policy: Policy, split: SplitName) -> dict[str, float]:
        network = _Shaped(read_onnx(self._file(policy)), self.row_shape)
        values = evaluate(network, self.task, self.rows[split], split, _CPU)
        if self.objective not in values:
            raise UserError(f"the int8 network has no finite {self.objective} on {split} data")
        return values

    def _with_latency(self, policies: Sequence[Policy]) -> list[Policy]:
        """Timed in interleaved rounds, because the speed of a shared machine changes by the minute."""
        networks = {policy.layers: read_onnx(self._file(policy)) for policy in policies}
        times: dict[tuple[str, ...], list[float]] = {layers: [] for layers in networks}
        for number in range(_ROUNDS):
            for layers in list(networks)[:: -1 if number % 2 else 1]:
                times[layers].append(_milliseconds(networks[layers], self.example))
        return [replace(policy, latency=statistics.median(times[policy.layers])) for policy in policies]


def _milliseconds(network: nn.Module, x: Tensor) -> float:
    network(x)  # it begins with the memory of another network
    calls, began = 0, time.perf_counter()
    while calls < 3 or time.perf_counter() - began < _LEAST_SECONDS:
        network(x)
        calls += 1
    return 1e3 * (time.perf_counter() - began) / calls


class _Shaped(nn.Module):
    """A graph that takes its rows in any shape: an MLP flattens images itself, its graph does not."""

    def __init__(self, graph: nn.Module, row_shape: tuple[int, ...]) -> None:
        super().__init__()
        assert isinstance(graph, GraphModel)
        self.graph, self.row_shape = graph, row_shape

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.graph(x.reshape(x.shape[0], *self.row_shape))
        return y
