"""Every block's output is replaced by a learned, weighted sum of all outputs so far.

    X_{i+1} = Y_i + Σ of the block's updates,    Y_{i+1} = Σ_j α_{i,j} X_j,    Y_0 = X_0 = x_0

Paper: DenseFormer (Pagliardini et al. 2024), with the authors' code.

    paper                        here
    DWA weights α                ``weight``, one vector per block; start (0, …, 0, 1), which is plain
    dilation k                   ``dilation``: only every k-th output, counted back from the last
    period p                     ``period``: only after every p-th block

Differs from the paper: nothing. The weights are bare parameters, which no model's initialisation touches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from isthmus.layers.residual import Entries, Layout, Pathway, PathwayConfig
from isthmus.pathways.pathway import make_parameter
from isthmus.pathways.sums import mix

NAMES = {"weighted": "Weighted"}
PRESETS = {
    "weighted/denseformer": {"name": "weighted"},
    "weighted/4x5": {"name": "weighted", "dilation": 4, "period": 5},
    "denseformer": "weighted/denseformer",
    "dense_former": "weighted/denseformer",
    "depth_weighted_average": "weighted/denseformer",
}
TITLE_FIELDS = {"weighted": ("dilation", "period")}

Count = Annotated[int, Field(ge=1, le=10_000)]


class WeightedConfig(PathwayConfig):
    fits = frozenset({"stacked"})
    dilation: Count = 1
    """Only every so many blocks' output is summed, counted back from the last."""
    period: Count = 1
    """After how many blocks outputs are summed."""

    @property
    def entries(self) -> Entries:
        return "numbers"

    def check(self, layout: Layout) -> None:
        super().check(layout)
        for name, value in (("dilation", self.dilation), ("period", self.period)):
            if value > max(1, len(layout.blocks)):
                raise ValueError(f"{name}={value} exceeds the {len(layout.blocks)} blocks")


class Outputs(NamedTuple):
    y: Tensor
    """What the next branch reads."""
    outputs: tuple[Tensor, ...]
    """x_0 and the outputs of all blocks so far."""


class Weighted(Pathway):
    Config = WeightedConfig
    formula = "x ← Σ_j α_{l,j} X_j after each block"
    paper = "DenseFormer (2024)"
    extra = "about l·d multiply–adds and l parameters at block l"

    def __init__(self, config: WeightedConfig, layout: Layout) -> None:
        super().__init__()
        self.config, self.last = config, set(layout.last_places)
        sums = [number for number in range(1, len(layout.blocks) + 1) if number % config.period == 0]
        sizes = [number // config.dilation + 1 for number in sums]
        self.weight = nn.ParameterList(make_parameter(torch.eye(size)[-1].clone()) for size in sizes)

    def start(self, x: Tensor) -> Outputs:
        return Outputs(x, (x,))

    def read(self, state: Outputs, place: int) -> tuple[Tensor, Any]:
        return state.y, None

    def write(self, state: Outputs, place: int, known: Any, update: Tensor, scale: float) -> Outputs:
        y = torch.add(state.y, update, alpha=scale)
        if place not in self.last:
            return Outputs(y, state.outputs)
        outputs, number = (*state.outputs, y), len(state.outputs)
        if number % self.config.period:
            return Outputs(y, outputs)
        chosen = outputs[number % self.config.dilation :: self.config.dilation]
        return Outputs(mix(self.weight[number // self.config.period - 1], chosen), outputs)

    def finish(self, state: Outputs) -> Tensor:
        return state.y

    def transform(self, state: Outputs, function: Callable[[Tensor], Tensor]) -> Outputs:
        y = function(state.y)
        return Outputs(y, tuple(y if each is state.y else function(each) for each in state.outputs))
