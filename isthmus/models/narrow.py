"""A residual MLP computed in its narrow space, without forming the residual stream.

No paper: ``isthmus.export.narrow`` converts a trained Hourglass or conventional MLP to this form. With
u_i = (x, h_1, …, h_i) and B_i = [W_in, W_12, …, W_i2] the stream is z_i = B_i u_i, so

    W_i1 z_{i-1}     is (W_i1 B_{i-1}) u_{i-1}, a product with narrow vectors
    y = W_out z_L    is (W_out B_L) u_L
    ‖z_0‖            is ‖R x‖, with R from the QR factorisation of W_in; ‖x‖ if W_in keeps lengths
    ‖z_i‖²           is ‖z_{i-1}‖² + h_iᵀ (2 W_i2ᵀ z_{i-1} + W_i2ᵀ W_i2 h_i)

and the norms need only these lengths. LayerNorm is RMSNorm of the centred stream, so B is centred, except before W_out.
``W_x`` computes all contributions of x in one product; ``W_h`` adds those of the hidden vectors.

With another pathway a block reads r_l = Σ_i A_{l,i} u_i, where u_0 = W_in x and u_i = W_i2 h_i (``docs/pathways.md``).
Fixed entries of A become part of the matrices; entries that are zero cost nothing. How lengths are found depends on A:

    sums       as above: every stream is an earlier one, its base, plus an update (scaled, gained, delayed, reversible)
    numbers    ‖r_l‖² = Σ_ij A_{l,i} A_{l,j} u_iᵀu_j; an update's inner products with all earlier ones are computed once
               and shared out to the squares of all later places (weighted, static streams)
    maps       ‖r_l‖ = ‖R_l (x, h_1, …)‖ with an R_l for each place, which pays for few inputs only (injected)

With ``delta``, z_i = z_{i-1} + c_i W_i2 h_i, where c_i depends on the row. It follows from ‖z_{i-1}‖, the gates, the
inner product of stream and update, and ‖W_i2 h_i‖ = ‖R_i h_i‖. Later places read c_i h_i in place of h_i. For LayerNorm
all of these are computed for centred vectors; the share of the mean is added for delta, which does not centre.

Other entries that depend on the row have no such form here (``refuse``).

A new ``narrow_mlp`` has no wide counterpart. It is registered so that converted models can be saved, loaded and counted
like all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.registry import find
from isthmus.layers.pointwise import ActivationName, NormName, activation
from isthmus.layers.residual import Layout, PathwayConfig, PathwayField
from isthmus.layers.rows import RowModelConfig, Width
from isthmus.pathways.delta_rule import DeltaConfig, find_change, make_biases, make_gates
from isthmus.pathways.pathway import at_least_single, replay_sources

NAMES = {"narrow_mlp": "NarrowMLP"}
KIND = "Residual MLPs"
TITLE_FIELDS = ("d_z", "d_h", "depth")

LAYER_NORM_EPS = nn.LayerNorm(1).eps


class NarrowConfig(RowModelConfig):
    d_z: Width
    """Width of the residual stream, which is not formed; norms divide by it."""
    d_h: Width
    """Width of the computation within a block."""
    depth: Annotated[int, Field(ge=1, le=1_000)]
    """Number of blocks."""
    norm: NormName = "layer"
    """Normalisation at the start of a block."""
    activation: ActivationName = "gelu"
    """Between the two matrices of a block."""
    start: Literal["triangular", "isometric"] = "triangular"
    """How ‖z_0‖ is computed: from R, or from the input alone if W_in keeps lengths."""
    pathway: PathwayField = PathwayConfig(name="plain")
    """Of the wide network; ``plain`` also stands for those whose factors its matrices hold."""

    @model_validator(mode="after")
    def _check_pathway(self) -> Self:
        self.pathway.check(Layout(self.d_z, (1,) * self.depth))
        if reason := refuse(self.pathway):
            raise ValueError(reason)
        return self


def refuse(pathway: PathwayConfig) -> str:
    """Why a pathway has no narrow form; empty if it has one."""
    if isinstance(pathway, DeltaConfig):
        several = f"a narrow form of delta needs channels=1, not {pathway.channels}"
        return several if pathway.channels > 1 else ""
    fixed = "a narrow form needs updates that are added with fixed weights or by delta"
    return f"{fixed}; those of {pathway.name} depend on the row" if pathway.entries == "by row" else ""


Lengths = Literal["none", "sums", "pairs", "factors", "delta"]
_LENGTHS: dict[str, Lengths] = {"sums": "sums", "numbers": "pairs", "maps": "factors"}


@dataclass(frozen=True)
class Plan:
    """Which of the sources x (number 0) and h_1, h_2, … each product of a narrow network needs."""

    lengths: Lengths
    reads: tuple[tuple[int, ...], ...]
    """The sources that each place reads, and the output."""
    bases: tuple[tuple[int, ...] | None, ...] = ()
    """For lengths by sums: the sources of the stream to which an update is added; None if no later place reads it."""

    def joins_base(self, place: int) -> bool:
        """Whether the place reads the stream to which its update is added, so that one product serves both."""
        return self.lengths == "sums" and self.bases[place] == self.reads[place]

    def asks_x(self, place: int) -> bool:
        """Whether the length of the place's update needs W_i2ᵀ W_in x by itself."""
        if self.lengths == "pairs":
            return place + 2 < len(self.reads)
        return self.lengths == "sums" and not self.joins_base(place) and 0 in (self.bases[place] or ())


