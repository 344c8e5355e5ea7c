"""Autocast, for functions whose gradients are written out: torch converts the inputs of its own operations only."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def is_autocast(device: torch.device) -> bool:
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    # Entered only if needed, because exported programs would contain it.
    return torch.autocast(device.type, enabled=False) if is_autocast(device) else nullcontext()


def same_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Repeats the precision of this pass in a later one."""
    return torch.autocast(device.type, torch.get_autocast_dtype(device.type)) if is_autocast(device) else nullcontext()
