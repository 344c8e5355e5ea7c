"""What the Hourglass paper prints about its training: MLPs (appendix A.2) and Transformers (Tables 10 and 11)."""

from __future__ import annotations

from typing import Any

from isthmus.papers.engine.protocols import Protocol, crop_photographs

BATCHES = {"tiny": (768, 4.5e-2), "small": (768, 4.5e-2), "large": (384, 2.25e-2)}
"""Batch and learning rate."""


def mlps(source: str, task: str) -> Protocol:
    """The learning rates that are searched, and the five seeds, are those of the study."""
    printed: dict[str, Any] = {"train.optimizer": "adamw", "train.schedule": "linear", "train.warmup_epochs": 0}
    if source == "mnist":
        printed |= {"train.epochs": 50, "train.batch_size": 128, "source.validation": 10_000}
        printed |= {"task.flips": True} if task == "super_resolution" else {}
    else:
        small = source == "imagenet32"
        printed |= {"train.epochs": 2 if small else 1, "train.batch_size": 512, "task.flips": small}
        printed |= {} if small else {"source.resize": "square"}
    if task == "denoise":
        printed |= {"task.noise_std": 0.25}
    unprinted = {"train.weight_decay": 0.0, "train.betas": [0.9, 0.999]}
    return Protocol("appendix A.2", {"train.select": "best", **printed}, unprinted)


def transformers(size: str, source: str) -> Protocol:
    batch, rate = BATCHES[size]
    printed: dict[str, Any] = {
        "train.epochs": 1000, "train.batch_size": batch, "train.learning_rate": rate, "train.optimizer": "sgd",
        "train.schedule": "cosine", "train.warmup_epochs": 10, "train.weight_decay": 1e-4, "task.resize": 224,
        "task.label_smoothing": 0.1, "model.drop_path": 0.1, "task.augment.policy": "rand_augment",
        "task.augment.magnitude": 9, "task.augment.magnitude_std": 0.5, "task.augment.mixup": 0.8,
        "task.augment.cutmix": 1.0, "task.augment.erasing": 0.25,
    }  # fmt: skip
    # Flowers-102 and the hub's ImageNet-100 have validation images of their own.
    own = {"imagenet100": {"source.hub": "ilee0022/ImageNet100"}, "flowers": {"source.split": "swapped"}}
    printed |= own.get(source, {"source.validation": 0})
    scale = batch / 512
    protocol = Protocol(
        "Tables 10 and 11",
        printed,
        {
            "train.select": "last", "train.momentum": 0.9, "train.nesterov": True, "train.decayed": "matrices",
            "train.warmup_learning_rate": scale * 1e-6, "train.final_learning_rate": scale * 1e-5,
            "train.schedule_start": "after_warmup", "train.rate_changes": "step", "task.crop_ratio": 0.875,
            "task.interpolation": "bilinear",
            "task.augment.resized_crop": [0.08, 1.0], "task.augment.flip": True,
        },
        {"train.schedule_start": "with_warmup", "train.rate_changes": "epoch", "task.interpolation": "bicubic"},
    )  # fmt: skip
    return crop_photographs(protocol, source)
