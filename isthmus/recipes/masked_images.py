"""Masked image modelling of the Hyper-SET paper (section 5.3, Tables 8 and 9), and the same at the size of CIFAR-10.

Command, result and time of a recipe are in its docstring; times are on one core.
"""

from __future__ import annotations

from isthmus.config import RunConfig, run_config

NAMES = {
    "cifar10-tokenizer": "cifar10_tokenizer",
}


def cifar10_tokenizer() -> RunConfig:
    """`isthmus train cifar10-tokenizer`: 64 tokens of 512 codes for an image of 32 pixels; about 20 minutes."""
    return run_config(
        {
            "source": {"name": "cifar10"},
            "task": {"name": "tokenization"},
            "model": {"name": "vq_tokenizer", "codes": 512, "stride": 4},
            "train": {"epochs": 12, "batch_size": 64, "learning_rate": 2e-3, "betas": [0.9, 0.99]},
            "threads": 1,
        }
    )
