"""The permuted-Kronecker (PK) layer, of which normal and random-permuted mixers are made.

Paper: Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), definition 5.1 and appendix B.

    paper                       here
    vec(X)                      ``vec``: the columns of X, one below the other
    J1, J2                      ``before``, ``after``: a :class:`Permutation` of any kind
    W, n1, n2                   ``weight``, ``copies``, the width of one copy (``width_in``, ``width_out``)
    J2 (I ⊗ W) J1 vec(X)        ``PermutedKronecker``, which adds a bias and leaves φ to the model
    W_eff = J2 (I ⊗ W) J1       ``effective_weight``, an explicit matrix (``isthmus.effective_weight`` checks its size)

Column-major vec is the convention of section 3, and all identities are tested with it. Token mixing (W X) then has
J1 = J2 = I, and channel mixing (X V) has J1 = J_c, J2 = J_cᵀ and the weight Vᵀ. A permutation is an index vector σ,
(J x)_i = x_σ(i), never a matrix.

Errors in the paper, in this convention:
    The index of vec is (j-1)S + i, printed with an undefined d. Definition 5.1 needs X ∈ R^{n2×n1}, not R^{n1×n2}.
    Eqs. (S.11) and (S.12) hold only for row-major vec: here J_c, J_cᵀ belong to channels and I, I to tokens.
    B.1, (S.17), (S.22) and (S.23) have an outer φ that eqs. (1) and (2) do not have; B.1 proves proposition 3.2, not
    4.1; (S.17) prints W_2 twice. In (S.21)-(S.23) J_c returns Uᵀ, and the next layer takes it as its X.
    The traces in (S.31) and (S.33) should be ‖W ⊗ 11ᵀ‖² and ‖11ᵀ ⊗ V‖²: as printed they are smaller by a factor C.
    (S.37) should have λ/C², as in eq. (11), not λ/2C².

A batch of X always has the shape (batch, rows, columns), but its order in memory differs. Permuting single numbers is
slow and permuting rows is fast, so around a random permutation the batch is the last axis in memory: a row is then one
entry of vec(X) for the whole batch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from isthmus.core.draws import torch_generator
from isthmus.layers.autocast import is_autocast
from isthmus.layers.seeded import fingerprint, on_meta, register_drawn

Layout = Literal["matrix", "transposed", "batch_last"]
"""The memory order of mat(J1 vec X), of shape (batch, width, copies): as it is, (batch, copies, width), or (copies,
width, batch)."""


def vec(x: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch size"]:
    """The columns of X in one vector: (vec X)_{jS + i} = X_ij."""
    return x.mT.flatten(-2)


def mat(x: Float[Tensor, "*batch size"], rows: int) -> Float[Tensor, "*batch rows columns"]:
    """The inverse of ``vec`` for a matrix with this many rows."""
    return x.unflatten(-1, (-1, rows)).mT


def batch_last(x: Float[Tensor, "batch rows columns"]) -> Float[Tensor, "batch rows columns"]:
    """The same numbers and shape, with the batch as the last axis in memory."""
    return x.permute(2, 1, 0).contiguous().permute(2, 1, 0)


def apply_in_memory_order(function: nn.Module, x: Float[Tensor, "batch rows columns"]) -> Tensor:
    """Apply an elementwise function with the axes in memory order, which halves the time of torch's GELU."""
    if x.is_contiguous() or _is_exporting():
        return function(x)
    if x.mT.is_contiguous():
        return function(x.mT).mT
    return function(x.permute(2, 1, 0)).permute(2, 1, 0)


class Permutation(nn.Module, ABC):
    """Y = mat(J vec(X)), where (J x)_i = x_σ(i)."""

    @abstractmethod
    def sigma(self) -> Int[Tensor, " size"]: ...

    @abstractmethod
    def forward(self, x: Float[Tensor, "batch rows columns"]) -> Float[Tensor, "batch other_rows other_columns"]: ...


class Identity(Permutation):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def sigma(self) -> Int[Tensor, " size"]:
        return torch.arange(self.size)

    def forward(self, x: Float[Tensor, "batch rows columns"]) -> Float[Tensor, "batch rows columns"]:
        return x


