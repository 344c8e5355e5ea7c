"""What the wide-and-sparse paper prints about its training (appendix C)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isthmus.papers.engine.protocols import Protocol

_SGD = {"train.optimizer": "sgd", "train.momentum": 0.9, "train.nesterov": True, "train.schedule": "cosine"}
_ADAMW = {"train.optimizer": "adamw", "train.schedule": "cosine"}
_POLICY = {"task.augment.policy": "auto_augment_cifar10"}
_CROPS = {"task.augment.flip": True}
_ALL = {"source.validation": 0}
_OURS = {"train.select": "last", "train.weight_decay": 0.0}
_PADDED = _OURS | {"task.augment.crop_padding": 4}


def _make(where: str, *printed: Mapping[str, Any], unprinted: Mapping[str, Any] = _PADDED) -> Protocol:
    return Protocol(where, {path: value for each in printed for path, value in each.items()}, unprinted)


FIGURE_4 = _make(
    "appendix C.2", _ADAMW, _POLICY, _ALL,
    {"train.epochs": 600, "train.batch_size": 128, "train.learning_rate": 0.01},
    unprinted=_PADDED | {"train.weight_decay": 0.01},
)  # fmt: skip
"""Of Figures 2 and 4."""


def figure_5(rate: float = 0.02, epochs: int = 200) -> Protocol:
    """The default of all experiments on small data sets."""
    return _make(
        "appendix C.4", _SGD, _CROPS, _ALL,
        {"train.epochs": epochs, "train.batch_size": 128, "train.learning_rate": rate},
    )  # fmt: skip


IMAGENET = _make(
    "appendix C.5", _ADAMW, _ALL,
    {
        "train.epochs": 300, "train.batch_size": 4096, "train.learning_rate": 1e-3, "train.weight_decay": 0.05,
        "train.warmup_epochs": 5, "train.warmup_learning_rate": 1e-6, "train.final_learning_rate": 1e-5,
        "task.augment.policy": "rand_augment", "task.augment.magnitude": 9, "task.augment.magnitude_std": 0.5,
        "task.augment.erasing": 0.25, "task.augment.mixup": 0.8, "task.augment.cutmix": 1.0,
        "task.augment.cutmix_share": 0.5, "task.label_smoothing": 0.1,
    },
    unprinted={"train.select": "last", "train.decayed": "matrices", "task.augment.resized_crop": [0.08, 1.0]},
)  # fmt: skip
SHALLOW = replace(
    _make(
        "appendix C.1", _ADAMW, _ALL, {"train.epochs": 200, "train.learning_rate": 0.01},
        unprinted={"train.select": "last", "train.batch_size": 128, "train.weight_decay": 0.01},
    ),
    unapplied={"source.validation": "the errors during training are those of validation images"},
)  # fmt: skip
TABLE_1 = replace(
    _make(
        "appendix C.3", _ADAMW, _POLICY, _ALL, {"train.epochs": 4000, "train.batch_size": 1024},
        unprinted=_PADDED | {"train.weight_decay": 0.01},
    ),
    open={"printed": ["C of Mixer-SS-W is 467, which gives the printed 255 M connections; 487 is printed"]},
    unapplied={"source.validation": "three learning rates are compared on validation images"},
)  # fmt: skip
TABLE_1_IMAGENET = replace(
    IMAGENET, open={"printed": ["γ of Mixer-B-W is 4.095, which gives the printed width of 6.2e5; 4.57 is printed"]}
)


def ratio(source: str) -> Protocol:
    """Table S.2."""
    if source == "imagenet1k":
        return IMAGENET
    if source == "cifar10":
        train = {"train.epochs": 2000, "train.batch_size": 1024, "train.learning_rate": 0.02}
        return _make("Table S.2", _ADAMW, _POLICY, _ALL, train, unprinted=_PADDED | {"train.weight_decay": 0.01})
    epochs = 600 if source == "cifar100" else 2000
    train = {"train.epochs": epochs, "train.batch_size": 128, "train.learning_rate": 0.1}
    return _make("Table S.2", _SGD, _CROPS, _ALL, train)


def depth(source: str) -> Protocol:
    return IMAGENET if source == "imagenet1k" else figure_5()


STL10_90 = _make(
    "appendix D.6", _SGD, _CROPS, _ALL,
    {"train.epochs": 400, "train.batch_size": 128, "train.learning_rate": 0.1, "source.size": 90},
)  # fmt: skip


def patches(source: str) -> Protocol:
    return STL10_90 if source == "stl10" else figure_5(0.1)


S_MIXER_LOSSES, MIXER_LOSSES, ADAMW_LOSSES = (
    replace(protocol, unapplied={"source.validation": "the losses are those of validation images"})
    for protocol in (
        _make("appendix D.7", _SGD, _CROPS, _ALL, {"train.epochs": 600, "train.learning_rate": 0.1}),
        _make(
            "appendix D.7", _SGD, _POLICY, _ALL,
            {"train.epochs": 600, "train.learning_rate": 0.1, "train.batch_size": 256},
        ),
        _make(
            "appendix D.7", _ADAMW, _POLICY, _ALL, {"train.epochs": 600, "train.learning_rate": 0.01},
            unprinted=_PADDED | {"train.weight_decay": 0.01},
        ),
    )
)  # fmt: skip
