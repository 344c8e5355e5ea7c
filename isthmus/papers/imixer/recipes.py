"""The protocol of "iMixer" (Table 5).

Table 5 counts ten epochs at the last rate on top of 300, so there are 310. What it does not print comes from timm,
which the paper trains with: crops of 8 to 100 % of the area, flips, no decay of biases and norms, and the last epoch
reported. Cutout is named without settings; random erasing hides rectangles already, so it is left out. Each data set
keeps its own validation images here.
"""

from __future__ import annotations

from typing import Any

from isthmus.core.config import RunConfig, run_config
from isthmus.recipes import at_224_pixels, published_network, recipe

BATCHES = {"s": 512, "b": 256, "l": 64}


def imixer(size: str, h_r: float = 2.0, iterations: int = 2, **fields: Any) -> dict[str, Any]:
    """A model of the paper; its hidden widths are the Mixer's."""
    rival = published_network("mlp_mixer", size)
    hidden = {name: rival[name] for name in ("token_hidden", "channel_hidden")}
    return published_network("imixer", size, **hidden, h_r=h_r, iterations=iterations, **fields)


def mixer(size: str) -> dict[str, Any]:
    """Its rival, with the same drop path and initialisation."""
    drop_path = published_network("imixer", size)["drop_path"]
    return published_network("mlp_mixer", size, drop_path=drop_path, init="xavier")


def from_scratch(size: str, source: str = "cifar10", make: Any = imixer) -> RunConfig:
    """Table 5."""
    train = {
        "epochs": 310, "cooldown_epochs": 10, "warmup_epochs": 20, "batch_size": BATCHES[size],
        "learning_rate": BATCHES[size] / 512 * 5e-4, "warmup_learning_rate": 1e-6, "final_learning_rate": 1e-6,
        "weight_decay": 0.05, "decayed": "matrices", "schedule": "cosine", "select": "last",
    }  # fmt: skip
    return run_config({"source": {"name": source}, "task": at_224_pixels(), "model": make(size), "train": train})


RECIPES = {
    "imixer-s": recipe(
        "The paper's iMixer-S (h_r = 2, n = 2) on CIFAR-10 at 224 pixels; 88.56 ± 0.30 % there.", from_scratch, "s"
    ),
    "imixer-b": recipe("The paper's iMixer-B; 89.07 ± 0.33 % there.", from_scratch, "b"),
    "imixer-l": recipe("The paper's iMixer-L; 87.48 ± 0.40 % there.", from_scratch, "l"),
    "imixer-mixer-s": recipe(
        "The paper's Mixer-S, trained like iMixer-S; 88.08 ± 0.51 % there.", from_scratch, "s", "cifar10", mixer
    ),
    "imixer-mixer-b": recipe("The paper's Mixer-B; 89.03 ± 0.24 % there.", from_scratch, "b", "cifar10", mixer),
    "imixer-mixer-l": recipe("The paper's Mixer-L; 86.67 ± 0.30 % there.", from_scratch, "l", "cifar10", mixer),
    "imixer-s-cifar100": recipe(
        "The paper's iMixer-S on CIFAR-100; 68.26 ± 0.30 % there.", from_scratch, "s", "cifar100"
    ),
    "imixer-s-cars": recipe("The paper's iMixer-S on Stanford Cars; 7.96 ± 0.17 % there.", from_scratch, "s", "cars"),
    "imixer-s-food101": recipe("The paper's iMixer-S on Food-101; 76.08 ± 0.20 % there.", from_scratch, "s", "food101"),
    "imixer-s-imagenet1k": recipe(
        "The paper's iMixer-S on ImageNet-1k; 74.10 % there, one run.", from_scratch, "s", "imagenet1k"
    ),
}  # fmt: skip
