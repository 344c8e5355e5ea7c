"""A trained model with all that surrounds it in one graph: raw columns in, values in units or probabilities out.

The input is float64 (rows, columns): numbers as they are, and for the source ``table`` the codes of
`TableEncoder.codes`, with NaN for missing values. Inside are the encoder, the scaling of the task, its column of ones,
the model, and the way back to the units of the targets or to probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.core.protocols import Task
from isthmus.sources.encoding import Column, TableEncoder, expand_codes
from isthmus.tasks.classification import Classification
from isthmus.tasks.regression import Regression
from isthmus.tasks.scaling import Scaling

_MISSING = 0.1
"""The share of missing values in example rows."""


class EncoderModule(nn.Module):
    """``TableEncoder.expand`` in torch: float64 codes (rows, codes) to float32 features (rows, features)."""

    def __init__(self, encoder: TableEncoder) -> None:
        super().__init__()
        self._names = {name: name.replace(".", "_") for name in encoder.plan}
        for name, constants in encoder.plan.items():
            self.register_buffer(self._names[name], torch.from_numpy(constants.copy()))

    def forward(self, codes: Tensor) -> Tensor:
        plan = {name: self.get_buffer(buffer) for name, buffer in self._names.items()}
        expanded: Tensor = expand_codes(torch, codes, plan, Tensor.float, Tensor.long)
        return expanded


class RawModel(nn.Module):
    """The model of a task on rows of features, with what stands before and after it."""

    mean: Tensor
    divisor: Tensor
    target_mean: Tensor
    target_std: Tensor

    def __init__(self, model: nn.Module, task: Regression | Classification, encoder: TableEncoder | None) -> None:
        super().__init__()
        self.model, self.columns = model, encoder.columns if encoder else ()
        self.config, self.ones = model.config, task.config.ones
        self.encoder = EncoderModule(encoder) if encoder else None
        self.is_classifier = isinstance(task, Classification)
        self.input_shape = (sum(column.width for column in self.columns),) if encoder else task.row_shape
        inputs, targets = _scalings(task)
        self.register_buffer("mean", inputs.mean.clone())
        self.register_buffer("divisor", inputs.std.masked_fill(inputs.std == 0, torch.inf))
        self.register_buffer("target_mean", targets.mean.clone())
        self.register_buffer("target_std", targets.std.clone())

    def forward(self, x: Tensor) -> Tensor:
        features = x.float() if self.encoder is None else self.encoder(x)
        scaled = (features - self.mean) / self.divisor
        if self.ones:
            scaled = nn.functional.pad(scaled, (0, 1), value=1.0)
        output: Tensor = self.model(scaled)
        return output.softmax(dim=1) if self.is_classifier else output * self.target_std + self.target_mean

    def example_rows(self, rows: int, seed: int) -> Tensor:
        """Random rows like those of training; tables with missing values and unknown categories."""
        generator = torch.Generator().manual_seed(seed)
        if not self.columns:
            drawn = torch.randn(rows, *self.input_shape, generator=generator, dtype=torch.float64)
            return self.mean + drawn * self.divisor.masked_fill(self.divisor.isinf(), 0)
        codes = torch.cat([_example_codes(column, rows, generator) for column in self.columns], dim=1)
        return codes.masked_fill(torch.rand(codes.shape, generator=generator) < _MISSING, torch.nan)


def raw_form(model: nn.Module, task: Task, table: Mapping[str, Any]) -> RawModel | None:
    """The model of a regression or classification of rows of features as a `RawModel`; None for other tasks."""
    if not isinstance(task, Regression | Classification) or len(task.row_shape) != 1:
        return None
    known = Classification if isinstance(task, Classification) else Regression
    if (type(task).encode, type(task).decode) != (known.encode, known.decode):  # a plug-in with a way of its own
        return None
    return RawModel(model, task, TableEncoder.recall(table["encoder"]) if table else None).eval()


def _scalings(task: Regression | Classification) -> tuple[Scaling, Scaling]:
    return (task.scaling, Scaling()) if isinstance(task, Classification) else (task.inputs, task.targets)


def _example_codes(column: Column, rows: int, generator: torch.Generator) -> Tensor:
    if column.kind == "category":
        return torch.randint(-1, len(column.values), (rows, 1), generator=generator).double()
    if column.kind in ("boolean", "text"):
        return torch.randint(0, 2, (rows, column.width), generator=generator).double()
    drawn = torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    return column.fill + column.scale * drawn * (1000 if column.kind == "date" else 1 + abs(column.fill) / 10)
