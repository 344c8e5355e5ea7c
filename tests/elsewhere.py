"""A device that is not there: tensors with values that only torch's own operations may touch, as on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

P = ParamSpec("P")
T = TypeVar("T")
DEVICE = torch.device("meta")
_MAY_MIX = ("copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_")
"""On a GPU too these take tensors of two devices."""


class Away(Tensor):
    """A tensor of the device; ``here`` is what it holds."""

    is_meta = False  # it has values
    here: Tensor

    def tolist(self) -> Any:
        return self.here.tolist()

    def __getitem__(self, index: Any) -> Tensor:
        """A list would become an index without values."""
        return super().__getitem__(torch.tensor(index) if isinstance(index, list) else index)

    @staticmethod
    def __new__(cls, values: Tensor) -> Away:
        away: Away = Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            layout=values.layout,
            device=DEVICE,
            requires_grad=False,
        )
        away.here = values
        return away

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _compute(func, args, kwargs or {})


@contextmanager
def elsewhere() -> Iterator[None]:
    """While it lasts, ``DEVICE`` is a device with memory of its own."""
    with _Computing(), _Making():
        yield


def stay_here(function: Callable[P, T]) -> Callable[P, T]:
    """The function as it is without the device: building a model uses torch's own meta device."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return call


class _Making(TorchFunctionMode):
    """``torch.tensor`` of a meta device dispatches to no operation."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and torch.device(kwargs.get("device") or "cpu").type == DEVICE.type:
            del kwargs["device"]
            return torch.tensor(*args, **kwargs).to(DEVICE)
        return func(*args, **kwargs)


class _Computing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


def _compute(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    away = [each for each in given if isinstance(each, Away)]
    name = func.overloadpacket.__name__
    if away and name not in _MAY_MIX:
        here = [each for each in given if not isinstance(each, Away) and each.dim()]
        assert not here, f"{name} mixes devices: {[tuple(each.shape) for each in here]} is on the CPU"
    device = kwargs.get("device")
    if away and name.endswith("_") and name != "copy_":
        assert isinstance(args[0], Away), f"{name} changes a tensor of the CPU by one that is elsewhere"
    goes_away = bool(away) if device is None else device.type == DEVICE.type
    if name == "copy_":
        goes_away = isinstance(args[0], Away)
    known = {id(each.here): each for each in away}
    plain_args, plain_kwargs = tree_map_only(Away, lambda each: each.here, (tuple(args), dict(kwargs)))
    if device is not None:
        plain_kwargs["device"] = torch.device("cpu")
    found = func(*plain_args, **plain_kwargs)
    if name == "_local_scalar_dense":
        return found
    return tree_map_only(Tensor, lambda each: known.get(id(each), Away(each)) if goes_away else each, found)
