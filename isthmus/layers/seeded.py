"""Help for layers that draw frozen tensors from a seed instead of storing them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def on_meta() -> bool:
    """Whether new tensors have shapes but no values."""
    return torch.get_default_device().type == "meta"


def register_drawn(module: nn.Module, **tensors: Tensor) -> None:
    """Register buffers that are not part of the checkpoint, on the default device."""
    for name, tensor in tensors.items():
        module.register_buffer(name, tensor.to(torch.get_default_device()), persistent=False)


def fingerprint(values: Tensor, scale: float | Tensor | None = None) -> list[float]:
    """Three weighted sums of a drawn tensor over ``scale`` (default: its norm), for the checkpoint.

    They reveal another draw. Unlike a hash they allow a tolerance, because the last bits may differ between machines.
    """
    values = values.detach().to("cpu", torch.float64).flatten()
    scale = values.norm().clamp_min(1e-300) if scale is None else scale
    position = torch.arange(len(values), dtype=torch.float64, device="cpu")
    return [float((values * torch.cos(frequency * position)).sum() / scale) for frequency in (0.1, 1.0, 2.0)]
