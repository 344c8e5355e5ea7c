"""Hyper-SET: one Transformer layer, applied repeatedly, that descends two energies of tokens on spheres.

Paper: Hyperspherical Energy Transformer with Recurrent Depth (Hu, Zou, Xu).

    paper                here
    X, x_i, N            the tokens, (batch, N, d); rows here, columns there
    W_h, p, H            ``attention.W`` (d × d, all heads), p = d / ``num_heads``
    D, M                 ``feed_forward.D``, M = ``ff_ratio`` · d
    E_ATTN, E_FF         ``Layer.energies``
    α_t, γ_t             ``steps``: one network with two outputs per channel, or fixed
    x(0), X_t            ``step_sizes``: the input of the step network
    L, T                 ``layers``, ``iterations`` of each

Differs from the paper:
    The paper initialises the step network with zeros. If all its layers start at zero (``zero_all``), those before the
    last never get a gradient and the steps never depend on t; ``zero_last`` zeroes only the last layer. The types of
    the norms around the patches, before the head and in the step network are not printed; ours give the printed
    parameter counts. Step sizes that are ``fixed`` or depend only on the time are not in the paper. Each of several
    layers has its own step network and counts its own iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace, Varied
from isthmus.layers.pointwise import activation
from isthmus.layers.residual import Block, Branch, Layout
from isthmus.layers.sequences import RecurrentModel, SequenceConfig, declare_space, rms_norm, sinusoids
from isthmus.layers.symmetric_attention import log_partition, separate_attention, symmetric_attention

NAMES = {"hyper_set": "HyperSET"}
KIND = "Networks of recurrent depth"
TITLE_FIELDS = ("d", "ff_ratio", "layers", "iterations", "step_sizes")

Tokens = Float[Tensor, "batch N d"]


class HyperSETConfig(SequenceConfig):
    kind = "energy"
    ff_ratio: Annotated[float, Field(gt=0, le=1024)] = 1.0
    """M / d."""
    attention_norms: Literal["one", "three"] = "one"
    """One norm of queries, keys and values, or one for each as in the authors' classifier; then A is not symmetric."""
    activation: Literal["relu", "gelu"] = "relu"
    """With the paper's ReLU the step is −∇E_FF; its authors' later code has GELU."""
    step_sizes: Literal["X_0", "X_t", "time", "fixed"] = "X_t"
    """Learned from the iteration and the embedded tokens, the current tokens or nothing else; or fixed."""
    step_init: Literal["zero_last", "zero_all"] = "zero_last"
    """Which layers of the step-size network start at zero; with ``zero_all``, steps never depend on t."""
    fixed_step: Annotated[float, Field(gt=0, le=100)] = 0.1
    """α and γ for ``step_sizes="fixed"``."""
    time_mlp: bool = True
    """Two layers between the sinusoids of t and the step sizes; without them there are d sinusoids."""
    time_norms: bool = False
    """Norms after both of these layers and before the second, as in the authors' classifier."""
    time_frequencies: Annotated[int, Field(ge=2, le=2**16)] = 512
    """The number of sinusoids of t."""
    time_spacing: Literal["exclusive", "inclusive"] = "exclusive"
    """``inclusive``: frequencies of t fall to exactly 1/10,000, as in the authors' code; else they end above it."""

    @model_validator(mode="after")
    def _check_time(self) -> Self:
        if self.time_frequencies % 2:
            raise ValueError(f"time_frequencies={self.time_frequencies} is odd, and sinusoids come in pairs")
        if self.time_norms and not self.time_mlp:
            raise ValueError("time_norms=true needs time_mlp=true, whose layers it normalises")
        return self

    @property
    def layout(self) -> Layout:
        zero = "" if self.step_sizes == "fixed" else f"step_sizes={self.step_sizes}; use step_sizes=fixed"
        return replace(super().layout, starts_at_zero=zero)

    @property
    def M(self) -> int:  # noqa: N802 (the paper's symbol)
        return max(1, round(self.ff_ratio * self.d))


