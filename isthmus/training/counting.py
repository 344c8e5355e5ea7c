"""The cost of a model, counted on the meta device, where it takes no memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from isthmus.core.protocols import Component, ModelConfig
from isthmus.core.registry import component, find


@dataclass(frozen=True)
class Cost:
    """Of one input. MACs are multiply–adds of the forward pass; training FLOPs (2 per MAC) add the backward pass."""

    params: int
    """All weights, frozen projections included: what the papers count."""
    trainable_params: int
    stored_params: int
    """Weights in a checkpoint; frozen projections are rebuilt from their seed instead."""
    macs: int
    training_flops: int
    checkpoint_bytes: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


class _Flops(TorchDispatchMode):
    """torch's formulas without ``FlopCounterMode``, whose tracking of modules crashes for deep models."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
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


def example_input(model: Any, rows: int = 1) -> torch.Tensor:
    """Zeros of the dtype and shape that a model takes."""
    if getattr(model, "vocabulary", 0):
        return torch.zeros(rows, *model.input_shape, dtype=torch.int64)
    return torch.zeros(rows, *model.input_shape)


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
    with torch.device("meta"):
        model = find("models", config.name)(config)
        x = example_input(model)
    with _Flops() as forward, torch.no_grad():
        model(x)
    with _Flops() as training:
        model(x).sum().backward()
    parameters = list(model.parameters())
    stored = model.state_dict().values()
    return Cost(
        params=sum(p.numel() for p in parameters) + sum(getattr(m, "fixed_params", 0) for m in model.modules()),
        trainable_params=sum(p.numel() for p in parameters if p.requires_grad),
        stored_params=sum(tensor.numel() for tensor in stored),
        macs=forward.total // 2,
        training_flops=training.total,
        checkpoint_bytes=sum(tensor.numel() * tensor.element_size() for tensor in stored),
    )
