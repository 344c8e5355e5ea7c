"""The cost of a model, counted on the meta device, where it takes no memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

from isthmus.core.protocols import Component, ModelConfig
from isthmus.core.registry import component, find
from isthmus.layers.residual import Stack


@dataclass(frozen=True)
class Cost:
    """Of one input. MACs are multiply–adds of the forward pass; training FLOPs (2 per MAC) add the backward pass."""

    params: int
    """All weights, frozen projections included: what the papers count."""
    trainable_params: int
    """Weights that training changes."""
    stored_params: int
    """Weights in a checkpoint; frozen projections are rebuilt from their seed instead."""
    macs: int
    """Multiply–adds of the forward pass."""
    training_flops: int
    """Floating-point operations of the forward and the backward pass, 2 per multiply–add."""
    checkpoint_bytes: int
    """Bytes of the stored weights."""

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class _Flops(TorchDispatchMode):
    """torch's formulas without ``FlopCounterMode``, whose tracking of modules crashes for deep models.

    An operator that makes new tensors runs once for each kind of arguments, because meta kernels are slow Python and
    the blocks of a network repeat them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        try:
            call = _describe_call(func, args, kwargs)
        except _OwnCallError:
            return self._run(func, args, kwargs)
        if call not in _outcomes:
            before = self.total
            output = self._run(func, args, kwargs)
            _outcomes[call] = self.total - before, tree_map_only(Tensor, _describe_tensor, output)
            return output
        flops, outputs = _outcomes[call]
        self.total += flops
        return tree_map_only(_TensorKind, _TensorKind.make, outputs)

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                output = func.decompose(*args, **kwargs)
            if output is not NotImplemented:
                return output
        output = func(*args, **kwargs)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=output)
        return output


@dataclass(frozen=True)
class _TensorKind:
    """All of a tensor without values that an operator can see."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def make(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")


_outcomes: dict[Hashable, tuple[int, Any]] = {}
"""The FLOPs and the kinds of outputs of each kind of call."""


class _OwnCallError(Exception):
    """A call whose outcome cannot be taken from another one."""


@cache
def _makes_new_tensors(func: Any) -> bool:
    schema = func._schema
    return all(part.alias_info is None for part in (*schema.arguments, *schema.returns))


def _describe_call(func: Any, args: Any, kwargs: Any) -> Hashable:
    if not _makes_new_tensors(func):
        raise _OwnCallError
    return func, tuple(map(_describe_value, args)), tuple((name, _describe_value(kwargs[name])) for name in kwargs)


def _describe_value(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        return _describe_tensor(value)
    if isinstance(value, list | tuple):
        return tuple(map(_describe_value, value))
    return type(value), value  # 1, 1.0 and True are equal, and give tensors of different types


def _describe_tensor(tensor: Tensor) -> _TensorKind:
    if not tensor.is_meta or tensor.layout is not torch.strided:
        raise _OwnCallError
    return _TensorKind(tuple(tensor.shape), tensor.stride(), tensor.dtype)


_FILLS = {
    "add_", "clamp_", "constant_", "copy_", "erfinv_", "fill_", "kaiming_uniform_", "mul_", "normal_", "uniform_",
    "zero_",
}  # fmt: skip
_SCALES = {"div", "mul"}
"""By a number: such a product is the tensor itself where it has no values."""


class _WithoutValues(TorchFunctionMode):
    """Skips initialisations, which take nine tenths of the time to build a model on the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _FILLS and (tensor := args[0] if args else kwargs["tensor"]).is_meta:
            return tensor
        if name in _SCALES and isinstance(args[0], Tensor) and args[0].is_meta and isinstance(args[1], int | float):
            return args[0]
        return func(*args, **kwargs)


def _build(config: Component) -> nn.Module:
    """The model without values."""
    with torch.device("meta"), _WithoutValues():
        model: nn.Module = find("models", config.name)(config)
    return model


