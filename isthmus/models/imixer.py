"""iMixer: an MLP-Mixer whose token mixing inverts a residual network, as a hierarchical Hopfield network implies.

Paper: iMixer: hierarchical Hopfield network implies an invertible, implicit and iterative MLP-Mixer (Ota, Taki).

    paper                  here
    v, N_v = S, C          the stream (batch, tokens, ``C``); tokens S follow from image and ``patch``
    x, N_x = D_S           the middle neurons, ``token_hidden`` of them
    h, N_h = h_r D_S       the hidden neurons; with L > 3 layers every deeper one has as many, or ``hidden_widths``
    L                      ``hierarchy`` + 1: hidden layers and the visible one. The paper has 2, an MLP-Mixer is 1
    n, FPA                 ``iterations`` of ``dynamics.fixed_point``
    f, e                   ``f``, ``e``: e is the activation of x, f that of every deeper layer
    c, n_p                 ``contraction``, ``power_iterations`` of ``layers/spectral_norm.py``
    ξ^(A+1,A), ξ^(A,A+1)   ``InvertibleMLP.down[A - 1]`` and ``up[A - 1]``, each with a bias; one matrix if ``tied``
    D_C                    ``channel_hidden``

Differs from the paper:
    The listing has dropout inside the loop; the authors' code has none, and neither do we. The position of Table 3's
    batch norm is not printed: here it follows the two linear maps of F, which then have no bias, and its samples are
    rows and channels. All iterations share one norm (``batch_statistics="shared"``), as when the listing's module is
    replaced: training uses the statistics of each iteration, evaluation one running average over all iterations. With
    ``"per_iteration"`` each iteration has its own running average; scale and shift stay shared. With c = 0.9 and GELU,
    F may stretch by 1.032 and need not be a contraction. A tolerance and an implicit gradient need one, so a model with
    either warns if ``config.is_contraction`` is false. D_S = C/2, drop path and initialisation are those of the
    authors' code.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import linear

from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.core.space import FittedSpace, Varied
from isthmus.layers.drop_path import DropPath
from isthmus.layers.dynamics import GradientName, Map, MethodName, Solution, Solver, fixed_point
from isthmus.layers.patches import Head, ImageModelConfig, PatchEmbedding, Size, list_patches
from isthmus.layers.pointwise import ActivationName, NeuronName, activation
from isthmus.layers.residual import Block, Branch, Layout, ResidualConfig, ResidualModel, Stack, Step
from isthmus.layers.seeded import on_meta
from isthmus.layers.spectral_norm import LARGEST_SLOPE, SpectralLinear

NAMES = {"imixer": "IMixer"}
KIND = "Mixers"
TITLE_FIELDS = ("C", "depth", "h_r", "iterations", "norm")

Interaction = Callable[[Tensor, int], Tensor]
"""ξ in one forward pass: a function of the neurons and the number of the iteration."""


class IMixerConfig(ImageModelConfig, ResidualConfig):
    C: Size
    """Channels."""
    depth: Annotated[int, Field(ge=1, le=1_000)]
    """Number of blocks."""
    token_hidden: Size | None = None
    """D_S; C/2 if left out."""
    channel_hidden: Size | None = None
    """D_C; 4C if left out."""
    h_r: Annotated[float, Field(gt=0, le=1_000)] = 2.0
    """Hidden neurons per middle neuron of the token mixing."""
    iterations: Annotated[int, Field(ge=0, le=10_000)] = 2
    """n; with a tolerance, the maximum."""
    hierarchy: Annotated[int, Field(ge=1, le=16)] = 2
    """Hidden layers of the Hopfield network; each but the first is solved for within the one above it."""
    hidden_widths: tuple[Size, ...] | None = None
    """Neurons of every hidden layer but the first; ``h_r`` times those of the first if left out."""
    tied: bool = False
    """Whether the matrix back to a layer is the transpose of the one from it, as in a Hopfield network."""
    norm: Literal["spectral", "batch", "none"] = "spectral"
    """How the token mixing is kept from growing: spectral norm, batch norm, or not at all."""
    batch_statistics: Literal["shared", "per_iteration"] = "shared"
    """With batch norm: one running average for all iterations, or one for each."""
    contraction: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """c, the largest spectral norm of a matrix of the token mixing."""
    power_iterations: Annotated[int, Field(ge=1, le=1_000)] = 8
    """Iterations that estimate a spectral norm."""
    e: NeuronName = "gelu"
    """Activation of the middle neurons."""
    f: NeuronName = "gelu"
    """Activation of every deeper layer of neurons."""
    activation: ActivationName = "gelu"
    """Of the channel mixing."""
    solver: MethodName = "plain"
    """The fixed-point iteration: plain, or Anderson's, which extrapolates."""
    tolerance: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Relative; None: exactly n iterations."""
    gradient: GradientName = "unrolled"
    """Through all iterations (``unrolled``), or of the fixed point itself (``implicit``)."""
    drop_path: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Rate of the last block; it increases linearly from zero in the first."""
    norm_eps: Annotated[float, Field(gt=0)] = 1e-6
    """Added to the variance in norms."""
    head_init: Literal["zero", "xavier"] = "zero"
    """Initial weights of the output layer."""

    @model_validator(mode="after")
    def _check_solver(self) -> Self:
        if self.norm == "batch" and (self.solver, self.tolerance, self.gradient) != ("plain", None, "unrolled"):
            raise ValueError(
                "norm=batch changes F from one iteration to the next, so there is no fixed point to solve for: "
                "leave out solver, tolerance and gradient"
            )
        return self

    @model_validator(mode="after")
    def _check_hierarchy(self) -> Self:
        if self.hidden_widths is not None and len(self.hidden_widths) != self.hierarchy - 1:
            raise ValueError(
                f"hidden_widths={list(self.hidden_widths)} must have {self.hierarchy - 1} numbers with "
                f"hierarchy={self.hierarchy}, one for each hidden layer but the first"
            )
        if self.tied and self.norm == "batch":
            raise ValueError("tied=true needs norm=spectral or norm=none: a batch norm follows each map separately")
        return self

    @property
    def layout(self) -> Layout:
        again = (
            f"drop_path={self.drop_path:g}" if self.drop_path else "" if self.norm == "none" else f"norm={self.norm}"
        )
        return Layout(self.C, (2,) * self.depth, changes_again=again)

    @property
    def layers(self) -> list[int]:
        """N_1 … N_L, the neurons of every layer."""
        middle = self.token_hidden or max(1, self.C // 2)
        deeper = self.hidden_widths or [max(1, round(self.h_r * middle))] * (self.hierarchy - 1)
        return [self.tokens, middle, *deeper]

    @property
    def lipschitz(self) -> list[float]:
        """Upper bounds on the Lipschitz constants of F^2 … F^{L-1}, from c and the activations."""
        slopes = [LARGEST_SLOPE[self.e]] + [LARGEST_SLOPE[self.f]] * (self.hierarchy - 1)
        bounds: list[float] = []
        for outer, inner in reversed(list(itertools.pairwise(slopes))):
            below = bounds[0] if bounds else 0.0
            # The inverse of 1 − F stretches by at most 1 / (1 − Lip F).
            inverse = 1 / (1 - below) if self.norm == "spectral" and below < 1 else math.inf
            bounds.insert(0, self.contraction**2 * outer * inner * inverse)
        return bounds

    @property
    def is_contraction(self) -> bool:
        """Whether singular values of at most c guarantee that every fixed point exists and is reached."""
        return all(bound < 1 for bound in self.lipschitz)

    def largest_contraction(self) -> float:
        """The largest c for which ``is_contraction`` is true."""
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            held = self.model_copy(update={"norm": "spectral", "contraction": middle}).is_contraction
            low, high = (middle, high) if held else (low, middle)
        return low


class BatchNormLinear(nn.Module):
    """Linear, then batch norm over rows and channels, with running averages for ``averages`` iterations."""

    def __init__(self, d_in: int, d_out: int, averages: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_in, d_out, bias=False)
        self.scale = nn.Parameter(torch.ones(d_out))
        self.shift = nn.Parameter(torch.zeros(d_out))
        self.statistics = nn.ModuleList(nn.BatchNorm1d(d_out, affine=False) for _ in range(averages))

    def forward(self, x: Float[Tensor, "batch C d_in"], iteration: int) -> Float[Tensor, "batch C d_out"]:
        x = self.linear(x)
        # Iterations beyond the trained ones use the statistics of the last.
        normalise = self.statistics[min(iteration, len(self.statistics) - 1)]
        return normalise(x.flatten(0, 1)).view_as(x) * self.scale + self.shift


class TransposedLinear(nn.Module):
    """The transpose of another layer's matrix, with a bias of its own."""

    def __init__(self, d_out: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, x: Float[Tensor, "*batch d_in"], weight: Float[Tensor, "d_in d_out"]) -> Tensor:
        return linear(x, weight.mT, self.bias)


class InvertibleMLP(nn.Module):
    """iMLP: H ∘ (1 − F)^{-1} ∘ G over the last axis; the block applies the norm of G."""

    def __init__(self, config: IMixerConfig) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(config.layers))
        visible, hidden = pairs[0], pairs[1:]
        self.down = nn.ModuleList([nn.Linear(*visible), *(_interaction(config, *pair) for pair in hidden)])
        self.up = nn.ModuleList(
            [TransposedLinear(below) for below, _ in pairs]
            if config.tied
            else [nn.Linear(*visible[::-1]), *(_interaction(config, *pair[::-1]) for pair in hidden)]
        )
        self.e, self.f = activation(config.e), activation(config.f)
        self.solver = Solver(config.iterations, config.solver, config.tolerance, config.gradient)

    def solve(self, z: Float[Tensor, "batch C S"], keep: bool = False, solver: Solver | None = None) -> Solution:
        """x = (1 − F)^{-1}(G(v)) of the normalised v; ``solver`` replaces the outermost one."""
        x0 = self.down[0](z)  # Eq. (28)
        if len(self.down) == 1:  # an MLP-Mixer: nothing to invert
            return fixed_point(torch.zeros_like, x0, replace(self.solver, iterations=0), keep)
        # The spectral norm is computed once, not in every iteration.
        pairs = [_freeze(down, up) for down, up in zip(self.down[1:], self.up[1:], strict=True)]
        return fixed_point(self.contractive(pairs, 0), x0, solver or self.solver, keep)  # Eq. (27), (38)

    def contractive(self, pairs: list[tuple[Interaction, Interaction]], level: int) -> Map:
        """The map F^{level + 2}, whose fixed point is solved for."""
        (down, up), last = pairs[level], level == len(pairs) - 1
        outer, inner = self.e if level == 0 else self.f, self.f
        count = itertools.count()

        def evaluate(x: Tensor) -> Tensor:
            iteration = next(count)
            hidden = down(outer(x), iteration)  # Eq. (41)
            if not last:
                hidden = fixed_point(self.contractive(pairs, level + 1), hidden, self.solver).point
            return up(inner(hidden), iteration)  # Eq. (24), (39), (40)

        return evaluate

    def visible(self, x: Float[Tensor, "batch C D_S"]) -> Float[Tensor, "batch C S"]:
        """H, the map from the middle neurons to the visible ones."""
        up = self.up[0]
        return up(self.e(x), self.down[0].weight) if isinstance(up, TransposedLinear) else up(self.e(x))

    def weights(self, level: int) -> tuple[Float[Tensor, "N_h N_x"], Float[Tensor, "N_x N_h"]]:
        """The matrices to a hidden layer and back, of plain or normalised layers."""
        return _weights(self.down[level], self.up[level])

    def forward(self, z: Float[Tensor, "batch C S"]) -> Float[Tensor, "batch C S"]:
        return self.visible(self.solve(z).point)


