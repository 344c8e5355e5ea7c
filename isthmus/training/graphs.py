"""A computation of several networks of one shape as a list of operations, traced once.

Running the list skips the modules, ``vmap`` and autograd, whose overhead is most of a step of small networks.

The bits of a network must not depend on its place among the others. Two things make them depend on it:

- Matrix products have other bits where a matrix starts at another offset from a multiple of 64 bytes. So the matrices
  of all members of a product are the same number of floats apart, a multiple of 16; a product that is not so is padded.
- Kernels compute the last elements of a tensor, fewer than 32, with other instructions. So every member has a multiple
  of 32 elements, or the operation is one that rounds correctly and thus has the same bits either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

FLOATS = 16
"""64 bytes of float32."""
ELEMENTS = 32
_aten = torch.ops.aten
_VIEWS = {
    _aten.expand.default, _aten.view.default, _aten._unsafe_view.default, _aten.transpose.int, _aten.permute.default,
    _aten.select.int, _aten.slice.Tensor, _aten.unsqueeze.default, _aten.squeeze.dim, _aten.detach.default,
    _aten.t.default, _aten.alias.default, _aten.squeeze.dims,
}  # fmt: skip
_EXACT = {
    _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor, _aten.neg.default, _aten.sum.dim_IntList, _aten.mean.dim,
    _aten.ones_like.default, _aten.zeros_like.default, _aten.clone.default, _aten.copy_.default, _aten.full.default,
    _aten.zeros.default, _aten.new_zeros.default, _aten.bmm.default, _aten.ge.Scalar, _aten.ne.Scalar,
    _aten.where.self, _aten.scalar_tensor.default, _aten.gather.default, _aten.scatter_add.default,
    _aten.scatter.value, _aten.cat.default, _aten.eq.Scalar, _aten.masked_fill.Scalar, _aten.sum.default,
}  # fmt: skip
"""Operations on each element that round correctly, and sums, which take the same order for every member."""


class CannotStack(Exception):
    """The networks cannot be computed together with the same bits at every place."""


def trace(function: Callable[..., Any], examples: Sequence[Tensor]) -> Callable[..., Any]:
    """``function`` of one member, for all members: of tensors with a leading axis, without autograd."""
    try:
        graph = make_fx(vmap(function))(*examples)
    except Exception as error:  # a random draw, a branch on values, an operator that vmap does not know
        raise CannotStack((str(error).strip().splitlines() or [type(error).__name__])[0][:200]) from None
    _drop_views(graph.graph)
    _check(graph.graph, len(examples[0]))
    _align(graph.graph)
    graph.graph.set_codegen(fx.graph.CodeGen())
    graph.graph.lint()
    graph.recompile()
    return graph.forward


def _shape(node: fx.Node) -> torch.Size:
    shape: torch.Size = node.meta["tensor_meta"].shape
    return shape


def _drop_views(graph: fx.Graph) -> None:
    """Remove views that change nothing, and pairs of transpositions."""
    for node in list(graph.nodes):
        if node.target in (_aten.expand.default, _aten.view.default, _aten._unsafe_view.default):
            source = node.args[0]
            if _shape(source) == _shape(node):
                node.replace_all_uses_with(source)
        elif node.target is _aten.transpose.int:
            source = node.args[0]
            if source.target is _aten.transpose.int and source.args[1:] == node.args[1:]:
                node.replace_all_uses_with(source.args[0])
        elif node.target is _aten.detach.default:
            node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()


def _check(graph: fx.Graph, size: int) -> None:
    """Refuse an operation whose bits may depend on the place, and a tensor that is no input."""
    for node in graph.nodes:
        if node.op == "get_attr":
            raise CannotStack("the model uses a tensor that is neither a parameter nor a buffer")
        if node.op != "call_function" or node.target in _VIEWS or "tensor_meta" not in node.meta:
            continue
        is_sum = node.target is _aten.add.Tensor and node.kwargs.get("alpha", 1) == 1
        if is_sum or node.target in _EXACT:
            continue
        metas = node.meta["tensor_meta"]
        for meta in [metas] if hasattr(metas, "shape") else [meta for meta in metas if meta is not None]:
            if len(meta.shape) and meta.shape[0] == size and math.prod(meta.shape[1:]) % ELEMENTS:
                raise CannotStack(f"{node.target} of {tuple(meta.shape[1:])} is not a multiple of {ELEMENTS} elements")


def _align(graph: fx.Graph) -> None:
    """Pad the products whose members do not all start at the same offset from 64 bytes."""
    for node in [node for node in graph.nodes if node.target is _aten.bmm.default]:
        first, second = node.args
        m, n = _shape(first)[1], _shape(second)[2]
        rows = _up(m) if _distance(first) % FLOATS else m
        columns = _up(n) if _distance(second) % FLOATS else n
        if rows * columns % FLOATS:  # of the result
            rows, columns = (rows, _up(n)) if n >= m else (_up(m), columns)
        if (rows, columns) == (m, n):
            continue
        with graph.inserting_before(node):
            node.args = _pad(graph, first, rows - m, 0), _pad(graph, second, 0, columns - n)
        with graph.inserting_after(node):
            part = graph.call_function(_aten.slice.Tensor, (node, 1, 0, m))
        with graph.inserting_after(part):
            whole = graph.call_function(_aten.slice.Tensor, (part, 2, 0, n))
        node.replace_all_uses_with(whole, delete_user_cb=lambda user, part=part: user is not part)


def _up(number: int) -> int:
    return -(-number // FLOATS) * FLOATS


def _distance(node: fx.Node) -> int:
    """Floats from one member to the next."""
    distance: int = node.meta["tensor_meta"].stride[0]
    return distance


def _pad(graph: fx.Graph, node: fx.Node, rows: int, columns: int) -> fx.Node:
    """The matrices with more rows and columns, of zeros."""
    if rows == columns == 0:
        return node
    return graph.call_function(_aten.constant_pad_nd.default, (node, [0, columns, 0, rows]))
