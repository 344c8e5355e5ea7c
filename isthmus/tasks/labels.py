"""Class labels, for the tasks that learn them."""

from __future__ import annotations

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.protocols import Data


def training_labels(data: Data, task: str) -> tuple[np.ndarray, int]:
    """The training labels, and the number of classes that have a name or occur in any split."""
    labels = data.train.targets
    if labels is None or labels.ndim != 1 or labels.dtype.kind != "i":
        raise UserError(
            f"task {task} needs a source with class labels; a table has them with source.kind=classification"
        )
    if len(np.unique(labels)) < 2:
        advice = "name a target that varies"
        raise UserError(f"task {task} needs at least two classes in the training rows; there is only one: {advice}")
    splits = (data.train, data.validation, data.test)
    largest = [split.targets.max(initial=0) for split in splits if split.targets is not None]
    return labels, max(len(data.classes), int(max(largest)) + 1)
