"""Hyper-SET and its Transformer on Sudoku and on masked images, at sizes that two cores train.

Command, result and time of a recipe are in its docstring; times are on two cores for Sudoku, on one for images.
"""

from __future__ import annotations

from typing import Any

from isthmus.core.config import RunConfig, run_config
from isthmus.recipes import recipe


def _small(model: dict[str, Any]) -> RunConfig:
    """Every time a puzzle is shown it has another symmetric form, so no grid is seen twice.

    The number of givens varies from 40 to 70, because nearly full boards teach that a digit appears once in a row,
    column and box. Three of four boards have 40 givens, the hardest; the test reports 40 and 50 givens separately.
    Filling in all single candidates at once solves boards with 40 givens in 5 to 9 rounds, so 10 iterations are enough.
    The loss is the mean over all iterations; the paper uses the last. 20 epochs are 12,500 steps of half a second on
    one core.
    """
    source = {"name": "sudoku", "givens": [40, 40, 40, 50], "train": 20_000, "validation": 500, "test": 2000}
    task = {"name": "sudoku", "symmetries": True, "reveal": [40, 70], "by_givens": [40, 50]}
    shared = {
        "d": 128, "num_heads": 4, "iterations": 10, "positions": "learned", "head_bias": False, "trained_on": "every",
    }  # fmt: skip
    train = {
        "epochs": 20, "batch_size": 32, "learning_rate": 1.5e-3, "weight_decay": 0.01, "betas": [0.9, 0.95],
        "schedule": "cosine", "warmup_epochs": 0.3, "clip_norm": 1.0, "average": 0.999, "evaluate_every": 4,
    }  # fmt: skip
    return run_config({"source": source, "task": task, "model": shared | model, "train": train})


def _quick() -> RunConfig:
    """`isthmus train sudoku-quick`: d 84, 6 iterations; 76 % of boards with 60 givens; about five minutes of one core.

    2,000 steps. With d 64, two of three seeds have not begun to solve boards after 1,500.
    """
    source = {"name": "sudoku", "givens": [60], "train": 16_000, "validation": 500, "test": 1000}
    model = {
        "name": "hyper_set", "d": 84, "num_heads": 4, "iterations": 6, "ff_ratio": 2, "step_sizes": "X_0",
        "time_frequencies": 64, "positions": "learned", "head_bias": False, "trained_on": "every",
    }  # fmt: skip
    train = {
        "epochs": 4, "batch_size": 32, "learning_rate": 4e-3, "weight_decay": 0.01, "betas": [0.9, 0.95],
        "schedule": "cosine", "warmup_epochs": 0.2, "clip_norm": 1.0, "select": "last",
    }  # fmt: skip
    task = {"name": "sudoku", "symmetries": True}
    return run_config({"source": source, "task": task, "model": model, "train": train, "threads": 1})


CIFAR10_TOKENIZER = "3e720449db3492f3"
"""The run of recipe cifar10-tokenizer."""


def cifar10_tokenizer() -> RunConfig:
    """`isthmus train cifar10-tokenizer`: 64 tokens of 512 codes for an image of 32 pixels; sized for ten minutes."""
    source, task = {"name": "cifar10"}, {"name": "tokenization"}
    model = {"name": "vq_tokenizer", "codes": 512, "stride": 4}
    train = {"epochs": 4, "batch_size": 64, "learning_rate": 2e-3, "betas": [0.9, 0.99]}
    return run_config({"source": source, "task": task, "model": model, "train": train, "threads": 1})


def fill_tokens(
    model: dict[str, Any], tokenizer: str = CIFAR10_TOKENIZER, images: str = "cifar10", epochs: int = 5
) -> RunConfig:
    """By default with the tokenizer of `isthmus train cifar10-tokenizer`; ``source.tokenizer`` names another run."""
    source = {"name": "tokens", "tokenizer": tokenizer, "images": {"name": images}}
    shared = {"d": 96, "num_heads": 4, "iterations": 4, "ff_ratio": 2}
    train = {
        "epochs": epochs, "batch_size": 128, "learning_rate": 2e-3, "weight_decay": 0.01, "betas": [0.9, 0.95],
        "schedule": "cosine", "warmup_epochs": 0.5 if epochs > 1 else 0.2, "clip_norm": 3.0,
    }  # fmt: skip
    task = {"name": "masked_tokens"}
    return run_config({"source": source, "task": task, "model": shared | model, "train": train, "threads": 1})


RECIPES = {
    "sudoku-quick": _quick,
    "sudoku-small": recipe(
        "`isthmus train sudoku-small`: d 128, 10 iterations; 99.8 % of boards with 50 givens, 77 % with 40; two hours.",
        _small, {"name": "hyper_set", "ff_ratio": 2, "step_sizes": "X_0"},
    ),
    "sudoku-small-transformer": recipe(
        "`isthmus train sudoku-small-transformer`: the Transformer as wide as sudoku-small, on its boards.",
        _small, {"name": "recurrent_transformer"},
    ),
    "cifar10-tokenizer": cifar10_tokenizer,
    "cifar10-masked": recipe(
        "`isthmus train cifar10-masked`: Hyper-SET on the tokens of CIFAR-10, after `isthmus train cifar10-tokenizer`.",
        fill_tokens, {"name": "hyper_set", "step_sizes": "X_0", "time_mlp": False},
    ),
    "cifar10-masked-transformer": recipe(
        "`isthmus train cifar10-masked-transformer`: the Transformer as wide as cifar10-masked, on its tokens.",
        fill_tokens, {"name": "recurrent_transformer"},
    ),
}  # fmt: skip
