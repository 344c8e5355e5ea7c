"""Vision Transformers whose feed-forward blocks are wide–narrow–wide (Hourglass) or narrow–wide–narrow (conventional).

Papers: Hourglass MLP: Rethinking the Shape of Residual Architectures (Chen, Lee, Liao, Shiu), section 2.3; An Image Is
Worth 16×16 Words (Dosovitskiy et al.), for everything around the feed-forward blocks.

    paper            here
    z, d_z           the residual stream of attention and feed-forward blocks, ``d_z``
    d_h, d_h / d_z   ``d_h``, and the MLP ratio
    L                ``depth``
    MHA, heads       ``attention``, ``num_heads``
    N, section 4     ``ffn_blocks``, the feed-forward blocks of a layer
    MHLA, section 4  ``latent_width`` and ``attention_width``

The name ``vit`` accepts any shape. ``hourglass_vit`` and ``conventional_vit`` are the same network with a check of its
shape, so that studies can distinguish the two.

Differs from the paper:
    As in timm's ViT, which the paper trains, the norm comes before each branch, positions and class token are learned,
    and weights are drawn from a normal distribution of deviation 0.02. The last norm is applied only to the tokens that
    the head reads.
    The future work of section 4 is implemented as follows. ``ffn_blocks`` stacks N feed-forward blocks with their own
    norms, skips and weights; with ``tied_ffn`` they share weights, so one block is iterated. With ``latent_width``,
    queries come from one narrow, normed projection of the stream, keys and values from another (multi-head latent
    attention, DeepSeek-V2, 2024; without its rotary part, because positions are added). All heads together have
    ``attention_width`` numbers, so the cost of attention grows with d_z and not with d_z².
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace, Varied
from isthmus.layers.attention import SelfAttention, attend
from isthmus.layers.drop_path import DropPath
from isthmus.layers.patches import SMALL_BUDGET, Head, ImageModelConfig, PatchEmbedding, Size, list_patches
from isthmus.layers.pointwise import ActivationName, activation
from isthmus.layers.residual import Block, Branch, Layout, ResidualConfig, ResidualModel, Stack

NAMES = {"vit": "ViT", "hourglass_vit": "ViT", "conventional_vit": "ViT"}
KIND = "Vision Transformers"
MEANINGS = {
    "vit": "A Vision Transformer of any shape.",
    "hourglass_vit": "A Vision Transformer with wide–narrow–wide feed-forward blocks.",
    "conventional_vit": "A Vision Transformer with narrow–wide–narrow feed-forward blocks.",
}
TITLE_FIELDS = ("d_z", "d_h", "depth", "num_heads", "patch", "ffn_blocks", "attention_width", "latent_width")

_MOST_BLOCKS = 10_000
Tokens = Float[Tensor, "batch tokens d_z"]


class ViTConfig(ImageModelConfig, ResidualConfig):
    sliced: ClassVar = ("d_z", "d_h", "depth", "num_heads", "attention_width")

    patch: Size = 16
    d_z: Size
    """Width of the residual stream."""
    d_h: Size
    """Width of the computation within a feed-forward block."""
    depth: Annotated[int, Field(ge=1, le=1_000)]
    """Number of layers."""
    num_heads: Annotated[int, Field(ge=1, le=4096)]
    """Attention heads of a layer."""
    ffn_blocks: Annotated[int, Field(ge=1, le=1_000)] = 1
    """Feed-forward blocks in a layer, one after the other."""
    tied_ffn: bool = False
    """The feed-forward blocks of a layer share their weights."""
    attention_width: Size | None = None
    """Total width of all heads; None: d_z."""
    latent_width: Size | None = None
    """Width of the latent projections for queries and for keys and values; None: use the stream itself."""
    pool: Literal["class_token", "mean"] = "class_token"
    """The token that is classified. Models with image output have no class token."""
    activation: ActivationName = "gelu"
    """Of the feed-forward blocks."""
    norm_eps: Annotated[float, Field(gt=0)] = 1e-6
    """Added to the variance in layer norm."""
    drop_path: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Rate of the last layer; it increases linearly from zero in the first."""
    fused: bool = True
    """Attention in one kernel without the tokens × tokens matrix; otherwise in three steps."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.head_values % self.num_heads:
            name = "d_z" if self.attention_width is None else "attention_width"
            raise ValueError(f"num_heads={self.num_heads} does not divide {name}={self.head_values}")
        if self.depth * self.ffn_blocks > _MOST_BLOCKS:
            raise ValueError(f"depth={self.depth} times ffn_blocks={self.ffn_blocks} is above {_MOST_BLOCKS:,}")
        if self.name == "hourglass_vit" and self.d_h >= self.d_z:
            raise ValueError(f"an Hourglass has d_h={self.d_h} below d_z={self.d_z}; the name vit takes any shape")
        if self.name == "conventional_vit" and self.d_h <= self.d_z:
            raise ValueError(f"a conventional ViT has d_h={self.d_h} above d_z={self.d_z}; vit takes any shape")
        return self

    @property
    def layout(self) -> Layout:
        again = f"drop_path={self.drop_path:g}" if self.drop_path else ""
        return Layout(self.d_z, (1 + self.ffn_blocks,) * self.depth, changes_again=again)

    @property
    def head_values(self) -> int:
        return self.attention_width or self.d_z

    @classmethod
    def cover(cls, configs: Sequence[Any]) -> Self:
        """Smaller networks take the first numbers of the first heads."""
        heads = max(config.num_heads for config in configs)
        width = max(config.head_values // config.num_heads for config in configs)
        sizes = {name: max(getattr(config, name) for config in configs) for name in ("d_z", "d_h", "depth")}
        return configs[0].replace(**sizes, num_heads=heads, attention_width=heads * width)

    @property
    def has_class_token(self) -> bool:
        return self.pool == "class_token" and self.output_shape is not None and len(self.output_shape) == 1


class LatentAttention(nn.Module):
    """Heads that read narrow projections of the stream."""

    def __init__(self, config: ViTConfig, latent_width: int) -> None:
        super().__init__()
        self.heads = (config.num_heads, config.head_values // config.num_heads)
        self.fused = config.fused
        self.down = nn.Linear(config.d_z, 2 * latent_width)
        self.query_norm = nn.LayerNorm(latent_width, eps=config.norm_eps)
        self.query = nn.Linear(latent_width, config.head_values)
        self.key_value_norm = nn.LayerNorm(latent_width, eps=config.norm_eps)
        self.key_value = nn.Linear(latent_width, 2 * config.head_values)
        self.out = nn.Linear(config.head_values, config.d_z)

    def forward(self, z: Tokens) -> Tokens:
        of_queries, of_keys_and_values = self.down(z).chunk(2, dim=-1)
        query = self.query(self.query_norm(of_queries))
        key, value = self.key_value(self.key_value_norm(of_keys_and_values)).chunk(2, dim=-1)
        query, key, value = (part.unflatten(-1, self.heads).transpose(1, 2) for part in (query, key, value))
        return self.out(attend(query, key, value, self.fused))


class FeedForward(nn.Module):
    """W2 σ(W1 norm(z)): the update, without its skip."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_z, eps=config.norm_eps)
        self.W1 = nn.Linear(config.d_z, config.d_h)
        self.activation = activation(config.activation)
        self.W2 = nn.Linear(config.d_h, config.d_z)

    def forward(self, z: Tokens) -> Tokens:
        return self.W2(self.activation(self.W1(self.norm(z))))


