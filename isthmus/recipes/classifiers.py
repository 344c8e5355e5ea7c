"""Transformers and Mixers that two cores train on CIFAR-10 or on embedded digits."""

from __future__ import annotations

from functools import partial
from typing import Any

from isthmus.core.config import RunConfig, StudyConfig, run_config, study_config
from isthmus.recipes import recipe

VIT = {"name": "hourglass_vit", "patch": 8, "d_z": 144, "d_h": 72, "depth": 6, "num_heads": 3}


def _classify(source: str, epochs: int, **model: Any) -> RunConfig:
    """CIFAR-10 is trained with crops and flips."""
    task = {"name": "classification"} | ({"augment": {"crop_padding": 4, "flip": True}} if source == "cifar10" else {})
    train = {
        "epochs": epochs, "batch_size": 128, "learning_rate": 2e-3, "weight_decay": 0.01, "decayed": "matrices",
        "betas": [0.9, 0.99], "schedule": "cosine", "warmup_epochs": 1,
    }  # fmt: skip
    return run_config({"source": {"name": source}, "task": task, "model": model, "train": train})


_cifar10 = partial(_classify, "cifar10", 20)


def cifar10_vit_shapes() -> StudyConfig:
    """`isthmus study cifar10-vit-shapes`: which (d_z, d_h, depth) for at most 380,000 parameters and 39 MFLOPs of
    training per image, in either shape; TPE, 24 candidates, two seeds. Estimates the time first."""
    base = _cifar10(**VIT)
    train = type(base.train)(**{**base.train.model_dump(), "epochs": 8, "warmup_epochs": 0.5})
    steps = {  # lowest, highest and step of d_z and of d_h; the depths
        "hourglass_vit": ((48, 192, 12), (12, 180, 12), (2, 12)),
        "conventional_vit": ((24, 120, 12), (48, 480, 24), (1, 8)),
    }
    spaces = [
        {
            "model": {"name": name, "patch": 8, "num_heads": 3},
            "vary": {
                field: dict(zip(("low", "high", "step"), values, strict=False))
                for field, values in zip(("d_z", "d_h", "depth"), ranges, strict=True)
            },
            "where": ["d_h < d_z" if name == "hourglass_vit" else "d_h > d_z", "params >= 100k"],
        }
        for name, ranges in steps.items()
    ]
    return study_config(
        {
            "name": "cifar10-vit-shapes",
            "base": base.model_copy(update={"train": train, "threads": 1}),
            "spaces": spaces,
            "budget": {"params": "380k", "training_flops": "39M"},  # binding for wide and for deep networks
            "sampling": {"name": "tpe", "candidates": 24},
            "seeds": [0, 1],
            "pruning": {"rungs": [2, 4]},
        }
    )


def mnist5k_families() -> StudyConfig:
    """`isthmus study mnist5k-families`: 48 small networks of four families on 5,000 digits, each with six recipes."""
    recipe = {"train.learning_rate": [5e-4, 2e-3, 8e-3], "train.weight_decay": [0.0, 0.1]}
    families: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"name": "hourglass_mlp"}, {"d_z": [48, 96, 192], "d_h": [12, 36]}),
        ({"name": "conventional_mlp"}, {"d_z": [16, 32, 64], "d_h": [96, 192]}),
        ({"name": "sw_mlp", "patch": 7}, {"m": [128, 256, 512], "p": [0.05, 0.2]}),
        ({"name": "mlp_mixer", "patch": 7}, {"C": [8, 16, 32], "gamma": [1, 2]}),
    ]
    return study_config(
        {
            "name": "mnist5k-families",
            "base": {
                "source": {"name": "mnist5k"}, "task": {"name": "classification"}, "threads": 1,
                "train": {"epochs": 12, "betas": [0.9, 0.99], "decayed": "matrices"},
            },
            "spaces": [{"model": model, "vary": {**shape, "depth": [1, 3], **recipe}} for model, shape in families],
            "quality": "loss",  # smoother than the accuracy of 500 rows
        }
    )  # fmt: skip


RECIPES = {
    "cifar10-vit": recipe(
        "`isthmus train cifar10-vit`: half of an Hourglass ViT-Tiny, patches of 8 pixels, 20 epochs of crops and "
        "flips; about 20 minutes on one core.",
        _cifar10, **VIT,
    ),
    "cifar10-vit-shapes": cifar10_vit_shapes,
    "mnist5k-families": mnist5k_families,
    "cifar10-imixer": recipe(
        "`isthmus train cifar10-imixer`: 64 channels, four blocks, patches of 4 pixels, 20 epochs of crops and flips.",
        _cifar10, name="imixer", patch=4, C=64, depth=4,
    ),
    "cifar10-mixer": recipe(
        "`isthmus train cifar10-mixer`: 64 tokens of 64 channels, three blocks, 20 epochs of crops and flips.",
        _cifar10, name="mlp_mixer", patch=4, C=64, depth=3, gamma=2,
    ),
    "cifar10-rp-mixer": recipe(
        "`isthmus train cifar10-rp-mixer`: cifar10-mixer with random permutations, drawn from the run's seed.",
        _cifar10, name="mlp_mixer", patch=4, C=64, depth=3, gamma=2, permutation="random",
    ),
    "cifar10-s-mixer": recipe(
        "`isthmus train cifar10-s-mixer`: one matrix per mixing step, C = S = 64, eight blocks, 20 epochs.",
        _cifar10, name="s_mixer", patch=4, S=64, C=64, depth=8,
    ),
    "cifar10-sw-mlp": recipe(
        "`isthmus train cifar10-sw-mlp`: 2,048 wide, one in a hundred connections, eight blocks, 20 epochs.",
        _cifar10, name="sw_mlp", patch=4, m=2048, p=0.01, depth=8, mask_scale="one",
    ),
    "digits-mixer": recipe(
        "`isthmus train digits-mixer`: 16 tokens of 32 channels on embedded digits, no download, seconds.",
        _classify, "digits", 10, name="mlp_mixer", patch=2, C=32, depth=2, gamma=2,
    ),
}  # fmt: skip
