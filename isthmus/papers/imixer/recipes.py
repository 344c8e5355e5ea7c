"""The protocol of "iMixer" (Table 5), and an iMixer for two cores.

Table 5 counts ten epochs at the last rate on top of 300, so there are 310. Not printed, and taken from timm, which the
paper trains with: crops of 8 to 100 % of the area, flips, no decay of biases and norms, and the last epoch reported.
Cutout is named without settings; random erasing hides rectangles already, so it is left out. The data sets keep their
own validation images here. Times are on two cores.
"""

from __future__ import annotations

from typing import Any, Literal

from isthmus.core.config import RunConfig, run_config
from isthmus.recipes.images import at_224_pixels, brief

NAMES = {
    "cifar10-imixer": "cifar10_imixer",
    "imixer-s": "imixer_s",
    "imixer-b": "imixer_b",
    "imixer-l": "imixer_l",
    "imixer-mixer-s": "mixer_s",
    "imixer-mixer-b": "mixer_b",
    "imixer-mixer-l": "mixer_l",
    "imixer-s-cifar100": "imixer_s_cifar100",
    "imixer-s-cars": "imixer_s_cars",
    "imixer-s-food101": "imixer_s_food101",
    "imixer-s-imagenet1k": "imixer_s_imagenet1k",
}

Size = Literal["s", "b", "l"]
SIZES: dict[Size, dict[str, Any]] = {
    "s": {"C": 512, "depth": 8, "token_hidden": 256, "channel_hidden": 2048, "drop_path": 0.1},
    "b": {"C": 768, "depth": 12, "token_hidden": 384, "channel_hidden": 3072, "drop_path": 0.2},
    "l": {"C": 1024, "depth": 24, "token_hidden": 512, "channel_hidden": 4096, "drop_path": 0.3},
}
BATCHES: dict[Size, int] = {"s": 512, "b": 256, "l": 64}


def imixer(size: Size, h_r: float = 2.0, iterations: int = 2, **fields: Any) -> dict[str, Any]:
    """A model of the paper."""
    return {"name": "imixer", "patch": 16, **SIZES[size], "h_r": h_r, "iterations": iterations, **fields}


def mixer(size: Size) -> dict[str, Any]:
    """Its rival, begun in the same way."""
    return {"name": "mlp_mixer", "patch": 16, **SIZES[size], "norm_eps": 1e-6, "init": "xavier"}


def from_scratch(size: Size, model: dict[str, Any], source: str = "cifar10") -> RunConfig:
    """Table 5."""
    return run_config(
        {
            "source": {"name": source},
            "task": at_224_pixels(),
            "model": model,
            "train": {
                "epochs": 310,
                "cooldown_epochs": 10,
                "warmup_epochs": 20,
                "batch_size": BATCHES[size],
                "learning_rate": BATCHES[size] / 512 * 5e-4,
                "warmup_learning_rate": 1e-6,
                "final_learning_rate": 1e-6,
                "weight_decay": 0.05,
                "decayed": "matrices",
                "schedule": "cosine",
                "select": "last",
            },
        }
    )


def cifar10_imixer() -> RunConfig:
    """`isthmus train cifar10-imixer`: 64 channels, four blocks, patches of 4 pixels, 20 epochs of crops and flips."""
    return run_config(
        {
            "source": {"name": "cifar10"},
            "task": {"name": "classification", "augment": {"crop_padding": 4, "flip": True}},
            "model": {"name": "imixer", "patch": 4, "C": 64, "depth": 4},
            "train": brief(20),
        }
    )


def imixer_s() -> RunConfig:
    """The paper's iMixer-S (h_r = 2, n = 2) on CIFAR-10 at 224 pixels; 88.56 ± 0.30 % there."""
    return from_scratch("s", imixer("s"))


def imixer_b() -> RunConfig:
    """The paper's iMixer-B; 89.07 ± 0.33 % there."""
    return from_scratch("b", imixer("b"))


def imixer_l() -> RunConfig:
    """The paper's iMixer-L; 87.48 ± 0.40 % there."""
    return from_scratch("l", imixer("l"))


def mixer_s() -> RunConfig:
    """The paper's Mixer-S, trained like iMixer-S; 88.08 ± 0.51 % there."""
    return from_scratch("s", mixer("s"))


def mixer_b() -> RunConfig:
    """The paper's Mixer-B; 89.03 ± 0.24 % there."""
    return from_scratch("b", mixer("b"))


def mixer_l() -> RunConfig:
    """The paper's Mixer-L; 86.67 ± 0.30 % there."""
    return from_scratch("l", mixer("l"))


def imixer_s_cifar100() -> RunConfig:
    """The paper's iMixer-S on CIFAR-100; 68.26 ± 0.30 % there."""
    return from_scratch("s", imixer("s"), "cifar100")


def imixer_s_cars() -> RunConfig:
    """The paper's iMixer-S on Stanford Cars; 7.96 ± 0.17 % there."""
    return from_scratch("s", imixer("s"), "cars")


def imixer_s_food101() -> RunConfig:
    """The paper's iMixer-S on Food-101; 76.08 ± 0.20 % there."""
    return from_scratch("s", imixer("s"), "food101")


def imixer_s_imagenet1k() -> RunConfig:
    """The paper's iMixer-S on ImageNet-1k; 74.10 % there, one run."""
    return from_scratch("s", imixer("s"), "imagenet1k")
