"""The protocols of the Hourglass paper (appendix A.2)."""

from __future__ import annotations

from isthmus.core.config import RunConfig
from isthmus.recipes import recipe
from isthmus.recipes.mlps import colour, hourglass, mnist

NAMES = {
    "imagenet32-denoise": "imagenet32_denoise",
    "imagenet32-super-resolution": "imagenet32_super_resolution",
    "imagenet224-denoise": "imagenet224_denoise",
    "imagenet224-super-resolution": "imagenet224_super_resolution",
    "hourglass-mnist-denoise": "paper_mnist_denoise",
    "hourglass-mnist-super-resolution": "paper_mnist_super_resolution",
    "hourglass-mnist-generative-classification": "paper_mnist_generative_classification",
}


def imagenet(source: str, task: str) -> RunConfig:
    """ImageNet-32: two epochs of each image in four orientations; ImageNet-224: one epoch of 11.5 M patches."""
    small = source == "imagenet32"
    return colour(source, task, 2 if small else 1, hourglass(3075, 765, 4), flips=small)


imagenet32_denoise = recipe(
    "The paper's protocol (Table 8, 37.71 M row); rates searched over 1e-4, 3e-4, 5e-4, 7e-4.",
    imagenet, "imagenet32", "denoise",
)  # fmt: skip
imagenet32_super_resolution = recipe(
    "The paper's protocol (Table 9, 30.63 M row).", imagenet, "imagenet32", "super_resolution"
)
imagenet224_denoise = recipe(
    "The paper's protocol (Table 6, 37.712 M row): one epoch of 11.5 M patches.", imagenet, "imagenet224", "denoise"
)
imagenet224_super_resolution = recipe(
    "The paper's protocol (Table 7, 30.627 M row).", imagenet, "imagenet224", "super_resolution"
)
paper_mnist_denoise = recipe(
    "The paper's MNIST denoising: 50 epochs. It searches the learning rate over 1e-4, 5e-4, 1e-3 and 5e-3.",
    mnist, "denoise", 50,
)  # fmt: skip
paper_mnist_super_resolution = recipe(
    "The paper's MNIST super-resolution: 50 epochs of four orientations.", mnist, "super_resolution", 50
)
paper_mnist_generative_classification = recipe(
    "The paper's MNIST generative classification: 50 epochs.", mnist, "generative_classification", 50
)
