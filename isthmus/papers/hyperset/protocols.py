"""What the Hyper-SET paper prints about its experiments (appendix A), and what its authors' code has instead."""

from __future__ import annotations

from typing import Any

from isthmus.papers.engine.protocols import Protocol

_BETAS = [0.0, 0.95]
_CODE = {"recurrent_transformer.activation": "relu", "hyper_set.time_spacing": "inclusive"}
_EPOCHS = {"train.rate_changes": "epoch"}

SUDOKU = Protocol(
    "Tables 3 and 4, sections 4.3 and 5.1",
    {
        "train.epochs": 200, "train.batch_size": 16, "source.most": 9000, "source.most_held_out": 1000,
        "train.optimizer": "adamw", "train.betas": _BETAS, "train.weight_decay": 0.1, "train.learning_rate": 1e-4,
        "train.schedule": "cosine", "train.clip_norm": 1.0, "model.iterations": 24, "model.layers": 1,
        "model.positions": "learned", "model.embedding_dropout": 0.0, "hyper_set.ff_ratio": 4,
        "hyper_set.time_frequencies": 512, "hyper_set.step_sizes": "X_0", "hyper_set.step_init": "zero_all",
        "hyper_set.activation": "relu", "recurrent_transformer.ff_ratio": 4,
    },
    {
        "train.select": "last", "train.final_learning_rate": 1e-7, "train.rate_changes": "step",
        "recurrent_transformer.activation": "gelu",
    },
    {"train.betas": [0.9, 0.95], "model.embedding_dropout": 0.1, **_EPOCHS, **_CODE},
    {"code": ["the authors' code keeps the weights with the least loss on the test boards; here the last ones"]},
)  # fmt: skip
"""Dropout is printed as omitted. The final learning rate is that of the authors' code."""

_CIFAR: dict[str, Any] = {
    "task.resize": None,
    "model.patch": 2,
    "task.augment.policy": "auto_augment_cifar10",
    "task.augment.crop_padding": 4,
}
_IMAGENET: dict[str, Any] = {
    "model.patch": 14, "task.augment.policy": "auto_augment_imagenet", "task.augment.resized_crop": [0.08, 1.0],
}  # fmt: skip


def images(data: str) -> Protocol:
    """All 50,000 images of CIFAR, and all 126,689 of ImageNet-100, are trained on. The authors' code has 16 × 16
    patches, of CIFAR's images at 32 pixels."""
    return Protocol(
        "Tables 5 to 7",
        {
            "train.epochs": 200, "train.batch_size": 128, "source.validation": 0, "train.optimizer": "adam",
            "train.betas": _BETAS, "train.weight_decay": 0.0, "train.learning_rate": 1e-4, "train.schedule": "cosine",
            "train.clip_norm": 1.0, "task.resize": 224, "model.patch": 16, "model.embedding_dropout": 0.0,
            "hyper_set.ff_ratio": 1, "hyper_set.positions": "sinusoidal", "hyper_set.time_frequencies": 512,
            "hyper_set.step_sizes": "X_t", "hyper_set.step_init": "zero_all", "hyper_set.activation": "relu",
            "recurrent_transformer.ff_ratio": 4,
        },
        {
            "train.select": "last", "train.final_learning_rate": 0.0, "train.rate_changes": "step",
            "train.precision": "float32", "task.label_smoothing": 0.0, "task.augment.policy": "none",
            "task.augment.crop_padding": 0, "task.augment.resized_crop": None, "task.augment.flip": False,
            "recurrent_transformer.activation": "gelu", "hyper_set.attention_norms": "one",
            "hyper_set.time_norms": False,
        },
        {
            "train.learning_rate": 1e-3, "train.final_learning_rate": 1e-5, "train.warmup_epochs": 5,
            "train.betas": [0.9, 0.999], "train.weight_decay": 5e-5, "train.clip_norm": None,
            "task.label_smoothing": 0.1, "task.augment.flip": True, "hyper_set.activation": "gelu",
            "hyper_set.attention_norms": "three", "hyper_set.time_norms": True,
            **(_IMAGENET if data == "imagenet100" else _CIFAR), **_EPOCHS, **_CODE,
        },
        {
            "code": [
                "the authors' code trains in mixed precision; here in float32 (`train.precision=bfloat16` is another)",
            ]
        },
    )  # fmt: skip


MASKED = Protocol(
    "Tables 8 and 9, section 5.3",
    {
        "train.epochs": 300, "train.batch_size": 256, "source.images.validation": 0, "source.images.size": 256,
        "train.optimizer": "adamw", "train.betas": _BETAS, "train.weight_decay": 0.1, "train.learning_rate": 1e-4,
        "train.schedule": "constant", "train.clip_norm": 3.0, "hyper_set.step_sizes": "X_0",
        "hyper_set.time_mlp": False, "hyper_set.step_init": "zero_all", "hyper_set.activation": "relu",
        "hyper_set.positions": "sinusoidal", "model.embedding_dropout": 0.0,
    },
    {
        "train.select": "last", "task.picture_scaling": "none", "task.random_crop": False, "task.flip": False,
        "source.images.extent": "square", "recurrent_transformer.activation": "gelu",
        "recurrent_transformer.positions": "learned", "task.decoding_plan": "masked",
    },
    {
        "train.betas": [0.9, 0.96], "hyper_set.positions": "grid", "recurrent_transformer.positions": "grid",
        "task.picture_scaling": "min_max", "task.random_crop": True, "task.flip": True,
        "task.decoding_plan": "all", "source.images.extent": "whole", **_CODE,
    },
    {
        "code": [
            "the authors' code cuts photographs reduced to a short side of 256 pixels; here to 256 × 256",
            "the authors' code trains in mixed precision; here in float32 (`train.precision=bfloat16` is another)",
            "the authors' code hides each token of a test image with that probability; here exactly that share",
            "the authors' PSNR is that of the pixels of 100 images together, averaged over batches; here of each",
        ]
    },
)  # fmt: skip