class Commutation(Permutation):
    """J_c vec(X) = vec(Xᵀ): a transpose, which moves nothing in memory."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.rows, self.columns = rows, columns

    def sigma(self) -> Int[Tensor, " size"]:  # Eq. (9)
        return torch.arange(self.rows * self.columns).view(self.columns, self.rows).T.flatten()

    def forward(self, x: Float[Tensor, "batch rows columns"]) -> Float[Tensor, "batch columns rows"]:
        return x.mT


class RandomPermutation(Permutation):
    """A uniform random permutation, rebuilt from its seed instead of stored; the result has ``rows`` rows.

    With the batch last in memory, the permutation and its gradient are each one gather of rows.
    """

    index: Tensor
    inverse: Tensor

    def __init__(self, size: int, rows: int, seed: int, name: str) -> None:
        super().__init__()
        self.rows = rows
        if on_meta():
            index, inverse = torch.empty(size, dtype=torch.long), torch.empty(size, dtype=torch.long)
        else:
            index = torch.randperm(size, generator=torch_generator(seed, f"permutation/{name}"), device="cpu")
            inverse = index.argsort()
        register_drawn(self, index=index, inverse=inverse)

    def sigma(self) -> Int[Tensor, " size"]:
        return self.index

    def fingerprint(self) -> list[float]:
        """Differs by about 0.2 for another draw."""
        return fingerprint(self.index.double() / len(self.index), len(self.index) ** 0.5)

    def forward(self, x: Float[Tensor, "batch rows columns"]) -> Float[Tensor, "batch other_rows other_columns"]:
        if _is_exporting():
            return _permute(x, self.index, self.rows)
        return _Permute.apply(x, self.index, self.inverse, self.rows)


def _permute(x: Tensor, index: Tensor, rows: int) -> Tensor:
    """mat(J vec(X)), batch last."""
    # len(x), here and below, would fix the batch size in an export.
    entries = x.permute(2, 1, 0).reshape(-1, x.shape[0])
    return entries.index_select(0, index).unflatten(0, (-1, rows)).permute(2, 1, 0)


def _is_exporting() -> bool:
    """Exporters support only torch's own operations."""
    return torch.compiler.is_exporting() or torch.jit.is_tracing()  # type: ignore[attr-defined]


class _Permute(torch.autograd.Function):
    """The gradient is the inverse permutation, which is faster than torch's scattered addition into zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.rows = x.shape[1]
        return _permute(x, index, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        (inverse,) = ctx.saved_tensors
        return _permute(gradient, inverse, ctx.rows), None, None, None


class _LeftProduct(torch.autograd.Function):
    """W X + b for each X of a batch, or for each column of X if the batch is last in memory.

    Avoids the copies of X and its gradient that torch makes for one large product.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, batch_last: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.batch_last = batch_last
        x = _turn(x, batch_last)
        many = weight.expand(x.shape[0], -1, -1)
        y = torch.bmm(many, x) if bias is None else torch.baddbmm(bias[:, None], many, x)
        return _turn(y, batch_last)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        x, gradient = _turn(x, ctx.batch_last), _turn(gradient, ctx.batch_last)
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        return (
            _turn(torch.bmm(weight.T.expand(x.shape[0], -1, -1), gradient), ctx.batch_last) if of_x else None,
            _sum_of_products(gradient, x) if of_weight else None,
            gradient.sum((0, 2)) if of_bias else None,
            None,
        )


def _sum_of_products(a: Tensor, b: Tensor) -> Tensor:
    """Σ A Bᵀ; the products are a fifth faster when the taller factor comes first."""
    return torch.bmm(a, b.mT).sum(0) if a.shape[1] >= b.shape[1] else torch.bmm(b, a.mT).sum(0).T


def _turn(x: Tensor, batch_last: bool) -> Tensor:
    return x.permute(2, 1, 0) if batch_last else x


class Arrangement(NamedTuple):
    """The permutations that move one axis of X first for a product with W, and back."""

    width_in: int
    width_out: int
    copies: int
    before: Permutation
    after: Permutation
    layout: Layout
    permute_hidden: Callable[[int], Permutation] | None = None
    """Makes the permutation of a hidden layer of this width; None: there is none."""

    def layers(self, *hidden: int, bias: bool) -> list[PermutedKronecker]:
        """One layer, or a chain J2 (I ⊗ W2) J (I ⊗ W1) J1, where J is the identity without ``permute_hidden``."""
        kept: list[Permutation] = [Identity(width * self.copies) for width in hidden]
        between = kept if self.permute_hidden is None else [self.permute_hidden(width) for width in hidden]
        inputs = zip([self.width_in, *hidden], [self.before, *between], strict=True)
        outputs = zip([*hidden, self.width_out], [*kept, self.after], strict=True)
        return [
            PermutedKronecker(Arrangement(width_in, width_out, self.copies, before, after, self.layout), bias)
            for (width_in, before), (width_out, after) in zip(inputs, outputs, strict=True)
        ]


