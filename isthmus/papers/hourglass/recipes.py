"""The protocols of the Hourglass paper (appendix A.2), and the same tasks on data that fits a laptop.

Command, result and time of a recipe are in its docstring; times are on two cores.
"""

from __future__ import annotations

from typing import Any

from isthmus.core.config import RunConfig, StudyConfig, run_config, study_config

NAMES = {
    "demo": "demo",
    "digits-shapes": "digits_shapes",
    "mnist5k-shapes": "mnist5k_shapes",
    "mnist5k-denoise": "mnist5k_denoise",
    "mnist-denoise": "mnist_denoise",
    "mnist-super-resolution": "mnist_super_resolution",
    "mnist-generative-classification": "mnist_generative_classification",
    "cifar10-denoise": "cifar10_denoise",
    "cifar10-super-resolution": "cifar10_super_resolution",
    "photos-denoise": "photos_denoise",
    "imagenet32-denoise": "imagenet32_denoise",
    "imagenet32-super-resolution": "imagenet32_super_resolution",
    "imagenet224-denoise": "imagenet224_denoise",
    "imagenet224-super-resolution": "imagenet224_super_resolution",
    "hourglass-mnist-denoise": "paper_mnist_denoise",
    "hourglass-mnist-super-resolution": "paper_mnist_super_resolution",
    "hourglass-mnist-generative-classification": "paper_mnist_generative_classification",
}


STARTS = ["zero_w2", "pytorch", "xavier"]


def _hourglass(d_z: int, d_h: int, depth: int) -> dict[str, Any]:
    return {"name": "hourglass_mlp", "d_z": d_z, "d_h": d_h, "depth": depth}


def _conventional(d_z: int, d_h: int, depth: int) -> dict[str, Any]:
    return {"name": "conventional_mlp", "d_z": d_z, "d_h": d_h, "depth": depth}


def demo() -> StudyConfig:
    """Both shapes on 5,000 digits, six sizes each, two seeds: `isthmus demo`."""
    base = mnist5k_denoise()
    models = [
        _conventional(196, 392, 1),
        _conventional(392, 784, 1),
        _conventional(588, 785, 1),
        _conventional(784, 785, 1),
        _conventional(784, 785, 2),
        _conventional(784, 1176, 2),
        _hourglass(785, 16, 3),
        _hourglass(785, 64, 4),
        _hourglass(785, 128, 5),
        _hourglass(785, 256, 4),
        _hourglass(1000, 256, 4),
        _hourglass(1000, 256, 6),
    ]
    return study_config(
        {"name": "demo", "base": base.model_copy(update={"threads": 1}), "candidates": models, "seeds": (0, 1)}
    )


def digits_shapes() -> StudyConfig:
    """`isthmus study digits-shapes`: a grid of 240 Hourglasses on the smallest data; a few minutes on one core."""
    base = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "train": {"epochs": 20, "batch_size": 64}}
    shapes = {"d_z": [65, 96, 128, 192], "d_h": [4, 8, 16, 32, 64], "depth": [1, 2, 4, 6]}
    return _shapes("digits-shapes", base, shapes | {"init": STARTS})


def mnist5k_shapes() -> StudyConfig:
    """`isthmus study mnist5k-shapes`: a grid of 240 Hourglasses on 5,000 digits; under an hour on one core."""
    base = {"source": {"name": "mnist5k"}, "task": {"name": "denoise"}, "train": {"epochs": 20, "betas": [0.9, 0.99]}}
    shapes = {"d_z": [785, 900, 1100, 1400], "d_h": [16, 32, 64, 128, 256], "depth": [1, 2, 4, 6]}
    return _shapes("mnist5k-shapes", base, shapes | {"init": STARTS})


def _shapes(name: str, base: dict[str, Any], vary: dict[str, list[Any]]) -> StudyConfig:
    space = {"model": {"name": "hourglass_mlp"}, "vary": vary, "where": ["d_z > d_in", "d_h < d_z"]}
    return study_config({"name": name, "base": base | {"threads": 1}, "spaces": [space]})