class Attention(nn.Module):
    """Σ_h W_h Z_h (softmax of columns + softmax of rows)(β Z_hᵀ Z_h), with Z_h on a sphere: eq. (8) without −α.

    With an identity for ``norm`` it is ∇E_ATTN of tokens on no sphere: eq. (6).
    """

    def __init__(self, d: int, num_heads: int, norms: Literal["one", "three"] = "one") -> None:
        super().__init__()
        self.heads = (num_heads, d // num_heads)
        self.W = nn.Linear(d, d, bias=False)
        self.norm = rms_norm(d // num_heads)
        self.others = nn.ModuleList(rms_norm(d // num_heads) for _ in range(2 if norms == "three" else 0))

    def project(self, tokens: Tokens) -> Float[Tensor, "batch H N p"]:
        return self.W(tokens).unflatten(-1, self.heads).transpose(1, 2)  # Eq. (1)

    def forward(self, tokens: Tokens) -> Tokens:
        projected = self.project(tokens)
        z = self.norm(projected)  # Eq. (7)
        if self.others:
            mixed = separate_attention(z, *(norm(projected) for norm in self.others))
        else:
            mixed = symmetric_attention(z)
        return mixed.transpose(1, 2).flatten(2) @ self.W.weight

    def energy(self, tokens: Tokens, on_sphere: bool = True) -> Float[Tensor, "batch H"]:
        """E_ATTN of every sample and head, eq. (2); ``on_sphere`` first normalises for the constraint of eq. (3)."""
        z = self.project(tokens)
        if on_sphere:
            z = nn.functional.rms_norm(z, z.shape[-1:])
        return log_partition(z).sum(dim=-1) * self.heads[1] ** 0.5


class FeedForward(nn.Module):
    """D σ(RMSNorm(Dᵀ X)): eq. (10) without γ. With an identity for ``norm`` and ReLU it is −∇E_FF: eq. (9)."""

    def __init__(self, config: HyperSETConfig) -> None:
        super().__init__()
        self.D = nn.Linear(config.d, config.M, bias=False)
        self.norm = rms_norm(config.M)
        self.activation = activation(config.activation)

    def forward(self, tokens: Tokens) -> Tokens:
        hidden: Tensor = self.activation(self.norm(self.D(tokens)))
        return hidden @ self.D.weight

    def energy(self, tokens: Tokens, on_sphere: bool = True) -> Float[Tensor, " batch"]:
        """E_FF of every sample, eq. (4)."""
        hidden = self.D(tokens)
        if on_sphere:
            hidden = nn.functional.rms_norm(hidden, hidden.shape[-1:])
        return -0.5 * hidden.relu().square().sum(dim=(1, 2))


class LearnedSteps(nn.Module):
    """α and γ for every channel of every token, from t and the tokens: eq. (11) and (12)."""

    def __init__(self, config: HyperSETConfig) -> None:
        super().__init__()
        self.condition = config.step_sizes
        self.frequencies = config.time_frequencies if config.time_mlp else config.d
        self.inclusive = config.time_spacing == "inclusive"
        mlp: list[nn.Module] = []
        if config.time_mlp:
            mlp = [nn.Linear(self.frequencies, config.d), nn.GELU(), nn.Linear(config.d, config.d)]
        if config.time_norms:
            first, gelu, second = mlp
            norms = (rms_norm(config.d) for _ in range(3))
            mlp = [first, next(norms), gelu, next(norms), second, next(norms)]
        self.time = nn.Sequential(*mlp)
        # X_t grows with the iterations, and sinusoids without an MLP are larger than X_0.
        self.norm = rms_norm(config.d) if config.step_sizes == "X_t" or not config.time_mlp else nn.Identity()
        self.last = nn.Linear(config.d, 2 * config.d)
        for layer in self.modules():
            if isinstance(layer, nn.Linear) and (layer is self.last or config.step_init == "zero_all"):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, tokens: Tokens, start: Tokens, t: int) -> tuple[Tensor, Tensor]:
        place = torch.tensor([float(t)], dtype=torch.float64, device=tokens.device)
        time = self.time(sinusoids(place, self.frequencies, self.inclusive).to(tokens.dtype))
        if self.condition == "time":
            hidden = self.norm(time)[None]
        elif not self.time:
            hidden = self.norm(time + (start if self.condition == "X_0" else tokens))
        else:
            hidden = time + (start if self.condition == "X_0" else self.norm(tokens))
        attention, feed_forward = self.last(nn.functional.gelu(hidden)).chunk(2, dim=-1)
        return attention, feed_forward


class Energies(NamedTuple):
    """The two energies of every sample."""

    attention: Float[Tensor, " batch"]
    feed_forward: Float[Tensor, " batch"]


class Layer(Block):
    """One step down E_ATTN, then one down E_FF."""

    places = 2

    def __init__(self, config: HyperSETConfig) -> None:
        super().__init__()
        self.attention = Attention(config.d, config.num_heads, config.attention_norms)
        self.feed_forward = FeedForward(config)
        self.steps = None if config.step_sizes == "fixed" else LearnedSteps(config)
        self.fixed = (config.fixed_step, config.fixed_step)

    def branches(self, start: Tokens, t: int) -> tuple[Branch, ...]:
        sizes: list[Any] = []  # of both steps, computed from the tokens before the first

        def attend(tokens: Tokens) -> Tokens:
            sizes.extend(self.fixed if self.steps is None else self.steps(tokens, start, t))
            return sizes[0] * self.attention(tokens)  # Eq. (8)

        def feed_forward(tokens: Tokens) -> Tokens:
            return sizes[1] * self.feed_forward(tokens)  # Eq. (10)

        return Branch("attention", attend, scale=-1.0), Branch("feed_forward", feed_forward)

    def project(self, tokens: Tokens) -> Float[Tensor, "batch H N p"]:
        """The tokens in the subspace of each head."""
        return self.attention.project(tokens)

    def energies(self, tokens: Tokens, on_sphere: bool = True) -> Energies:
        """E_ATTN, summed over heads, and E_FF."""
        attention = self.attention.energy(tokens, on_sphere).sum(dim=1)
        return Energies(attention, self.feed_forward.energy(tokens, on_sphere))


class HyperSET(RecurrentModel):
    Config = HyperSETConfig

    def __init__(self, config: HyperSETConfig) -> None:
        norm = rms_norm(config.d) if config.vocabulary else nn.LayerNorm(config.d)
        super().__init__(config, Layer, norm, normed_patches=True)


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """For images with classes, and for tokens."""
    varied: Varied = {"ff_ratio": (1.0, 4.0), "step_sizes": ("X_0", "X_t")}
    return declare_space({"name": "hyper_set", "time_mlp": False}, signature, budget, varied)


IMAGE: dict[str, Any] = {"name": "hyper_set", "input_shape": (3, 224, 224), "output_shape": (10,)}
SUDOKU: dict[str, Any] = {
    "name": "hyper_set", "input_shape": (81,), "output_shape": (81, 9), "vocabulary": 10, "d": 768, "num_heads": 12,
    "iterations": 24, "ff_ratio": 4, "positions": "learned", "embedding_dropout": 0.1, "head_bias": False,
    "step_sizes": "X_0",
}  # fmt: skip
MASKED: dict[str, Any] = {
    "name": "hyper_set", "input_shape": (256,), "output_shape": (256, 1024), "vocabulary": 1025, "d": 768,
    "num_heads": 12, "step_sizes": "X_0", "time_mlp": False,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "small": IMAGE,
    "small-scale-up": {**IMAGE, "d": 512, "num_heads": 8},
    "base": {**IMAGE, "d": 768, "num_heads": 12},
    "sudoku": SUDOKU,
    "masked-images": MASKED,
    "masked-images-8d": {**MASKED, "iterations": 24, "ff_ratio": 8},
}
"""Tables 4, 6, 7 and 9, and the last row of Table 2; images have the ten classes of CIFAR-10."""