class Layer(Block):
    """MHA(norm(z)), then ``ffn_blocks`` times FFN(norm(z))."""

    def __init__(self, config: ViTConfig, drop_path: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_z, eps=config.norm_eps)
        plain = (config.d_z, config.num_heads, config.head_values)
        latent = config.latent_width
        self.attention = LatentAttention(config, latent) if latent else SelfAttention(*plain, fused=config.fused)
        self.ffn = nn.ModuleList(FeedForward(config) for _ in range(1 if config.tied_ffn else config.ffn_blocks))
        self.ffn_blocks = config.ffn_blocks
        self.places = 1 + config.ffn_blocks
        self.drop_path = DropPath(drop_path)

    def attend(self, z: Tokens) -> Tokens:
        return self.drop_path(self.attention(self.norm(z)))

    def feed_forward(self, number: int, z: Tokens) -> Tokens:
        return self.drop_path(self.ffn[number % len(self.ffn)](z))  # Eq. (1)

    def branches(self) -> tuple[Branch, ...]:
        names = [f"ffn.{n + 1}" for n in range(self.ffn_blocks)] if self.ffn_blocks > 1 else ["ffn"]
        feed_forward = (Branch(name, partial(self.feed_forward, n)) for n, name in enumerate(names))
        return (Branch("attention", self.attend), *feed_forward)


