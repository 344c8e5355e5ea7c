"""The common part of MLP-Mixer and S-Mixer: patches, blocks that mix tokens and then channels, and a head.

Each of the two models defines its mixing step.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Any, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.draws import key
from isthmus.core.protocols import Signature
from isthmus.layers.drop_path import DropPath
from isthmus.layers.patches import Head, ImageModelConfig, PatchEmbedding, Size
from isthmus.layers.permuted_kronecker import (
    Arrangement,
    ChannelNorm,
    PermutedKronecker,
    arrange_channels,
    arrange_randomly,
    arrange_tokens,
    batch_last,
)
from isthmus.layers.pointwise import ActivationName
from isthmus.layers.residual import (
    Block,
    Branch,
    InFloat32,
    Layout,
    Pathway,
    ResidualConfig,
    ResidualModel,
    Stack,
    State,
    keep,
)

Axis = Literal["token", "channel"]
InitName = Literal["lecun", "pytorch", "xavier"]


class MixerConfig(ImageModelConfig, ResidualConfig):
    S: Size | None = None
    """Tokens inside; None: those of the image. If S is given, the first skip has a W̃, even if S is the image's."""
    C: Size
    """Channels inside."""
    depth: Annotated[int, Field(ge=1, le=1_000)]
    """Number of blocks."""
    permutation: Literal["commutation", "random"] = "commutation"
    """``commutation``: a normal mixer; ``random``: permutes all entries before and after each mixing step."""
    random_blocks: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] | None = None
    """The numbers of the random blocks, from 1; None: all."""
    permutation_seed: Annotated[int, Field(ge=0)] | None = None
    """Draws the random permutations; a run derives it from its own seed."""
    activation: ActivationName | Literal["none"] = "gelu"
    """Of the mixing steps; ``none``: they are linear."""
    norm: Literal["layer", "none"] = "layer"
    """LayerNorm before each mixing step, in the first skip and before the head, or no norm at all."""
    skip: Literal["identity", "none"] = "identity"
    """``none``: the result of a mixing step replaces the stream, as in the paper's theory."""
    norm_eps: Annotated[float, Field(gt=0)] = 1e-5
    """Added to the variance in layer norm."""
    bias: bool = True
    """Of every linear layer."""
    drop_path: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Rate of the last block; it increases linearly from zero in the first."""
    init: InitName = "lecun"
    """Initial weights: as in the paper's JAX code (``lecun``), PyTorch's, or Xavier's."""

    @model_validator(mode="after")
    def _check_random_blocks(self) -> Self:
        chosen = self.random_blocks or ()
        if chosen and self.permutation != "random":
            raise ValueError("random_blocks needs permutation=random")
        if max(chosen, default=0) > self.depth or len(set(chosen)) < len(chosen):
            raise ValueError(f"random_blocks={chosen} are not different blocks of 1 … {self.depth}")
        return self

    @model_validator(mode="after")
    def _check_skip(self) -> Self:
        if self.skip == "none" and self.drop_path:
            raise ValueError(
                f"drop_path={self.drop_path:g} needs skip=identity: without a skip, it drops the whole image"
            )
        if self.skip == "none" and self.pathway.name != "plain":
            raise ValueError(f"pathway={self.pathway.name} needs skip=identity: it joins updates to a stream")
        return self

    @property
    def layout(self) -> Layout:
        skip = f"S={self.S}" if self.skips_with_weights else ""
        again = f"drop_path={self.drop_path:g}" if self.drop_path else ""
        return Layout(self.C, (2,) * self.depth, skip_weights=skip, changes_again=again)

    @property
    def inner_tokens(self) -> int:
        return self.S or self.tokens

    @property
    def skips_with_weights(self) -> bool:
        """Whether the first skip has a W̃."""
        return self.S is not None and self.skip == "identity"

    @property
    def permutes_hidden(self) -> bool:
        """Whether the hidden layers of random blocks are permuted too."""
        return False

    def make_norm(self, block: int) -> nn.Module:
        """The norm of every row of X in this block."""
        return nn.Identity() if self.norm == "none" else ChannelNorm(self.C, self.norm_eps, self.is_random(block))

    def is_random(self, block: int) -> bool:
        return self.permutation == "random" and (self.random_blocks is None or block in self.random_blocks)

    def complete(self, signature: Signature, seed: int) -> Self:
        config = super().complete(signature, seed)
        if self.permutation == "random" and self.permutation_seed is None:
            return config.replace(permutation_seed=key(seed, "permutation"))
        return config


class Skip(nn.Module):
    """LN(W̃ X), the first skip where the number of tokens changes."""

    def __init__(self, config: MixerConfig) -> None:
        super().__init__()
        (self.tokens,) = arrange_tokens(config.tokens, config.inner_tokens, config.C).layers(bias=False)
        self.norm = nn.LayerNorm(config.C, eps=config.norm_eps) if config.norm == "layer" else nn.Identity()

    def forward(self, x: Float[Tensor, "batch S0 C"]) -> Float[Tensor, "batch S C"]:
        return self.norm(self.tokens(x.contiguous()))  # Eq. (S.15)