def count_params(config: Component) -> int:
    """``cost(config).params`` of a complete config, in about a millisecond."""
    return _count_all(_build(config))


def _count_all(model: nn.Module) -> int:
    frozen = sum(getattr(module, "fixed_params", 0) for module in model.modules())
    return sum(parameter.numel() for parameter in model.parameters()) + frozen


def example_input(model: Any, rows: int = 1) -> torch.Tensor:
    """Zeros of the dtype and shape that a model takes, on its device."""
    device = next((each.device for each in model.parameters()), None)
    dtype = torch.int64 if getattr(model, "vocabulary", 0) else torch.get_default_dtype()
    return torch.zeros(rows, *model.input_shape, dtype=dtype, device=device)


def cost(model_or_config: nn.Module | ModelConfig | dict[str, Any]) -> Cost:
    """The cost of a model, of its config, or of ``{"name": …, field: value}``."""
    return _cost(component("models", getattr(model_or_config, "config", model_or_config)))


def count_costs(config: Any, names: Iterable[str] = ()) -> dict[str, Any]:
    """All that :func:`cost` counts of a complete config, and further registered costs that are counted."""
    counted = cost(config).as_dict()
    kinds = {name: find("costs", name) for name in names if name not in counted}
    return counted | {name: kind.compute(config, 1) for name, kind in kinds.items() if not kind.is_measured}


@lru_cache(maxsize=4096)  # a study asks for the same network with every seed and learning rate
@torch.inference_mode(False)  # gradients are counted, whatever mode the caller is in
def _cost(config: Component) -> Cost:
    model = _build(config)
    with torch.device("meta"):
        x = example_input(model)
    with _Flops() as forward, torch.no_grad():
        model(x)
    with _Flops() as training:
        model(x).sum().backward()
    parameters = list(model.parameters())
    stored = model.state_dict().values()
    return Cost(
        params=_count_all(model),
        trainable_params=sum(p.numel() for p in parameters if p.requires_grad),
        stored_params=sum(tensor.numel() for tensor in stored),
        macs=forward.total // 2,
        training_flops=training.total,
        checkpoint_bytes=sum(tensor.numel() * tensor.element_size() for tensor in stored),
    )


class Kept(NamedTuple):
    """How many numbers a network keeps for one row."""

    stream_values: int
    saved_values: int


def count_kept(model_or_config: nn.Module | ModelConfig | dict[str, Any]) -> Kept:
    """What the pathway keeps between two branches at most, and what autograd keeps for the gradient."""
    return _count_kept(component("models", getattr(model_or_config, "config", model_or_config)))


@lru_cache(maxsize=4096)
@torch.inference_mode(False)
def _count_kept(config: Component) -> Kept:
    with torch.device("meta"):
        model = find("models", config.name)(config)
        x = example_input(model)
    weights = {tensor.untyped_storage()._cdata for tensor in [*model.parameters(), *model.buffers(), x]}
    saved: dict[int, Tensor] = {}  # one tensor of each storage, which keeps its address from being used again

    def keep(tensor: Tensor) -> Tensor:
        saved.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
        model(x)
    sizes = [t.untyped_storage().nbytes() // t.element_size() for key, t in saved.items() if key not in weights]
    return Kept(_count_streams(model, x), sum(sizes))


def _count_streams(model: Any, x: Tensor) -> int:
    largest = 0
    for stack in (module for module in model.modules() if isinstance(module, Stack)):
        join = stack.pathway.write

        def write(*arguments: Any, join: Any = join) -> Any:
            nonlocal largest
            state = join(*arguments)
            largest = max(largest, sum(tensor.numel() for tensor in {id(t): t for t in _tensors(state)}.values()))
            return state

        stack.pathway.write = write  # type: ignore[method-assign,assignment]
    with torch.no_grad():
        model(x)
    return largest


def _tensors(state: Any) -> Iterable[Tensor]:
    if isinstance(state, Tensor):
        yield state
    for part in state if isinstance(state, tuple) else ():
        yield from _tensors(part)
