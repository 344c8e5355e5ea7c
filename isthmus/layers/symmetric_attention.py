"""Symmetric attention: queries, keys and values share one projection.

For z of one head, A = β z zᵀ with β = 1/√p, and the output is (softmax of rows + softmax of columns of A) z: the
gradient of Σ_i β⁻¹ log Σ_j exp(A_ij) with respect to z (Hyper-SET, eq. 6). Because A is symmetric, its softmax over
columns is the transpose of its softmax over rows, so one softmax is enough.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

STREAMED_FROM = 1024
"""From this number of tokens on, N×N matrices are avoided."""
_SCORES_AT_ONCE = 2**20
_SCORES_IN_CACHE = 2**18


def symmetric_attention(z: Float[Tensor, "*heads N p"]) -> Float[Tensor, "*heads N p"]:
    """(P + Pᵀ) z with P = softmax of the rows of z zᵀ / √p; streamed if N is large."""
    if torch.compiler.is_exporting():  # only torch's own operations, for any batch size
        return _mix(z.flatten(0, -3)).view_as(z)
    if z.shape[-2] >= STREAMED_FROM and not z.is_meta:
        return streamed_attention(z)
    return explicit_attention(z)


def separate_attention(
    queries: Float[Tensor, "*heads N p"], keys: Float[Tensor, "*heads N p"], values: Float[Tensor, "*heads N p"]
) -> Float[Tensor, "*heads N p"]:
    """(softmax of rows + softmax of columns) of queries · keysᵀ / √p, times the values, where A is not symmetric."""
    scores = _scores(queries, keys)
    return (scores.softmax(dim=-1) + scores.softmax(dim=-2)) @ values


def explicit_attention(z: Float[Tensor, "*heads N p"]) -> Float[Tensor, "*heads N p"]:
    """With N×N matrices; on a CPU for a few heads at a time, so that their scores stay in the cache."""
    tokens, width = z.shape[-2:]
    heads = z.reshape(-1, tokens, width)
    at_once = max(1, _SCORES_IN_CACHE // tokens**2) if z.device.type == "cpu" else max(1, len(heads))
    return torch.cat([_mix(part) for part in heads.split(at_once)]).view_as(z)


def _mix(z: Float[Tensor, "heads N p"]) -> Float[Tensor, "heads N p"]:
    probabilities = _scores(z, z).softmax(dim=-1)
    return torch.baddbmm(probabilities.mT @ z, probabilities, z)


def streamed_attention(z: Float[Tensor, "*heads N p"]) -> Float[Tensor, "*heads N p"]:
    """A few rows at a time, without an N×N matrix in forward or backward. Differentiable once.

    Computed in float32 for lower precisions and under autocast.
    """
    return _StreamedAttention.apply(z)


def log_partition(z: Float[Tensor, "*heads N p"]) -> Float[Tensor, "*heads N"]:
    """log Σ_j exp(β z_i · z_j) of every token i."""
    if z.shape[-2] < STREAMED_FROM:
        return _scores(z, z).logsumexp(dim=-1)
    return torch.cat([_scores(z[..., rows, :], z).logsumexp(dim=-1) for rows in _row_blocks(z)], dim=-1)


def _scores(rows: Tensor, z: Tensor) -> Tensor:
    return (rows * z.shape[-1] ** -0.5) @ z.mT


def _row_blocks(z: Tensor) -> list[slice]:
    *heads, tokens, _ = z.shape
    size = max(1, min(tokens, _SCORES_AT_ONCE // max(1, tokens * torch.Size(heads).numel())))
    return [slice(start, min(tokens, start + size)) for start in range(0, tokens, size)]


class _StreamedAttention(torch.autograd.Function):
    """Computes blocks of rows of P for both products and discards them; the backward computes them again."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        given, z = z, _widen(z)
        output, log_sums = torch.zeros_like(z), z.new_empty(z.shape[:-1])
        with torch.autocast(z.device.type, enabled=False):  # it would convert the products back to bfloat16
            for rows in _row_blocks(z):
                scores = _scores(z[..., rows, :], z)
                log_sums[..., rows] = scores.logsumexp(dim=-1)
                probabilities = scores.sub_(log_sums[..., rows, None]).exp_()
                output[..., rows, :] += probabilities @ z
                output += probabilities.mT @ z[..., rows, :]
        ctx.save_for_backward(given, log_sums)
        return output.to(given.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """With g = ∂L/∂output: ∂L/∂P = g zᵀ + z gᵀ, then through the softmax, then through A = β z zᵀ."""
        given, log_sums = ctx.saved_tensors
        z, g, beta = _widen(given), _widen(gradients[0]), given.shape[-1] ** -0.5
        gradient = torch.zeros_like(z)
        with torch.autocast(z.device.type, enabled=False):
            for rows in _row_blocks(z):
                z_rows, g_rows = z[..., rows, :], g[..., rows, :]
                probabilities = _scores(z_rows, z).sub_(log_sums[..., rows, None]).exp_()
                gradient[..., rows, :] += probabilities @ g
                gradient += probabilities.mT @ g_rows
                of_probabilities = g_rows @ z.mT
                of_probabilities += z_rows @ g.mT
                mean = (of_probabilities * probabilities).sum(dim=-1, keepdim=True)
                of_scores = of_probabilities.sub_(mean).mul_(probabilities)
                gradient[..., rows, :] += beta * (of_scores @ z)
                gradient += beta * (of_scores.mT @ z_rows)
        return gradient.to(given.dtype)


def _widen(z: Tensor) -> Tensor:
    """To float32, because bfloat16 scores and log-sums would change the softmax by some per cent."""
    return z.float() if z.dtype.itemsize < 4 else z
