"""Branches that do not wait for the last updates.

    x_{l+1} = x_l + f_l(x_{l−lag})               Ladder Residual (Zhang et al. 2025), lag 1
    x_{l+g} = x_l + f_l(x_l) + … + f_{l+g−1}(x_l)    Make Deep Networks Shallow Again (Bermeitinger et al. 2023): groups

    paper                                here
    sub-layers (attention, MLP)          the branches of the stack, by place
    layers with Ladder Residual          those from block ``from_block`` on
    parallel residual blocks             ``group`` branches that read the same stream; "all": the whole stack

All updates are in the output. lag 0 and groups of 1 are plain. The first branches of a ladder all read the input,
because nothing is left out before it has been computed. With ``from_block`` above 1 the first delayed branch does not
read the last update of the plain blocks either, as in the authors' conversion of a trained model.

Differs from the paper: the ladder's paper has lag 1 only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from torch import Tensor

from isthmus.layers.residual import Entries, Layout, Pathway, PathwayConfig
from isthmus.pathways.pathway import apply_scale

NAMES = {"delayed": "Delayed"}
PRESETS = {
    "delayed/ladder": {"name": "delayed", "lag": 1},
    "delayed/parallel": {"name": "delayed", "group": "all"},
    "delayed/groups-4": {"name": "delayed", "group": 4},
    "ladder": "delayed/ladder",
    "ladder_residual": "delayed/ladder",
    "parallel": "delayed/parallel",
    "shallow_again": "delayed/parallel",
}
TITLE_FIELDS = {"delayed": ("lag", "group")}


class DelayedConfig(PathwayConfig):
    lag: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """How many of the last updates a branch does not read; 1 if neither ``lag`` nor ``group`` is given."""
    group: Annotated[int, Field(ge=1, le=10_000)] | Literal["all"] | None = None
    """Or: how many branches read the same stream."""
    from_block: Annotated[int, Field(ge=1, le=10_000)] = 1
    """The first delayed block; earlier ones are plain."""

    @property
    def entries(self) -> Entries:
        # The first branch with a longer lag reads less than the plain one before it.
        return "numbers" if self.from_block > 1 and (self.lag or 1) > 1 else "sums"

    def check(self, layout: Layout) -> None:
        super().check(layout)
        places = layout.places * layout.iterations
        if self.lag is not None and self.group is not None:
            raise ValueError(f"delayed has either a lag or groups, not lag={self.lag} and group={self.group}")
        if (self.lag or 0) > places:
            raise ValueError(f"lag={self.lag} exceeds the {places} updates; use group=all for none of them")
        if isinstance(self.group, int) and self.group > places:
            raise ValueError(f"group={self.group} exceeds the {places} updates; use group=all for one group")
        if self.from_block > max(1, len(layout.blocks)):
            raise ValueError(f"from_block={self.from_block} exceeds the {len(layout.blocks)} blocks")


class Waiting(NamedTuple):
    visible: Tensor
    pending: tuple[Tensor, ...]
    """The last updates, oldest first; of a group, their sum."""
    time: int
    """The number of updates so far; of groups, without those of plain blocks."""


class Delayed(Pathway):
    Config = DelayedConfig
    formula = "x_{l+1} = x_l + f_l(x_{l−lag})"
    paper = "Ladder Residual (2025); Make Deep Networks Shallow Again (2023)"
    extra = "nothing"

    def __init__(self, config: DelayedConfig, layout: Layout) -> None:
        super().__init__()
        self.group = config.group
        self.lag = 1 if config.lag is None else config.lag
        self.first = ([*layout.first_places, 0] if layout.blocks else [0])[config.from_block - 1]

    def start(self, x: Tensor) -> Waiting:
        return Waiting(x, (), 0)

    def read(self, state: Waiting, place: int) -> tuple[Tensor, Any]:
        return (self.finish(state) if place < self.first else state.visible), None

    def write(self, state: Waiting, place: int, known: Any, update: Tensor, scale: float) -> Waiting:
        visible, pending, time = state
        update = apply_scale(update, scale)
        if self.group is not None:
            if place < self.first and not time:
                return Waiting(visible + update, pending, 0)
            total = pending[0] + update if pending else update
            closes = self.group != "all" and (time + 1) % self.group == 0
            return Waiting(visible + total, (), time + 1) if closes else Waiting(visible, (total,), time + 1)
        pending = (*pending, update)
        if len(pending) > self.lag:
            visible, pending = visible + pending[0], pending[1:]
        return Waiting(visible, pending, time + 1)

    def finish(self, state: Waiting) -> Tensor:
        return sum(state.pending, state.visible)

    def transform(self, state: Waiting, function: Callable[[Tensor], Tensor]) -> Waiting:
        return Waiting(function(state.visible), tuple(map(function, state.pending)), state.time)
