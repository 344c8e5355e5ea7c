"""S-Mixer, normal and random-permuted: the MLP-Mixer with single layers in place of its MLPs.

Paper: Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), eq. (5) and appendix A.2.2.

    paper            here
    X, S, C          the stream, ``S`` tokens of ``C`` channels
    S_0, C_0         ``config.tokens``, ``config.patch_values``
    W, Vᵀ            ``token_mixing.fc``, ``channel_mixing.fc``
    φ, LN, skip      ``activation``, ``norm``, ``skip``
    L                ``depth``
    J_c, (J1, J2)    ``permutation`` (``layers/permuted_kronecker.py``)

Differs from the paper:
    Biases and the initialisation of the stem and the head are not printed; they are those of ``models/mlp_mixer.py``.
    Eq. (5) has neither norm nor skip; the trained networks of appendix A.2.2 have both, and so has this one by default.
    ``norm=none skip=none bias=false`` is eq. (5), and with ``activation=none`` the linear S-Mixer of eq. (6) and
    Proposition 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace, Varied
from isthmus.layers.patches import SMALL_BUDGET, list_patches
from isthmus.layers.permuted_kronecker import Arrangement, apply_in_memory_order
from isthmus.layers.pointwise import activation
from isthmus.models.mixer import Axis, Mixer, MixerConfig

NAMES = {"s_mixer": "SMixer"}
KIND = "Mixers"
TITLE_FIELDS = ("C", "S", "patch", "depth", "permutation")


class MixingLayer(nn.Module):
    def __init__(self, arrangement: Arrangement, config: MixerConfig) -> None:
        super().__init__()
        (self.fc,) = arrangement.layers(bias=config.bias)
        self.activation = activation(config.activation)

    def forward(self, x: Float[Tensor, "batch S0 C"]) -> Float[Tensor, "batch S C"]:
        return apply_in_memory_order(self.activation, self.fc(x))  # Eqs. (S.3), (S.13)


class SMixer(Mixer):
    Config = MixerConfig

    def make_mixing(self, axis: Axis, arrangement: Arrangement) -> MixingLayer:
        return MixingLayer(arrangement, self.config)


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """Of images: normal and permuted networks take part separately. A head that starts at zero restores better."""
    rates = (1e-2, 3e-3) if budget < SMALL_BUDGET else (3e-3, 1e-3)
    init = "xavier" if len(signature.output_shape) == 3 else "lecun"
    for permutation in ("commutation", "random") if (patches := list_patches(signature, budget)) else ():
        model = {"name": "s_mixer", "permutation": permutation, "init": init}
        varied: Varied = {"depth": (4, 2), "patch": patches, "train.learning_rate": rates}
        yield FittedSpace(model=model, vary=varied, width="C", low=4)


def _figure_5(C: int, S: int) -> dict[str, Any]:
    """A network of Figure 5: on CIFAR-10, with eight blocks."""
    shapes = {"input_shape": (3, 32, 32), "output_shape": (10,), "patch": 4}
    return {"name": "s_mixer", **shapes, "S": S, "C": C, "depth": 8}


VARIANTS = {
    "2^18": _figure_5(64, 64),
    "2^18-narrow": _figure_5(16, 173),
    "2^21": _figure_5(128, 128),
    "2^21-narrow": _figure_5(16, 504),
}
"""For two Ω, the widest S-Mixer (C = S) and the narrowest of Figure 5; ``permutation=random`` permutes them."""
