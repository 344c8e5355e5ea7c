"""What the iMixer paper prints about its training (Table 5), and what its authors' code has instead."""

from __future__ import annotations

from isthmus.papers.engine.protocols import Protocol, crop_photographs

GPUS = 4
_SIZES = {"small": (512, 5e-4, 0.1), "base": (256, 2.5e-4, 0.2), "large": (64, 6.25e-5, 0.3)}
"""Batch, learning rate and drop path."""


def describe_training(size: str, source: str) -> Protocol:
    """Table 5 counts ten epochs at the last rate on top of 300. The authors' command has the batch on each of four
    devices, and the rate that the rule gives for all four."""
    batch, rate, drop_path = _SIZES[size]
    protocol = Protocol(
        "Table 5",
        {
            "train.epochs": 310, "train.cooldown_epochs": 10, "train.batch_size": batch, "train.learning_rate": rate,
            "train.optimizer": "adamw", "train.weight_decay": 0.05, "train.epsilon": 1e-8, "train.betas": [0.9, 0.999],
            "train.final_learning_rate": 1e-6, "train.schedule": "cosine", "train.warmup_epochs": 20,
            "train.warmup_learning_rate": 1e-6, "source.validation": 0, "task.resize": 224, "task.crop_ratio": 0.875,
            "task.augment.policy": "rand_augment", "task.augment.magnitude": 9, "task.augment.magnitude_std": 0.5,
            "task.augment.mixup": 0.8, "task.augment.cutmix": 1.0, "task.augment.erasing": 0.25,
            "task.label_smoothing": 0.1, "model.drop_path": drop_path, "model.patch": 16,
        },
        {
            "train.select": "last", "train.decayed": "matrices", "train.schedule_start": "after_warmup",
            "train.rate_changes": "step",
            "task.augment.resized_crop": [0.08, 1.0], "task.augment.flip": True, "task.augment.cutout": 0,
            "task.interpolation": "bilinear", "task.scaling": "data",
        },
        {
            "train.batch_size": GPUS * batch, "train.learning_rate": GPUS * rate, "train.rate_changes": "epoch",
            "train.schedule_start": "with_warmup", "task.interpolation": "bicubic", "task.scaling": "half",
        },
    )  # fmt: skip
    return crop_photographs(protocol, source)