def make_plan(config: NarrowConfig) -> Plan:
    entries, depth = config.pathway.entries, config.depth
    reads = tuple(tuple(range(place + 1)) for place in range(depth + 1))
    if isinstance(config.pathway, DeltaConfig):
        return Plan("delta", reads)
    lengths: Lengths = _LENGTHS[entries] if config.norm != "none" else "none"
    if entries != "maps":
        reads = tuple(map(_find_sources, _rows_of_ones(config.pathway, depth)))
    bases = []
    for update in range(1, depth + 1) if lengths == "sums" else ():
        readers = (read for read in reads[update:-1] if update in read)
        read = next(readers, None)
        bases.append(None if read is None else tuple(source for source in read if source < update))
    return Plan(lengths, reads, tuple(bases))


def _find_sources(row: Tensor) -> tuple[int, ...]:
    return tuple(row.flatten(1).any(1).nonzero().flatten().tolist())


@torch.no_grad()
def _rows_of_ones(config: PathwayConfig, depth: int) -> Iterator[Tensor]:
    """A of a pathway whose parameters are all 1: not zero wherever a trained one can be."""
    with torch.device("cpu"):
        pathway = find("pathways", config.name)(config, Layout(1, (1,) * depth)).double()
        for parameter in pathway.parameters():
            parameter.fill_(1.0)
        return iter(list(replay_sources(pathway, depth)))


