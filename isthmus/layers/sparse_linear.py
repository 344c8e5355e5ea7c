"""A linear map with a frozen random mask whose cost scales with its connections.

    y = s · (M ⊙ W) x + b,   M_ij = 1 with probability p, else 0

The trainable parameter ``values`` holds the weights of the connections, row by row. Their positions are drawn from a
seed: first their number (binomial), then a uniform subset of that size, which together is the Bernoulli mask. The mask
is never stored or formed as a matrix. The meta device needs only the number.

Sparse products keep the pattern and its transpose (compressed rows), so that forward, both gradients and their own
gradients are each one pass over the connections. Above a density of ``SPARSE_UP_TO``, and where there is no sparse
kernel (bfloat16, exporters), the weights are put into a temporary matrix for a dense product.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import register_flop_formula

from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.machine import memory_bytes
from isthmus.layers.seeded import fingerprint, on_meta, register_drawn

SPARSE_UP_TO = 0.1
"""At this density sparse and dense products took equally long at width 256 (forward and backward, one thread). At a
density of 0.2 sparse products took 0.9 of the time of dense ones at width 1024, and 0.5 at 3072."""
ComputeName = Literal["auto", "sparse", "dense"]


_PATTERN = ("starts", "columns", "transposed_starts", "transposed_columns", "order")
"""Compressed rows of the mask and of its transpose; ``order`` sorts the values of the mask as in its transpose."""


def connections(rows: int, columns: int, density: float, seed: int, stream: str) -> int:
    """The number of ones in the mask: binomial, as for independent draws."""
    size = torch.tensor(rows * columns, dtype=torch.float64, device="cpu")
    probability = torch.tensor(density, dtype=torch.float64, device="cpu")
    return int(torch.binomial(size, probability, generator=torch_generator(seed, f"mask/{stream}/count")))


def positions(rows: int, columns: int, density: float, seed: int, stream: str) -> Int[Tensor, " connections"]:
    """The positions of the ones, row · columns + column, ascending; memory scales with their number."""
    size, count = rows * columns, connections(rows, columns, density, seed, stream)
    generator = torch_generator(seed, f"mask/{stream}/where")
    if 2 * count <= size:
        return _subset(size, count, generator)
    kept = torch.ones(size, dtype=torch.bool, device="cpu")
    kept[_subset(size, size - count, generator)] = False
    return kept.nonzero().flatten()


def _subset(size: int, count: int, generator: torch.Generator) -> Int[Tensor, " count"]:
    """A uniform subset of range(size): draw until enough are distinct, then drop the excess at random."""
    found = torch.empty(0, dtype=torch.long, device="cpu")
    while len(found) < count:
        more = -size * math.log1p(-(count - len(found)) / (size - len(found) + 1))  # the expected number of draws
        drawn = torch.randint(size, (int(1.05 * more) + 16,), generator=generator, device="cpu")
        found = torch.cat([found, drawn]).unique()
    if len(found) > count:
        kept = torch.ones(len(found), dtype=torch.bool, device="cpu")
        kept[torch.randperm(len(found), generator=generator, device="cpu")[count:]] = False
        found = found[kept]
    return found


def _pattern(flat: Int[Tensor, " connections"], rows: int, columns: int) -> list[Tensor]:
    if flat.is_meta:  # sizes are enough, and are quicker to find without sorting
        return [torch.empty(size, dtype=torch.int32) for size in (rows + 1, len(flat), columns + 1, *[len(flat)] * 2)]
    row, column = flat // columns, flat % columns
    order = column.argsort(stable=True)
    index_type = torch.int32 if len(flat) < 2**31 else torch.int64
    whole = (_starts(row, rows), column, _starts(column[order], columns), row[order], order)
    return [index.to(index_type) for index in whole]


def _starts(ascending: Int[Tensor, " connections"], size: int) -> Int[Tensor, " size_and_one"]:
    return torch.searchsorted(ascending, torch.arange(size + 1, device=ascending.device))


# The batch is the last axis in these operators, so that a connection multiplies a whole row of numbers. Their schemas
# are written out, because annotations are text here and a shape checker may wrap them.
@torch.library.custom_op(
    "isthmus::sparse_product", mutates_args=(),
    schema="(Tensor x, Tensor values, Tensor[] pattern, bool transposed) -> Tensor",
)  # fmt: skip
def sparse_product(x: Tensor, values: Tensor, pattern: list[Tensor], transposed: bool) -> Tensor:
    """W x, or Wᵀ x, for the columns x of a batch; W has these values in this pattern."""
    starts, columns, transposed_starts, transposed_columns, order = pattern
    if transposed:
        starts, columns, values = transposed_starts, transposed_columns, values.index_select(0, order)
    x = _contiguous(x)
    if x.device.type == "cpu" and x.dtype == torch.float32:  # takes half the time of the CSR product
        return functional.embedding_bag(
            columns, x, starts, mode="sum", per_sample_weights=values, include_last_offset=True
        )  # fmt: skip
    return _compress(starts, columns, values, (len(starts) - 1, len(x))) @ x


def _contiguous(x: Tensor) -> Tensor:
    """Copies in two halves, because torch copies a transposed matrix on one thread only."""
    if x.is_contiguous() or x.shape[1] % 2:
        return x.contiguous()
    return x.unflatten(1, (2, -1)).contiguous().flatten(1)


@torch.library.custom_op(
    "isthmus::sampled_product", mutates_args=(), schema="(Tensor y, Tensor x, Tensor[] pattern) -> Tensor"
)
def sampled_product(y: Tensor, x: Tensor, pattern: list[Tensor]) -> Tensor:
    """The entries of y xᵀ in the pattern, summed over the batch: the gradient of the values."""
    starts, columns, *_ = pattern
    sampled = x.new_zeros(len(columns))
    where = _compress(starts, columns, sampled, (len(y), len(x)))
    torch.sparse.sampled_addmm(where, _contiguous(y), _contiguous(x).mT, beta=0.0, out=where)
    return sampled


def _compress(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    _silence_beta_warning()
    return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


@cache
def _silence_beta_warning() -> None:
    """Trigger torch's warning that CSR tensors are in beta once, silently."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0, 0], [], [], (1, 1), device="cpu")


