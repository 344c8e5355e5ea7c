"""MLP-Mixer, normal and random-permuted: an MLP over tokens, then one over channels, each with a skip.

Papers: MLP-Mixer: An all-MLP Architecture for Vision (Tolstikhin et al.), for the sizes S, B and L; Understanding
MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), for everything else.

    paper            here
    X, S, C          the stream, ``S`` tokens of ``C`` channels
    S_0, C_0         ``config.tokens``, ``config.patch_values``
    γ                ``gamma``; ``token_hidden`` and ``channel_hidden`` (D_S, D_C in the first paper) override it
    W1, W2, W3, W4   ``token_mixing.fc1``, ``.fc2``, ``channel_mixing.fc1``, ``.fc2``
    L                ``depth``
    J_c, (J1, J2)    ``permutation`` (``layers/permuted_kronecker.py``)

Differs from the paper:
    The second paper does not mention biases. Here all linear layers but W̃ have them, as the published counts of the
    first paper require; ``bias=false`` removes all. The second paper draws W1 and W3 from N(0, 1/fan-in); here W2, W4,
    the stem and the head are drawn alike, and biases start at zero. ``xavier`` is the initialisation of timm and of
    iMixer, whose head starts at zero.
    A random-permuted MLP has one pair (J1, J2) around it. Section 5.2 can also be read as a pair for each of its two
    layers: ``hidden_permutation=random`` adds the one random permutation to which J2 of the first and J1 of the second
    layer amount, because φ commutes with permutations.
    The first skip has a W̃ if ``S`` is given, as in the paper's sweeps of S, and only then.
    The variants have the values that fit the paper's own tables: C 467 for SS-W (printed: 487), γ 4.095 for B-W
    (printed: 4.57, which gives Ω 2.9e8 instead of 2.6e8).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace, Varied
from isthmus.layers.patches import SMALL_BUDGET, Size, list_patches
from isthmus.layers.permuted_kronecker import Arrangement, apply_in_memory_order
from isthmus.layers.pointwise import activation
from isthmus.models.mixer import Axis, Mixer, MixerConfig

NAMES = {"mlp_mixer": "MLPMixer"}
KIND = "Mixers"
TITLE_FIELDS = ("C", "S", "patch", "depth", "gamma", "token_hidden", "channel_hidden", "permutation")


class MLPMixerConfig(MixerConfig):
    gamma: Annotated[float, Field(gt=0, le=1024)] = 4
    """Hidden width of both MLPs, as a multiple of S and of C."""
    token_hidden: Size | None = None
    """Hidden width of the token MLP; overrides ``gamma``."""
    channel_hidden: Size | None = None
    """Hidden width of the channel MLP; overrides ``gamma``."""
    hidden_permutation: Literal["none", "random"] = "none"
    """Whether random blocks also permute the hidden layer of each MLP."""

    @model_validator(mode="after")
    def _check_hidden_permutation(self) -> Self:
        if self.hidden_permutation == "random" and self.permutation != "random":
            raise ValueError("hidden_permutation=random needs permutation=random")
        return self

    @property
    def permutes_hidden(self) -> bool:
        return self.hidden_permutation == "random"

    def hidden(self, axis: Axis) -> int:
        if axis == "token":
            return self.token_hidden or max(1, round(self.gamma * self.inner_tokens))
        return self.channel_hidden or max(1, round(self.gamma * self.C))


class MixingMLP(nn.Module):
    def __init__(self, arrangement: Arrangement, hidden: int, config: MLPMixerConfig) -> None:
        super().__init__()
        self.fc1, self.fc2 = arrangement.layers(hidden, bias=config.bias)
        self.activation = activation(config.activation)

    def forward(self, x: Float[Tensor, "batch S0 C"]) -> Float[Tensor, "batch S C"]:
        return self.fc2(apply_in_memory_order(self.activation, self.fc1(x)))  # Eqs. (1), (2)


class MLPMixer(Mixer):
    Config = MLPMixerConfig
    config: MLPMixerConfig

    def make_mixing(self, axis: Axis, arrangement: Arrangement) -> MixingMLP:
        return MixingMLP(arrangement, self.config.hidden(axis), self.config)


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """Of images. Images are restored better from a head that starts at zero."""
    is_small = budget < SMALL_BUDGET
    init = "xavier" if len(signature.output_shape) == 3 else "lecun"
    if patches := list_patches(signature, budget):
        varied: Varied = {
            "token_hidden": (32, 16), "channel_hidden/C": (2.0, 1.0), "depth": (2, 4) if is_small else (4, 2),
            "patch": patches, "train.learning_rate": (1e-2, 3e-3) if is_small else (3e-3, 1e-3),
        }  # fmt: skip
        yield FittedSpace(model={"name": "mlp_mixer", "init": init}, vary=varied, width="C", low=4)


def _variant(size: int, classes: int, **fields: int | float) -> dict[str, Any]:
    return {"name": "mlp_mixer", "input_shape": (3, size, size), "output_shape": (classes,), **fields}


VARIANTS: dict[str, dict[str, Any]] = {
    "s": _variant(224, 1000, patch=16, C=512, depth=8, token_hidden=256, channel_hidden=2048, norm_eps=1e-6),
    "b": _variant(224, 1000, patch=16, C=768, depth=12, token_hidden=384, channel_hidden=3072, norm_eps=1e-6),
    "l": _variant(224, 1000, patch=16, C=1024, depth=24, token_hidden=512, channel_hidden=4096, norm_eps=1e-6),
    "ss-8": _variant(32, 10, patch=8, C=986, depth=2, gamma=4),
    "ss-w": _variant(32, 10, patch=4, C=467, depth=2, gamma=4),
    "b-w": _variant(224, 1000, patch=14, C=588, depth=8, gamma=4.095),
}
"""Tolstikhin et al.'s S/16, B/16 and L/16; Table 1's SS/8, SS-W and B-W, whose S is that of the image (16, 64, 256)."""
