"""The recurrent Transformer against its formulas, written out token by token in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.equivalence.slow_sequences import IMAGES, TOKENS, Slow, assert_same, drawn, gelu, softmax


class SlowTransformer(Slow):
    patch_norms = False
    readout_norm = "rms"

    def parts(self, name: str, X: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Queries, keys and values: of every head a matrix p × N."""
        d, projections = self.config.d, self.weights[f"{name}.attention.qkv.weight"] @ X
        if self.config.qkv == "shared":
            return self.heads(projections), self.heads(projections), self.heads(projections)
        return self.heads(projections[:d]), self.heads(projections[d : 2 * d]), self.heads(projections[2 * d :])

    def attention(self, name: str, X: Tensor) -> list[Tensor]:
        queries, keys, values = self.parts(name, X)
        found = []
        for i in range(X.shape[1]):
            mixed = []
            for query, key, value in zip(queries, keys, values, strict=True):
                scores = torch.stack([query[:, i] @ other / math.sqrt(self.p) for other in key.T])
                mixed.append(sum(share * other for share, other in zip(softmax(scores), value.T, strict=True)))
            found.append(self.linear(f"{name}.attention.out", torch.cat(mixed)))
        return found

    def mlp(self, name: str, x: Tensor) -> Tensor:
        act = torch.relu if self.config.activation == "relu" else gelu
        return self.linear(f"{name}.mlp.2", act(self.linear(f"{name}.mlp.0", x)))

    def layer(self, name: str, X: Tensor, X_0: Tensor, t: int) -> Tensor:
        normed = torch.stack([self.rms_norm(f"{name}.attention_norm", x) for x in X.T], dim=1)
        after = [x + update for x, update in zip(X.T, self.attention(name, normed), strict=True)]
        return torch.stack([x + self.mlp(name, self.rms_norm(f"{name}.mlp_norm", x)) for x in after], dim=1)


@pytest.mark.parametrize(
    "shape", [TOKENS, TOKENS | {"positions": "learned"}, IMAGES], ids=["tokens", "places", "images"]
)
@pytest.mark.parametrize("qkv", ["separate", "shared"])
def test_it_is_the_slow_one(qkv, shape):
    model = drawn("recurrent_transformer", **shape, qkv=qkv, ff_ratio=2.5)
    assert_same(model, SlowTransformer(model))


def test_relu_is_the_activation_of_the_authors_code():
    model = drawn("recurrent_transformer", **TOKENS, activation="relu")
    assert_same(model, SlowTransformer(model))
