"""Generative classification: the model outputs the prototype of an image's class; the nearest one is its answer.

Paper: Hourglass MLP, appendix C.2.1. The prototype of a class is a training image, chosen at random once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from isthmus.core.draws import numpy_generator
from isthmus.core.errors import UserError
from isthmus.core.protocols import Batch, Data, SplitName
from isthmus.tasks.image_to_image import ImageConfig, Images, ImageToImage, pixels
from isthmus.tasks.labels import training_labels

NAMES = {"generative_classification": "GenerativeClassification"}


class GenerativeClassification(ImageToImage):
    class Config(ImageConfig):
        prototype_seed: Annotated[int, Field(ge=0)] = 0
        """Seed of the choice of one training image per class, which the model must output."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.prototypes = torch.empty(0)

    def learn(self, data: Data) -> None:
        super().learn(data)
        labels, classes = training_labels(data, self.config.name)
        members = [np.flatnonzero(labels == c) for c in range(classes)]
        for name, rows in zip(data.classes or range(classes), members, strict=True):
            if not len(rows):
                raise UserError(f"task {self.config.name} needs a training image of each class; class {name} has none")
        draw = numpy_generator(self.config.prototype_seed, "prototypes")
        chosen = [int(draw.choice(rows)) for rows in members]
        self.prototypes = pixels(torch.from_numpy(data.train.inputs[chosen]))

    def memory(self) -> dict[str, Tensor]:
        return super().memory() | {"prototypes": self.prototypes}

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        super().recall(memory)
        self.prototypes = memory["prototypes"]

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        batch = self.evaluation_batch(rows, targets, "train", step)
        return Batch(self.turn(batch.input, view), batch.target)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        assert targets is not None  # learn() refused sources without labels
        self.prototypes = self.prototypes.to(rows.device)
        return Batch(pixels(rows), self.prototypes[targets])

    def metrics(self, split: SplitName) -> MetricCollection:
        metrics = super().metrics(split)
        metrics.add_metrics({"accuracy": MulticlassAccuracy(len(self.prototypes), average="micro")})
        return metrics

    def measure(self, metrics: MetricCollection, output: Tensor, target: Images) -> None:
        images = output.view_as(target)
        for name, metric in metrics.items():
            if name == "accuracy":
                metric.update(self.nearest(images), self.nearest(target))
            else:
                metric.update(images, target)

    def nearest(self, images: Images) -> Int[Tensor, " batch"]:
        """The class of the closest prototype."""
        return torch.cdist(images.flatten(1), self.prototypes.to(images.device).flatten(1)).argmin(dim=1)
