"""Complete configs by name: a recipe is a function that returns a RunConfig or a StudyConfig."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from isthmus.core.registry import variants

T = TypeVar("T")


def recipe(description: str, make: Callable[..., T], *arguments: Any, **fields: Any) -> Callable[[], T]:
    """A recipe in one statement: ``make`` with these arguments, and the description that `isthmus recipes` prints."""
    found = partial(make, *arguments, **fields)
    found.__doc__ = description
    return found


def published_network(name: str, variant: str, **fields: Any) -> dict[str, Any]:
    """One of a model's ``VARIANTS`` without the shapes that the data decide; ``fields`` change it."""
    known = variants(name)[variant]
    shapes = ("input_shape", "output_shape", "vocabulary")
    return {**{field: value for field, value in known.items() if field not in shapes}, "name": name, **fields}


def at_224_pixels(**augment: Any) -> dict[str, Any]:
    """Classification as timm trains it; ``augment`` adds to its augmentation."""
    timm = {
        "resized_crop": (0.08, 1.0), "flip": True, "policy": "rand_augment", "magnitude": 9, "magnitude_std": 0.5,
        "erasing": 0.25, "mixup": 0.8, "cutmix": 1.0,
    }  # fmt: skip
    task = {"name": "classification", "resize": 224, "crop_ratio": 0.875, "label_smoothing": 0.1}
    return task | {"augment": timm | augment}
