"""The mixers against their rivals: a permuted one against the normal one, ours against the one that everybody writes.

The rounds are interleaved, because a shared machine changes its speed by the minute; what counts is the median of the
rounds' ratios.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.run import arithmetic

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


def named_as_ours(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under timm's names, as ``mlp_mixer`` calls and shapes them."""
    renamed = {}
    for name, weight in weights.items():
        ours = name.replace("mlp_tokens", "token_mixing").replace("mlp_channels", "channel_mixing")
        ours = ours.replace("stem.proj", "stem.linear").replace("head.", "head.linear.")
        renamed[ours] = weight.flatten(1) if ours == "stem.linear.weight" else weight
    return renamed


def permuted_step(rounds: int) -> dict[str, Any]:
    """A training step (forward, backward, AdamW) with random permutations, against one without."""
    from isthmus.registry import create_model

    shape = {"input_shape": (3, 32, 32), "output_shape": (10,), "patch": 4, "C": 64, "depth": 3, "gamma": 2}
    torch.manual_seed(0)
    normal = create_model("mlp_mixer", **shape)
    permuted = create_model("mlp_mixer", permutation="random", permutation_seed=0, **shape)
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))
    steps = [_training_step(model, images, labels) for model in (permuted, normal)]
    return _row("training step, permuted against normal Mixer (S = C = 64, batch 128)", steps, rounds, PERMUTED_BAR)


def plain_pass(rounds: int) -> dict[str, Any]:
    """Forward and backward of S/16 at 224 pixels, ours against the plain one with the same weights."""
    from isthmus.models.mlp_mixer import VARIANTS
    from isthmus.registry import create_model

    torch.manual_seed(0)
    plain = PlainMixer(image=224, patch=16, classes=1000, C=512, depth=8, token_hidden=256, channel_hidden=2048)
    ours = create_model(**VARIANTS["s"])
    ours.load_state_dict(named_as_ours(plain.state_dict()))
    images = torch.randn(16, 3, 224, 224)
    passes = [_pass(model, images) for model in (ours, plain)]
    return _row("forward and backward, our Mixer-S/16 against the plain one (batch 16)", passes, rounds, PLAIN_BAR)


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


def _row(measured: str, rivals: list[Callable[[], None]], rounds: int, bar: float) -> dict[str, Any]:
    """Our seconds (the first of the two) over the rival's."""
    for rival in rivals:
        rival()  # the first call pays for memory and kernels
    seconds = []
    for number in range(rounds):
        order = (0, 1) if number % 2 else (1, 0)
        taken = {i: _seconds(rivals[i]) for i in order}
        seconds.append((taken[0], taken[1]))
    return {
        "measured": measured,
        "milliseconds": " against ".join(
            f"{1e3 * statistics.median(times):.1f}" for times in zip(*seconds, strict=True)
        ),
        "ratio": round(statistics.median(ours / theirs for ours, theirs in seconds), 3),
        "bar": bar,
        "load": round(os.getloadavg()[0], 2),
    }


def _seconds(work: Callable[[], None]) -> float:
    """Of one among others like it: the first after a rival's finds memory and threads as the rival left them."""
    work()
    began = time.perf_counter()
    for _ in range(3):
        work()
    return (time.perf_counter() - began) / 3
