"""Deep Monarch mixer: the S-Mixer without weight sharing, so that each mixing step is a factor of a Monarch matrix.

Paper: Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), section 3.3, and the future work of section
6: Mixers approximate MLPs with weight-shared Monarch matrices. Here no matrix is shared.

    paper               here
    X, S, C             the stream, ``S`` tokens of ``C`` channels
    R of M = J_cᵀLJ_cR  ``token_mixing.weight``: a matrix for each channel
    L                   ``channel_mixing.weight``: a matrix for each token
    φ, LN, skip         ``activation``, ``norm``, ``skip``, as in ``models/s_mixer.py``

Differs from the paper: it prints no such network. If all channels have one matrix and all tokens another, it is the
S-Mixer; ``norm=none skip=none activation=none bias=false`` makes each block a Monarch matrix. The matrices are C and S
times those of an S-Mixer, and the multiplications are the same.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from isthmus.layers.permuted_kronecker import Arrangement
from isthmus.layers.pointwise import activation
from isthmus.models.mixer import Axis, InitName, Mixer, MixerConfig

NAMES = {"monarch_mixer": "MonarchMixer"}
KIND = "Mixers"
TITLE_FIELDS = ("C", "S", "patch", "depth")


class MonarchMixerConfig(MixerConfig):
    permutation: Literal["commutation"] = "commutation"
    """Only the permutations of a Monarch matrix, which transpose X."""


class OwnMatrices(nn.Module):
    """φ of a product with a matrix of its own for each column of X (``token``), or for each row (``channel``)."""

    def __init__(self, axis: Axis, arrangement: Arrangement, config: MixerConfig) -> None:
        super().__init__()
        self.axis = axis
        copies, width_out, width_in = arrangement.copies, arrangement.width_out, arrangement.width_in
        self.weight = nn.Parameter(torch.empty(copies, width_out, width_in))
        self.bias = nn.Parameter(torch.empty(copies, 1, width_out)) if config.bias else None
        self.activation = activation(config.activation)
        bound = 1 / math.sqrt(width_in)
        for parameter in self.parameters():  # PyTorch's linear initialisation
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Float[Tensor, "batch S0 C"]) -> Float[Tensor, "batch S C"]:
        blocks = x.permute(2, 0, 1) if self.axis == "token" else x.transpose(0, 1)
        product = blocks @ self.weight.mT  # Eq. (12)
        mixed = self.activation(product if self.bias is None else product + self.bias)
        return mixed.permute(1, 2, 0) if self.axis == "token" else mixed.transpose(0, 1)


class MonarchMixer(Mixer):
    Config = MonarchMixerConfig

    def make_mixing(self, axis: Axis, arrangement: Arrangement) -> OwnMatrices:
        return OwnMatrices(axis, arrangement, self.config)

    @torch.no_grad()
    def _initialise(self, init: InitName) -> None:
        super()._initialise(init)
        for module in self.modules():
            if init == "pytorch" or not isinstance(module, OwnMatrices):
                continue
            width_out, width_in = module.weight.shape[1:]
            of_xavier = 2 / (width_out + width_in)
            nn.init.normal_(module.weight, std=math.sqrt(of_xavier if init == "xavier" else 1 / width_in))
            if module.bias is not None:
                nn.init.normal_(module.bias, std=1e-6 if init == "xavier" else 0.0)

    def connections(self) -> int:
        """As of a Mixer; no weight of a mixing step is counted twice."""
        own = sum(module.weight.numel() for module in self.modules() if isinstance(module, OwnMatrices))
        return super().connections() + own


_SHAPES = {"input_shape": (3, 32, 32), "output_shape": (10,), "patch": 4}
VARIANTS = {"2^18": {"name": "monarch_mixer", **_SHAPES, "S": 64, "C": 64, "depth": 8}}
"""With the connections of the S-Mixer of the same name."""
