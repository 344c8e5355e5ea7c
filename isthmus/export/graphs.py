"""What both graph formats need: models of plain layers, example inputs, and graphs from files as modules."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.export.raw_form import RawModel


def fold(model: nn.Module) -> nn.Module:
    """A copy with the same outputs in evaluation mode; layers with a ``fold`` method become what it returns.

    A Hadamard projection needs none: its fast transform consists of small products that every runtime supports.
    """
    plain = copy.deepcopy(model).eval().requires_grad_(False)
    for name, module in list(plain.named_modules()):
        if name and hasattr(module, "fold"):
            parent, _, attribute = name.rpartition(".")
            setattr(plain.get_submodule(parent), attribute, module.fold().eval().requires_grad_(False))
    return plain


def make_example(model: nn.Module, rows: int, seed: int = 0) -> Tensor:
    """Random rows that the model accepts: numbers in its precision, or tokens of its vocabulary."""
    if isinstance(model, RawModel):
        return model.example_rows(rows, seed)
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
