"""Every branch attends to the updates of earlier blocks.

    r_l = Σ_i α_{l,i} v_i,    α_l = softmax_i( w_l · RMSNorm(v_i) )

Sources v_0 = x_0 and v_1, v_2, …: the sum of the updates of a block of places; the last one grows with every update.

Paper: Attention Residuals (Kimi Team, Moonshot AI 2026).

    paper                        here
    w_l, pseudo-queries          ``query``, one per place and one for the output; start 0
    N blocks                     ``blocks``; None: every update is a source (the full variant)
    two-phase computation        phase 1: all queries of a block attend to the finished sources in one product;
                                 phase 2: the growing source is merged by its softmax weight
    short window over depth      ``window``: x_0 and the last so many sources (Residual Stream Duality, 2026)

Differs from the paper: RMSNorm of the keys has no weights, which would multiply the queries. The weights of a row sum
to 1 in the paper (``total="mean"``), so an untrained network reads x / n of n sources, which norms undo.
``total="sum"``, the default, multiplies by n and starts as the plain network, also without norms. The first place has
one source, and so no query. In a recurrent model a block has its share of the updates of all configured iterations;
iterations share queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from isthmus.layers.residual import Layout, Pathway, PathwayConfig
from isthmus.pathways.joins import Attend, Merge, is_written_out
from isthmus.pathways.pathway import Epsilon, apply_scale, at_least_single, hold, make_parameter
from isthmus.pathways.sums import mix, project

NAMES = {"attended": "Attended"}
PRESETS = {
    "attended/blocks-8": {"name": "attended", "blocks": 8},
    "attended/full": {"name": "attended", "blocks": None},
    "attended/published": {"name": "attended", "total": "mean"},
    "attended/published-full": {"name": "attended", "blocks": None, "total": "mean"},
    "attnres": "attended/published",
    "attention_residuals": "attended/published",
}
TITLE_FIELDS = {"attended": ("blocks", "window", "total")}
_CHUNK = 16
"""The most queries that are computed together: what they read should fit into a processor's cache."""


