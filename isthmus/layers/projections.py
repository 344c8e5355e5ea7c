"""Linear maps from the input into the residual space: trained, or random and frozen.

A frozen map is rebuilt from its seed and never stored. It is drawn in float64 and cast, so that every machine gets the
same float32 numbers up to the last bits of a QR factorisation.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from isthmus.core.draws import torch_generator
from isthmus.layers.autocast import is_autocast
from isthmus.layers.seeded import fingerprint, on_meta, register_drawn

ProjectionName = Literal["trainable", "uniform", "gaussian", "orthogonal", "hadamard"]

_CACHED = 2**18
"""This many numbers fit several times into the cache of a core."""


def projection(name: ProjectionName, d_in: int, d_out: int, seed: int) -> nn.Module:
    if name == "trainable":
        return nn.Linear(d_in, d_out, bias=False)
    if name == "hadamard":
        return HadamardProjection(d_in, d_out, seed)
    return FixedProjection(name, d_in, d_out, seed)


class FixedProjection(nn.Module):
    """A dense random matrix that is neither trained nor stored.

    ``uniform`` is PyTorch's linear initialisation. ``gaussian`` has variance 1/d_out and keeps ‖x‖ in the mean;
    ``orthogonal`` has orthonormal columns (rows, if d_out < d_in) and keeps it exactly.
    """

    weight: Tensor

    def __init__(self, kind: Literal["uniform", "gaussian", "orthogonal"], d_in: int, d_out: int, seed: int) -> None:
        super().__init__()
        weight = torch.empty(d_out, d_in) if on_meta() else _draw(kind, d_in, d_out, seed)
        register_drawn(self, weight=weight.to(torch.get_default_dtype()))

    @property
    def fixed_params(self) -> int:
        return self.weight.numel()

    def fingerprint(self) -> list[float]:
        return fingerprint(self.weight)

    @torch.no_grad()
    def fold(self) -> nn.Linear:
        """An equivalent linear layer with a stored weight, for export."""
        plain = nn.utils.skip_init(nn.Linear, *reversed(self.weight.shape), bias=False, dtype=self.weight.dtype)
        plain.weight = nn.Parameter(self.weight.clone())
        return plain

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        return nn.functional.linear(x, self.weight)


def _draw(kind: str, d_in: int, d_out: int, seed: int) -> Tensor:
    generator = torch_generator(seed, f"projection/{kind}")
    weight = torch.empty(d_out, d_in, dtype=torch.float64, device="cpu")
    if kind == "uniform":
        bound = 1 / math.sqrt(d_in)
        return weight.uniform_(-bound, bound, generator=generator)
    if kind == "gaussian":
        return weight.normal_(0, 1 / math.sqrt(d_out), generator=generator)
    tall = weight.view(max(d_out, d_in), min(d_out, d_in)).normal_(generator=generator)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for the same bits on every machine
    q, r = torch.linalg.qr(tall)
    torch.set_num_threads(threads)
    q = q * r.diagonal().sign()  # without the signs the distribution would not be uniform
    return (q if d_out >= d_in else q.T).contiguous()


class HadamardProjection(nn.Module):
    """Subsampled randomised Hadamard transform: √(n/d_out) · P H D x, with n a power of two that holds both widths.

    D flips signs, H mixes every input into every output, P keeps d_out of n rows. H is orthonormal, so ‖x‖ is kept in
    the mean. H_n is H_a ⊗ H_b with a·b = n, so two small products replace the large one. A CPU computes them for a few
    rows at a time, which stay in its cache.
    """

    signs: Tensor
    kept: Tensor
    left: Tensor
    right: Tensor

    fixed_params = 0

    def __init__(self, d_in: int, d_out: int, seed: int) -> None:
        super().__init__()
        exponent = max(0, math.ceil(math.log2(max(d_in, d_out))))
        self.size = 2**exponent
        self.d_in = d_in
        self.scale = math.sqrt(1 / d_out)  # √(n/d_out) of the sample times √(1/n) of H
        if on_meta():
            signs, kept = torch.empty(d_in), torch.empty(d_out, dtype=torch.long)
        else:
            generator = torch_generator(seed, "projection/hadamard")
            signs = torch.randint(0, 2, (d_in,), generator=generator, device="cpu").mul(2).sub(1)
            kept = torch.randperm(self.size, generator=generator, device="cpu")[:d_out].sort().values
        register_drawn(self, signs=signs.to(torch.get_default_dtype()), kept=kept)
        register_drawn(self, left=_hadamard(exponent // 2), right=_hadamard(exponent - exponent // 2))

    def fingerprint(self) -> list[float]:
        return fingerprint(torch.cat([self.signs.double(), self.kept.double() / self.size]))

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        rewritten = torch.compiler.is_compiling() or is_autocast(x.device)
        if x.device.type == "cpu" and x.dtype == self.signs.dtype and not rewritten:
            return _InPieces.apply(x, self, False)
        padded = nn.functional.pad(x * self.signs, (0, self.size - self.d_in))
        grid = padded.unflatten(-1, (len(self.left), len(self.right)))
        mixed = self.left @ grid @ self.right  # H is symmetric: no transpose
        return mixed.flatten(-2).index_select(-1, self.kept) * self.scale

    def write(self, x: Float[Tensor, "rows d_in"], y: Float[Tensor, "rows d_out"]) -> None:
        """y = √(n/d_out) P H D x, row by row."""
        rows, a, b = len(x), len(self.left), len(self.right)
        signed = x.new_zeros(rows, self.size) if self.d_in < self.size else torch.empty_like(x)
        torch.mul(x, self.signs, out=signed[:, : self.d_in])
        half = torch.bmm(self.left.expand(rows, a, a), signed.view(rows, a, b)).view(rows * a, b)
        whole = y if len(self.kept) == self.size else signed
        torch.addmm(half, half, self.right, beta=0, alpha=self.scale, out=whole.view(rows * a, b))
        if whole is not y:
            torch.index_select(whole, 1, self.kept, out=y)

    def write_transposed(self, y: Float[Tensor, "rows d_out"], x: Float[Tensor, "rows d_in"]) -> None:
        """x = √(n/d_out) D H Pᵀ y, row by row."""
        rows, a, b = len(y), len(self.left), len(self.right)
        if len(self.kept) < self.size:  # reading zeros is many times faster than writing to scattered places
            origin = torch.full((self.size,), len(self.kept))
            origin[self.kept] = torch.arange(len(self.kept))
            y = nn.functional.pad(y, (0, 1)).index_select(1, origin)
        grid = y.reshape(rows * a, b)
        half = torch.addmm(grid, grid, self.right, beta=0, alpha=self.scale).view(rows, a, b)
        whole = torch.bmm(self.left.expand(rows, a, a), half).view(rows, self.size)
        torch.mul(whole[:, : self.d_in], self.signs, out=x)


class _InPieces(torch.autograd.Function):
    """A Hadamard projection or its transpose, some rows at a time."""

    @staticmethod
    def forward(x: Tensor, layer: HadamardProjection, transposed: bool) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        y = rows.new_empty(len(rows), layer.d_in if transposed else len(layer.kept))
        write = layer.write_transposed if transposed else layer.write
        at_once = max(1, _CACHED // layer.size)
        for start in range(0, len(rows), at_once):
            piece = slice(start, start + at_once)
            write(rows[piece], y[piece])
        return y.view(*x.shape[:-1], y.shape[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, HadamardProjection, bool], output: Tensor) -> None:
        _, ctx.layer, ctx.transposed = inputs

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        return _InPieces.apply(upstream, ctx.layer, not ctx.transposed), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *nothing: None) -> Tensor:
        return _InPieces.apply(tangent, ctx.layer, ctx.transposed)

    @staticmethod
    def vmap(info: Any, axes: tuple[int | None, ...], x: Tensor, *rest: Any) -> tuple[Tensor, int]:
        return _InPieces.apply(x.movedim(axes[0] or 0, 0), *rest), 0


def _hadamard(exponent: int) -> Tensor:
    """Sylvester's matrix of size 2^exponent with entries ±1."""
    return reduce(torch.kron, [torch.tensor([[1.0, 1.0], [1.0, -1.0]])] * exponent, torch.ones(1, 1))
