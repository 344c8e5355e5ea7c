"""The protocols of the Hyper-SET paper (appendix A): Sudoku, images, and masked images (section 5.3)."""

from __future__ import annotations

from functools import partial
from typing import Any

from isthmus.core.config import RunConfig, run_config
from isthmus.recipes import recipe
from isthmus.recipes.images import published_network


def hard_sudoku(name: str) -> RunConfig:
    """Table 3. β₁ is printed as 0.0 and is 0.9 in the authors' code: ``train.betas=[0.0,0.95]`` is the printed one."""
    return run_config(
        {
            "source": {
                "name": "sudoku_csv", "path": "sudoku/sudoku_hard_17to34_train.csv.gz", "most": 9000,
                "validation_path": "sudoku/sudoku_hard_17to34_valid.csv.gz",
                "test_path": "sudoku/sudoku_hard_17to34_test.csv.gz", "most_held_out": 1000,
            },
            "task": {"name": "sudoku"},
            "model": published_network(name, "sudoku"),
            "train": {
                "epochs": 200, "batch_size": 16, "learning_rate": 1e-4, "weight_decay": 0.1, "betas": [0.9, 0.95],
                "schedule": "cosine", "final_learning_rate": 1e-7, "clip_norm": 1.0,
            },
        }
    )  # fmt: skip


CIFAR10, CIFAR100 = {"name": "cifar10"}, {"name": "cifar100"}
CMC = {"name": "imagenet100", "folder": "imagenet", "listed": "cmc"}
HUB = {"name": "imagenet100", "hub": "ilee0022/ImageNet100"}


def classification(
    source: dict[str, Any], name: str = "hyper_set", variant: str = "small", resize: int | None = 224, patch: int = 16
) -> RunConfig:
    """Table 5. Its optimiser is Adam; without weight decay AdamW is the same. β₁ is as for Sudoku.

    Augmentation, label smoothing, and which epoch is reported are not printed; here: none, none, the last.
    """
    return run_config(
        {
            "source": source,
            "task": {"name": "classification", "resize": resize},
            "model": published_network(name, variant, patch=patch),
            "train": {
                "epochs": 200, "batch_size": 128, "learning_rate": 1e-4, "betas": [0.9, 0.95], "schedule": "cosine",
                "clip_norm": 1.0, "select": "last",
            },
        }
    )  # fmt: skip


native_pixels = partial(classification, resize=None)


def paper_images(name: str, variant: str = "masked-images") -> RunConfig:
    """Table 8. β₁ is printed as 0.0; the authors' code has (0.9, 0.96): ``train.betas=[0.0,0.95]`` is the printed one.

    The tokenizer is the public VQGAN f16/1024, whose weights must be in the data folder as safetensors; the images are
    those of ImageNet-1k in the CMC list.
    """
    return run_config(
        {
            "source": {
                "name": "tokens",
                "tokenizer": "vqgan/vqgan_imagenet_f16_1024.safetensors",
                "images": {"name": "imagenet100", "folder": "imagenet", "listed": "cmc", "size": 256},
            },
            "task": {"name": "masked_tokens"},
            "model": published_network(name, variant),
            "train": {
                "epochs": 300, "batch_size": 256, "learning_rate": 1e-4, "weight_decay": 0.1, "betas": [0.9, 0.96],
                "schedule": "constant", "clip_norm": 3.0,
            },
        }
    )  # fmt: skip


RECIPES = {
    "hyperset-sudoku": recipe(
        "The paper's Sudoku (Tables 3 and 4): 9,000 boards with 17 to 34 givens, 200 epochs, 24 iterations of d 768.",
        hard_sudoku, "hyper_set",
    ),
    "hyperset-sudoku-transformer": recipe(
        "The paper's rival on Sudoku: a Transformer layer of the same width, 24 iterations.",
        hard_sudoku, "recurrent_transformer",
    ),
    "hyperset-cifar10": recipe(
        "The paper's Hyper-SET Small on CIFAR-10 at 224 pixels (Tables 5 and 6); 84.64 % there.",
        classification, CIFAR10,
    ),
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
    "hyperset-cifar100": recipe(
        "The paper's Hyper-SET Small on CIFAR-100 at 224 pixels; 54.15 % there.", classification, CIFAR100
    ),
    "hyperset-imagenet100": recipe(
        "The paper's Hyper-SET Small on the hundred classes of the CMC list (126,689 and 5,000 images); 54.78 % there.",
        classification, CMC,
    ),
    "hyperset-imagenet100-hub": recipe(
        "The paper's Hyper-SET Small on the hub's ImageNet-100 (117,000 and 13,000 images).", classification, HUB
    ),
    "hyperset-cifar10-native": recipe(
        "The paper's Hyper-SET Small on CIFAR-10 at its own 32 pixels, with patches of 4.",
        native_pixels, CIFAR10, patch=4,
    ),
    "hyperset-cifar100-native": recipe(
        "The paper's Hyper-SET Small on CIFAR-100 at its own 32 pixels, with patches of 4.",
        native_pixels, CIFAR100, patch=4,
    ),
    "hyperset-imagenet100-native": recipe(
        "The paper's Hyper-SET Small on the CMC list's classes, at the 256 pixels that the source keeps.",
        native_pixels, CMC,
    ),
    "hyperset-imagenet100-hub-native": recipe(
        "The paper's Hyper-SET Small on the hub's ImageNet-100, at the 256 pixels that the source keeps.",
        native_pixels, HUB,
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
    "hyperset-digits": recipe(
        "The paper's Hyper-SET Small on embedded digits of 8 pixels, with patches of 2.",
        native_pixels, {"name": "digits"}, patch=2,
    ),
    "hyperset-mnist5k": recipe(
        "The paper's Hyper-SET Small on 5,000 embedded digits of 28 pixels, with patches of 4.",
        native_pixels, {"name": "mnist5k"}, patch=4,
    ),
}  # fmt: skip
