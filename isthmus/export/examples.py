"""Example inputs to trace and compare exports, and a check of input shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.export.raw_form import RawModel


def example(model: nn.Module, rows: int, seed: int = 0) -> Tensor:
    """Random rows that the model accepts: numbers in its precision, or tokens of its vocabulary."""
    if isinstance(model, RawModel):
        return model.example_rows(rows, seed)
    shape: tuple[int, ...] = model.input_shape  # type: ignore[assignment]
    generator = torch.Generator().manual_seed(seed)
    vocabulary: int = getattr(model, "vocabulary", 0)
    if vocabulary:
        return torch.randint(vocabulary, (rows, *shape), generator=generator)
    return torch.rand(rows, *shape, generator=generator, dtype=next(model.parameters()).dtype)


def need_rows(path: Path, shape: tuple[Any, ...], x: Tensor) -> None:
    """Refuse rows of another shape: a file may hold another model than its folder says."""
    if tuple(x.shape[1:]) != shape:
        raise UserError(
            f"{path} takes rows of {shape}, and was given rows of {tuple(x.shape[1:])}; export the run again"
        )
