"""The protocols of the Hyper-SET paper (appendix A), and Sudoku at a size that two cores train in two hours.

Command, result and time of a recipe are in its docstring; times are on two cores.
"""

from __future__ import annotations

from typing import Any

from isthmus.core.config import RunConfig, run_config

NAMES = {
    "sudoku-small": "sudoku_small",
    "sudoku-small-transformer": "sudoku_small_transformer",
    "hyperset-sudoku": "paper_sudoku",
    "hyperset-sudoku-transformer": "paper_sudoku_transformer",
    "hyperset-cifar10": "paper_cifar10",
    "hyperset-cifar10-scale-up": "paper_cifar10_scale_up",
    "hyperset-cifar10-base": "paper_cifar10_base",
    "hyperset-cifar10-transformer": "paper_cifar10_transformer",
    "hyperset-cifar10-crate": "paper_cifar10_crate",
    "hyperset-cifar10-crate-t": "paper_cifar10_crate_t",
    "hyperset-cifar100": "paper_cifar100",
    "hyperset-imagenet100": "paper_imagenet100",
    "hyperset-imagenet100-hub": "paper_imagenet100_hub",
    "hyperset-cifar10-native": "paper_cifar10_native",
    "hyperset-cifar100-native": "paper_cifar100_native",
    "hyperset-imagenet100-native": "paper_imagenet100_native",
    "hyperset-imagenet100-hub-native": "paper_imagenet100_hub_native",
    "hyperset-digits": "paper_digits",
    "hyperset-mnist5k": "paper_mnist5k",
}


def _small(model: dict[str, Any]) -> RunConfig:
    """Each time a puzzle is shown it has another symmetric form, so 20,000 grids are never seen twice.

    It also has some number of givens from 40 to 70: nearly full boards teach that a digit stands once in a row, a
    column and a box. Three of four boards are dug to 40 givens, the hardest; the test measures those with 40 and with
    50 each by itself. Filling in single candidates, all at once, solves boards with 40 givens in 5 to 9 rounds, so 10
    iterations are enough. The loss is taken of every iteration, where the paper takes the last. 20 epochs are 12,500
    steps of half a second on one core.
    """
    return run_config(
        {
            "source": {
                "name": "sudoku", "givens": [40, 40, 40, 50], "train": 20_000, "validation": 500, "test": 2000,
            },
            "task": {"name": "sudoku", "symmetries": True, "reveal": [40, 70], "by_givens": [40, 50]},
            "model": {
                "d": 128, "num_heads": 4, "iterations": 10, "positions": "learned", "head_bias": False,
                "trained_on": "every", **model,
            },
            "train": {
                "epochs": 20, "batch_size": 32, "learning_rate": 1.5e-3, "weight_decay": 0.01, "betas": [0.9, 0.95],
                "schedule": "cosine", "warmup_epochs": 0.3, "clip_norm": 1.0, "average": 0.999, "evaluate_every": 4,
            },
        }
    )  # fmt: skip


def sudoku_small() -> RunConfig:
    """`isthmus train sudoku-small`: d 128, 10 iterations; 99.8 % of boards with 50 givens, 77 % with 40; two hours."""
    return _small({"name": "hyper_set", "ff_ratio": 2, "step_sizes": "X_0"})


def sudoku_small_transformer() -> RunConfig:
    """`isthmus train sudoku-small-transformer`: the Transformer of the same width on the same boards."""
    return _small({"name": "recurrent_transformer"})


SUDOKU: dict[str, Any] = {
    "d": 768, "num_heads": 12, "iterations": 24, "positions": "learned", "embedding_dropout": 0.1, "head_bias": False,
}  # fmt: skip


def hard_sudoku(model: dict[str, Any]) -> RunConfig:
    """Table 3. β₁ is printed as 0.0 and is 0.9 in the authors' code: ``train.betas=[0.0,0.95]`` is the printed one."""
    return run_config(
        {
            "source": {
                "name": "sudoku_csv",
                "path": "sudoku/sudoku_hard_17to34_train.csv.gz",
                "validation_path": "sudoku/sudoku_hard_17to34_valid.csv.gz",
                "test_path": "sudoku/sudoku_hard_17to34_test.csv.gz",
                "most": 9000,
                "most_held_out": 1000,
            },
            "task": {"name": "sudoku"},
            "model": model,
            "train": {
                "epochs": 200, "batch_size": 16, "learning_rate": 1e-4, "weight_decay": 0.1, "betas": [0.9, 0.95],
                "schedule": "cosine", "final_learning_rate": 1e-7, "clip_norm": 1.0,
            },
        }
    )  # fmt: skip


def paper_sudoku() -> RunConfig:
    """The paper's Sudoku (Tables 3 and 4): 9,000 boards with 17 to 34 givens, 200 epochs, 24 iterations of d 768."""
    return hard_sudoku({"name": "hyper_set", **SUDOKU, "ff_ratio": 4, "step_sizes": "X_0"})


