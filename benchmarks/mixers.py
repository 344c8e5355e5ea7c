"""The mixers against their rivals: a permuted one against the normal one, ours against a plain implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.analysis.ratios import compare_times
from isthmus.training.devices import arithmetic
from isthmus.training.timm_weights import convert_timm

PERMUTED_BAR, PLAIN_BAR = 1.25, 1.0
"""At most so long takes a step of the permuted mixer, of the normal one's; and of ours, of the plain one's."""


class PlainMLP(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(self.act(self.fc1(x)))
        return y


class PlainBlock(nn.Module):
    def __init__(self, tokens: int, C: int, token_hidden: int, channel_hidden: int) -> None:
        super().__init__()
        self.norm1, self.mlp_tokens = nn.LayerNorm(C, eps=1e-6), PlainMLP(tokens, token_hidden)
        self.norm2, self.mlp_channels = nn.LayerNorm(C, eps=1e-6), PlainMLP(C, channel_hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        y: Tensor = x + self.mlp_channels(self.norm2(x))
        return y


class PlainMixer(nn.Module):
    """The MLP-Mixer in the plainest PyTorch, with timm's names."""

    def __init__(
        self, image: int, patch: int, classes: int, C: int, depth: int, token_hidden: int, channel_hidden: int
    ) -> None:
        super().__init__()
        tokens = (image // patch) ** 2
        self.stem = nn.ModuleDict({"proj": nn.Conv2d(3, C, patch, patch)})
        self.blocks = nn.Sequential(*[PlainBlock(tokens, C, token_hidden, channel_hidden) for _ in range(depth)])
        self.norm = nn.LayerNorm(C, eps=1e-6)
        self.head = nn.Linear(C, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem["proj"](x).flatten(2).transpose(1, 2)
        y: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return y


def permuted_step(rounds: int, batch: int = 128) -> dict[str, Any]:
    """A training step (forward, backward, AdamW) with random permutations, against one without."""
    from isthmus.core.registry import create_model

    shape = {"input_shape": (3, 32, 32), "output_shape": (10,), "patch": 4, "C": 64, "depth": 3, "gamma": 2}
    torch.manual_seed(0)
    normal = create_model("mlp_mixer", **shape)
    permuted = create_model("mlp_mixer", permutation="random", permutation_seed=0, **shape)
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    ours, rival = (_training_step(model, images, labels) for model in (permuted, normal))
    what = f"training step, permuted against normal Mixer (S = C = 64, batch {batch})"
    return compare_times(what, ours, rival, rounds, PERMUTED_BAR)


def plain_pass(rounds: int, batch: int = 16, size: int = 224) -> dict[str, Any]:
    """Forward and backward of S/16, ours against the plain one with the same weights."""
    from isthmus.core.registry import create_model
    from isthmus.models.mlp_mixer import VARIANTS

    torch.manual_seed(0)
    rival = PlainMixer(image=size, patch=16, classes=1000, C=512, depth=8, token_hidden=256, channel_hidden=2048)
    ours = create_model(**VARIANTS["s"] | {"input_shape": (3, size, size)})
    ours.load_state_dict(convert_timm(rival.state_dict()))
    images = torch.randn(batch, 3, size, size)
    what = f"forward and backward, our Mixer-S/16 against the plain one ({size} pixels, batch {batch})"
    return compare_times(what, _pass(ours, images), _pass(rival, images), rounds, PLAIN_BAR)


MEASURES: tuple[Callable[[int], dict[str, Any]], ...] = (permuted_step, plain_pass)
"""Each gives one row of ``isthmus bench mixers``."""


def measure(rounds: int, threads: int) -> list[dict[str, Any]]:
    with arithmetic(threads):
        return [measured(rounds) for measured in MEASURES]


def _training_step(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def _pass(model: nn.Module, images: Tensor) -> Callable[[], None]:
    def forward_and_backward() -> None:
        model.zero_grad()
        model(images).mean().backward()

    return forward_and_backward
