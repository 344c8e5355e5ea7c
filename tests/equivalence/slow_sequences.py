"""Models on sequences, slow and obvious: one sample at a time, in float64, from the state dict and the papers alone.

Tokens are columns here, as in the papers, and rows in the models.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from isthmus.core.registry import create_model

TOKENS: dict[str, Any] = {
    "input_shape": (5,), "output_shape": (5, 4), "vocabulary": 7, "d": 12, "num_heads": 3, "layers": 2, "iterations": 3,
}  # fmt: skip
IMAGES: dict[str, Any] = {
    "input_shape": (3, 8, 12), "output_shape": (5,), "patch": 4, "d": 12, "num_heads": 3, "layers": 2, "iterations": 3,
}  # fmt: skip


def drawn(name: str, **fields: Any) -> Any:
    """Every weight random, also those that start at zero or one: nothing may be left out unseen."""
    model = create_model(name, **fields).double().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def samples(model: Any) -> Tensor:
    generator, shape = torch.Generator().manual_seed(1), (2, *model.input_shape)
    if model.vocabulary:
        return torch.randint(model.vocabulary, shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def softmax(scores: Tensor) -> Tensor:
    """Of one vector."""
    return torch.exp(scores) / torch.exp(scores).sum()


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def sinusoids(place: int, width: int, inclusive: bool = False) -> Tensor:
    """Sines of ``width``/2 frequencies from 1 down towards 1/10⁴ (to it if inclusive), then their cosines."""
    angles = [place / 1e4 ** (k / (width // 2 - inclusive)) for k in range(width // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)


class Slow:
    """What the models share; each has its own ``layer``."""

    patch_norms = True
    readout_norm = "layer"

    def __init__(self, model: Any) -> None:
        self.weights: dict[str, Tensor] = model.state_dict()
        self.config: Any = model.config
        self.p = model.config.d // model.config.num_heads

    def layer(self, name: str, X: Tensor, X_0: Tensor, t: int) -> Tensor:
        raise NotImplementedError

    def heads(self, matrix: Tensor) -> list[Tensor]:
        """The p rows of each head."""
        return [matrix[self.p * h : self.p * (h + 1)] for h in range(self.config.num_heads)]

    def linear(self, name: str, x: Tensor) -> Tensor:
        product = self.weights[f"{name}.weight"] @ x
        return product + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else product

    def layer_norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean()
        scaled = centred / torch.sqrt((centred**2).mean() + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def rms_norm(self, name: str, x: Tensor) -> Tensor:
        return x / torch.sqrt((x**2).mean() + 2**-23) * self.weights[f"{name}.weight"]

    def embedded(self, sample: Tensor) -> Tensor:
        if self.config.vocabulary:
            tokens = [self.weights["embedding.tokens.weight"][token] for token in sample]
        else:
            tokens = [self.weights["embedding.class_token"].view(-1), *self.patches(sample)]
        if self.config.positions == "learned":
            places = list(self.weights["embedding.positions"])
        elif self.config.positions == "grid":
            side, half = math.isqrt(len(tokens)), self.config.d // 2
            pairs = [(column, row) for row in range(side) for column in range(side)]
            places = [torch.cat([sinusoids(i, half) for i in pair]).float().double() for pair in pairs]
        else:  # kept in float32
            places = [sinusoids(i, self.config.d).float().double() for i in range(len(tokens))]
        return torch.stack([token + place for token, place in zip(tokens, places, strict=True)], dim=1)

    def patches(self, image: Tensor) -> list[Tensor]:
        side, found = self.config.patch, []
        for row in range(0, image.shape[1], side):
            for column in range(0, image.shape[2], side):
                values = image[:, row : row + side, column : column + side].reshape(-1)
                if self.patch_norms:
                    values = self.layer_norm("embedding.before", values)
                values = self.linear("embedding.linear", values)
                found.append(self.layer_norm("embedding.after", values) if self.patch_norms else values)
        return found

    def states(self, sample: Tensor) -> list[Tensor]:
        """X_0, and X after every iteration of every layer; t of each layer starts at 1."""
        X_0 = self.embedded(sample)
        states = [X_0]
        for number in range(self.config.layers):
            for t in range(1, 1 + self.config.iterations):
                states.append(self.layer(f"layers.{number}", states[-1], X_0, t))
        return states

    def readout(self, X: Tensor) -> Tensor:
        norm = self.layer_norm if self.readout_norm == "layer" else self.rms_norm
        read = [self.linear("readout.linear", norm("readout.norm", x)) for x in X.T]
        return torch.stack(read) if self.config.vocabulary else read[0]


def assert_same(model: Any, slow: Slow) -> None:
    """All states and the output, of samples that are computed together and one at a time."""
    x = samples(model)
    found = [tensor for _, tensor in model.trajectory(x)]
    assert torch.equal(model(x), found[-1])
    for sample in range(len(x)):
        states = slow.states(x[sample])
        expected = [*(X.T for X in states), slow.readout(states[-1])]
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[sample], other, rtol=1e-6, atol=1e-6)
