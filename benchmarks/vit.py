"""Our ViT and Mixer against timm's with the same weights, and a training step with and without its augmentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.analysis.ratios import compare_times
from isthmus.core.errors import UserError
from isthmus.training.devices import arithmetic

TIMM_BAR, AUGMENTATION_BAR = 1 / 0.98, 1.1
"""At most so long take forward and backward of ours, of timm's; and a step with Table 11's augmentation, of one
without."""
BATCH = 16


def measure(rounds: int, threads: int) -> list[dict[str, Any]]:
    try:
        import timm
    except (ImportError, RuntimeError):  # timm needs torchvision, which does not load beside a CPU build of torch
        raise UserError(
            "`isthmus bench vit` measures against timm, which does not work here: `make test-timm` makes .venv-timm, "
            "an environment in which it does"
        ) from None
    from isthmus.core.registry import create_model
    from isthmus.models import mlp_mixer, vit
    from isthmus.training.timm_weights import convert_timm

    rivals = {
        "ViT-Tiny/16": ("vit_tiny_patch16_224", vit.VARIANTS["tiny-conventional"]),
        "Mixer-S/16": ("mixer_s16_224", mlp_mixer.VARIANTS["s"]),
    }
    images = torch.randn(BATCH, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    lines = []
    with arithmetic(threads):
        for title, (name, variant) in rivals.items():
            theirs = timm.create_model(name, num_classes=variant["output_shape"][0])
            ours = create_model(**variant)
            ours.load_state_dict(convert_timm(theirs.state_dict()))
            works = _pass(ours.train(), images), _pass(theirs.train(), images)
            lines.append(compare_times(f"forward and backward, {title}, ours against timm's", *works, rounds, TIMM_BAR))
        lines.append(augmented_step(rounds))
    return lines


def _pass(model: nn.Module, images: Tensor) -> Callable[[], None]:
    def forward_and_backward() -> None:
        model.zero_grad()
        model(images).square().mean().backward()

    return forward_and_backward


def augmented_step(rounds: int, batch: int = 128) -> dict[str, Any]:
    """ViT-Tiny with patches of 4 pixels on images of CIFAR-10's size."""
    import numpy as np

    from isthmus.core.protocols import Data, Split
    from isthmus.core.registry import component, create_model, find
    from isthmus.papers.hourglass.recipes import vit
    from isthmus.recipes import at_224_pixels

    generator = np.random.default_rng(0)
    split = Split(generator.integers(0, 256, (1024, 3, 32, 32), dtype=np.uint8), np.arange(1024) % 10)
    rows, labels = torch.from_numpy(split.inputs[:batch]), torch.from_numpy(split.targets[:batch])  # type: ignore[index]
    index = torch.arange(batch)
    model = create_model(
        **vit("tiny", "conventional") | {"patch": 4, "input_shape": (3, 32, 32), "output_shape": (10,)}
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def step(settings: dict[str, Any]) -> Callable[[], None]:
        task = find("tasks", "classification")(component("tasks", {"name": "classification", **settings}))
        task.learn(Data(split, split, split, "0" * 64))
        numbers = iter(range(10**9))  # every step draws anew, as in training

        def once() -> None:
            made = task.training_batch(rows, labels, index, torch.zeros_like(index), 0, next(numbers))
            optimizer.zero_grad()
            task.loss(model(made.input), made.target).backward()
            optimizer.step()

        return once

    works = step({"augment": at_224_pixels()["augment"], "label_smoothing": 0.1}), step({"label_smoothing": 0.1})
    title = f"training step of ViT-Tiny/4 at 32 pixels (batch {batch}), with Table 11's augmentation against without"
    return compare_times(title, *works, rounds, AUGMENTATION_BAR)