def paper_sudoku_transformer() -> RunConfig:
    """The paper's rival on Sudoku: a Transformer layer of the same width, 24 iterations."""
    return hard_sudoku({"name": "recurrent_transformer", **SUDOKU})


SMALL: dict[str, Any] = {"d": 384, "num_heads": 6, "iterations": 12}
HYPER_SET: dict[str, Any] = {"name": "hyper_set", **SMALL}
TRANSFORMER: dict[str, Any] = {"name": "recurrent_transformer", **SMALL}
SCALE_UP: dict[str, Any] = {"d": 512, "num_heads": 8}
BASE: dict[str, Any] = {"d": 768, "num_heads": 12}


def classification(model: dict[str, Any], source: dict[str, Any], resize: int | None = None) -> RunConfig:
    """Table 5. Its optimiser is Adam; without weight decay AdamW is the same. β₁ is as for Sudoku.

    Augmentation, label smoothing, and which epoch is reported are not printed; here: none, none, the last.
    """
    return run_config(
        {
            "source": source,
            "task": {"name": "classification", "resize": resize},
            "model": {"patch": 16 if resize else 4, **model},
            "train": {
                "epochs": 200, "batch_size": 128, "learning_rate": 1e-4, "betas": [0.9, 0.95], "schedule": "cosine",
                "clip_norm": 1.0, "select": "last",
            },
        }
    )  # fmt: skip


CMC = {"name": "imagenet100", "folder": "imagenet", "listed": "cmc"}
HUB = {"name": "imagenet100", "hub": "ilee0022/ImageNet100"}


def paper_cifar10() -> RunConfig:
    """The paper's Hyper-SET Small on CIFAR-10 at 224 pixels (Tables 5 and 6); 84.64 % there."""
    return classification(HYPER_SET, {"name": "cifar10"}, 224)


def paper_cifar10_scale_up() -> RunConfig:
    """The paper's Hyper-SET with d 512 on CIFAR-10 (Table 7); 85.27 % there."""
    return classification(HYPER_SET | SCALE_UP, {"name": "cifar10"}, 224)


def paper_cifar10_base() -> RunConfig:
    """The paper's Hyper-SET with d 768 on CIFAR-10 (Table 7), as in Figure 6."""
    return classification(HYPER_SET | BASE, {"name": "cifar10"}, 224)


def paper_cifar10_transformer() -> RunConfig:
    """The paper's Transformer on CIFAR-10; 84.55 % there."""
    return classification(TRANSFORMER, {"name": "cifar10"}, 224)


def paper_cifar10_crate() -> RunConfig:
    """The paper's CRATE on CIFAR-10; 80.73 % there."""
    return classification({"name": "crate", **SMALL}, {"name": "cifar10"}, 224)


def paper_cifar10_crate_t() -> RunConfig:
    """The paper's CRATE-T on CIFAR-10; 78.57 % there."""
    return classification({"name": "crate_t", **SMALL}, {"name": "cifar10"}, 224)


def paper_cifar100() -> RunConfig:
    """The paper's Hyper-SET Small on CIFAR-100 at 224 pixels; 54.15 % there."""
    return classification(HYPER_SET, {"name": "cifar100"}, 224)


def paper_imagenet100() -> RunConfig:
    """The paper's Hyper-SET Small on the hundred classes of the CMC list (126,689 and 5,000 images); 54.78 % there."""
    return classification(HYPER_SET, CMC, 224)


def paper_imagenet100_hub() -> RunConfig:
    """The paper's Hyper-SET Small on the hub's ImageNet-100 (117,000 and 13,000 images)."""
    return classification(HYPER_SET, HUB, 224)


def paper_cifar10_native() -> RunConfig:
    """The paper's Hyper-SET Small on CIFAR-10 at its own 32 pixels, with patches of 4."""
    return classification(HYPER_SET, {"name": "cifar10"})


def paper_cifar100_native() -> RunConfig:
    """The paper's Hyper-SET Small on CIFAR-100 at its own 32 pixels, with patches of 4."""
    return classification(HYPER_SET, {"name": "cifar100"})


def paper_imagenet100_native() -> RunConfig:
    """The paper's Hyper-SET Small on the CMC list's classes, at the 256 pixels that the source keeps."""
    return classification(HYPER_SET | {"patch": 16}, CMC)


def paper_imagenet100_hub_native() -> RunConfig:
    """The paper's Hyper-SET Small on the hub's ImageNet-100, at the 256 pixels that the source keeps."""
    return classification(HYPER_SET | {"patch": 16}, HUB)


def paper_digits() -> RunConfig:
    """The paper's Hyper-SET Small on embedded digits of 8 pixels, with patches of 2."""
    return classification(HYPER_SET | {"patch": 2}, {"name": "digits"})


def paper_mnist5k() -> RunConfig:
    """The paper's Hyper-SET Small on 5,000 embedded digits of 28 pixels, with patches of 4."""
    return classification(HYPER_SET, {"name": "mnist5k"})