class AttendedConfig(PathwayConfig):
    blocks: Annotated[int, Field(ge=1, le=10_000)] | None = 8
    """How many sums of updates are the sources; null: every update is one."""
    window: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How many of the last sources are read, beside x_0; null: all."""
    total: Literal["sum", "mean"] = "sum"
    """What the weights of a row sum to: the number of sources, or 1."""
    eps: Epsilon = 1e-6
    """Of RMSNorm."""

    def size(self, layout: Layout) -> int:
        """Updates in a source."""
        updates = max(1, layout.places * layout.iterations)
        return 1 if self.blocks is None else -(-updates // self.blocks)

    def check(self, layout: Layout) -> None:
        super().check(layout)
        sources = -(-layout.places * layout.iterations // self.size(layout))
        if self.window is not None and self.window > sources:
            raise ValueError(f"window={self.window} exceeds the {sources} sources of this depth; leave window out")


class Ahead(NamedTuple):
    """Phase 1: what the queries of the next places see of the first ``known`` sources."""

    first: int
    known: int
    mixed: tuple[Tensor, ...]
    logits: tuple[Tensor, ...]
    """The logarithms of the sums of e^{logit}."""


class Sources(NamedTuple):
    finished: tuple[Tensor, ...]
    scales: tuple[Tensor, ...]
    """The reciprocal RMS of every finished source."""
    growing: Tensor | None
    time: int
    """The number of updates so far."""
    ahead: Ahead | None = None


class Known(NamedTuple):
    """The sources before a read, and the same ones with what was seen ahead."""

    before: Sources
    after: Sources


class Attended(Pathway):
    Config = AttendedConfig
    formula = "r_l = Σ_i α_{l,i} v_i, α_l = softmax(w_l · RMSNorm(v_i))"
    paper = "Attention Residuals (2026)"
    extra = "2d multiply–adds per source and d parameters"

    def __init__(self, config: AttendedConfig, layout: Layout) -> None:
        super().__init__()
        self.config, self.size = config, config.size(layout)
        self.places = layout.places
        self.looks_ahead = layout.kind == "stacked" and config.window is None
        self.unasked = 0 if layout.iterations > 1 else 1  # a query with one source would have no gradient
        number = layout.places + 1 - self.unasked if layout.places else 0
        self.query = nn.ParameterList(make_parameter(torch.zeros(layout.width)) for _ in range(number))

    def start(self, x: Tensor) -> Sources:
        return Sources((x,), (self.scale(x),), None, 0)

    def scale(self, source: Tensor) -> Tensor:
        return at_least_single(hold(source)).square().mean(-1).add(self.config.eps).rsqrt()

    def read(self, state: Sources, place: int) -> tuple[Tensor, Known]:
        count = len(state.finished) + (state.growing is not None)
        if count == 1:
            return state.finished[0], Known(state, state)
        if place < self.unasked:  # a forward pass with more iterations than the config has
            return self.attend(state, torch.zeros_like(self.query[-1])), Known(state, state)
        if not self.looks_ahead:
            return self.attend(state, self.query[place - self.unasked]), Known(state, state)
        ahead = state.ahead
        if ahead is None or place >= ahead.first + len(ahead.mixed):
            ahead = self.look_ahead(state, place)
        read, growing = self.merge(state, place, ahead)
        return read, Known(state, Sources(state.finished, state.scales, growing, state.time, ahead))

    def look_ahead(self, state: Sources, place: int) -> Ahead:
        """Phase 1, for the next places, at most up to the end of the block."""
        length = self.size if self.size > 1 else _CHUNK
        end = min((place // length + 1) * length, place + _CHUNK, self.places)
        queries = torch.stack([self.query[each - self.unasked] for each in range(place, end)])
        if len(state.finished) > 1 and is_written_out():
            mixed, totals = Attend.apply(queries, self.config.eps, *state.finished)
            return Ahead(place, len(state.finished), mixed.unbind(), totals.unbind())
        products = at_least_single(project(queries, [hold(source) for source in state.finished]))
        logits = products * torch.stack(state.scales)
        if len(state.finished) == 1:
            mixed = state.finished * len(queries)
        else:
            mixed = mix(logits.softmax(1).to(queries.dtype), state.finished).unbind(0)
        return Ahead(place, len(state.finished), mixed, logits.logsumexp(1).unbind(0))

    def merge(self, state: Sources, place: int, ahead: Ahead) -> tuple[Tensor, Tensor | None]:
        """Phase 2: what is read, and the growing source."""
        position = place - ahead.first
        mixed, query = ahead.mixed[position], self.query[place - self.unasked]
        alone = state.growing is not None and ahead.known == len(state.finished)
        if alone and is_written_out():
            factor = ahead.known + 1 if self.config.total == "sum" else 1
            both: tuple[Tensor, Tensor] = Merge.apply(
                mixed, ahead.logits[position], state.growing, query, factor, self.config.eps
            )
            return both
        sources, logits = self.keys(state, query, ahead.known)
        count = ahead.known + len(sources)
        if len(sources) == 1:
            read = torch.lerp(
                mixed, sources[0], (logits[0] - ahead.logits[position]).sigmoid().unsqueeze(-1).to(mixed.dtype)
            )
        elif sources:
            weights = torch.stack([ahead.logits[position], *logits]).softmax(0)
            read = mix(weights.to(mixed.dtype), (mixed, *sources))
        else:
            read = mixed
        return self.sum_up(read, count), state.growing

    def attend(self, state: Sources, query: Tensor) -> Tensor:
        """In one phase, over all sources or those in the window."""
        sources, logits = self.keys(state, query, 0)
        window = self.config.window
        if window is not None and len(sources) > window + 1:
            sources, logits = (sources[0], *sources[-window:]), (logits[0], *logits[-window:])
        if len(sources) == 1:
            return sources[0]
        weights = torch.stack(logits).softmax(0)
        return self.sum_up(mix(weights.to(sources[0].dtype), sources), len(sources))

    def keys(self, state: Sources, query: Tensor, first: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The sources from number ``first`` on, and their logits."""
        sources, scales = state.finished[first:], state.scales[first:]
        if state.growing is not None:
            sources, scales = (*sources, state.growing), (*scales, self.scale(state.growing))
        products = (at_least_single(torch.einsum("...d,d->...", hold(source), query)) for source in sources)
        return sources, tuple(product * scale for product, scale in zip(products, scales, strict=True))

    def sum_up(self, read: Tensor, count: int) -> Tensor:
        return count * read if self.config.total == "sum" else read

    def write(self, state: Sources, place: int, known: Known, update: Tensor, scale: float) -> Sources:
        # A mixer's first skip may have changed the sources since they were read.
        finished, scales, growing, time, ahead = known.after if state is known.before else state
        update = apply_scale(update, scale)
        growing = update if growing is None else growing + update
        if (time + 1) % self.size:
            return Sources(finished, scales, growing, time + 1, ahead)
        return Sources((*finished, growing), (*scales, self.scale(growing)), None, time + 1, ahead)

    def finish(self, state: Sources) -> Tensor:
        count = len(state.finished) + (state.growing is not None)
        return state.finished[0] if count == 1 else self.attend(state, self.query[-1])

    def transform(self, state: Sources, function: Callable[[Tensor], Tensor]) -> Sources:
        finished = tuple(map(function, state.finished))
        growing = None if state.growing is None else function(state.growing)
        before, after = (*state.finished, state.growing), (*finished, growing)
        if all(new is old for new, old in zip(after, before, strict=True)):
            return state
        return Sources(finished, tuple(map(self.scale, finished)), growing, state.time)
