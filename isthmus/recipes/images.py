"""What recipes of several papers on images share: published networks, timm's augmentation, a short training."""

from __future__ import annotations

from typing import Any

from isthmus.core.registry import variants


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


def short_training(epochs: int) -> dict[str, Any]:
    return {
        "epochs": epochs, "batch_size": 128, "learning_rate": 2e-3, "weight_decay": 0.01, "decayed": "matrices",
        "betas": [0.9, 0.99], "schedule": "cosine", "warmup_epochs": 1,
    }  # fmt: skip