def mnist5k_denoise() -> RunConfig:
    """`isthmus train mnist5k-denoise`: embedded digits, no download."""
    return run_config(
        {
            "source": {"name": "mnist5k"},
            "task": {"name": "denoise"},
            "model": _hourglass(785, 128, 5),
            "train": {"epochs": 20, "batch_size": 128, "learning_rate": 1e-3, "betas": [0.9, 0.99]},
        }
    )


def _mnist(task: dict[str, Any], epochs: int) -> RunConfig:
    return run_config(
        {
            "source": {"name": "mnist"},
            "task": task,
            "model": _hourglass(785, 256, 4),
            "train": {"epochs": epochs, "batch_size": 128, "learning_rate": 1e-3},
        }
    )


def mnist_denoise() -> RunConfig:
    """`isthmus train mnist-denoise`: the paper's protocol with 20 epochs instead of 50."""
    return _mnist({"name": "denoise"}, epochs=20)


def mnist_super_resolution() -> RunConfig:
    """`isthmus train mnist-super-resolution`: 14×14 to 28×28, four orientations, 5 epochs instead of 50."""
    return _mnist({"name": "super_resolution", "flips": True}, epochs=5)


def mnist_generative_classification() -> RunConfig:
    """`isthmus train mnist-generative-classification`: the paper's protocol with 20 epochs instead of 50."""
    return _mnist({"name": "generative_classification"}, epochs=20)


def paper_mnist_denoise() -> RunConfig:
    """The paper's MNIST denoising: 50 epochs. It searches the learning rate over 1e-4, 5e-4, 1e-3 and 5e-3."""
    return _mnist({"name": "denoise"}, epochs=50)


def paper_mnist_super_resolution() -> RunConfig:
    """The paper's MNIST super-resolution: 50 epochs of four orientations."""
    return _mnist({"name": "super_resolution", "flips": True}, epochs=50)


def paper_mnist_generative_classification() -> RunConfig:
    """The paper's MNIST generative classification: 50 epochs."""
    return _mnist({"name": "generative_classification"}, epochs=50)


def _colour(source: str, task: dict[str, Any], epochs: int, model: dict[str, Any]) -> RunConfig:
    return run_config(
        {
            "source": {"name": source},
            "task": task,
            "model": model,
            "train": {"epochs": epochs, "batch_size": 512, "learning_rate": 5e-4},
        }
    )


def cifar10_denoise() -> RunConfig:
    """`isthmus train cifar10-denoise`: the paper's ImageNet-32 protocol on CIFAR-10's 32×32×3 images."""
    return _colour("cifar10", {"name": "denoise", "flips": True}, 2, _hourglass(3075, 270, 4))


def cifar10_super_resolution() -> RunConfig:
    """`isthmus train cifar10-super-resolution`: likewise, 16×16 to 32×32."""
    return _colour("cifar10", {"name": "super_resolution", "flips": True}, 2, _hourglass(3075, 270, 4))


def photos_denoise() -> RunConfig:
    """`isthmus train photos-denoise`: colour patches of embedded photographs, no download."""
    config = _colour("photos", {"name": "denoise", "flips": True}, 4, _hourglass(3075, 115, 4))
    return config.model_copy(update={"train": config.train.model_copy(update={"batch_size": 64})})


def imagenet32_denoise() -> RunConfig:
    """The paper's protocol (Table 8, 37.71 M row); rates searched over 1e-4, 3e-4, 5e-4, 7e-4."""
    return _colour("imagenet32", {"name": "denoise", "flips": True}, 2, _hourglass(3075, 765, 4))


def imagenet32_super_resolution() -> RunConfig:
    """The paper's protocol (Table 9, 30.63 M row)."""
    return _colour("imagenet32", {"name": "super_resolution", "flips": True}, 2, _hourglass(3075, 765, 4))


def imagenet224_denoise() -> RunConfig:
    """The paper's protocol (Table 6, 37.712 M row): one epoch of 11.5 M patches."""
    return _colour("imagenet224", {"name": "denoise"}, 1, _hourglass(3075, 765, 4))


def imagenet224_super_resolution() -> RunConfig:
    """The paper's protocol (Table 7, 30.627 M row)."""
    return _colour("imagenet224", {"name": "super_resolution"}, 1, _hourglass(3075, 765, 4))
