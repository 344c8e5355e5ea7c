"""A Transformer with one layer that is applied repeatedly: the baseline of Hyper-SET at the same depth.

Paper: Hyperspherical Energy Transformer with Recurrent Depth (Hu, Zou, Xu), section 5: pre-norm with RMSNorm, no
biases, no dropout, MLP ratio 4.

    paper                here
    X, N                 the tokens, (batch, N, d)
    H, d                 ``num_heads``, ``d``
    L, T                 ``layers``, ``iterations`` of each

Differs from the paper:
    ``qkv="shared"`` projects queries, keys and values with one matrix, as Hyper-SET does. The remaining differences
    between the two are then the second softmax, the tied output and the step sizes. The activation of the MLP is not
    printed: GELU by default, ReLU in the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace
from isthmus.layers.attention import SelfAttention
from isthmus.layers.pointwise import activation
from isthmus.layers.residual import Block, Branch
from isthmus.layers.sequences import RecurrentModel, SequenceConfig, declare_space, rms_norm

NAMES = {"recurrent_transformer": "RecurrentTransformer"}
KIND = "Networks of recurrent depth"
TITLE_FIELDS = ("d", "ff_ratio", "layers", "iterations", "qkv", "positions")

Tokens = Float[Tensor, "batch N d"]


class RecurrentTransformerConfig(SequenceConfig):
    ff_ratio: Annotated[float, Field(gt=0, le=1024)] = 4.0
    """Width of the MLP over d."""
    qkv: Literal["separate", "shared"] = "separate"
    """Whether queries, keys and values have a matrix each or share one, as in Hyper-SET."""
    activation: Literal["gelu", "relu"] = "gelu"
    """Of the MLP."""


class Layer(Block):
    places = 2

    def __init__(self, config: RecurrentTransformerConfig) -> None:
        super().__init__()
        hidden = max(1, round(config.ff_ratio * config.d))
        self.attention_norm = rms_norm(config.d)
        self.attention = SelfAttention(config.d, config.num_heads, parts=1 if config.qkv == "shared" else 3, bias=False)
        self.mlp_norm = rms_norm(config.d)
        up, down = nn.Linear(config.d, hidden, bias=False), nn.Linear(hidden, config.d, bias=False)
        self.mlp = nn.Sequential(up, activation(config.activation), down)

    def attend(self, tokens: Tokens) -> Tokens:
        return self.attention(self.attention_norm(tokens))

    def feed_forward(self, tokens: Tokens) -> Tokens:
        return self.mlp(self.mlp_norm(tokens))

    def branches(self, start: Tokens, t: int) -> tuple[Branch, ...]:
        return Branch("attention", self.attend), Branch("mlp", self.feed_forward)

    def project(self, tokens: Tokens) -> Float[Tensor, "batch H N p"]:
        """The values of each head."""
        return self.attention.project(self.attention_norm(tokens))[2]


class RecurrentTransformer(RecurrentModel):
    Config = RecurrentTransformerConfig

    def __init__(self, config: RecurrentTransformerConfig) -> None:
        super().__init__(config, Layer, rms_norm(config.d), normed_patches=False)


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """For images with classes, and for tokens."""
    return declare_space({"name": "recurrent_transformer"}, signature, budget, {"ff_ratio": (2.0, 4.0)})


IMAGE: dict[str, Any] = {"name": "recurrent_transformer", "input_shape": (3, 224, 224), "output_shape": (10,)}
VARIANTS: dict[str, dict[str, Any]] = {
    "small": IMAGE,
    "base": {**IMAGE, "d": 768, "num_heads": 12},
    "upper-bound": {**IMAGE, "layers": 12, "iterations": 1},
    "sudoku": {
        "name": "recurrent_transformer", "input_shape": (81,), "output_shape": (81, 9), "vocabulary": 10, "d": 768,
        "num_heads": 12, "iterations": 24, "positions": "learned", "embedding_dropout": 0.1, "head_bias": False,
    },
    "masked-images": {
        "name": "recurrent_transformer", "input_shape": (256,), "output_shape": (256, 1024), "vocabulary": 1025,
        "d": 768, "num_heads": 12, "positions": "learned",
    },
}  # fmt: skip
"""Table 1, the reference of Figure 6, section 5.1 and Table 2; images have the ten classes of CIFAR-10."""
