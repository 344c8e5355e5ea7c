"""Classification of images or of feature rows, by cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from isthmus.core.errors import UserError
from isthmus.core.protocols import Batch, Component, Data, Signature, SplitName, Task
from isthmus.tasks.augment import ORIENTATIONS, Augmentation, hide_and_mix, orient, vary_images
from isthmus.tasks.augment.crops import fit_size
from isthmus.tasks.labels import training_labels
from isthmus.tasks.scaling import Scaling, append_ones, with_ones

NAMES = {"classification": "Classification"}

TOP_5_FROM = 20
"""Top-5 accuracy is reported from this number of classes on."""


class ClassificationConfig(Component):
    ones: bool = False
    """Append a column of ones to rows of features, because residual MLPs have no biases."""
    standardise: bool = True
    """Standardise the inputs by the training rows, per channel or feature; otherwise results depend on their units."""
    scaling: Literal["data", "half"] = "data"
    """How images are standardised: by the training rows, or by a mean and a deviation of half the range of 8 bits."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of a target that is spread evenly over all classes."""
    flips: bool = False
    """Show every training image in all four orientations in each epoch."""
    resize: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Height and width to which images are resized, batch by batch; None keeps their size."""
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    """Of resized images and crops."""
    crop_ratio: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Side of the central square that is evaluated, relative to the resized image: 0.875 is 224 of 256 pixels."""
    augment: Augmentation = Augmentation()
    """Augmentation of training images; see ``isthmus.tasks.augment.Augmentation``."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.crop_ratio < 1 and self.resize is None:
            raise ValueError(f"task.crop_ratio={self.crop_ratio:g} needs task.resize, the side of the crop")
        if self.augment.erasing and not self.standardise:
            raise ValueError("task.augment.erasing needs task.standardise=true: its noise has unit variance")
        return self


class Classification(Task):
    Config = ClassificationConfig
    objective = "accuracy"
    maximise = True

    def __init__(self, config: ClassificationConfig) -> None:
        self.config = config
        self.scaling = Scaling()
        self.input_shape: tuple[int, ...] = ()
        self.classes = 0
        self.extents: Tensor | None = None

    @property
    def crops_photographs(self) -> bool:
        return self.config.augment.resized_crop is not None

    def learn(self, data: Data) -> None:
        _, self.classes = training_labels(data, self.config.name)
        if data.train.inputs.ndim != 4:
            self._refuse_features()
        elif self.config.ones:
            raise UserError("task.ones appends a column to rows of features; this source has images")
        elif any(self.config.augment.color_jitter) and data.train.inputs.shape[1] not in (1, 3):
            raise UserError(f"task.augment.color_jitter needs 1 or 3 channels, not {data.train.inputs.shape[1]}")
        self.input_shape = tuple(data.train.inputs.shape[1:])
        self.extents = None if data.train.extents is None else torch.from_numpy(data.train.extents)
        if self.config.standardise and self.config.scaling == "half":
            self.scaling.mean = self.scaling.std = torch.full((1, self.input_shape[0], 1, 1), 127.5)
        elif self.config.standardise:
            self.scaling.learn(data.train.inputs)

    def _refuse_features(self) -> None:
        for name in ("flips", "resize", "augment", "scaling"):
            if getattr(self.config, name) != ClassificationConfig.model_fields[name].default:
                raise UserError(f"task.{name} needs images; this source has rows of features")

    def memory(self) -> dict[str, Tensor]:
        shapes = {"classes": torch.tensor(self.classes), "input_shape": torch.tensor(self.input_shape)}
        return shapes | self.scaling.memory("input")

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        self.classes = int(memory["classes"])
        self.input_shape = tuple(memory["input_shape"].tolist())
        self.scaling.recall(memory, "input")

    @property
    def signature(self) -> Signature:
        size = self.config.resize
        shape = with_ones(self.input_shape) if self.config.ones else self.input_shape
        return Signature((shape[0], size, size) if size else shape, (self.classes,))

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.input_shape

    def views(self) -> int:
        return ORIENTATIONS if self.config.flips else 1

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        assert targets is not None  # learn() refused sources without labels
        if rows.ndim == 2:
            return Batch(self._scale(rows), targets)
        augment = self.config.augment
        fill, smooth = self._mean_colour(rows.shape[1]), self.config.interpolation
        extents = None if self.extents is None else self.extents[index.cpu()]
        rows = vary_images(rows, augment, self.config.resize, fill, seed, step, smooth, extents)
        inputs = self.scaling.apply(rows)
        if self.config.flips:
            inputs = orient(inputs, view)
        return Batch(*hide_and_mix(inputs, targets, self.classes, augment, seed, step))

    def fixed_batch(self, rows: Tensor, targets: Tensor | None) -> Batch | None:
        return self.evaluation_batch(rows, targets, "train", 0) if rows.ndim == 2 else None

    def row_losses(self, output: Tensor, target: Tensor) -> Tensor:
        smoothing = self.config.label_smoothing
        return torch.nn.functional.cross_entropy(output, target, label_smoothing=smoothing, reduction="none")

    def _mean_colour(self, channels: int) -> Tensor:
        """The colour of pixels that a policy moves in from outside the image."""
        return self.scaling.mean.flatten().round() if self.config.standardise else torch.full((channels,), 128.0)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        assert targets is not None
        return Batch(self._scale(self._central(rows)), targets)

    def _scale(self, rows: Tensor) -> Tensor:
        scaled = self.scaling.apply(rows)
        return append_ones(scaled) if self.config.ones else scaled

    def _central(self, rows: Tensor) -> Tensor:
        config = self.config
        return fit_size(rows, config.resize, config.crop_ratio, config.interpolation) if config.resize else rows

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(output, target, label_smoothing=self.config.label_smoothing)

    def metrics(self, split: SplitName) -> MetricCollection:
        metrics: dict[str, Metric | MetricCollection] = {"accuracy": MulticlassAccuracy(self.classes, average="micro")}
        if self.classes >= TOP_5_FROM:
            metrics["top_5"] = MulticlassAccuracy(self.classes, average="micro", top_k=5)
        return MetricCollection(metrics)

    def measure(self, metrics: MetricCollection, output: Tensor, target: Tensor) -> None:
        metrics.update(output, target)

    def encode(self, rows: np.ndarray) -> Tensor:
        return self._scale(self._central(torch.from_numpy(np.array(rows))))

    def decode(self, output: Tensor) -> np.ndarray:
        return output.argmax(dim=1).cpu().numpy()

    def probabilities(self, output: Tensor) -> np.ndarray:
        return output.softmax(dim=1).cpu().numpy()
