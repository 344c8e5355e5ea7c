"""The wide, sparse matrix that a structured layer is equivalent to, if it fits into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.machine import memory_bytes


@runtime_checkable
class Structured(Protocol):
    """A layer that is equivalent to a larger matrix."""

    @property
    def effective_shape(self) -> tuple[int, int]: ...

    def effective_weight(self) -> Tensor: ...


def effective_weight(layer: nn.Module) -> Tensor:
    """W_eff of a permuted-Kronecker layer such as ``model.blocks[0].token_mixing.fc1``, as a dense matrix on vec(X)."""
    if not isinstance(layer, Structured):
        kind = type(layer).__name__
        raise UserError(
            f"a {kind} has no W_eff; a PermutedKronecker, such as model.blocks[0].token_mixing.fc1, has one"
        )
    outputs, inputs = layer.effective_shape
    needed = outputs * inputs * max(parameter.element_size() for parameter in layer.parameters())
    free = _free_bytes()
    if needed > free:
        raise UserError(
            f"a W_eff of {outputs:,}×{inputs:,} needs {_readable(needed)}; this machine has {_readable(free)} free. "
            "Choose a layer with smaller S and C"
        )
    return layer.effective_weight()


def _free_bytes() -> int:
    """Available memory; all memory if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return memory_bytes()


def _readable(size: int | float) -> str:
    units = iter(("bytes", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 1000 and unit != "TB":
        size, unit = size / 1000, next(units)
    return f"{size:,.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"
