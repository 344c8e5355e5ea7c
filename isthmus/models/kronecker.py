"""Shallow nets whose square matrices are Monarch matrices or Kronecker products.

Paper: Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), section 3.3 and Figure 2(d); Monarch
matrices are Dao et al.'s (2022).

    paper                        here
    x → B_c B_2 ReLU(B_1 x)      ``B1``, ``B2``, ``Bc``
    B = V ⊗ W                    ``kronecker_mlp``: ``V`` of C × C and ``W`` of S × S
    B = M = J_cᵀ L J_c R         ``monarch_mlp``: ``L`` has S blocks of C × C, ``R`` has C blocks of S × S
    n = S C, √n                  ``size``; ``S`` (√n in eq. 12, where S = C)

A vector of n numbers is vec(X) of an S × C matrix X, column by column. R multiplies each column by its own matrix, J_c
transposes, L multiplies each row by its own matrix, and J_cᵀ transposes back. If all columns share one matrix and all
rows another, M = V ⊗ W (Corollary 3.4, L = I ⊗ V and R = I ⊗ W, with V for the corollary's Vᵀ).

Differs from the paper:
    The sizes are not printed. n is the smallest square that holds the input (784 = 28² for MNIST), which is padded with
    zeros; ``S`` chooses other factors. The formula has no biases; ``bias`` adds them to B_1, B_2 and B_c. The
    initialisation is not printed: each factor is N(0, 1/its width), which keeps ‖x‖; B_2 has a factor √2 for the ReLU.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn

from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace, Varied
from isthmus.layers.rows import RowModelConfig, Width

NAMES = {"monarch_mlp": "ShallowMLP", "kronecker_mlp": "ShallowMLP"}
KIND = "Sparse and structured MLPs"
MEANINGS = {
    "monarch_mlp": "A shallow net whose square matrices are Monarch matrices.",
    "kronecker_mlp": "A shallow net whose square matrices are Kronecker products.",
}
TITLE_FIELDS = ("size", "S")


class ShallowConfig(RowModelConfig):
    size: Width | None = None
    """n, the width of B1 and B2; None: the smallest square that holds the input."""
    S: Width | None = None
    """Rows of X; C is n / S. None: √n."""
    bias: bool = False
    """Whether the two matrices have biases."""

    @model_validator(mode="after")
    def _check_factors(self) -> Self:
        if self.d_in is None or self.d_out is None:
            return self
        if self.n < self.d_in:
            raise ValueError(f"size={self.n} does not hold an input of {self.d_in} numbers")
        if self.S is None and self.rows**2 != self.n:
            raise ValueError(f"size={self.n} is not a square; set S to a divisor of it")
        if self.n % self.rows:
            raise ValueError(f"size={self.n} cannot be S × C: S={self.rows} does not divide it")
        return self

    @property
    def n(self) -> int:
        d_in, _ = self.ends
        if self.size is not None:
            return self.size
        return math.ceil(math.sqrt(d_in)) ** 2 if self.S is None else self.S * math.ceil(d_in / self.S)

    @property
    def rows(self) -> int:
        return self.S or math.isqrt(self.n)


class Structured(nn.Module, ABC):
    """A square matrix that acts on vec(X); a row of the batch is one vec(X)."""

    def __init__(self, S: int, C: int, bias: bool) -> None:
        super().__init__()
        self.S, self.C = S, C
        self.bias = nn.Parameter(torch.zeros(S * C)) if bias else None

    @abstractmethod
    def mix(self, columns: Float[Tensor, "batch C S"]) -> Float[Tensor, "batch C S"]:
        """The columns of the product from the columns of X."""

    def forward(self, x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
        y = self.mix(x.unflatten(1, (self.C, self.S))).flatten(1)
        return y if self.bias is None else y + self.bias


class Kronecker(Structured):
    """V ⊗ W: (V ⊗ W) vec(X) = vec(W X Vᵀ)."""

    def __init__(self, S: int, C: int, bias: bool = False, gain: float = 1.0) -> None:
        super().__init__(S, C, bias)
        self.V = nn.Parameter(torch.randn(C, C) / math.sqrt(C))
        self.W = nn.Parameter(torch.randn(S, S) * (gain / math.sqrt(S)))

    def mix(self, columns: Float[Tensor, "batch C S"]) -> Float[Tensor, "batch C S"]:
        return self.V @ (columns @ self.W.T)  # Eq. (6), transposed


class Monarch(Structured):
    """J_cᵀ L J_c R with block-diagonal L and R."""

    def __init__(self, S: int, C: int, bias: bool = False, gain: float = 1.0) -> None:
        super().__init__(S, C, bias)
        self.L = nn.Parameter(torch.randn(S, C, C) / math.sqrt(C))
        self.R = nn.Parameter(torch.randn(C, S, S) * (gain / math.sqrt(S)))

    def mix(self, columns: Float[Tensor, "batch C S"]) -> Float[Tensor, "batch C S"]:
        right = columns.transpose(0, 1) @ self.R.mT  # a block for each column of X: (C, batch, S)
        left = right.permute(2, 1, 0) @ self.L.mT  # a block for each row of X: (S, batch, C)
        return left.permute(1, 2, 0)  # Eq. (12)


class ShallowMLP(nn.Module):
    Config = ShallowConfig

    def __init__(self, config: ShallowConfig) -> None:
        super().__init__()
        self.config = config
        d_in, d_out = config.ends
        self.input_shape = (d_in,)
        self.padding = config.n - d_in
        factors = (config.rows, config.n // config.rows)
        kind = Monarch if config.name == "monarch_mlp" else Kronecker
        self.B1 = kind(*factors, config.bias)
        self.B2 = kind(*factors, config.bias, gain=math.sqrt(2))
        self.Bc = nn.Linear(config.n, d_out, bias=config.bias)

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch d_out"]:
        *_, (_, y) = self.trajectory(x)
        return y

    def trajectory(self, x: Float[Tensor, "batch ..."]) -> Iterator[tuple[str, Tensor]]:
        h = torch.relu(self.B1(nn.functional.pad(x.flatten(1), (0, self.padding))))
        yield "h_1", h
        h = self.B2(h)
        yield "h_2", h
        yield "output", self.Bc(h)  # section 3.3


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """For rows, and for images as rows, if the square matrices that hold them fit the budget."""
    if signature.vocabulary:
        return
    d_in = math.prod(signature.input_shape)
    S = math.ceil(math.sqrt(d_in))
    for name in NAMES:
        varied: Varied = {"bias": (True, False), "train.learning_rate": (3e-3, 1e-2)}
        yield FittedSpace(model={"name": name, "S": S}, vary=varied, width="size", step=S, low=d_in)


VARIANTS = {
    "monarch-mnist": {"name": "monarch_mlp", "d_in": 784, "d_out": 10},
    "kronecker-mnist": {"name": "kronecker_mlp", "d_in": 784, "d_out": 10},
}
"""The two nets of Figure 2(d), with n = 784 and S = C = 28."""
