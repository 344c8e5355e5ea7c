"""The protocols of the Hyper-SET paper (appendix A), and Sudoku at a size that two cores train in two hours.

Command, result and time of a recipe are in its docstring; times are on two cores.
"""

from __future__ import annotations

from typing import Any

from isthmus.config import RunConfig, run_config

NAMES = {
    "sudoku-small": "sudoku_small",
    "sudoku-small-transformer": "sudoku_small_transformer",
    "hyperset-sudoku": "paper_sudoku",
    "hyperset-sudoku-transformer": "paper_sudoku_transformer",
    "hyperset-cifar10": "paper_cifar10",
}


def _small(model: dict[str, Any]) -> RunConfig:
    """Each time a puzzle is shown it has another symmetric form, and some number of givens from 40 to 66.

    So 20,000 grids are never seen twice, and boards that are nearly full teach the rules before the open ones teach
    more. The test has boards with 40 and with 50 givens, measured each by itself. 30 epochs are 9,390 steps.
    """
    return run_config(
        {
            "source": {
                "name": "sudoku", "givens": [40, 50], "train": 20_000, "validation": 500, "test": 1000,
            },
            "task": {"name": "sudoku", "symmetries": True, "reveal": [40, 66], "by_givens": [40, 50]},
            "model": {"d": 128, "num_heads": 4, "iterations": 8, "positions": "learned", "head_bias": False, **model},
            "train": {
                "epochs": 30, "batch_size": 64, "learning_rate": 2e-3, "weight_decay": 0.01, "betas": [0.9, 0.95],
                "schedule": "cosine", "warmup_epochs": 0.5, "clip_norm": 1.0, "average": 0.999,
            },
        }
    )  # fmt: skip


def sudoku_small() -> RunConfig:
    """`isthmus train sudoku-small`: d 128, 8 iterations, boards with 40 and 50 givens; sized for two hours."""
    return _small({"name": "hyper_set", "ff_ratio": 4, "step_sizes": "X_0"})


def sudoku_small_transformer() -> RunConfig:
    """`isthmus train sudoku-small-transformer`: the Transformer of the same width on the same boards."""
    return _small({"name": "recurrent_transformer"})


def _paper_sudoku(model: dict[str, Any]) -> RunConfig:
    """β₁ is printed as 0.0 in Table 3 and 0.9 in the authors' code: ``train.betas=[0.0,0.95]`` is the printed one."""
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
            "model": {
                "d": 768, "num_heads": 12, "iterations": 24, "ff_ratio": 4, "positions": "learned",
                "embedding_dropout": 0.1, "head_bias": False, **model,
            },
            "train": {
                "epochs": 200, "batch_size": 16, "learning_rate": 1e-4, "weight_decay": 0.1, "betas": [0.9, 0.95],
                "schedule": "cosine", "final_learning_rate": 1e-7, "clip_norm": 1.0,
            },
        }
    )  # fmt: skip


def paper_sudoku() -> RunConfig:
    """The paper's Sudoku (Tables 3 and 4): 9,000 boards with 17 to 34 givens, 200 epochs, 24 iterations of d 768."""
    return _paper_sudoku({"name": "hyper_set", "step_sizes": "X_0"})


def paper_sudoku_transformer() -> RunConfig:
    """The paper's rival on Sudoku: a Transformer layer of the same width, 24 iterations."""
    return _paper_sudoku({"name": "recurrent_transformer"})


def paper_cifar10() -> RunConfig:
    """The paper's CIFAR-10 (Tables 5 and 6) at 32 pixels with patches of 4, where it resizes to 224 with patches of 16.

    Its optimiser is Adam; without weight decay AdamW is the same. β₁ as for Sudoku.
    """
    return run_config(
        {
            "source": {"name": "cifar10"},
            "task": {"name": "classification"},
            "model": {"name": "hyper_set", "patch": 4, "d": 384, "num_heads": 6, "iterations": 12},
            "train": {
                "epochs": 200, "batch_size": 128, "learning_rate": 1e-4, "betas": [0.9, 0.95], "schedule": "cosine",
                "clip_norm": 1.0,
            },
        }
    )  # fmt: skip
