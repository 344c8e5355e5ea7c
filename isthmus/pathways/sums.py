"""Products with many earlier streams, without keeping a stacked copy of them for the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from isthmus.pathways.joins import is_written_out


def mix(weights: Tensor, sources: Sequence[Tensor]) -> Tensor:
    """Σ_s w_s x_s with weights (s,), with weights of every row (s, batch…), or of q queries (q, s, batch…)."""
    if not is_written_out():
        return _mix(weights, torch.stack(tuple(sources)))
    mixed: Tensor = Mix.apply(weights, *sources)
    return mixed


def project(queries: Tensor, sources: Sequence[Tensor]) -> Tensor:
    """The inner products (q, s, batch…) of queries (q, d) with sources (batch…, d)."""
    if not is_written_out():
        return torch.einsum("qd,s...d->qs...", queries, torch.stack(tuple(sources)))
    products: Tensor = Project.apply(queries, *sources)
    return products


def _mix(weights: Tensor, stacked: Tensor) -> Tensor:
    if weights.ndim == 1:
        return torch.einsum("s,s...->...", weights, stacked)
    if weights.ndim == stacked.ndim:
        return (_by_row(weights) @ stacked.movedim(0, -2)).movedim(-2, 0)
    return torch.einsum("s...,s...d->...d", weights, stacked)


def _by_row(weights: Tensor) -> Tensor:
    """(q, s, batch…) as (batch…, q, s), in whose order batched products are fast."""
    return weights.movedim((0, 1), (-2, -1)).contiguous()


class Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, *sources: Tensor) -> Tensor:
        ctx.save_for_backward(weights, *sources)
        return _mix(weights, torch.stack(sources))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        weights, *sources = ctx.saved_tensors
        stacked = torch.stack(sources)
        if weights.ndim == 1:
            of_weights = torch.einsum("...,s...->s", gradient, stacked)
            of_sources = torch.einsum("s,...->s...", weights, gradient)
        elif weights.ndim == stacked.ndim:
            g, rows = gradient.movedim(0, -2), _by_row(weights)
            of_weights = (g @ stacked.movedim(0, -1)).movedim((-2, -1), (0, 1))
            of_sources = (rows.mT @ g).movedim(-2, 0)
        else:
            of_weights = torch.einsum("...d,s...d->s...", gradient, stacked)
            of_sources = weights.unsqueeze(-1) * gradient
        return (of_weights, *of_sources.unbind(0))


class Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, *sources: Tensor) -> Tensor:
        ctx.save_for_backward(queries, *sources)
        return torch.einsum("qd,s...d->qs...", queries, torch.stack(sources))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        queries, *sources = ctx.saved_tensors
        of_queries = torch.einsum("qs...,s...d->qd", gradient, torch.stack(sources))
        of_sources = torch.einsum("qs...,qd->s...d", gradient, queries)
        return (of_queries, *of_sources.unbind(0))