@sparse_product.register_fake
def _(x: Tensor, values: Tensor, pattern: list[Tensor], transposed: bool) -> Tensor:
    starts = pattern[2] if transposed else pattern[0]
    return x.new_empty(len(starts) - 1, x.shape[1])


@sampled_product.register_fake
def _(y: Tensor, x: Tensor, pattern: list[Tensor]) -> Tensor:
    return x.new_empty(len(pattern[1]))


def _product_backward(ctx: Any, gradient: Tensor) -> Any:
    x, values, *pattern = ctx.saved_tensors
    (transposed,) = ctx.rest
    to_x, to_values, *_ = ctx.needs_input_grad
    gradient = _contiguous(gradient)
    ends = (x, gradient) if transposed else (gradient, x)
    return (
        sparse_product(gradient, values, pattern, not transposed) if to_x else None,
        sampled_product(*ends, pattern) if to_values else None,
        [None] * len(pattern),
        None,
    )


def _sampled_backward(ctx: Any, gradient: Tensor) -> Any:
    y, x, *pattern = ctx.saved_tensors
    to_y, to_x, _ = ctx.needs_input_grad
    return (
        sparse_product(x, gradient, pattern, False) if to_y else None,
        sparse_product(y, gradient, pattern, True) if to_x else None,
        [None] * len(pattern),
    )


def _save(ctx: Any, inputs: Any, output: Tensor) -> None:
    first, second, pattern, *ctx.rest = inputs
    ctx.save_for_backward(first, second, *pattern)


sparse_product.register_autograd(_product_backward, setup_context=_save)
sampled_product.register_autograd(_sampled_backward, setup_context=_save)
for _device in ("cpu", "cuda"):  # in mixed precision the input may be bfloat16, which has no sparse kernels
    sparse_product.register_autocast(_device, torch.float32)
    sampled_product.register_autocast(_device, torch.float32)


@register_flop_formula([torch.ops.isthmus.sparse_product, torch.ops.isthmus.sampled_product])
def _flops(first: Any, second: Any, *rest: Any, out_shape: Any = None, **named: Any) -> int:
    """One multiply–add per connection and row of the batch."""
    (pattern,) = (argument for argument in (second, *rest) if isinstance(argument, list))
    return 2 * int(first[1]) * int(pattern[1][0])


