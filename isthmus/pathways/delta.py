"""A branch chooses a direction, erases what the stream holds there, and writes a new value.

    k = u / ‖u‖,  β = 2σ(w_β · norm(r) + b_β) ∈ (0, 2)
    ``write="value"``     x ← x + β (v − kᵀx) k          = (I − β k kᵀ) x + β v k
    ``write="update"``    x ← x + u − β (kᵀx) k          erase and add

Paper: Deep Delta Learning (Zhang et al. 2026), with the authors' code.

    paper                    here
    X ∈ R^{d × d_v}          ``channels`` copies of the stream, which start as x_0
    k, β, v                  k; β with ``start`` before training; v by ``value``: 4σ(w_v · r + b_v), linear, or constant
    k^T x                    in float32 or finer
    read vector              ``reading``, one number per channel (only with several)
    short convolution        ``convolution``: kernel size over the channels, of each coordinate; before the read vector

β = 0 is the identity, β = 1 replaces kᵀx by v, β = 2 with v = 0 is a reflection. "update" is not in the paper; there
β → 0 is plain, and ``start`` is 0.02 unless given.

Differs from the paper: its gates start at random weights; here at zero, so that β and v are the same for all rows at
first, and its convolution at random; here at the identity. There is none by default. r is normed without weights. The
authors' convolution over tokens is left out, because most models here have no order of tokens, and so is their option
of a hidden layer before β.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from isthmus.layers.residual import Layout, Pathway
from isthmus.pathways.delta_rule import DeltaConfig, find_change, make_biases, make_gates
from isthmus.pathways.joins import Rewrite, is_written_out
from isthmus.pathways.pathway import (
    apply_scale,
    are_gates_held,
    at_least_single,
    hold,
    make_parameter,
    map_streams,
)

NAMES = {"delta": "Delta"}
PRESETS = {
    "delta/value": {"name": "delta"},
    "delta/value-4": {"name": "delta", "channels": 4},
    "delta/convolved-4": {"name": "delta", "channels": 4, "convolution": 4},
    "delta/erase-and-add": {"name": "delta", "write": "update"},
    "ddl": "delta/value",
    "deep_delta_learning": "delta/value",
}
TITLE_FIELDS = {"delta": ("write", "channels", "convolution", "value")}


class Delta(Pathway):
    Config = DeltaConfig
    formula = "x ← x + β (v − kᵀx) k, k = u/‖u‖"
    paper = "Deep Delta Learning (2026)"
    extra = "3d multiply–adds and 2d + 2 parameters; erase and add: 2d and d + 1"

    def __init__(self, config: DeltaConfig, layout: Layout) -> None:
        super().__init__()
        self.config = config
        d, n, places = layout.width, config.channels, range(layout.places)
        self.gate = nn.ParameterList(make_parameter(torch.zeros(config.gates, d)) for _ in places)
        self.bias = make_biases(config, layout.places)
        if n > 1:
            self.reading = nn.ParameterList(make_parameter(torch.full((n,), 1 / n)) for _ in range(layout.places + 1))
        if config.convolution is not None:
            kernel = torch.eye(config.convolution)[(config.convolution - 1) // 2].repeat(d, 1)
            self.kernel = nn.ParameterList(make_parameter(kernel.clone()) for _ in range(layout.places + 1))

    def start(self, x: Tensor) -> Tensor:
        n = self.config.channels
        return x if n == 1 else x.unsqueeze(-2).expand(*x.shape[:-1], n, x.shape[-1])

    def compress(self, state: Tensor, place: int) -> Tensor:
        if self.config.channels == 1:
            return state
        if self.config.convolution is None:
            return torch.einsum("...nd,n->...d", state, self.reading[place])
        return torch.einsum("...nd,nd->...d", state, self.convolve_reading(place))

    def convolve_reading(self, place: int) -> Tensor:
        """The numbers (n, d) that read the channels by convolution and read vector together."""
        kernel, n = self.kernel[place], self.config.channels
        size = kernel.shape[1]
        padded = nn.functional.pad(self.reading[place], (size - 1, size - 1))
        first = size - 1 + (size - 1) // 2
        shifted = torch.stack([padded[first - tap : first - tap + n] for tap in range(size)])
        return torch.einsum("kn,dk->nd", shifted, kernel)

    def read(self, state: Tensor, place: int) -> tuple[Tensor, Tensor]:
        r = self.compress(state, place)
        return r, r

    def gates(self, r: Tensor, place: int) -> tuple[Tensor, Tensor | float]:
        """β and v of every row."""
        logits = at_least_single(nn.functional.linear(r, self.gate[place]))
        return make_gates(self.config, logits, self.bias[place], at_least_single(r).square().mean(-1, keepdim=True))

    def write(self, state: Tensor, place: int, known: Tensor, update: Tensor, scale: float) -> Tensor:
        # A mixer's first skip may have changed the number of tokens since they were read.
        r = known if known.shape[:-1] == update.shape[:-1] else self.compress(state, place)
        if self.config.channels == 1 and is_written_out():
            return self.rewrite(state, apply_scale(update, scale), place)
        beta, v = self.gates(hold(r), place)
        u, x = at_least_single(apply_scale(update, scale)), at_least_single(state)
        inverse = hold(u).square().sum(-1, keepdim=True).add(self.config.eps**2).rsqrt()
        if self.config.channels > 1:
            along = torch.einsum("...d,...nd->...n", hold(u), x) * inverse
            change = find_change(self.config, beta, v, along, inverse).unsqueeze(-1)
            if are_gates_held():
                erased = hold(u).unsqueeze(-2) * (beta * along * inverse).unsqueeze(-1)
                return state - erased + u.unsqueeze(-2) * (beta * v * inverse).unsqueeze(-1)
            return torch.addcmul(state, u.unsqueeze(-2).to(state.dtype), change.to(state.dtype))
        along = torch.einsum("...d,...d->...", hold(u), x).unsqueeze(-1) * inverse
        if are_gates_held():  # the direction k is a gate, the update that is added is not
            written = u if self.config.write == "update" else u * (beta * v * inverse)
            return state - hold(u) * (beta * along * inverse) + written
        change = find_change(self.config, beta, v, along, inverse)
        return torch.addcmul(state, u.to(state.dtype), change.to(state.dtype))

    def rewrite(self, state: Tensor, update: Tensor, place: int) -> Tensor:
        """``write`` for one channel, with its gradient written out."""
        config, adds = self.config, self.config.write == "update"
        value = 0.0 if adds else None if config.value == "linear" else config.value_scale
        epsilons = (config.norm_eps, config.eps**2)
        gate, bias = self.gate[place], self.bias[place]
        new: Tensor = Rewrite.apply(state, update, gate, bias, float(adds), value, epsilons)
        return new

    def finish(self, state: Tensor) -> Tensor:
        return self.compress(state, -1)

    def transform(self, state: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(state) if self.config.channels == 1 else map_streams(state, function, -2)
