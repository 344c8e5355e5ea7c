"""A network that fields describe: its costs, its predicted step time, and the largest one within a budget."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from isthmus.core.config import override
from isthmus.core.errors import UserError
from isthmus.core.registry import component, find
from isthmus.core.titles import model_title
from isthmus.studio.problems import FIRST_BUDGET, first_settings, list_spaces

if TYPE_CHECKING:
    from isthmus.core.protocols import ModelConfig, Signature

OF_THE_TASK = frozenset({"name", "d_in", "d_out", "input_shape", "output_shape", "vocabulary", "allow_any_shape"})
_PACE_BUDGETS = (10_000, 50_000)
_MOST_BLOCKS = 2_000
"""Blocks times iterations that are counted; deeper networks would take seconds."""
_STEPS, _WARM_UP, _PACE_BATCH = 9, 2, 128
_MOST_SECONDS = 0.5
"""Time for the measured steps of one network."""


@dataclass(frozen=True)
class Design:
    """A network for a problem."""

    model: ModelConfig
    given: Mapping[str, Any]
    """The settings as they are typed."""

    @property
    def title(self) -> str:
        return model_title(self.model.model_dump(mode="json"))


def read_design(signature: Signature, name: str, texts: Mapping[str, str]) -> Design:
    """The network that fields describe; fields that are left out are those of the most promising network."""
    known = find("models", name).Config.model_fields
    settings = {"name": name} | first_settings(signature, name, FIRST_BUDGET)
    # A field of the form that is empty has its default.
    fields = {key: value for key, value in texts.items() if key in known and key not in OF_THE_TASK}
    settings = {key: value for key, value in settings.items() if fields.get(key, "x") != ""}
    settings = override(settings, [f"{key}={value}" for key, value in fields.items() if value != ""])
    model = cast("ModelConfig", component("models", settings)).complete(signature, 0)
    blocks, iterations = _depth_of(model)
    if blocks * iterations > _MOST_BLOCKS:
        raise UserError(
            f"{blocks} blocks × {iterations} iterations are too many to count; the limit is {_MOST_BLOCKS:,}"
        )
    return Design(model, settings)


def _depth_of(model: Any) -> tuple[int, int]:
    layout = getattr(model, "layout", None)
    if layout is None:
        return getattr(model, "depth", 1), 1
    return len(layout.blocks), max(1, layout.iterations)


def fit_to_budget(signature: Signature, design: Design, budget: int) -> dict[str, Any]:
    """The same network with the largest width within a budget; widths that a search keeps in proportion stay so."""
    from isthmus.studies.budget import find_largest
    from isthmus.training.counting import count_params

    space = list_spaces(signature)[design.model.name]
    ratios = [name.partition("/") for name in space.vary if "/" in name]
    width = getattr(design.model, space.width)
    first = -(-space.low // space.step)

    def widen(number: int) -> dict[str, Any]:
        wide = (first + number - 1) * space.step
        scaled = {field: max(1, round(wide * getattr(design.model, field) / width)) for field, _, _ in ratios}
        return dict(design.given) | {space.width: wide} | scaled

    def count(number: int) -> float:
        try:
            return count_params(cast("ModelConfig", component("models", widen(number))).complete(signature, 0))
        except UserError:
            return math.inf

    number = find_largest(count, budget)
    if not number:
        raise UserError(f"no width of {design.model.name} fits {budget:,} parameters; reduce another field")
    return widen(number)


@dataclass(frozen=True)
class Price:
    """What a design costs."""

    params: int
    macs: int
    memory: float
    """Bytes of a training: weights, gradients, two moments, the best weights, and what a batch keeps."""
    step: float
    """Seconds of a training step on one core of this machine, predicted."""


def price(signature: Signature, design: Design, batch: int) -> Price:
    from isthmus.training.counting import cost, count_kept

    counted, kept = cost(design.model), count_kept(design.model)
    memory = 16.0 * counted.trainable_params + 4.0 * counted.params + 4.0 * batch * kept.saved_values
    pace = measure_pace(signature, design.model.name)
    return Price(counted.params, counted.macs, memory, pace[0] + pace[1] * batch * counted.training_flops)


_PACES: dict[tuple[Any, str], tuple[float, float]] = {}
_MEASURING = threading.Lock()


def measure_pace(signature: Signature, name: str) -> tuple[float, float]:
    """Seconds of a step on one core: a constant, and a part per floating-point operation, by two measured networks."""
    with _MEASURING:
        if (signature, name) not in _PACES:
            points = [_time_step(signature, first_settings(signature, name, budget)) for budget in _PACE_BUDGETS]
            (low, fast), (high, slow) = points
            slope = (slow - fast) / (high - low) if high > low and slow > fast else slow / high
            _PACES[signature, name] = max(0.0, slow - slope * high), slope
        return _PACES[signature, name]


def _time_step(signature: Signature, settings: Mapping[str, Any], batch: int = _PACE_BATCH) -> tuple[float, float]:
    """The floating-point operations of a step of AdamW, and the seconds that it takes.

    The least processor time of several steps, so that other work on the machine hardly counts.
    """
    import torch

    from isthmus.training.counting import cost, example_input
    from isthmus.training.devices import arithmetic

    config = cast("ModelConfig", component("models", settings)).complete(signature, 0)
    with arithmetic(1):
        model = find("models", config.name)(config)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        x, times = example_input(model, batch), list[float]()
        while len(times) <= _WARM_UP or (len(times) < _STEPS and sum(times) < _MOST_SECONDS):
            began = time.thread_time()
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.thread_time() - began)
    return float(batch * cost(config).training_flops), min(times[_WARM_UP:])


def sketch(model: Any) -> dict[str, Any]:
    """The sizes that a drawing needs: the stream, the widest layer that reads it, blocks and iterations."""
    settings: dict[str, Any] = model.model_dump(mode="json")
    if {"d_z", "d_h", "depth"} <= settings.keys():
        return settings
    layout = getattr(model, "layout", None)
    if layout is None:
        return {}
    return {
        "d_z": layout.width, "d_h": _hidden_width(model, layout.width), "depth": len(layout.blocks),
        "iterations": layout.iterations, "pathway": settings.get("pathway"),
    }  # fmt: skip


@cache
def _hidden_width(model: Any, stream: int) -> int:
    import torch
    from torch import nn

    with torch.device("meta"):
        built = find("models", model.name)(model)
    inner = [
        module.out_features
        for name, module in built.named_modules()
        if isinstance(module, nn.Linear) and module.in_features == stream and "head" not in name
    ]
    return max(inner, default=stream)