class SparseLinear(nn.Module):
    """s · (M ⊙ W) x + b with a frozen Bernoulli(``density``) mask M; ``values`` are the entries of W where M is one.

    W starts as N(0, 1/columns), whatever the density. ``scale`` is the value of M's ones.
    """

    values: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        columns: int,
        rows: int,
        density: float,
        seed: int,
        stream: str = "",
        scale: float = 1.0,
        bias: bool = False,
        compute: ComputeName = "auto",
    ) -> None:
        super().__init__()
        if not 0 < density <= 1:
            raise UserError(f"density={density:g} must be above 0 and at most 1")
        self.rows, self.columns, self.density, self.scale = rows, columns, density, scale
        self.sparse = compute == "sparse" or (compute == "auto" and density <= SPARSE_UP_TO)
        mask = (rows, columns, density, seed, stream)
        count = connections(*mask)
        need_memory(count, f"a sparse layer of {rows}×{columns} at density {density:g}")
        flat = torch.empty(count, dtype=torch.long) if on_meta() else positions(*mask)
        if self.sparse:
            pattern = zip(_PATTERN, _pattern(flat, rows, columns), strict=True)
            register_drawn(self, **{f"index_{name}": index for name, index in pattern})
        elif density < 1:
            register_drawn(self, index_flat=flat)
        self.values = nn.Parameter(torch.empty(count))
        self.bias = nn.Parameter(torch.zeros(rows)) if bias else None
        nn.init.normal_(self.values, std=1 / math.sqrt(columns))

    @property
    def effective_shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    def pattern(self) -> list[Tensor]:
        return [self.get_buffer(f"index_{name}") for name in _PATTERN]

    def check_indices(self) -> None:
        """Raise an error if connections read from a file are outside the matrix."""
        if self.sparse:
            starts, columns, transposed_starts, transposed_columns, order = self.pattern()
            shape, values = (self.rows, self.columns), self.values.detach()
            torch._validate_sparse_csr_tensor_args(starts, columns, values, shape)
            torch._validate_sparse_csr_tensor_args(transposed_starts, transposed_columns, values, shape[::-1])
            if not torch.equal(order.sort().values, torch.arange(len(order), dtype=order.dtype)):
                raise ValueError("the order of the connections is not a permutation")

    def flat_indices(self) -> Int[Tensor, " connections"] | None:
        """The position of every connection, row · columns + column; None for a dense layer."""
        if not self.sparse:
            return self.get_buffer("index_flat") if self.density < 1 else None
        starts, columns, *_ = self.pattern()
        row = torch.arange(self.rows, device=starts.device).repeat_interleave(starts.diff(), output_size=len(columns))
        return row * self.columns + columns

    def weight(self) -> Float[Tensor, "rows columns"]:
        """s · (M ⊙ W) as a dense matrix."""
        flat = self.flat_indices()
        values = self.values * self.scale
        if flat is None:
            return values.view(self.rows, self.columns)
        return values.new_zeros(self.rows * self.columns).index_copy_(0, flat, values).view(self.rows, self.columns)

    def fingerprint(self) -> list[float]:
        """Sums over the columns of the connections, all near 0 ± 1."""
        flat = self.flat_indices()
        if flat is None:
            return [0.0, 0.0, 0.0]
        return fingerprint((flat % self.columns).double() / self.columns - 0.5, math.sqrt(max(1, len(flat))))

    @torch.no_grad()
    def fold(self) -> nn.Linear:
        """An equivalent dense layer for export, which has no sparse products."""
        plain = nn.Linear(self.columns, self.rows, self.bias is not None, dtype=self.values.dtype)
        plain.weight = nn.Parameter(self.weight())
        if self.bias is not None:
            plain.bias = nn.Parameter(self.bias.clone())
        return plain

    def forward(self, x: Float[Tensor, "*batch columns"]) -> Float[Tensor, "*batch rows"]:
        if not self._has_kernels():
            return functional.linear(x, self.weight(), self.bias)
        batch_last = _contiguous(x.reshape(-1, self.columns).mT)
        values = self.values if self.scale == 1 else self.values * self.scale
        y = sparse_product(
            batch_last, values, self.pattern(), False
        ).mT  # batch last, as the next sparse layer needs it
        y = y if self.bias is None else y + self.bias
        return y.unflatten(0, x.shape[:-1])

    def _has_kernels(self) -> bool:
        known = self.values.dtype in (torch.float32, torch.float64) and self.values.device.type in _DEVICES
        return self.sparse and known and not (torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export())

    def extra_repr(self) -> str:
        how = "sparse" if self.sparse else "dense"
        return f"columns={self.columns}, rows={self.rows}, density={self.density:g}, {len(self.values)} kept, {how}"


_DEVICES = ("cpu", "cuda", "meta")
_BYTES = 28
"""Per trained connection: weight, gradient, two moments and three indices."""


def need_memory(connections: int, what: str) -> None:
    """Raise an error if a layer does not fit into memory, before the system kills the process."""
    needed, here = _BYTES * connections, memory_bytes()
    if needed > here and not on_meta():
        raise UserError(
            f"{what} has {connections:.3g} connections and needs {needed / 1e9:,.1f} GB to train; this machine has "
            f"{here / 1e9:,.1f} GB. Use a smaller width or density"
        )
