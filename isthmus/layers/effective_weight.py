"""The wide, sparse matrix that a permuted-Kronecker layer is equivalent to, if it fits into memory."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.machine import memory_bytes
from isthmus.layers.permuted_kronecker import PermutedKronecker


def effective_weight(layer: nn.Module) -> Tensor:
    """W_eff of a layer such as ``model.blocks[0].token_mixing.fc1``, as a dense matrix on vec(X)."""
    if not isinstance(layer, PermutedKronecker):
        raise UserError(
            f"a {type(layer).__name__} has no W_eff; a PermutedKronecker has one, such as "
            "model.blocks[0].token_mixing.fc1 of a mixer"
        )
    outputs, inputs = layer.effective_shape
    needed, free = outputs * inputs * layer.weight.element_size(), _free_bytes()
    if needed > free:
        raise UserError(
            f"a W_eff of {outputs:,}×{inputs:,} needs {needed / 1e9:,.1f} GB; this machine has {free / 1e9:,.1f} GB "
            "free. Choose a layer with smaller S and C"
        )
    return layer.effective_weight()


def _free_bytes() -> int:
    """Available memory; all memory if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return memory_bytes()