class MixingBlock(Block):
    """Tokens are mixed, then channels, each with a norm before it."""

    places = 2

    def __init__(self, config: MixerConfig, number: int, token_mixing: nn.Module, channel_mixing: nn.Module) -> None:
        super().__init__()
        self.random = config.is_random(number)
        self.skip = Skip(config) if number == 1 and config.skips_with_weights else None
        self.replaces = config.skip == "none"
        self.norm1 = config.make_norm(number)
        self.token_mixing = token_mixing
        self.norm2 = config.make_norm(number)
        self.channel_mixing = channel_mixing
        self.drop_path = DropPath(config.drop_path)

    def mix_tokens(self, x: Float[Tensor, "batch S0 C"]) -> Float[Tensor, "batch S C"]:
        return self.drop_path(self.token_mixing(self.norm1(x)))  # Eqs. (3), (S.14)

    def mix_channels(self, x: Float[Tensor, "batch S C"]) -> Float[Tensor, "batch S C"]:
        return self.drop_path(self.channel_mixing(self.norm2(x)))  # Eq. (4)

    def branches(self) -> tuple[Branch, ...]:
        if self.replaces:  # Eq. (5)
            return Branch("token", self.mix_tokens, carry=None), Branch("channel", self.mix_channels, carry=None)
        skip = self.skip
        carry = keep if skip is None else lambda x: self.arrange(skip(x))
        return Branch("token", self.mix_tokens, carry=carry), Branch("channel", self.mix_channels)

    def arrange(self, x: Float[Tensor, "batch S C"]) -> Float[Tensor, "batch S C"]:
        """The memory layout that this block's layers read fastest."""
        return batch_last(x) if self.random else x.contiguous()

    def forward(self, state: State, pathway: Pathway | InFloat32, *rest: Any) -> State:
        return super().forward(pathway.transform(state, self.arrange), pathway, *rest)


class Mixer(ResidualModel):
    def __init__(self, config: MixerConfig) -> None:
        super().__init__()
        self.config = config
        self.input_shape = config.image
        self.stem = PatchEmbedding(config, config.C, config.bias)
        self.blocks = Stack((self._block(number) for number in range(1, config.depth + 1)), config.make_pathway())
        self.norm = config.make_norm(config.depth)
        self.head = Head(config, config.inner_tokens, config.C, config.bias)
        self._initialise(config.init)
        self.blocks.prepare()

    @abstractmethod
    def make_mixing(self, axis: Axis, arrangement: Arrangement) -> nn.Module:
        """The module that mixes one axis in a block."""

    def _block(self, number: int) -> MixingBlock:
        config = self.config
        S, C = config.inner_tokens, config.C
        S_in = config.tokens if number == 1 else S
        if config.is_random(number):
            seed, hidden = config.permutation_seed or 0, config.permutes_hidden
            tokens = arrange_randomly(S_in, S, C, S, seed, f"{number}/token", hidden)
            channels = arrange_randomly(C, C, S, S, seed, f"{number}/channel", hidden)
        else:
            tokens, channels = arrange_tokens(S_in, S, C), arrange_channels(S, C)
        return MixingBlock(config, number, self.make_mixing("token", tokens), self.make_mixing("channel", channels))

    @torch.no_grad()
    def _initialise(self, init: InitName) -> None:
        """Replace PyTorch's weights, unless ``init`` is "pytorch"."""
        for module in self.modules():
            if init == "pytorch" or not isinstance(module, nn.Linear | PermutedKronecker):
                continue
            if init == "xavier" and isinstance(module, PermutedKronecker):
                nn.init.xavier_uniform_(module.weight)
            elif init == "xavier" and module is self.head.linear:
                nn.init.zeros_(module.weight)
            else:
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.weight.shape[1]))  # section 4.3
            if module.bias is not None:
                nn.init.normal_(module.bias, std=1e-6 if init == "xavier" else 0.0)

    def connections(self) -> int:
        """Non-zero weights of the equivalent wide MLP without the head: each weight counts once per copy."""
        layers = [module for module in self.modules() if isinstance(module, PermutedKronecker)]
        patches = self.config.tokens * self.stem.linear.weight.numel()
        return patches + sum(layer.copies * layer.weight.numel() for layer in layers)

    def embed(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch S0 C"]:
        if not self.config.is_random(1):
            return self.stem(x)
        # A random block reads tokens batch last; transposing the image is cheaper than transposing its tokens.
        channels, height, width = self.input_shape
        p, linear = self.config.patch, self.stem.linear
        image = x.flatten(1).T.contiguous().view(channels, height // p, p, width // p, p, -1)
        patches = image.permute(0, 2, 4, 1, 3, 5).reshape(self.config.patch_values, -1)
        product = linear.weight @ patches
        product = product if linear.bias is None else product + linear.bias[:, None]
        return product.unflatten(1, (-1, x.shape[0])).permute(2, 1, 0)

    def read_out(self, tokens: Float[Tensor, "batch S C"]) -> Float[Tensor, "batch ..."]:
        tokens = self.norm(tokens)
        if self.config.is_random(self.config.depth) and self.head.image is None:
            # The head's mean over tokens, twenty times faster in memory order.
            tokens = tokens.permute(2, 1, 0).mean(1, keepdim=True).permute(2, 1, 0)
        return self.head(tokens)
