"""The base of tasks whose output is an image: pixels in [0, 1], squared error, PSNR and SSIM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torchmetrics import MeanSquaredError, MetricCollection
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure

from isthmus.core.errors import UserError
from isthmus.core.protocols import Batch, Component, Data, Signature, SplitName, Task
from isthmus.tasks.augment import ORIENTATIONS, orient

Images = Float[Tensor, "batch channels height width"]


class ImageConfig(Component):
    flips: bool = False
    """Show every training image in all four orientations in each epoch."""
    evaluation_seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the validation and test inputs; it is not the run's seed, so that all models see the same inputs."""


def pixels(rows: Tensor) -> Images:
    """uint8 images as numbers from 0 to 1."""
    return rows.to(torch.float32).div_(255)


class PSNR(PeakSignalNoiseRatio):
    """PSNR of at most 144 dB, float32's resolution just below 1.

    Without the limit, one image that equals its target would make every mean infinite.
    """

    sum_squared_error: Any  # a tensor, or a list of them with one per image
    total: Any

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds, target)
        if isinstance(self.total, list):
            self.sum_squared_error[-1] = torch.maximum(self.sum_squared_error[-1], self.total[-1] * _LEAST_ERROR)
        else:
            self.sum_squared_error = torch.maximum(self.sum_squared_error, self.total * _LEAST_ERROR)


_LEAST_ERROR = 2.0**-48


class ImageToImage(Task):
    Config: ClassVar[type[Component]] = ImageConfig
    objective = "psnr"
    maximise = True

    def __init__(self, config: Any) -> None:
        self.config = config
        self.image_shape: tuple[int, ...] = (0, 0, 0)

    def learn(self, data: Data) -> None:
        if data.train.inputs.ndim != 4:
            given = f"rows of {data.train.inputs.shape[1:]}; use task regression or classification"
            raise UserError(f"task {self.config.name} needs images, not {given}")
        self.image_shape = data.train.inputs.shape[1:]

    def memory(self) -> dict[str, Tensor]:
        return {"image_shape": torch.tensor(self.image_shape)}

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        self.image_shape = tuple(memory["image_shape"].tolist())

    @property
    def signature(self) -> Signature:
        return Signature(self.image_shape, self.image_shape)

    def views(self) -> int:
        return ORIENTATIONS if self.config.flips else 1

    def turn(self, images: Images, view: Tensor) -> Images:
        """Each image in the orientation of its view, if the task shows several."""
        return orient(images, view) if self.config.flips else images

    def degrade(self, images: Images) -> Tensor:
        """The inputs from which the model restores these images."""
        return images

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        images = self.turn(pixels(rows), view)
        return Batch(self.degrade(images), images)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        images = pixels(rows)
        return Batch(self.degrade(images), images)

    def loss(self, output: Tensor, target: Images) -> Tensor:
        return torch.nn.functional.mse_loss(output.view_as(target), target)

    def metrics(self, split: SplitName) -> MetricCollection:
        metrics: dict[str, Any] = {
            "psnr": PSNR(data_range=1.0, dim=(1, 2, 3), reduction="elementwise_mean"),
            "psnr_pooled": PSNR(data_range=1.0),
            "mse": MeanSquaredError(),
        }
        # SSIM takes ten times as long as the others together, and its window needs more than five pixels.
        if split == "test" and min(self.image_shape[1:]) > 5:
            metrics["ssim"] = StructuralSimilarityIndexMeasure(data_range=1.0)
        return MetricCollection(metrics, compute_groups=False)

    def measure(self, metrics: MetricCollection, output: Tensor, target: Images) -> None:
        metrics.update(output.view_as(target), target)

    def encode(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(rows, dtype=np.float32)).div_(255)  # a copy, because the rows are the user's

    def decode(self, output: Tensor) -> np.ndarray:
        images = output.reshape(len(output), *self.signature.output_shape)
        return images.clamp(0, 1).mul(255).round().to(torch.uint8).cpu().numpy()
