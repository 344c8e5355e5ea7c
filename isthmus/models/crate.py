"""CRATE and CRATE-T with recurrent depth: compression of tokens in subspaces, then a step towards a sparse code.

Papers: White-Box Transformers via Sparse Rate Reduction (Yu et al. 2023) and its more faithful variant (Hu et al.
2024), as the baselines of Hyperspherical Energy Transformer with Recurrent Depth (Hu, Zou, Xu), Table 1.

    papers               here
    Z, p                 the tokens, (batch, N, d); p = d / ``num_heads``
    U                    ``attention.U``, one projection for query, key and value
    D, η, λ              ``sparsity.D``, ``step``, ``threshold``
    MSSA, ISTA           ``Attention``, ``Sparsity``

Differs from the papers:
    One layer is applied repeatedly. CRATE-T maps tokens back with Uᵀ, as in its paper, or with U, as in its authors'
    code (``back``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace
from isthmus.layers.residual import Block, Branch
from isthmus.layers.sequences import RecurrentModel, SequenceConfig, declare_space

NAMES = {"crate": "CRATE", "crate_t": "CRATE"}
KIND = "Networks of recurrent depth"
MEANINGS = {
    "crate": "CRATE: compression of tokens in learned subspaces, then a step towards a sparse code.",
    "crate_t": "CRATE-T: the same with the transposed map out of the subspaces.",
}
TITLE_FIELDS = ("d", "layers", "iterations")

Tokens = Float[Tensor, "batch N d"]


class CRATEConfig(SequenceConfig):
    kind = "proximal"
    step: Annotated[float, Field(gt=0, le=100)] = 0.1
    """η, the step towards a sparse code."""
    threshold: Annotated[float, Field(ge=0, le=100)] = 0.1
    """λ, the penalty that makes the code sparse."""
    back: Literal["learned", "transposed", "same"] | None = None
    """The map out of the subspaces: ``learned`` (CRATE), ``transposed``, which is Uᵀ (CRATE-T), or ``same``, U."""

    @model_validator(mode="after")
    def _check_back(self) -> Self:
        if self.back is not None and (self.back == "learned") != (self.name == "crate"):
            raise ValueError(f"back={self.back}: crate has back=learned, crate_t back=transposed or back=same")
        return self


class Attention(nn.Module):
    """MSSA: softmax(w wᵀ / √p) w in every subspace, and back."""

    def __init__(self, config: CRATEConfig) -> None:
        super().__init__()
        self.heads = (config.num_heads, config.d // config.num_heads)
        self.back = config.back or ("learned" if config.name == "crate" else "transposed")
        self.U = nn.Linear(config.d, config.d, bias=False)
        self.out = nn.Linear(config.d, config.d) if self.back == "learned" else None

    def project(self, tokens: Tokens) -> Float[Tensor, "batch H N p"]:
        return self.U(tokens).unflatten(-1, self.heads).transpose(1, 2)

    def forward(self, tokens: Tokens) -> Tokens:
        w = self.project(tokens)
        mixed = nn.functional.scaled_dot_product_attention(w, w, w).transpose(1, 2).flatten(2)
        if self.out is not None:
            return self.out(mixed)
        return mixed @ (self.U.weight if self.back == "transposed" else self.U.weight.mT)


class Sparsity(nn.Module):
    """ISTA: one proximal step of a non-negative sparse code in the dictionary D."""

    def __init__(self, config: CRATEConfig) -> None:
        super().__init__()
        self.step, self.threshold = config.step, config.threshold
        self.D = nn.Parameter(torch.empty(config.d, config.d))
        nn.init.kaiming_uniform_(self.D)

    def forward(self, tokens: Tokens) -> Tokens:
        error = tokens - tokens @ self.D.mT  # y − D y of every token
        return (tokens + self.step * (error @ self.D) - self.step * self.threshold).relu()


class Layer(Block):
    """Compression, which is added to the stream; then a proximal step, which replaces it."""

    places = 2

    def __init__(self, config: CRATEConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d)
        self.attention = Attention(config)
        self.sparsity_norm = nn.LayerNorm(config.d)
        self.sparsity = Sparsity(config)

    def compress(self, tokens: Tokens) -> Tokens:
        return self.attention(self.attention_norm(tokens))

    def code(self, tokens: Tokens) -> Tokens:
        return self.sparsity(self.sparsity_norm(tokens))

    def branches(self, start: Tokens, t: int) -> tuple[Branch, ...]:
        return Branch("attention", self.compress), Branch("sparsity", self.code, carry=None)

    def project(self, tokens: Tokens) -> Float[Tensor, "batch H N p"]:
        """The tokens in the subspace of each head."""
        return self.attention.project(self.attention_norm(tokens))


class CRATE(RecurrentModel):
    Config = CRATEConfig

    def __init__(self, config: CRATEConfig) -> None:
        super().__init__(config, Layer, nn.LayerNorm(config.d), normed_patches=True)


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """For images with classes, and for tokens."""
    for name in NAMES:
        yield from declare_space({"name": name}, signature, budget, {})


IMAGE: dict[str, Any] = {"input_shape": (3, 224, 224), "output_shape": (10,)}
VARIANTS: dict[str, dict[str, Any]] = {"small": {"name": "crate", **IMAGE}, "small-t": {"name": "crate_t", **IMAGE}}
"""The two rows of Table 1, with the ten classes of CIFAR-10."""
