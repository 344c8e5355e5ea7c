"""Hourglass and conventional MLPs on embedded and on small data sets.

Command, result and time of a recipe are in its docstring; times are on two cores.
"""

from __future__ import annotations

from typing import Any

from isthmus.core.config import RunConfig, StudyConfig, run_config, study_config
from isthmus.recipes import recipe


def hourglass(d_z: int, d_h: int, depth: int, **fields: Any) -> dict[str, Any]:
    return {"name": "hourglass_mlp", "d_z": d_z, "d_h": d_h, "depth": depth, **fields}


def conventional(d_z: int, d_h: int, depth: int, **fields: Any) -> dict[str, Any]:
    return {"name": "conventional_mlp", "d_z": d_z, "d_h": d_h, "depth": depth, **fields}


def demo() -> StudyConfig:
    """Both shapes on 5,000 digits, four sizes each, two seeds: the first half of `isthmus demo`; about a minute.

    The Hourglass with 3.62 M parameters reaches 19.96 dB, the conventional shape with 3.69 M 19.85 dB.
    """
    recipe = mnist5k_denoise()
    base = recipe.model_copy(update={"threads": 1, "train": recipe.train.model_copy(update={"epochs": 8})})
    models = [
        conventional(392, 784, 1), conventional(588, 785, 1), conventional(784, 785, 1), conventional(784, 785, 2),
        hourglass(785, 16, 3), hourglass(785, 64, 4), hourglass(785, 128, 5), hourglass(1000, 256, 4),
    ]  # fmt: skip
    return study_config({"name": "demo", "base": base, "candidates": models, "seeds": (0, 1)})


def _shapes(source: str, d_z: list[int], d_h: list[int], **train: Any) -> StudyConfig:
    """A grid of shapes, depths and initialisations."""
    base = {"source": {"name": source}, "task": {"name": "denoise"}, "train": {"epochs": 20, **train}, "threads": 1}
    vary = {"d_z": d_z, "d_h": d_h, "depth": [1, 2, 4, 6], "init": ["zero_w2", "pytorch", "xavier"]}
    space = {"model": {"name": "hourglass_mlp"}, "vary": vary, "where": ["d_z > d_in", "d_h < d_z"]}
    return study_config({"name": f"{source}-shapes", "base": base, "spaces": [space]})


def cifar10_shapes() -> StudyConfig:
    """`isthmus study cifar10-shapes`: five Hourglass shapes at each of five budgets, on 4,000 images of CIFAR-10; about
    five minutes on one core.

    A shape is a depth and a ratio d_h / d_z, of which one varies at a time; d_z is the largest that fits the budget.
    The input has 3072 numbers, so d_z is below d_x: a wider stream needs 19 M parameters or more.
    """
    train = {"epochs": 10, "batch_size": 64, "betas": [0.9, 0.99], "evaluate_every": 5}
    source = {"name": "cifar10", "rows": 4_000, "validation": 1_000}
    base = {"source": source, "task": {"name": "denoise"}, "train": train, "threads": 1}
    models = [
        hourglass(d_z, round(ratio * d_z), depth)
        for budget in (500_000, 800_000, 1_300_000, 2_100_000, 3_400_000)
        for depth, ratio in ((1, 1 / 4), (3, 1 / 16), (3, 1 / 4), (3, 7 / 8), (8, 1 / 4))
        for d_z in [max(z for z in range(32, 1_000) if 2 * z * (3072 + depth * round(ratio * z)) <= budget)]
    ]
    return study_config({"name": "cifar10-shapes", "base": base, "candidates": models})


def mnist5k_denoise() -> RunConfig:
    """`isthmus train mnist5k-denoise`: embedded digits, no download."""
    train = {"epochs": 20, "batch_size": 128, "learning_rate": 1e-3, "betas": [0.9, 0.99]}
    model = hourglass(785, 128, 5)
    return run_config({"source": {"name": "mnist5k"}, "task": {"name": "denoise"}, "model": model, "train": train})


def configure(
    source: str, task: str, epochs: int, model: dict[str, Any], batch: int = 512, flips: bool = True, rate: float = 5e-4
) -> RunConfig:
    """The Hourglass paper's protocol; with ``flips``, each image in four orientations."""
    settings = {"name": task} | ({"flips": True} if flips else {})
    train = {"epochs": epochs, "batch_size": batch, "learning_rate": rate}
    return run_config({"source": {"name": source}, "task": settings, "model": model, "train": train})


def mnist(task: str, epochs: int) -> RunConfig:
    """The Hourglass paper's protocol on MNIST, with any number of epochs."""
    return configure("mnist", task, epochs, hourglass(785, 256, 4), 128, task == "super_resolution", 1e-3)


RECIPES = {
    "demo": demo,
    "digits-shapes": recipe(
        "`isthmus study digits-shapes`: a grid of 240 Hourglasses on the smallest data; a few minutes on one core.",
        _shapes, "digits", [65, 96, 128, 192], [4, 8, 16, 32, 64], batch_size=64,
    ),
    "mnist5k-shapes": recipe(
        "`isthmus study mnist5k-shapes`: a grid of 240 Hourglasses on 5,000 digits; under an hour on one core.",
        _shapes, "mnist5k", [785, 900, 1100, 1400], [16, 32, 64, 128, 256], betas=[0.9, 0.99],
    ),
    "cifar10-shapes": cifar10_shapes,
    "mnist5k-denoise": mnist5k_denoise,
    "mnist-denoise": recipe(
        "`isthmus train mnist-denoise`: the Hourglass paper's protocol with 20 epochs instead of 50.",
        mnist, "denoise", 20,
    ),
    "mnist-super-resolution": recipe(
        "`isthmus train mnist-super-resolution`: 14×14 to 28×28, four orientations, 5 epochs instead of 50.",
        mnist, "super_resolution", 5,
    ),
    "mnist-generative-classification": recipe(
        "`isthmus train mnist-generative-classification`: the Hourglass paper's protocol with 20 epochs instead of 50.",
        mnist, "generative_classification", 20,
    ),
    "cifar10-denoise": recipe(
        "`isthmus train cifar10-denoise`: the Hourglass paper's ImageNet-32 protocol on CIFAR-10's 32×32×3 images.",
        configure, "cifar10", "denoise", 2, hourglass(3075, 270, 4),
    ),
    "cifar10-super-resolution": recipe(
        "`isthmus train cifar10-super-resolution`: CIFAR-10 from 16×16 to 32×32, by the Hourglass paper's protocol.",
        configure, "cifar10", "super_resolution", 2, hourglass(3075, 270, 4),
    ),
    "photos-denoise": recipe(
        "`isthmus train photos-denoise`: colour patches of embedded photographs, no download.",
        configure, "photos", "denoise", 4, hourglass(3075, 115, 4), 64,
    ),
}  # fmt: skip
