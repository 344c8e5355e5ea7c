"""Regression on arrays: standardised inputs and targets, squared error; metrics are in the targets' own units."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torchmetrics import MeanSquaredError, MetricCollection, R2Score

from isthmus.errors import UserError
from isthmus.protocols import Batch, Component, Data, Signature, SplitName, Task
from isthmus.tasks.scaling import Scaling

NAMES = {"regression": "Regression"}


class RegressionConfig(Component):
    standardise_inputs: bool = True
    standardise_targets: bool = True


class Regression(Task):
    Config = RegressionConfig
    objective = "r2"
    maximise = True

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
        if min(len(data.validation), len(data.test)) < 2:
            raise UserError(
                "task regression needs at least two rows in validation and in test: R² is undefined for one"
            )
        if np.all(targets == targets[:1]):
            raise UserError("task regression cannot learn a constant: every training target is the same")
        self.shapes = Signature(tuple(data.train.inputs.shape[1:]), tuple(targets.shape[1:]))
        if self.config.standardise_inputs:
            self.inputs.learn(data.train.inputs)
        if self.config.standardise_targets:
            self.targets.learn(targets)

    def memory(self) -> dict[str, Tensor]:
        shapes = {"input_shape": torch.tensor(self.shapes[0]), "output_shape": torch.tensor(self.shapes[1])}
        return shapes | self.inputs.memory("input") | self.targets.memory("target")

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        self.shapes = Signature(tuple(memory["input_shape"].tolist()), tuple(memory["output_shape"].tolist()))
        self.inputs.recall(memory, "input")
        self.targets.recall(memory, "target")

    @property
    def signature(self) -> Signature:
        return self.shapes

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        return self.evaluation_batch(rows, targets, "train", step)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        assert targets is not None  # learn() refused sources without targets
        return Batch(self.inputs.apply(rows), self.targets.apply(targets))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(output, target)

    def metrics(self, split: SplitName) -> MetricCollection:
        return MetricCollection({"r2": R2Score(), "mse": MeanSquaredError()}, compute_groups=False)

    def measure(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        # In float64: R² is a difference of sums of squares, which float32 loses where the mean is far from zero.
        metrics.update(self.targets.undo(output.double()), self.targets.undo(target.double()))

    def encode(self, rows: np.ndarray) -> Tensor:
        return self.inputs.apply(torch.from_numpy(np.array(rows)))

    def decode(self, output: Tensor) -> np.ndarray:
        return self.targets.undo(output).cpu().numpy()
