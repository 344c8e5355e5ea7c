"""Multi-head self-attention: softmax(q kᵀ / √width) v in every head."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

Tokens = Float[Tensor, "batch tokens d"]
Heads = Float[Tensor, "batch heads tokens width"]


def attend(query: Heads, key: Heads, value: Heads, fused: bool = True) -> Float[Tensor, "batch tokens values"]:
    """The concatenated heads; ``fused`` uses one kernel without the tokens × tokens matrix."""
    if fused:
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
    else:
        mixed = (query * query.shape[-1] ** -0.5 @ key.mT).softmax(-1) @ value
    return mixed.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Heads with ``values`` numbers in total (default: d), projected from d and back.

    With ``parts=1``, queries, keys and values share one projection.
    """

    def __init__(
        self, d: int, num_heads: int, values: int | None = None, *, parts: Literal[1, 3] = 3, bias: bool = True,
        fused: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        values = values or d
        self.heads = (num_heads, values // num_heads)
        self.parts, self.fused = parts, fused
        self.qkv = nn.Linear(d, parts * values, bias=bias)
        self.out = nn.Linear(values, d, bias=bias)

    def sliced_axes(self) -> dict[str, tuple[int, ...]]:
        """A part takes the first numbers of the first heads."""
        inner = (self.parts, *self.heads)
        d = self.qkv.in_features
        return {"qkv.weight": (*inner, d), "qkv.bias": inner, "out.weight": (d, *self.heads)}

    def project(self, tokens: Tokens) -> tuple[Heads, Heads, Heads]:
        """Queries, keys and values of every head."""
        parts = self.qkv(tokens).unflatten(-1, (self.parts, *self.heads)).unbind(2)
        query, key, value = [part.transpose(1, 2) for part in parts] * (3 // self.parts)
        return query, key, value

    def forward(self, tokens: Tokens) -> Tokens:
        return self.out(attend(*self.project(tokens), self.fused))
