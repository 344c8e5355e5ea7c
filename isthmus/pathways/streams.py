"""Several copies of the stream: a branch reads a mix of them, and its update is written to all of them.

    r = pre · S,    S ← resᵀ S + post ⊗ u,    S ∈ R^{n × d}, n copies of x_0;    output: their mean

    Hyper-Connections (Zhu et al. 2024)      pre, res, post learned; dynamic: + s · tanh(LayerNorm(S) W)
    mHC (DeepSeek 2025)                      pre = σ(·), post = 2σ(·), res doubly stochastic by Sinkhorn's iteration, of
                                             logits a ⊙ (RMSNorm(vec S) Φ) + b
    mHC-lite (2026)                          res = Σ_π softmax_π P_π over all permutations: exact, without iterations

    paper                        here
    n, expansion rate            ``count``
    A_m, A_r, B                  pre, res, post
    W_m, W_r, W_β, s_α, s_β      ``W`` (pre, res, post side by side), ``scale``
    φ, α, b                      ``Phi``, ``scale``, ``bias``
    t_max                        ``sinkhorn_iterations``
    with and without tanh        ``bound``

Start: pre is the unit vector of place mod n, res the identity, post ones, and W, Φ zero: as plain. In mHC and mHC-lite
b is 0 on and −8 off the diagonal for res (mHC-lite: 0 for the identity and −8 for other permutations), ±1 for pre and 0
for post; copies that are equal stay equal under any such res, so an untrained network is plain behind norms.

Differs from the paper: the output is the sum of the copies in the papers (``output="sum"``). Norms have no weights; W
and Φ can hold those of an RMSNorm (``norm="rms"``, as in several public versions of Hyper-Connections). Φ starts at
zero instead of at random. Sinkhorn's iteration adds ε as DeepSeek's reference does, and ends with columns: for the
matrix that is applied, resᵀ, this is the paper's order. That reference also adds 1e-6 to pre (``pre_eps``), takes the
factor of post as an argument (``post_scale``), and has a learned output, which is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from isthmus.layers.residual import Entries, Layout, Pathway, PathwayConfig
from isthmus.pathways.joins import Balance, ReadBalanced, WriteStreams, is_written_out
from isthmus.pathways.pathway import (
    Epsilon,
    PlainNorm,
    apply_scale,
    at_least_single,
    hold,
    make_parameter,
    map_streams,
    normalise,
)

NAMES = {"streams": "Streams"}
PRESETS = {
    "streams/hyper-4": {"name": "streams", "count": 4},
    "streams/hyper-2": {"name": "streams", "count": 2},
    "streams/static-2": {"name": "streams", "count": 2, "dynamic": False},
    "streams/static-4": {"name": "streams", "count": 4, "dynamic": False},
    "streams/mhc-4": {"name": "streams", "count": 4, "constrain": "doubly_stochastic"},
    "streams/mhc-2": {"name": "streams", "count": 2, "constrain": "doubly_stochastic"},
    "streams/mhc-lite-4": {"name": "streams", "count": 4, "constrain": "permutations"},
    "hyper_connections": "streams/hyper-4",
    "static_hyper_connections": "streams/static-4",
    "dynamic_hyper_connections": "streams/hyper-4",
    "mhc": "streams/mhc-4",
    "manifold_constrained_hyper_connections": "streams/mhc-4",
    "mhc_lite": "streams/mhc-lite-4",
}
TITLE_FIELDS = {"streams": ("count", "dynamic", "constrain", "norm", "bound")}
_MOST_PERMUTED = 5


class StreamsConfig(PathwayConfig):
    count: Annotated[int, Field(ge=1, le=64)] = 4
    """n, the copies of the stream."""
    dynamic: bool = True
    """Whether the maps depend on the row."""
    constrain: Literal["none", "doubly_stochastic", "permutations"] = "none"
    """What res is: any matrix (Hyper-Connections), balanced (mHC) or a mean of permutations (mHC-lite)."""
    sinkhorn_iterations: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Of mHC; each norms rows and columns."""
    sinkhorn_eps: Epsilon = 1e-6
    """Added to the matrix and to its sums."""
    scale: Annotated[float, Field(gt=0, le=100)] = 0.01
    """s, or a, before training."""
    norm: PlainNorm = "layer"
    """Of each stream before W; mHC and mHC-lite take the RMSNorm of all streams together."""
    bound: Literal["tanh", "none"] = "tanh"
    """Of what W adds to the maps."""
    pre_eps: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Added to the pre of mHC and mHC-lite."""
    post_scale: Annotated[float, Field(gt=0, le=1e6)] = 2.0
    """Factor of the sigmoid in the post of mHC and mHC-lite."""
    output: Literal["mean", "sum"] = "mean"
    """What a head reads of the copies."""
    norm_eps: Epsilon = 1e-6
    """Of the norm before W or Φ."""

    @property
    def entries(self) -> Entries:
        return "by row" if self.dynamic else "numbers"

    def check(self, layout: Layout) -> None:
        super().check(layout)
        if self.constrain == "permutations" and self.count > _MOST_PERMUTED:
            raise ValueError(
                f"count={self.count} streams have more permutations than are worth learning; the limit is "
                f"{_MOST_PERMUTED}, or use constrain=doubly_stochastic"
            )


class Maps(NamedTuple):
    """Of n streams, for all rows alike or for each: pre and post (…, n), res (…, n, n) from old to new."""

    pre: Tensor
    res: Tensor
    post: Tensor


class Known(NamedTuple):
    """The state before a read, the same after it, and the maps for the update."""

    before: Tensor
    streams: Tensor
    res: Tensor
    post: Tensor


class Streams(Pathway):
    Config = StreamsConfig
    formula = "r = pre · S, S ← resᵀ S + post ⊗ u"
    paper = "Hyper-Connections (2024); mHC (2025); mHC-lite (2026)"
    extra = "n² + n multiply–adds per channel; dynamic: n² + 2n more, mHC: n³ + 2n² more, with as many parameters"
    matrices: Tensor
    part: Tensor

    def __init__(self, config: StreamsConfig, layout: Layout) -> None:
        super().__init__()
        self.config = config
        n, d, places = config.count, layout.width, range(layout.places)
        self.orders = list(itertools.permutations(range(n))) if config.constrain == "permutations" else []
        if self.orders:
            matrices = [[float(to == order[row]) for row in range(n) for to in range(n)] for order in self.orders]
            self.register_buffer("matrices", torch.tensor(matrices), persistent=False)
        if config.constrain == "none":
            self.pre = nn.ParameterList(make_parameter(torch.eye(n)[place % n].clone()) for place in places)
            self.res = nn.ParameterList(make_parameter(torch.eye(n)) for _ in places)
            self.post = nn.ParameterList(make_parameter(torch.ones(n)) for _ in places)
            if config.dynamic:
                self.W = nn.ParameterList(make_parameter(torch.zeros(n + 2, d)) for _ in places)
                self.scale = nn.ParameterList(make_parameter(torch.full((2,), config.scale)) for _ in places)
            return
        self.bias = nn.ParameterList(make_parameter(self.first_bias(place)) for place in places)
        if config.dynamic:
            size = 2 * n + (len(self.orders) or n * n)
            self.Phi = nn.ParameterList(make_parameter(torch.zeros(size, n * d)) for _ in places)
            self.scale = nn.ParameterList(make_parameter(torch.full((3,), config.scale)) for _ in places)
            part = torch.tensor([0] * n + [1] * n + [2] * (size - 2 * n))
            self.register_buffer("part", part, persistent=False)

    def sliced_axes(self) -> dict[str, tuple[int, ...]]:
        """A part takes the first numbers of every stream."""
        if self.config.constrain == "none" or not self.config.dynamic:
            return {}
        n = self.config.count
        return {f"Phi.{place}": (len(Phi), n, Phi.shape[1] // n) for place, Phi in enumerate(self.Phi)}

    def first_bias(self, place: int) -> Tensor:
        """Of pre, post and res."""
        n = self.config.count
        pre = 2 * torch.eye(n)[place % n] - 1
        if self.orders:
            res = torch.full((len(self.orders),), -8.0)
            res[0] = 0
        else:
            res = -8 * (1 - torch.eye(n)).flatten()
        return torch.cat([pre, torch.zeros(n), res])

    @property
    def axis(self) -> int:
        """Of the copies: first where all rows share the maps, which are then matrix products of all rows at once."""
        return -2 if self.config.dynamic else 0

    def start(self, x: Tensor) -> Tensor:
        return torch.stack([x] * self.config.count, dim=self.axis)

    def read(self, state: Tensor, place: int) -> tuple[Tensor, Known]:
        config = self.config
        if config.dynamic and config.constrain == "doubly_stochastic" and is_written_out():
            read, res, post, streams = ReadBalanced.apply(
                state, self.Phi[place], self.bias[place], self.scale[place], self.part,
                config.sinkhorn_iterations, (config.sinkhorn_eps, config.norm_eps, config.pre_eps), config.post_scale,
            )  # fmt: skip
            return read, Known(state, streams, res, post)
        pre, res, post = self.maps(hold(state), place)
        if config.dynamic:
            read = (pre.unsqueeze(-2) @ state).squeeze(-2)
        else:
            read = (pre[None] @ state.flatten(1)).view(state.shape[1:])
        return read, Known(state, state, res, post)

    def write(self, state: Tensor, place: int, known: Known, update: Tensor, scale: float) -> Tensor:
        before, streams, res, post = known
        update = apply_scale(update, scale)
        if state is not before:  # a mixer's first skip may have changed the number of tokens since they were read
            streams, (_, res, post) = state, self.maps(hold(state), place)
        if is_written_out():
            written: Tensor = WriteStreams.apply(streams, update, res, post)
            return written
        if self.config.dynamic:
            return torch.addcmul(res.mT @ streams, post.unsqueeze(-1), update.unsqueeze(-2))
        kept = res.T @ streams.flatten(1)
        return torch.addcmul(kept, post[:, None], update.reshape(1, -1)).view(streams.shape)

    def finish(self, state: Tensor) -> Tensor:
        return state.mean(self.axis) if self.config.output == "mean" else state.sum(self.axis)

    def transform(self, state: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return map_streams(state, function, self.axis)

    def maps(self, state: Tensor, place: int) -> Maps:
        if self.config.constrain != "none":
            return self.constrained_maps(state, place)
        pre, res, post = self.pre[place], self.res[place], self.post[place]
        if not self.config.dynamic:
            return Maps(pre, res, post)
        normed = normalise(state, self.config.norm, self.config.norm_eps)
        change = at_least_single(nn.functional.linear(normed, self.W[place]))
        change = change.tanh() if self.config.bound == "tanh" else change
        first, last = self.scale[place].unbind()
        of_pre, of_res, of_post = change.split([1, self.config.count, 1], dim=-1)
        maps = pre + first * of_pre.squeeze(-1), res + first * of_res, post + last * of_post.squeeze(-1)
        return Maps(*(each.to(state.dtype) for each in maps))

    def constrained_maps(self, state: Tensor, place: int) -> Maps:
        n, logits = self.config.count, at_least_single(self.bias[place])
        if self.config.dynamic:
            flat = state.flatten(-2)
            inverse = at_least_single(flat).square().mean(-1, keepdim=True).add(self.config.norm_eps).rsqrt()
            products = at_least_single(nn.functional.linear(flat, self.Phi[place])) * inverse
            logits = torch.addcmul(logits, products, self.scale[place][self.part])
        pre, post, res = logits.split([n, n, logits.shape[-1] - 2 * n], dim=-1)
        mixed = self.permute(res) if self.orders else self.balance(res.unflatten(-1, (n, n)))
        maps = pre.sigmoid() + self.config.pre_eps, mixed, self.config.post_scale * post.sigmoid()
        return Maps(*(each.to(state.dtype) for each in maps))

    def permute(self, logits: Tensor) -> Tensor:
        """The mean of permutation matrices: entry (i, j) sums the weights of permutations that take i to j."""
        return (logits.softmax(-1) @ self.matrices.to(logits.dtype)).unflatten(-1, (self.config.count,) * 2)

    def balance(self, logits: Tensor) -> Tensor:
        """Sinkhorn's iteration: rows and columns in turn."""
        eps = self.config.sinkhorn_eps
        if logits.ndim == 2 and is_written_out():
            balanced: Tensor = Balance.apply(logits, self.config.sinkhorn_iterations, eps)
            return balanced
        matrix = logits.softmax(-1) + eps
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
        for _ in range(self.config.sinkhorn_iterations - 1):
            matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
            matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
        return matrix
