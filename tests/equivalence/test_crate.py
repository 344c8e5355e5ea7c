"""CRATE and both kinds of CRATE-T against their formulas, written out token by token in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence.slow_sequences import IMAGES, TOKENS, Slow, assert_same, drawn, softmax

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "crate": ("crate", {}),
    "crate_t": ("crate_t", {}),
    "crate_t, transposed": ("crate_t", {"back": "transposed"}),
    "crate_t, same": ("crate_t", {"back": "same"}),
}


class SlowCRATE(Slow):
    def back(self, name: str, mixed: Tensor) -> Tensor:
        U = self.weights[f"{name}.attention.U.weight"]
        if self.config.name == "crate":
            return self.linear(f"{name}.attention.out", mixed)
        return U @ mixed if self.config.back == "same" else U.T @ mixed

    def mssa(self, name: str, Z: Tensor) -> list[Tensor]:
        """What every token gets from all: in each subspace the mean of the projections, weighted by the softmax."""
        w = self.heads(self.weights[f"{name}.attention.U.weight"] @ Z)
        found = []
        for i in range(Z.shape[1]):
            mixed = []
            for part in w:
                scores = torch.stack([part[:, i] @ other / math.sqrt(self.p) for other in part.T])
                mixed.append(sum(share * other for share, other in zip(softmax(scores), part.T, strict=True)))
            found.append(self.back(name, torch.cat(mixed)))
        return found

    def ista(self, name: str, y: Tensor) -> Tensor:
        """One step down ½ ‖y − D z‖² from z = y, then the threshold, then no negative numbers."""
        D, eta, threshold = self.weights[f"{name}.sparsity.D"], self.config.step, self.config.threshold
        return (y + eta * (D.T @ y - D.T @ D @ y) - eta * threshold).clamp(min=0)

    def layer(self, name: str, X: Tensor, X_0: Tensor, t: int) -> Tensor:
        normed = torch.stack([self.layer_norm(f"{name}.attention_norm", x) for x in X.T], dim=1)
        compressed = [x + update for x, update in zip(X.T, self.mssa(name, normed), strict=True)]
        coded = [self.ista(name, self.layer_norm(f"{name}.sparsity_norm", x)) for x in compressed]
        return torch.stack(coded, dim=1)


@pytest.mark.parametrize("shape", [TOKENS, IMAGES], ids=["tokens", "images"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_slow_one(kind, shape):
    name, fields = KINDS[kind]
    model = drawn(name, **shape, step=0.3, threshold=0.2, **fields)
    assert_same(model, SlowCRATE(model))


@pytest.mark.parametrize("name", ["crate", "crate_t"])
def test_step_and_threshold_start_as_in_the_paper(name):
    config = drawn(name, **TOKENS).config
    assert (config.step, config.threshold) == (0.1, 0.1)