class NarrowMLP(nn.Module):
    Config = NarrowConfig

    def __init__(self, config: NarrowConfig) -> None:
        super().__init__()
        self.config = config
        d_in, d_out = config.ends
        d_h, depth = config.d_h, config.depth
        self.input_shape = (d_in,)
        self.plan = plan = make_plan(config)
        rotates = plan.lengths not in ("none", "factors") and config.start == "triangular"
        self.beside = [self._count_beside(place) for place in range(depth)]
        parts = {"start": min(d_in, config.d_z) * rotates}
        for place, read in enumerate(plan.reads[:-1]):
            parts[f"read {place}"] = (d_h + self.beside[place]) * (0 in read)
            parts[f"base {place}"] = d_h * plan.asks_x(place)
        parts["output"] = d_out * (0 in plan.reads[-1])
        self.parts = {name: size for name, size in parts.items() if size or name == "start"}
        self.W_x = nn.Linear(d_in, sum(self.parts.values()), bias=False)
        self.W_h = nn.ModuleList(
            _linear(d_h * _count_hidden(read), d_h + beside)
            for read, beside in zip(plan.reads[:-1], self.beside, strict=True)
        )
        self._make_lengths()
        self.W_out = nn.Linear(d_h * _count_hidden(plan.reads[-1]), d_out, bias=False)
        centred = config.norm == "layer" and config.start == "isometric"
        self.axis = nn.Parameter(torch.full((d_in,), d_in**-0.5)) if centred else None
        self.activation = activation(config.activation)

    def _count_beside(self, place: int) -> int:
        """Rows that a place takes from what it reads beside W_i1 z."""
        config, plan = self.config, self.plan
        if plan.lengths == "factors":  # R z
            return min(config.ends[0] + place * config.d_h, config.d_z)
        if isinstance(config.pathway, DeltaConfig):  # W_i2ᵀ z, gates, the mean of z
            return config.d_h + config.pathway.gates + (config.norm == "layer")
        return config.d_h * plan.joins_base(place)  # 2 W_i2ᵀ z if a later block needs it

    def _make_lengths(self) -> None:
        """The matrices by which lengths are found."""
        d_h, depth, plan = self.config.d_h, self.config.depth, self.plan
        if isinstance(self.config.pathway, DeltaConfig):
            # R_i, and the mean of W_i2 h_i.
            rows = min(d_h, self.config.d_z) + (self.config.norm == "layer")
            self.factors = nn.ModuleList(nn.Linear(d_h, rows, bias=False) for _ in range(depth))
            self.bias = make_biases(self.config.pathway, depth)
            for weight in self.factors.parameters():
                nn.init.eye_(weight)
        elif plan.lengths == "sums":
            self.gram = nn.ModuleList(_linear(d_h * (base is not None), d_h) for base in plan.bases[:-1])
            self.bases = nn.ModuleList(
                _linear(d_h * _count_hidden(base or ()) * (not plan.joins_base(place)), d_h)
                for place, base in enumerate(plan.bases[:-1])
            )
            for module in self.gram:
                if isinstance(module, nn.Linear):
                    nn.init.eye_(module.weight)
        elif plan.lengths == "pairs":
            self.pairs = nn.ModuleList(nn.Linear(d_h, update * d_h, bias=False) for update in range(1, depth))
            self.shares = nn.ModuleList(nn.Linear(source + 1, depth - source, bias=False) for source in range(depth))
            for weight in self.shares.parameters():
                nn.init.ones_(weight)

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch d_out"]:
        *_, (_, y) = self.trajectory(x)
        return y

    def trajectory(self, x: Float[Tensor, "batch ..."]) -> Iterator[tuple[str, Tensor]]:
        x = x.flatten(1)
        parts = dict(zip(self.parts, self.W_x(x).split(list(self.parts.values()), dim=-1), strict=True))
        # By source if lengths are found by sums, otherwise by place; those of later places share a tensor.
        squares = self._start_squares(x, parts["start"])
        hidden = [x]
        for place, read in enumerate(self.plan.reads[:-1]):
            taken = _plus(parts.get(f"read {place}"), _choose(hidden, read), self.W_h[place])
            sizes = [self.config.d_h, self.beside[place]]
            wanted, beside = taken.split(sizes, dim=-1) if sizes[1] else (taken, None)
            if self.plan.lengths == "factors" and beside is not None:
                squares[place] = _sum_squares(beside)
            square = squares.get(max(read) if self.plan.lengths == "sums" else place)
            if square is not None and self.config.norm != "none":
                wanted = wanted * self._scale(square, x.dtype)
            h = self.activation(wanted)
            yield f"h_{place + 1}", h
            if self.plan.lengths == "delta":
                assert beside is not None
                assert square is not None
                h, squares[place + 1] = self._write_along(place, beside, h, square)
            hidden.append(h)
            if self.plan.lengths == "sums" and self.plan.bases[place] is not None:
                squares[place + 1] = self._add_update(place, parts, hidden, beside, squares)
            elif self.plan.lengths == "pairs" and place + 1 < self.config.depth:
                squares[place + 1] = self._share_update(place, parts, hidden, squares[place])
        yield "output", _plus(parts.get("output"), _choose(hidden, self.plan.reads[-1]), self.W_out)

    def _start_squares(self, x: Tensor, rotated: Tensor) -> dict[int, Tensor]:
        """‖z_0‖², of the centred z_0 for LayerNorm; if lengths are found by pairs, its shares of all squares."""
        if self.plan.lengths in ("none", "factors"):
            return {}
        if self.config.start == "isometric":
            rotated = x if self.axis is None else x - (x @ self.axis)[:, None] * self.axis
        square = _sum_squares(rotated)
        return {0: _share(square, self.shares[0]) if self.plan.lengths == "pairs" else square}

    def _add_update(
        self,
        place: int,
        parts: dict[str, Tensor],
        hidden: list[Tensor],
        beside: Tensor | None,
        squares: dict[int, Tensor],
    ) -> Tensor:
        """‖base + W_i2 h_i‖² = ‖base‖² + h_iᵀ (2 W_i2ᵀ base + W_i2ᵀ W_i2 h_i)."""
        base, h = self.plan.bases[place] or (), hidden[-1]
        if base and beside is None:
            beside = _plus(parts.get(f"base {place}"), _choose(hidden, base), self.bases[place])
        change = h * _plus(beside, [h], self.gram[place])
        total = change.sum(-1, keepdim=True, dtype=torch.promote_types(h.dtype, torch.float32))
        return (squares[max(base)] + total if base else total).clamp_min(0)

    def _write_along(self, place: int, beside: Tensor, h: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
        """c h_i and ‖z + c u‖² = ‖z‖² + c (2 zᵀu + c ‖u‖²) for u = W_i2 h_i, of centred vectors if the norm centres."""
        d_h, d_z, config, centred = self.config.d_h, self.config.d_z, self.config.pathway, self.config.norm == "layer"
        assert isinstance(config, DeltaConfig)
        taken, logits, mean = at_least_single(beside).split([d_h, config.gates, centred], dim=-1)
        own, mean_of_update = at_least_single(self.factors[place](h)).split([min(d_h, d_z), centred], dim=-1)
        product, length = (h * taken).sum(-1, keepdim=True), own.square().sum(-1, keepdim=True)
        along, of_update, of_stream = product, length, square
        if centred:
            along, of_update = product + mean * mean_of_update, length + mean_of_update.square()
            of_stream = square + mean.square()
        inverse = of_update.add(config.eps**2).rsqrt()
        beta, v = make_gates(config, logits, self.bias[place], of_stream / d_z)
        change = find_change(config, beta, v, along * inverse, inverse)
        return change.to(h.dtype) * h, (square + change * (2 * product + change * length)).clamp_min(0)

    def _share_update(self, place: int, parts: dict[str, Tensor], hidden: Sequence[Tensor], squares: Tensor) -> Tensor:
        """The squares of all later places, with the inner products of update and earlier ones added."""
        h, wide = hidden[-1], torch.promote_types(hidden[-1].dtype, torch.float32)
        with_x = (h * parts[f"base {place}"]).sum(-1, keepdim=True, dtype=wide)
        with_hidden = (self.pairs[place](h) * torch.cat(list(hidden[1:]), dim=-1)).unflatten(-1, (place + 1, -1))
        products = torch.cat([with_x, with_hidden.sum(-1, dtype=wide)], dim=-1)
        return squares[:, 1:] + _share(products, self.shares[place + 1])

    def _scale(self, square: Tensor, dtype: torch.dtype) -> Tensor:
        eps = LAYER_NORM_EPS if self.config.norm == "layer" else torch.finfo(dtype).eps
        square = square[:, :1].clamp_min(0) if self.plan.lengths == "pairs" else square
        return torch.rsqrt(square / self.config.d_z + eps).to(dtype)


def _linear(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs, bias=False) if inputs else nn.Identity()


def _count_hidden(sources: Sequence[int]) -> int:
    return sum(source > 0 for source in sources)


def _sum_squares(x: Tensor) -> Tensor:
    return x.square().sum(-1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))