class PermutedKronecker(nn.Module):
    """mat(J2 (I ⊗ W) J1 vec(X)) plus a bias for each output of W."""

    def __init__(self, arrangement: Arrangement, bias: bool = True) -> None:
        super().__init__()
        width_in, width_out, self.copies, self.before, self.after, self.layout, _ = arrangement
        self.weight = nn.Parameter(torch.empty(width_out, width_in))
        self.bias = nn.Parameter(torch.empty(width_out)) if bias else None
        bound = 1 / math.sqrt(width_in)
        for parameter in self.parameters():  # PyTorch's linear initialisation
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Float[Tensor, "batch rows columns"]) -> Float[Tensor, "batch other_rows other_columns"]:
        return self.after(self._multiply(self.before(x)))  # Definition 5.1

    def _multiply(self, x: Float[Tensor, "batch width_in copies"]) -> Float[Tensor, "batch width_out copies"]:
        if self.layout == "transposed":
            return functional.linear(x.mT, self.weight, self.bias).mT
        if _is_exporting() or is_autocast(x.device):
            y = self.weight @ x
            return y if self.bias is None else y + self.bias[:, None]
        return _LeftProduct.apply(x, self.weight, self.bias, self.layout == "batch_last")

    @property
    def effective_shape(self) -> tuple[int, int]:
        return self.copies * self.weight.shape[0], self.copies * self.weight.shape[1]

    @torch.no_grad()
    def effective_weight(self) -> Float[Tensor, "outputs inputs"]:
        """J2 (I ⊗ W) J1, Eq. (19), with all its zeros."""
        to, of = (units.to(self.weight.device) for units in self.ends())
        weight = self.weight.new_zeros(self.effective_shape)
        weight[to[:, :, None], of[:, None, :]] = self.weight
        return weight

    def ends(self) -> tuple[Int[Tensor, "copies width_out"], Int[Tensor, "copies width_in"]]:
        """The outputs and the inputs of each copy of W, numbered as in vec."""
        to = self.after.sigma().argsort()  # J2 moves entry σ2(i) to i
        return to.view(self.copies, -1), self.before.sigma().view(self.copies, -1)

    def extra_repr(self) -> str:
        width_out, width_in = self.weight.shape
        return f"width_in={width_in}, width_out={width_out}, copies={self.copies}, layout={self.layout}"


def arrange_tokens(rows: int, rows_out: int, columns: int) -> Arrangement:
    """W X: every column of X is a copy, which vec already stacks; Eq. (8)."""
    before, after = Identity(rows * columns), Identity(rows_out * columns)
    return Arrangement(rows, rows_out, columns, before, after, "matrix")


def arrange_channels(rows: int, columns: int) -> Arrangement:
    """X V with W = Vᵀ: every row of X is a copy; Eq. (7) as J_cᵀ (I ⊗ Vᵀ) J_c."""
    return Arrangement(columns, columns, rows, Commutation(rows, columns), Commutation(columns, rows), "transposed")


def arrange_randomly(
    width: int, width_out: int, copies: int, rows_out: int, seed: int, name: str, hidden: bool = False
) -> Arrangement:
    """Random J1 and J2, as in a random-permuted mixer; the result has ``rows_out`` rows. ``hidden``: and a random J."""
    before = RandomPermutation(width * copies, width, seed, f"{name}/before")
    after = RandomPermutation(width_out * copies, rows_out, seed, f"{name}/after")

    def permute_hidden(units: int) -> Permutation:
        return RandomPermutation(units * copies, units, seed, f"{name}/hidden")

    return Arrangement(width, width_out, copies, before, after, "batch_last", permute_hidden if hidden else None)


class ChannelNorm(nn.LayerNorm):
    """LayerNorm of every row of X, for either memory layout."""

    def __init__(self, columns: int, eps: float, batch_last: bool) -> None:
        super().__init__(columns, eps=eps)
        self.batch_last = batch_last

    def forward(self, x: Float[Tensor, "batch rows columns"]) -> Float[Tensor, "batch rows columns"]:
        is_rewritten = torch.compiler.is_compiling() or _is_exporting() or is_autocast(x.device)
        if not self.batch_last or x.device.type != "cpu" or is_rewritten:
            return super().forward(x)
        return _NormOfColumns.apply(x, self.weight, self.bias, self.eps)


class _NormOfColumns(torch.autograd.Function):
    """LayerNorm of the rows of X with the batch last, in operations that read memory in order.

    torch's batch normalisation over the columns of X is the same arithmetic.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        flat = x.permute(2, 1, 0).flatten(1)
        normal, _, inverse_deviation = torch.native_batch_norm(flat, None, None, None, None, True, 0.0, eps)
        ctx.save_for_backward(normal, inverse_deviation, weight)
        # normal · weight + bias in one pass over memory: a batch norm whose statistics are 0 and 1.
        zero, one = torch.zeros_like(bias), torch.ones_like(bias)
        y = torch.batch_norm(normal[None], weight, bias, zero, one, False, 0.0, 0.0, False)[0]
        return y.unflatten(1, (-1, x.shape[0])).permute(2, 1, 0)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> Any:
        normal, inverse_deviation, weight = ctx.saved_tensors
        flat = gradient.permute(2, 1, 0).flatten(1)
        product = flat * normal
        share = (weight / len(weight)).to(flat.dtype)
        mean, slope = share @ flat, share @ product
        weight_gradient, bias_gradient = product.sum(1), flat.sum(1)
        # (w g - mean(w g) - n mean(w g n)) / deviation, with n the normalised values
        of_x = torch.mul(flat, weight[:, None], out=product)
        of_x.sub_(mean).addcmul_(normal, slope, value=-1).mul_(inverse_deviation)
        return of_x.unflatten(1, (-1, gradient.shape[0])).permute(2, 1, 0), weight_gradient, bias_gradient, None