def _interaction(config: IMixerConfig, d_in: int, d_out: int) -> nn.Module:
    if config.norm == "spectral":
        return SpectralLinear(d_in, d_out, config.contraction, config.power_iterations)
    if config.norm == "batch":
        averages = max(1, config.iterations) if config.batch_statistics == "per_iteration" else 1
        return BatchNormLinear(d_in, d_out, averages)
    return nn.Linear(d_in, d_out)


def _freeze(down: nn.Module, up: nn.Module) -> tuple[Interaction, Interaction]:
    """Both layers with their weights fixed for one forward pass."""
    if isinstance(down, BatchNormLinear) and isinstance(up, BatchNormLinear):
        return down, up
    assert isinstance(down, nn.Linear)
    assert isinstance(up, nn.Linear | TransposedLinear)
    there, back = _weights(down, up)
    return lambda x, iteration: linear(x, there, down.bias), lambda x, iteration: linear(x, back, up.bias)


def _weights(down: nn.Module, up: nn.Module) -> tuple[Tensor, Tensor]:
    there = _weight(down)
    return there, there.mT if isinstance(up, TransposedLinear) else _weight(up)


def _weight(layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return layer.effective_weight() if isinstance(layer, SpectralLinear) else layer.weight


class IMixerBlock(Block):
    """Tokens are mixed by an iMLP, then channels by an MLP, each with a norm before it."""

    places = 2

    def __init__(self, config: IMixerConfig) -> None:
        super().__init__()
        wide = config.channel_hidden or 4 * config.C
        self.token_norm = nn.LayerNorm(config.C, eps=config.norm_eps)
        self.token = InvertibleMLP(config)
        self.channel_norm = nn.LayerNorm(config.C, eps=config.norm_eps)
        self.channel = nn.Sequential(
            nn.Linear(config.C, wide), activation(config.activation), nn.Linear(wide, config.C)
        )
        self.drop_path = DropPath(config.drop_path)

    def solve(self, v: Float[Tensor, "batch S C"], keep: bool = False, solver: Solver | None = None) -> Solution:
        """The fixed point of the token mixing."""
        return self.token.solve(self.token_norm(v).mT, keep, solver)

    def mix_tokens(self, v: Float[Tensor, "batch S C"]) -> Float[Tensor, "batch S C"]:
        return self.drop_path(self.token.visible(self.solve(v).point).mT)  # Eq. (30)

    def mix_channels(self, v: Float[Tensor, "batch S C"]) -> Float[Tensor, "batch S C"]:
        return self.drop_path(self.channel(self.channel_norm(v)))  # Eq. (14)

    def branches(self) -> tuple[Branch, ...]:
        return Branch("token", self.mix_tokens), Branch("channel", self.mix_channels)


class IMixer(ResidualModel):
    Config = IMixerConfig
    symbol = "v"

    def __init__(self, config: IMixerConfig) -> None:
        super().__init__()
        self.config = config
        self.input_shape = config.image
        self.stem = PatchEmbedding(config, config.C)
        self.blocks = Stack((IMixerBlock(config) for _ in range(config.depth)), config.make_pathway())
        self.norm = nn.LayerNorm(config.C, eps=config.norm_eps)
        self.head = Head(config, config.tokens, config.C)
        self._initialise()
        if (config.tolerance or config.gradient == "implicit") and not config.is_contraction and not on_meta():
            warnings.warn(
                f"norm={config.norm} with contraction={config.contraction:g} does not guarantee that the iteration "
                f"converges; norm=spectral with contraction below {config.largest_contraction():.4f} does",
                stacklevel=2,
            )

    @torch.no_grad()
    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
            if isinstance(module, nn.Linear | TransposedLinear) and module.bias is not None:
                nn.init.normal_(module.bias, std=1e-6)
        self.blocks.prepare()
        for module in self.modules():
            if isinstance(module, SpectralLinear):
                module.follow()
        stem, head = self.stem.linear, self.head.linear
        deviation = (
            math.sqrt(1 / stem.in_features) / 0.87962566103423978
        )  # of a normal distribution cut at two deviations
        nn.init.trunc_normal_(stem.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        nn.init.zeros_(stem.bias)
        nn.init.zeros_(head.bias)
        if self.config.head_init == "zero":
            nn.init.zeros_(head.weight)

    @property
    def mixers(self) -> list[InvertibleMLP]:
        return [block.token for block in self.blocks]

    @property
    def iterations(self) -> int:
        """n, the number of iterations; it may be changed after training."""
        return self.mixers[0].solver.iterations

    @iterations.setter
    def iterations(self, n: int) -> None:
        for mixer in self.mixers:
            mixer.solver = replace(mixer.solver, iterations=n)

    def fold(self) -> IMixer:
        """An equivalent model with plain weights instead of normalised ones, for export."""
        if self.config.norm == "batch":
            raise UserError("a batch norm within the iteration cannot be folded; a spectral norm can")
        plain = copy.deepcopy(self).eval()
        for layers in (layers for mixer in plain.mixers for layers in (mixer.down, mixer.up)):
            for place, layer in enumerate(layers):
                layers[place] = layer.fold() if isinstance(layer, SpectralLinear) else layer
        plain.config = self.config.replace(norm="none")
        return plain

    def embed(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch S C"]:
        return self.stem(x)

    def look_inside(self, step: Step) -> Iterator[tuple[str, Tensor]]:
        """``x_3_2`` is iterate 2 of the fixed point in block 3."""
        if step.branch == "token":
            iterates = self.blocks[step.block - 1].solve(step.read, keep=True).trajectory
            yield from ((f"x_{step.block}_{a}", iterate) for a, iterate in enumerate(iterates))

    def read_out(self, v: Float[Tensor, "batch S C"]) -> Float[Tensor, "batch ..."]:
        return self.head(self.norm(v))


def search_space(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """For images."""
    if patches := list_patches(signature, budget):
        varied: Varied = {"h_r": (2.0, 1.0), "depth": (2, 4), "patch": patches, "train.learning_rate": (3e-3, 1e-3)}
        yield FittedSpace(model={"name": "imixer"}, vary=varied, width="C", low=4)


def _variant(C: int, depth: int, drop_path: float) -> dict[str, object]:
    shapes = {"input_shape": (3, 224, 224), "output_shape": (1000,), "patch": 16}
    return {"name": "imixer", **shapes, "C": C, "depth": depth, "drop_path": drop_path}


VARIANTS = {"s": _variant(512, 8, 0.1), "b": _variant(768, 12, 0.2), "l": _variant(1024, 24, 0.3)}
"""iMixer-S, -B and -L with patches of 16 pixels; drop path as in Table 5."""
