"""The protocols of the Hyper-SET paper (appendix A): Sudoku, images, and masked images (section 5.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isthmus.core.config import RunConfig, run_config
from isthmus.recipes import published_network, recipe


def hard_sudoku(name: str) -> RunConfig:
    """Table 3. β₁ is printed as 0.0 and is 0.9 in the authors' code: ``train.betas=[0.0,0.95]`` is the printed one."""
    files = {split: f"sudoku/sudoku_hard_17to34_{split}.csv.gz" for split in ("train", "valid", "test")}
    source = {
        "name": "sudoku_csv", "path": files["train"], "most": 9000, "validation_path": files["valid"],
        "test_path": files["test"], "most_held_out": 1000,
    }  # fmt: skip
    train = {
        "epochs": 200, "batch_size": 16, "learning_rate": 1e-4, "weight_decay": 0.1, "betas": [0.9, 0.95],
        "schedule": "cosine", "final_learning_rate": 1e-7, "clip_norm": 1.0,
    }  # fmt: skip
    model = published_network(name, "sudoku")
    return run_config({"source": source, "task": {"name": "sudoku"}, "model": model, "train": train})


CIFAR10, CIFAR100 = {"name": "cifar10"}, {"name": "cifar100"}
CMC: dict[str, Any] = {"name": "imagenet100", "folder": "imagenet", "listed": "cmc"}
HUB = {"name": "imagenet100", "hub": "ilee0022/ImageNet100"}
NATIVE: dict[str, Any] = {"resize": None, "patch": 4}
"""Images at their own size."""


def classification(
    source: dict[str, Any], name: str = "hyper_set", variant: str = "small", resize: int | None = 224, patch: int = 16
) -> RunConfig:
    """Table 5. Its optimiser is Adam; without weight decay AdamW is the same. β₁ is as for Sudoku.

    Augmentation, label smoothing, and which epoch is reported are not printed; here: none, none, the last.
    """
    train = {
        "epochs": 200, "batch_size": 128, "learning_rate": 1e-4, "betas": [0.9, 0.95], "schedule": "cosine",
        "clip_norm": 1.0, "select": "last",
    }  # fmt: skip
    model, task = published_network(name, variant, patch=patch), {"name": "classification", "resize": resize}
    return run_config({"source": source, "task": task, "model": model, "train": train})


def _small(data: str, source: dict[str, Any], **settings: Any) -> Callable[[], RunConfig]:
    return recipe(f"The paper's Hyper-SET Small on {data}", classification, source, **settings)


def paper_images(name: str, variant: str = "masked-images") -> RunConfig:
    """Table 8. β₁ is printed as 0.0; the authors' code has (0.9, 0.96): ``train.betas=[0.0,0.95]`` is the printed one.

    The tokenizer is the public VQGAN f16/1024, whose weights must be in the data folder as safetensors; the images are
    those of ImageNet-1k in the CMC list.
    """
    tokenizer = "vqgan/vqgan_imagenet_f16_1024.safetensors"
    source = {"name": "tokens", "tokenizer": tokenizer, "images": CMC | {"size": 256}}
    train = {
        "epochs": 300, "batch_size": 256, "learning_rate": 1e-4, "weight_decay": 0.1, "betas": [0.9, 0.96],
        "schedule": "constant", "clip_norm": 3.0,
    }  # fmt: skip
    model = published_network(name, variant)
    return run_config({"source": source, "task": {"name": "masked_tokens"}, "model": model, "train": train})


RECIPES = {
    "hyperset-sudoku": recipe(
        "The paper's Sudoku (Tables 3 and 4): 9,000 boards with 17 to 34 givens, 200 epochs, 24 iterations of d 768.",
        hard_sudoku, "hyper_set",
    ),
    "hyperset-sudoku-transformer": recipe(
        "The paper's rival on Sudoku: a Transformer layer of d 768, 24 iterations.",
        hard_sudoku, "recurrent_transformer",
    ),
    "hyperset-cifar10": _small("CIFAR-10 at 224 pixels (Tables 5 and 6); 84.64 % there.", CIFAR10),
    "hyperset-cifar10-scale-up": recipe(
        "The paper's Hyper-SET with d 512 on CIFAR-10 (Table 7); 85.27 % there.",
        classification, CIFAR10, variant="small-scale-up",
    ),
    "hyperset-cifar10-base": recipe(
        "The paper's Hyper-SET with d 768 on CIFAR-10 (Table 7), as in Figure 6.",
        classification, CIFAR10, variant="base",
    ),
    "hyperset-cifar10-transformer": recipe(
        "The paper's Transformer on CIFAR-10; 84.55 % there.", classification, CIFAR10, "recurrent_transformer"
    ),
    "hyperset-cifar10-crate": recipe("The paper's CRATE on CIFAR-10; 80.73 % there.", classification, CIFAR10, "crate"),
    "hyperset-cifar10-crate-t": recipe(
        "The paper's CRATE-T on CIFAR-10; 78.57 % there.", classification, CIFAR10, "crate_t", "small-t"
    ),
    "hyperset-cifar100": _small("CIFAR-100 at 224 pixels; 54.15 % there.", CIFAR100),
    "hyperset-imagenet100": _small(
        "the hundred classes of the CMC list (126,689 and 5,000 images); 54.78 % there.", CMC
    ),
    "hyperset-imagenet100-hub": _small("the hub's ImageNet-100 (117,000 and 13,000 images).", HUB),
    "hyperset-cifar10-native": _small("CIFAR-10 at its own 32 pixels, with patches of 4.", CIFAR10, **NATIVE),
    "hyperset-cifar100-native": _small("CIFAR-100 at its own 32 pixels, with patches of 4.", CIFAR100, **NATIVE),
    "hyperset-imagenet100-native": _small(
        "the CMC list's classes, at the 256 pixels that the source keeps.", CMC, resize=None
    ),
    "hyperset-imagenet100-hub-native": _small(
        "the hub's ImageNet-100, at the 256 pixels that the source keeps.", HUB, resize=None
    ),
    "hyperset-digits": _small(
        "embedded digits of 8 pixels, with patches of 2.", {"name": "digits"}, resize=None, patch=2
    ),
    "hyperset-mnist5k": _small(
        "5,000 embedded digits of 28 pixels, with patches of 4.", {"name": "mnist5k"}, **NATIVE
    ),
    "hyperset-masked": recipe(
        "The paper's masked images (Tables 8 and 9): M = d, 12 iterations, 3.94 M parameters.",
        paper_images, "hyper_set",
    ),
    "hyperset-masked-8d": recipe(
        "The paper's larger model of masked images (Table 2): M = 8d, 24 iterations, 8.07 M parameters.",
        paper_images, "hyper_set", "masked-images-8d",
    ),
    "hyperset-masked-transformer": recipe(
        "The paper's rival on masked images (Table 2): a Transformer layer, 12 iterations, 8.85 M parameters.",
        paper_images, "recurrent_transformer",
    ),
}  # fmt: skip
