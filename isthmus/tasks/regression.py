"""Regression on arrays: standardised inputs and targets, squared error.

R² has no unit, and is computed on standardised values; the mean squared error is in the targets' own units, squared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MeanSquaredError, Metric, MetricCollection

from isthmus.core.errors import UserError
from isthmus.core.protocols import Batch, Component, Data, Signature, Split, SplitName, Task
from isthmus.tasks.scaling import Scaling, append_ones, with_ones

NAMES = {"regression": "Regression"}


class RegressionConfig(Component):
    ones: bool = False
    """Append a column of ones to the inputs, because residual MLPs have no biases."""
    standardise_inputs: bool = True
    """Standardise the inputs by the training rows; otherwise results depend on their units."""
    standardise_targets: bool = True
    """Standardise the targets by the training rows; otherwise results depend on their units."""


class R2(Metric):
    """The share of the targets' variance that is explained: the mean over outputs of 1 − Σ(t − y)² / Σ(t − t̄)².

    In float64 and without an absolute tolerance, so that units do not matter. An output whose targets are all the same
    says nothing about the fit and is left out; R² is not a number where none is left.
    """

    full_state_update = False
    higher_is_better = True
    origin: Tensor  # subtracted from all targets, so that equal ones have a variance of exactly 0
    rows: Tensor
    deviations: Tensor
    squared_deviations: Tensor
    squared_errors: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.add_state("rows", torch.tensor(0), dist_reduce_fx="sum")
        for name in ("origin", "deviations", "squared_deviations", "squared_errors"):
            self.add_state(name, torch.zeros(outputs, dtype=torch.float64), dist_reduce_fx=None)

    def update(self, output: Tensor, target: Tensor) -> None:
        output, target = output.double(), target.double()
        if self.rows == 0 and len(target):
            self.origin = target[0].clone()
        deviation = target - self.origin
        self.rows = self.rows + len(target)
        self.deviations = self.deviations + deviation.sum(0)
        self.squared_deviations = self.squared_deviations + deviation.square().sum(0)
        self.squared_errors = self.squared_errors + (target - output).square().sum(0)

    def compute(self) -> Tensor:
        variation = self.squared_deviations - self.deviations.square() / self.rows
        varies = variation > 0
        return (1 - self.squared_errors[varies] / variation[varies]).mean()


class Regression(Task):
    Config = RegressionConfig
    objective = "r2"
    maximise = True
    metric_versions: ClassVar = {"r2": 2}  # version 1 treated a sum of squared errors below 1e-4 as 0

    def __init__(self, config: RegressionConfig) -> None:
        self.config = config
        self.inputs, self.targets = Scaling(), Scaling()
        self.shapes = Signature((), ())

    def learn(self, data: Data) -> None:
        targets = data.train.targets
        if targets is None or targets.ndim != 2 or targets.dtype.kind != "f":
            raise UserError(
                "task regression needs a source with numeric targets, such as arrays with source.kind=regression"
            )
        if len(data.validation) == 1 or len(data.test) < 2:
            raise UserError(
                "task regression needs at least two rows in validation and in test: R² is undefined for one; "
                "give more rows, 20 if a tenth of them is the test"
            )
        if np.all(targets == targets[:1]):
            value = f"{targets[0, 0]:g}"
            raise UserError(
                f"task regression cannot learn a constant: every training target is {value}; name a target that varies"
            )
        self.shapes = Signature(tuple(data.train.inputs.shape[1:]), tuple(targets.shape[1:]))
        if self.config.ones and data.train.inputs.ndim != 2:
            raise UserError("task.ones appends a column to rows of features; this source has images")
        if self.config.standardise_inputs:
            self.inputs.learn(data.train.inputs)
        if self.config.standardise_targets:
            self.targets.learn(targets)
        if len(data.validation):
            self._check_held_out(data.validation, targets, "validation")
        self._check_held_out(data.test, targets, "test")

    def _check_held_out(self, rows: Split, train: np.ndarray, split: str) -> None:
        held_out = rows.targets
        assert held_out is not None  # as in the training rows
        hint = "take more rows, or another source.split_seed"
        if np.all(held_out == held_out[:1]):
            raise UserError(f"task regression: every target in {split} is the same, so that R² is undefined; {hint}")
        for column in np.flatnonzero(self.targets.constant.numpy()):
            if np.any(held_out[:, column] != train[0, column]):
                raise UserError(
                    f"task regression: target {column + 1} of {train.shape[1]} is {train[0, column]:g} in every "
                    f"training row but not in {split}, so that it cannot be learned; leave it out, or {hint}"
                )

    def memory(self) -> dict[str, Tensor]:
        shapes = {"input_shape": torch.tensor(self.shapes[0]), "output_shape": torch.tensor(self.shapes[1])}
        return shapes | self.inputs.memory("input") | self.targets.memory("target")

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        self.shapes = Signature(tuple(memory["input_shape"].tolist()), tuple(memory["output_shape"].tolist()))
        self.inputs.recall(memory, "input")
        self.targets.recall(memory, "target")

    @property
    def signature(self) -> Signature:
        return Signature(with_ones(self.shapes.input_shape) if self.config.ones else self.shapes[0], self.shapes[1])

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shapes.input_shape

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        return self.evaluation_batch(rows, targets, "train", step)

    def fixed_batch(self, rows: Tensor, targets: Tensor | None) -> Batch:
        return self.evaluation_batch(rows, targets, "train", 0)

    def row_losses(self, output: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(output, target, reduction="none").mean(1)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        assert targets is not None  # learn() refused sources without targets
        return Batch(self._scale(rows), self.targets.apply(targets))

    def _scale(self, rows: Tensor) -> Tensor:
        scaled = self.inputs.apply(rows)
        return append_ones(scaled) if self.config.ones else scaled

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(output, target)

    def metrics(self, split: SplitName) -> MetricCollection:
        return MetricCollection({"r2": R2(*self.shapes.output_shape), "mse": MeanSquaredError()}, compute_groups=False)

    def measure(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        metrics["r2"].update(output, target)
        # In float64, so that no square of a float32 overflows.
        metrics["mse"].update(self.targets.undo(output.double()), self.targets.undo(target.double()))

    def encode(self, rows: np.ndarray) -> Tensor:
        return self._scale(torch.from_numpy(np.array(rows)))

    def decode(self, output: Tensor) -> np.ndarray:
        return self.targets.undo(output).cpu().numpy()
