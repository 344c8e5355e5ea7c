"""Inputs on which an export is traced and compared."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def example(model: nn.Module, rows: int, seed: int = 0) -> Tensor:
    """So many rows as the model takes them: numbers in its precision, or tokens of its vocabulary."""
    shape: tuple[int, ...] = model.input_shape  # type: ignore[assignment]
    generator = torch.Generator().manual_seed(seed)
    vocabulary: int = getattr(model, "vocabulary", 0)
    if vocabulary:
        return torch.randint(vocabulary, (rows, *shape), generator=generator)
    return torch.rand(rows, *shape, generator=generator, dtype=next(model.parameters()).dtype)
