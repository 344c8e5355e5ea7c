"""Example inputs to trace and compare exports, and graphs from files as modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError


def example(model: nn.Module, rows: int, seed: int = 0) -> Tensor:
    """Random rows that the model accepts: numbers in its precision, or tokens of its vocabulary."""
    shape: tuple[int, ...] = model.input_shape  # type: ignore[assignment]
    generator = torch.Generator().manual_seed(seed)
    vocabulary: int = getattr(model, "vocabulary", 0)
    if vocabulary:
        return torch.randint(vocabulary, (rows, *shape), generator=generator)
    return torch.rand(rows, *shape, generator=generator, dtype=next(model.parameters()).dtype)


class GraphModel(nn.Module):
    """A graph from a file as a module. Its errors are one line: it may be damaged, or not fit what its folder says."""

    def __init__(self, path: Path, row_shape: tuple[int, ...], graph: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.path, self.row_shape, self.graph = path, row_shape, graph

    def forward(self, x: Tensor) -> Tensor:
        given = tuple(x.shape[1:])
        if given != self.row_shape:
            raise UserError(f"{self.path} takes rows of {self.row_shape}, not of {given}; export the run again")
        try:
            return self.graph(x)
        except Exception as error:  # each runtime raises its own types
            raise UserError(f"{self.path} cannot be run: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
