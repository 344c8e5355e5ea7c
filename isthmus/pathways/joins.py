"""Joins whose gradients are written out, for training: fewer operations, passes over the streams and saved values.

Each computes a formula that stands in its pathway's file. Without gradients, and under a compiler, an export or
``torch.func``, ``is_written_out()`` is false and pathways use those formulas. Gradients can be taken once.

A stream that a branch reads and that is also kept has two gradients to sum. Functions that read such a stream return it
again (``passed``). What is kept continues from there, so that its gradient arrives with that of the read, and both are
summed while they are computed instead of in a pass of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.linalg import vecdot, vector_norm

from isthmus.pathways.pathway import are_gates_held, at_least_single

Gradients = tuple[Tensor | None, ...]


def is_written_out() -> bool:
    """Whether gradients are wanted, and nothing traces or transforms the computation."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling() or are_gates_held():
        return False
    return not torch._C._are_functorch_transforms_active()


def _refuse_second_gradients() -> None:
    """What is saved for a gradient is not enough for its own gradient, which would be wrong."""
    if torch.is_grad_enabled():
        raise RuntimeError("the gradient of this pathway has no gradient of its own; use create_graph=False")


class WriteStreams(torch.autograd.Function):
    """resᵀ S + post ⊗ u (``streams``). Weights post (n,) are those of all rows of S (n, …, d), weights (…, n) those of
    each row of S (…, n, d)."""

    @staticmethod
    def forward(ctx: Any, streams: Tensor, update: Tensor, res: Tensor, post: Tensor) -> Tensor:
        ctx.save_for_backward(streams, update, res, post)
        row = update.reshape(1, -1) if post.ndim == 1 else update.unsqueeze(-2)
        return (res.mT @ _matrices(streams, post)).addcmul_(post.unsqueeze(-1), row).view(streams.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Gradients:
        _refuse_second_gradients()
        streams, update, res, post = ctx.saved_tensors
        matrices, g = _matrices(streams, post), _matrices(g, post)
        row = update.reshape(1, -1) if post.ndim == 1 else update.unsqueeze(-2)
        of_update = (post.unsqueeze(-2) @ g).view(update.shape)
        return (res @ g).view(streams.shape), of_update, matrices @ g.mT, _multiply(g, row)


def _matrices(streams: Tensor, weights: Tensor) -> Tensor:
    """Streams as one matrix of all rows, if they share the weights."""
    return streams.flatten(1) if weights.ndim == 1 else streams


def _multiply(matrices: Tensor, row: Tensor) -> Tensor:
    """(…, n, d) · (…, 1, d). Batched products with one column are slower than with one row."""
    return matrices @ row[0] if matrices.ndim == 2 else (row @ matrices.mT).squeeze(-2)


class ReadBalanced(torch.autograd.Function):
    """What a branch reads, res, post, and S passed, for streams S (…, n, d) with constrained maps of every row.

    The logits of pre, post and res are b + a ⊙ (Φ RMSNorm(vec S)); ``part`` says which of the three scales a is whose.
    ``epsilons`` are those of Sinkhorn's iteration, the norm and pre.
    """

    @staticmethod
    def forward(
        ctx: Any, streams: Tensor, weights: Tensor, bias: Tensor, scale: Tensor, part: Tensor, iterations: int,
        epsilons: tuple[float, float, float], post_scale: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        eps, norm_eps, pre_eps = epsilons
        n, rows = streams.shape[-2], streams.reshape(-1, weights.shape[1])
        norm = _invert_length(rows, 1 / rows.shape[1], norm_eps)
        normed = at_least_single(weights @ rows.T).mul_(norm)
        by = scale[part].unsqueeze(1)
        logits = torch.addcmul(bias.unsqueeze(1), normed, by)
        gates, soft = logits[: 2 * n].sigmoid(), logits[2 * n :].view(n, n, -1).softmax(1)
        matrix, sums = balance(soft, iterations, eps)
        batch, dtype = streams.shape[:-2], streams.dtype
        # Copied, because batched products of transposed matrices are slow.
        pre, post = gates.T.to(dtype).contiguous().view(*batch, 2 * n).split(n, -1)
        pre = pre + pre_eps if pre_eps else pre
        res = matrix.permute(2, 0, 1).to(dtype).contiguous().view(*batch, n, n)
        ctx.save_for_backward(streams, weights, normed, norm, by, part, gates, soft, matrix, sums, pre)
        ctx.eps, ctx.post_scale = eps, post_scale
        return (pre.unsqueeze(-2) @ streams).squeeze(-2), res, post_scale * post, streams.view_as(streams)

    @staticmethod
    def backward(ctx: Any, g: Tensor, of_res: Tensor, of_post: Tensor, of_passed: Tensor) -> Gradients:
        _refuse_second_gradients()
        streams, weights, normed, norm, by, part, gates, soft, matrix, sums, pre = ctx.saved_tensors
        n, row = streams.shape[-2], g.unsqueeze(-2)
        of_logits = torch.empty_like(normed)
        of_gates = torch.cat([_multiply(streams, row), of_post.mul(ctx.post_scale)], -1).reshape(-1, 2 * n).T
        torch.mul(of_gates, gates, out=of_logits[: 2 * n]).addcmul_(of_logits[: 2 * n], gates, value=-1)
        of_balanced = of_res.reshape(-1, n, n).permute(1, 2, 0).contiguous()
        of_logits[2 * n :] = differentiate_balance(of_balanced, soft, matrix, sums, ctx.eps).view(n * n, -1)
        of_scale = by.new_zeros(3).index_add_(0, part, vecdot(of_logits, normed))
        of_normed = of_logits * by
        shrink = vecdot(of_normed, normed, dim=0).mul_(norm).mul_(norm).to(streams.dtype).unsqueeze(1)
        of_products, rows = of_normed.mul_(norm).to(streams.dtype), streams.view(-1, weights.shape[1])
        of_rows = torch.addmm(of_passed.reshape(rows.shape), of_products.T, weights)
        of_rows.addcmul_(rows, shrink, value=-1 / rows.shape[1])
        of_streams = of_rows.view(streams.shape).addcmul_(pre.unsqueeze(-1), row)
        return of_streams, of_products @ rows, of_logits.sum(1), of_scale, None, None, None, None


class Balance(torch.autograd.Function):
    """``balance`` of softmax + ε of logits (n, n), for all rows alike."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, iterations: int, eps: float) -> Tensor:
        soft = logits.softmax(1).unsqueeze(-1)
        matrix, sums = balance(soft, iterations, eps)
        ctx.save_for_backward(soft, matrix, sums)
        ctx.eps = eps
        return matrix.squeeze(-1).clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Gradients:
        _refuse_second_gradients()
        soft, matrix, sums = ctx.saved_tensors
        return differentiate_balance(g.unsqueeze(-1), soft, matrix, sums, ctx.eps).squeeze(-1), None, None


def balance(soft: Tensor, iterations: int, eps: float) -> tuple[Tensor, Tensor]:
    """Sinkhorn's iteration on matrices (n, n, b), columns first: the result, and the sums of 2 · iterations − 1 steps.

    With the batch last, a step is two operations.
    """
    n, _, batch = soft.shape
    padded = soft.new_full((n + 1, n + 1, batch), eps)  # so that every sum includes ε
    matrix, sides = padded[:n, :n], (padded[:, :n], padded[:n])
    matrix += soft
    sums = soft.new_empty(2 * iterations - 1, n, batch)
    for turn, total in enumerate(_name_columns_and_rows(sums)):
        torch.sum(sides[turn % 2], turn % 2, keepdim=True, out=total)
        matrix.div_(total)
    return matrix.contiguous(), sums


def differentiate_balance(g: Tensor, soft: Tensor, matrix: Tensor, sums: Tensor, eps: float) -> Tensor:
    """The gradient by the logits of ``soft``. The sums rebuild every matrix from the last one."""
    matrix = matrix.clone()
    slope = matrix * g  # by the logarithm of the matrix, from which a step subtracts that of its sums
    along = torch.empty_like(slope[:1]), torch.empty_like(slope[:, :1])
    totals = _name_columns_and_rows(sums)
    for turn in reversed(range(len(totals))):
        torch.sum(slope, turn % 2, keepdim=True, out=along[turn % 2])
        slope.addcmul_(matrix, along[turn % 2], value=-1)
        matrix.mul_(totals[turn])
    slope *= soft / (soft + eps)
    return slope.addcmul_(soft, slope.sum(1, keepdim=True), value=-1)


def _name_columns_and_rows(sums: Tensor) -> list[Tensor]:
    """Sums (turns, n, b), each with the axis that was summed: columns and rows in turn."""
    each = [sums[0]] * len(sums)
    each[::2], each[1::2] = sums[::2].unsqueeze(1).unbind(), sums[1::2].unsqueeze(2).unbind()
    return each


class Attend(torch.autograd.Function):
    """What queries (q, d) read of sources (…, d) by softmax(query · RMSNorm(source)), and the logarithm of each
    softmax's denominator (``attended``). The sources are stacked again for the gradient instead of being kept twice."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, eps: float, *sources: Tensor) -> tuple[Tensor, Tensor]:
        stacked = torch.stack(sources, -2)
        scale = _invert_length(stacked, 1 / stacked.shape[-1], eps).unsqueeze(-1)
        logits = at_least_single(stacked @ queries.T).mul_(scale)
        total = logits.logsumexp(-2, keepdim=True)
        weights = (logits - total).exp_()
        ctx.save_for_backward(queries, scale, logits, weights, *sources)
        mixed = weights.mT.to(queries.dtype) @ stacked
        return mixed.movedim(-2, 0), total.squeeze(-2).movedim(-1, 0)

    @staticmethod
    def backward(ctx: Any, g: Tensor, of_total: Tensor) -> Gradients:
        _refuse_second_gradients()
        queries, scale, logits, weights, *sources = ctx.saved_tensors
        stacked, g = torch.stack(sources, -2), g.movedim(0, -2)
        of_weights = at_least_single(stacked @ g.mT)
        of_total = of_total.movedim(0, -1).unsqueeze(-2) - vecdot(weights, of_weights, dim=-2).unsqueeze(-2)
        of_logits = of_weights.add_(of_total).mul_(weights)
        shrink = vecdot(of_logits, logits).unsqueeze(-1).mul_(scale).mul_(scale).to(queries.dtype)
        of_products = of_logits.mul_(scale).to(queries.dtype).flatten(0, -2)
        of_sources = weights.to(queries.dtype) @ g
        of_sources.view(-1, queries.shape[1]).addmm_(of_products, queries)
        of_sources.addcmul_(stacked, shrink, value=-1 / queries.shape[1])
        return of_products.T @ stacked.flatten(0, -2), None, *of_sources.unbind(-2)


class Merge(torch.autograd.Function):
    """factor · ((1 − s) m + s v) with s = σ(w · RMSNorm(v) − logit of m), and v passed (``attended``).

    The gradient needs the sum, but not m.
    """

    @staticmethod
    def forward(
        ctx: Any, m: Tensor, logit: Tensor, v: Tensor, w: Tensor, factor: float, eps: float
    ) -> tuple[Tensor, Tensor]:
        product, scale = at_least_single(v @ w), _invert_length(v, 1 / v.shape[-1], eps)
        share = torch.addcmul(logit, product, scale, value=-1).neg_().sigmoid_()
        of_v = torch.add(share, share, alpha=factor - 1)  # factor · share; a product with a number is slower
        of_m = torch.full_like(share, factor).sub_(of_v).to(m.dtype).unsqueeze(-1)
        of_v = of_v.to(m.dtype).unsqueeze(-1)
        merged = (m * of_m).addcmul_(v, of_v)
        ctx.save_for_backward(merged, v, w, scale, product, share, of_m, of_v)
        ctx.factor = factor
        return merged, v.view_as(v)

    @staticmethod
    def backward(ctx: Any, g: Tensor, of_passed: Tensor) -> Gradients:
        _refuse_second_gradients()
        merged, v, w, scale, product, share, of_m, of_v = ctx.saved_tensors
        of_logit = at_least_single(vecdot(g, torch.sub(merged, v, alpha=ctx.factor))).mul_(share)
        along = of_logit * scale  # of −w · v
        shrink = (along * product).mul_(scale).mul_(scale).to(v.dtype).unsqueeze(-1)
        along = along.to(v.dtype)
        of_v = torch.addcmul(of_passed, g, of_v).addcmul_(along.unsqueeze(-1), w, value=-1)
        of_v.addcmul_(v, shrink, value=1 / v.shape[-1])
        return g * of_m, of_logit, of_v, (along.flatten() @ v.flatten(0, -2)).neg_(), None, None


class Rewrite(torch.autograd.Function):
    """x + c u with c = a − 2 σ_0 (k · x − v) / ‖u‖, k = u / ‖u‖ (``delta`` with one channel).

    ``gate`` (1 or 2, d) makes σ_0, which is β / 2, from RMSNorm(x), and v from x. v is ``value`` times a sigmoid, or
    linear if ``value`` is None; without a second row of the gate, v is ``value``.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, u: Tensor, gate: Tensor, bias: Tensor, a: float, value: float | None,
        epsilons: tuple[float, float],
    ) -> Tensor:  # fmt: skip
        shape = x.shape
        x, u = x.reshape(-1, shape[-1]), u.reshape(-1, shape[-1])
        norm, inverse = _invert_length(x, 1 / x.shape[1], epsilons[0]), _invert_length(u, 1, epsilons[1])
        logits = at_least_single(gate @ x.T)
        normed = logits[0].mul_(norm)
        gates = logits + bias.unsqueeze(1)
        half, *second = (gates[:1] if value is None else gates).sigmoid_().unbind()
        along = vecdot(at_least_single(u), at_least_single(x)).mul_(inverse)
        slope = []  # of −v by its logit
        if len(gate) == 1:
            excess = along - value
        elif value is None:
            excess, slope = along - gates[1], [torch.full_like(along, -1)]
        else:
            excess = torch.sub(along, second[0], alpha=value)
            slope = [torch.addcmul(second[0], second[0], second[0], value=-1).mul_(-value)]
        share = (half * inverse).mul_(-2)
        change = share * excess
        change = (change.add_(a) if a else change).to(x.dtype).unsqueeze(1)
        of_gate = torch.addcmul(excess, excess, half, value=-1)
        of_logit = of_gate * norm
        of_length = (along + excess).mul_(inverse).mul_(inverse)
        # Each gradient of a row is one of these times that of its share.
        factors = torch.stack([inverse, of_length, of_logit * normed * norm, of_logit, of_gate, *slope])
        ctx.save_for_backward(x, u, gate, share, change, factors)
        return torch.addcmul(x, u, change).view(shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Gradients:
        _refuse_second_gradients()
        x, u, gate, share, change, factors = ctx.saved_tensors
        shape, g = g.shape, g.reshape(x.shape)
        of_rows = factors * at_least_single(vecdot(g, u)).mul_(share)
        of_bias = of_rows[4:].sum(1).to(gate.dtype)
        of_rows = of_rows.to(x.dtype)
        of_logits, (of_product, shrink_u, shrink_x) = of_rows[3::2], of_rows[:3].unsqueeze(2).unbind()
        of_u = (g * change).addcmul_(u, shrink_u, value=-1).addcmul_(x, of_product)
        of_x = torch.addmm(g, of_logits.T, gate).addcmul_(x, shrink_x, value=-1 / x.shape[1]).addcmul_(u, of_product)
        return of_x.view(shape), of_u.view(shape), of_logits @ x, of_bias, None, None, None


def _invert_length(x: Tensor, factor: float, eps: float) -> Tensor:
    """(factor · ‖x‖² + ε)^{−1/2} of the last axis, in float32 or finer."""
    length = vector_norm(x, dim=-1, dtype=torch.promote_types(x.dtype, torch.float32))
    return torch.full_like(length, eps).addcmul_(length, length, value=factor).rsqrt_()
