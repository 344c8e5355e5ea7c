"""Masked image modelling of the Hyper-SET paper (section 5.3, Tables 8 and 9), and the same at the size of CIFAR-10.

Command, result and time of a recipe are in its docstring; times are on one core.
"""

from __future__ import annotations

from typing import Any

from isthmus.core.config import RunConfig, run_config
from isthmus.recipes import recipe
from isthmus.recipes.images import published_network

NAMES = {
    "cifar10-tokenizer": "cifar10_tokenizer",
    "cifar10-masked": "cifar10_masked",
    "cifar10-masked-transformer": "cifar10_masked_transformer",
    "hyperset-masked": "paper_masked",
    "hyperset-masked-8d": "paper_masked_8d",
    "hyperset-masked-transformer": "paper_masked_transformer",
}

CIFAR10_TOKENIZER = "3e720449db3492f3"
"""The run of recipe cifar10-tokenizer."""


def cifar10_tokenizer() -> RunConfig:
    """`isthmus train cifar10-tokenizer`: 64 tokens of 512 codes for an image of 32 pixels; sized for ten minutes."""
    return run_config(
        {
            "source": {"name": "cifar10"},
            "task": {"name": "tokenization"},
            "model": {"name": "vq_tokenizer", "codes": 512, "stride": 4},
            "train": {"epochs": 4, "batch_size": 64, "learning_rate": 2e-3, "betas": [0.9, 0.99]},
            "threads": 1,
        }
    )


def _cifar10(model: dict[str, Any]) -> RunConfig:
    """With the tokenizer of `isthmus train cifar10-tokenizer`; ``source.tokenizer`` names another run."""
    return run_config(
        {
            "source": {"name": "tokens", "tokenizer": CIFAR10_TOKENIZER, "images": {"name": "cifar10"}},
            "task": {"name": "masked_tokens"},
            "model": {"d": 96, "num_heads": 4, "iterations": 4, "ff_ratio": 2, **model},
            "train": {
                "epochs": 5, "batch_size": 128, "learning_rate": 2e-3, "weight_decay": 0.01, "betas": [0.9, 0.95],
                "schedule": "cosine", "warmup_epochs": 0.5, "clip_norm": 3.0,
            },
            "threads": 1,
        }
    )  # fmt: skip


def cifar10_masked() -> RunConfig:
    """`isthmus train cifar10-masked`: Hyper-SET on the tokens of CIFAR-10, after `isthmus train cifar10-tokenizer`."""
    return _cifar10({"name": "hyper_set", "step_sizes": "X_0", "time_mlp": False})


def cifar10_masked_transformer() -> RunConfig:
    """`isthmus train cifar10-masked-transformer`: the Transformer of the same width on the same tokens."""
    return _cifar10({"name": "recurrent_transformer"})


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


paper_masked = recipe(
    "The paper's masked images (Tables 8 and 9): M = d, 12 iterations, 3.94 M parameters.", paper_images, "hyper_set"
)
paper_masked_8d = recipe(
    "The paper's larger model of masked images (Table 2): M = 8d, 24 iterations, 8.07 M parameters.",
    paper_images, "hyper_set", "masked-images-8d",
)  # fmt: skip
paper_masked_transformer = recipe(
    "The paper's rival on masked images (Table 2): a Transformer layer, 12 iterations, 8.85 M parameters.",
    paper_images, "recurrent_transformer",
)  # fmt: skip
