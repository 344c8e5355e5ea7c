"""Classification of images or of feature rows, by cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from isthmus.augment import ORIENTATIONS, oriented
from isthmus.errors import UserError
from isthmus.protocols import Batch, Component, Data, Signature, SplitName, Task
from isthmus.tasks.labels import training_labels
from isthmus.tasks.scaling import Scaling

NAMES = {"classification": "Classification"}


class ClassificationConfig(Component):
    standardise: bool = True
    """Inputs are centred and scaled by the statistics of the training rows, per channel or per feature."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    flips: bool = False
    """An epoch shows every training image in all four orientations."""


class Classification(Task):
    Config = ClassificationConfig
    objective = "accuracy"
    maximise = True

    def __init__(self, config: ClassificationConfig) -> None:
        self.config = config
        self.scaling = Scaling()
        self.input_shape: tuple[int, ...] = ()
        self.classes = 0

    def learn(self, data: Data) -> None:
        _, self.classes = training_labels(data, self.config.name)
        if self.config.flips and data.train.inputs.ndim != 4:
            raise UserError("task.flips=true needs images")
        self.input_shape = tuple(data.train.inputs.shape[1:])
        if self.config.standardise:
            self.scaling.learn(data.train.inputs)

    def memory(self) -> dict[str, Tensor]:
        shapes = {"classes": torch.tensor(self.classes), "input_shape": torch.tensor(self.input_shape)}
        return shapes | self.scaling.memory("input")

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        self.classes = int(memory["classes"])
        self.input_shape = tuple(memory["input_shape"].tolist())
        self.scaling.recall(memory, "input")

    @property
    def signature(self) -> Signature:
        return Signature(self.input_shape, (self.classes,))

    def views(self) -> int:
        return ORIENTATIONS if self.config.flips else 1

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        batch = self.evaluation_batch(rows, targets, "train", step)
        return Batch(oriented(batch.input, view), batch.target) if self.config.flips else batch

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        assert targets is not None  # learn() refused sources without labels
        return Batch(self.scaling.apply(rows), targets)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(output, target, label_smoothing=self.config.label_smoothing)

    def metrics(self, split: SplitName) -> MetricCollection:
        return MetricCollection({"accuracy": MulticlassAccuracy(self.classes, average="micro")})

    def measure(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        metrics.update(output, target)

    def encode(self, rows: np.ndarray) -> Tensor:
        return self.scaling.apply(torch.from_numpy(np.array(rows)))

    def decode(self, output: Tensor) -> np.ndarray:
        return output.argmax(dim=1).cpu().numpy()
