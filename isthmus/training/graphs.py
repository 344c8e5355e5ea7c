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
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

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
    with _Recorder(examples) as recorder:
        try:
            found = vmap(function)(*examples)
        except CannotStack:
            raise
        except Exception as error:  # a random draw, a branch on values, an operator that vmap does not know
            raise CannotStack((str(error).strip().splitlines() or [type(error).__name__])[0][:200]) from None
    graph = recorder.graph
    graph.output(recorder.find_nodes(found))
    _drop_views(graph)
    _check(graph, len(examples[0]))
    _align(graph)
    graph.lint()
    module = fx.GraphModule(nn.Module(), graph)
    return module.forward


class _Recorder(TorchDispatchMode):
    """Writes down every operation on the tensors of all members, as ``vmap`` and autograd carry it out.

    ``make_fx`` does the same and more, and takes twenty times as long.
    """

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self._nodes: dict[int, fx.Node] = {}
        self._kept: list[Any] = []  # so that no other tensor gets the id of one that is gone
        for number, tensor in enumerate(inputs):
            self._note(tensor, self.graph.placeholder(f"input_{number}"))

    def _note(self, tensor: Tensor, node: fx.Node) -> None:
        node.meta["shape"], node.meta["stride"] = tensor.shape, tensor.stride()
        self._nodes[id(tensor)] = node
        self._kept.append(tensor)

    def find_nodes(self, values: Any) -> Any:
        """The values with each tensor replaced by its node."""
        return tree_map_only(Tensor, self._find, values)

    def _find(self, tensor: Tensor) -> fx.Node:
        if id(tensor) not in self._nodes:
            raise CannotStack("the model uses a tensor that is neither a parameter nor a buffer")
        return self._nodes[id(tensor)]

    def _out_of_place(self, func: Any, args: tuple[Any, ...]) -> Any:
        """The operation with a result of its own, instead of one that changes a tensor that nothing else refers to."""
        if not func._schema.is_mutable:
            return func
        place = args[0].untyped_storage().data_ptr()
        others = [each for each in self._kept if each.untyped_storage().data_ptr() == place and each is not args[0]]
        packet = getattr(_aten, func._schema.name.removeprefix("aten::").removesuffix("_"), None)
        if others or packet is None or func._overloadname not in packet.overloads():
            raise CannotStack(f"{func} changes a tensor in place")
        return getattr(packet, func._overloadname)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        node = self.graph.call_function(self._out_of_place(func, args), *self.find_nodes((args, kwargs or {})))
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor):
            self._note(found, node)
        else:
            for number, each in enumerate(found):
                if isinstance(each, Tensor):
                    self._note(each, self.graph.call_function(operator.getitem, (node, number)))
        return found


def _shape(node: fx.Node) -> torch.Size:
    shape: torch.Size = node.meta["shape"]
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
    """Refuse an operation whose bits may depend on the place."""
    for node in graph.nodes:
        if node.op != "call_function" or node.target in _VIEWS or "shape" not in node.meta:
            continue
        is_sum = node.target is _aten.add.Tensor and node.kwargs.get("alpha", 1) == 1
        own = _shape(node)[1:]
        if not is_sum and node.target not in _EXACT and _shape(node)[:1] == (size,) and math.prod(own) % ELEMENTS:
            raise CannotStack(f"{node.target} of {tuple(own)} is not a multiple of {ELEMENTS} elements")


def _align(graph: fx.Graph) -> None:
    """Pad the products whose members do not all start at the same offset from 64 bytes."""
    for node in [node for node in graph.nodes if node.target is _aten.bmm.default]:
        first, second = node.args
        m, n = _shape(first)[1], _shape(second)[2]
        rows = _up(m) if _distance(first) % FLOATS else m
        columns = _up(n) if _distance(second) % FLOATS else n
        if rows * columns % FLOATS:  # of the result
            rows, columns = (rows, _up(n)) if n <= m else (_up(m), columns)
        if (rows, columns) == (m, n):
            _turn(graph, node)
            continue
        with graph.inserting_before(node):
            node.args = _pad(graph, first, rows - m, 0), _pad(graph, second, 0, columns - n)
        with graph.inserting_after(node):
            part = graph.call_function(_aten.slice.Tensor, (node, 1, 0, m))
        with graph.inserting_after(part):
            whole = graph.call_function(_aten.slice.Tensor, (part, 2, 0, n))
        whole.meta |= {"shape": _shape(node), "stride": (rows * columns, columns, 1)}
        node.replace_all_uses_with(whole, delete_user_cb=lambda user, part=part: user is not part)


def _turn(graph: fx.Graph, node: Any) -> None:
    """Compute a product as the transpose of (second)ᵀ(first)ᵀ where that takes a fraction of the time.

    Kernels fill whole registers with the columns of a result: 384×32 times 32×8 takes three times as long as its
    transpose.
    """
    first, second = node.args
    m, n = _shape(first)[1], _shape(second)[2]
    if n == 1 or n % FLOATS == 0 or m % FLOATS:
        return
    with graph.inserting_before(node):
        turned = [graph.call_function(_aten.transpose.int, (each, 1, 2)) for each in (second, first)]
    node.args = tuple(turned)
    with graph.inserting_after(node):
        back = graph.call_function(_aten.transpose.int, (node, 1, 2))
    back.meta |= {"shape": _shape(node), "stride": (m * n, 1, m)}
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)


def _up(number: int) -> int:
    return -(-number // FLOATS) * FLOATS


def _distance(node: fx.Node) -> int:
    """Floats from one member to the next."""
    distance: int = node.meta["stride"][0]
    return distance


def _pad(graph: fx.Graph, node: fx.Node, rows: int, columns: int) -> fx.Node:
    """The matrices with more rows and columns, of zeros."""
    if rows == columns == 0:
        return node
    return graph.call_function(_aten.constant_pad_nd.default, (node, [0, columns, 0, rows]))