class ViT(ResidualModel):
    Config = ViTConfig
    symbol = "z"

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.input_shape = config.image
        self.stem = PatchEmbedding(config, config.d_z)
        self.class_token = nn.Parameter(torch.empty(1, 1, config.d_z)) if config.has_class_token else None
        self.positions = nn.Parameter(torch.empty(config.tokens + config.has_class_token, config.d_z))
        for parameter in (self.class_token, self.positions):
            if parameter is not None:
                parameter.undecayed = True  # type: ignore[attr-defined]
        rates = torch.linspace(0, config.drop_path, config.depth, device="cpu").tolist()
        self.blocks = Stack((Layer(config, rate) for rate in rates), config.make_pathway())
        self.norm = nn.LayerNorm(config.d_z, eps=config.norm_eps)
        self.head = Head(config, config.tokens, config.d_z)
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """The stem keeps PyTorch's weights, as timm's convolution does."""
        nn.init.trunc_normal_(self.positions, std=0.02)
        if self.class_token is not None:
            nn.init.normal_(self.class_token, std=1e-6)
        for module in (*self.blocks.modules(), self.head.linear):
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        self.blocks.prepare()

    def embed(self, x: Float[Tensor, "batch channels height width"]) -> Tokens:
        patches = self.stem(x)
        if self.class_token is not None:
            # len(x) would fix the batch size in an export.
            patches = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], dim=1)
        return patches + self.positions

    def read_out(self, z: Tokens) -> Float[Tensor, "batch ..."]:
        """The scores of the class token or of the mean token, or an image."""
        return self.head(self.norm(z if self.class_token is None else z[:, :1]))


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """For images, in both shapes."""
    is_small = budget < SMALL_BUDGET
    patches = list_patches(signature, budget)
    shapes = {"hourglass_vit": (1 / 2, 1 / 4), "conventional_vit": (2.0, 4.0)} if patches else {}
    for name, ratios in shapes.items():
        varied: Varied = {
            "pool": ("mean", "class_token"), "num_heads": (4, 2), "d_h/d_z": ratios,
            "depth": (2, 4) if is_small else (4, 2), "patch": patches,
            "train.learning_rate": (1e-2, 3e-3) if is_small else (3e-3, 1e-3),
        }  # fmt: skip
        yield FittedSpace(model={"name": name}, vary=varied, width="d_z", step=4, low=8)


def _variant(d_z: int, d_h: int, depth: int, num_heads: int) -> dict[str, Any]:
    shapes = {"input_shape": (3, 224, 224), "output_shape": (196,), "patch": 16}
    return {"name": "vit", **shapes, "d_z": d_z, "d_h": d_h, "depth": depth, "num_heads": num_heads}


VARIANTS: dict[str, dict[str, Any]] = {
    "tiny-conventional": _variant(192, 768, 12, 3),
    "tiny-hourglass": _variant(288, 144, 11, 3),
    "small-conventional": _variant(384, 1536, 12, 6),
    "small-hourglass": _variant(576, 288, 12, 6),
    "large-conventional": _variant(1024, 4096, 24, 16),
    "large-hourglass": _variant(1536, 768, 25, 16),
}
"""Table 2, with a head for the 196 classes of Cars."""