def _share(products: Tensor, layer: nn.Module) -> Tensor:
    """In the precision of the products, which may be finer than that of the weights."""
    assert isinstance(layer, nn.Linear)
    return nn.functional.linear(products, layer.weight.to(products.dtype))


def _choose(hidden: Sequence[Tensor], sources: Sequence[int]) -> list[Tensor]:
    """The hidden vectors among the sources; number 0 is x."""
    return [hidden[source] for source in sources if source]


def _plus(base: Tensor | None, vectors: list[Tensor], layer: nn.Module) -> Tensor:
    """base + layer(vectors), in one product."""
    if base is not None and not vectors:
        return base
    assert isinstance(layer, nn.Linear)
    joined = vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)
    return nn.functional.linear(joined, layer.weight) if base is None else torch.addmm(base, joined, layer.weight.T)


def _variant(d_in: int, d_z: int, d_h: int, depth: int, start: str) -> dict[str, int | str]:
    shape = {"d_in": d_in, "d_out": 3072, "d_z": d_z, "d_h": d_h, "depth": depth}
    return {"name": "narrow_mlp", **shape, "start": start}


VARIANTS = {
    "super-resolution-18m": _variant(768, 3075, 270, 4, "triangular"),
    "denoise-31m": _variant(3072, 3546, 270, 5, "isometric"),
}
"""The narrow forms of two published networks: row 13 of Table 7, and row 14 of Table 8 with an orthogonal W_in."""
