"""The studies behind the supplementary figures S.1 to S.8, at three scales; their cost is in `studies.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from isthmus.core.config import RunConfig
from isthmus.papers.engine.exhibit import Part, Scale
from isthmus.papers.engine.parts import Model, Settings, change_training, shorten
from isthmus.papers.engine.protocols import Protocol
from isthmus.papers.widesparse import protocols, recipes
from isthmus.papers.widesparse.recipes import mixer, s_mixer
from isthmus.papers.widesparse.studies import MASK, THREE, Setup, make_parts, sparse, tokens_of, with_random

CURVES = "losses during training are measured on validation images, not on test images"
FEW_ROWS = "10,000 images to train on, so that 30 epochs can overfit; the other 40,000 are validation data"
EIGHT_BLOCKS = "the number of blocks is not printed; here: 8, as in Figure S.6"


def density(scale: Scale) -> list[Part]:
    """Figure S.1 (left): SW-MLP over p at one Ω."""

    def models(densities: Iterable[float], omega: int, blocks: int, **f: int) -> list[Model]:
        return [sparse(round(math.sqrt(omega / p)), p, blocks, **f) for p in densities]

    wide = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
    return make_parts(
        "FS1", "density", "SW-MLP over its density", scale,
        lambda source: (recipes.figure_5(), models(wide, 2**16, 8), 5),
        lambda: (shorten(recipes.figure_5(), 4), models(wide, 2**14, 8)),
        lambda: models((1.0, 0.5, 0.1), 2**10, 2, patch=2),
        {"all": [MASK, "data, blocks and densities of this figure are not printed"], "cpu": ["Ω is 2^14, not 2^16"]},
        lambda source: protocols.figure_5(),
    )  # fmt: skip


def expanded_width(scale: Scale) -> list[Part]:
    """Figure S.2: width with γ = 4."""

    def models(channels: Iterable[int], omegas: Sequence[int], densities: Iterable[float], blocks: int) -> list[Model]:
        shapes = [mixer(C, tokens_of(C, omega, 4), blocks, 4) for omega in omegas for C in channels]
        masks = [sparse(round(math.sqrt(omegas[-1] / (4 * p))), p, blocks, block="mlp", gamma=4) for p in densities]
        return [*with_random(shapes), *masks]

    tiny = with_random([mixer(4, 12, 1, 2, patch=2), mixer(8, 8, 1, 2, patch=2)])
    return make_parts(
        "FS2", "expanded", "width with γ = 4", scale,
        lambda source: (
            recipes.figure_5(source, 0.1),
            models((16, 32, 48, 64, 83, 113, 173), (2**18, 2**20), (0.1, 0.3, 0.5, 0.7, 0.9), 8),
        ),
        lambda: (shorten(recipes.figure_5(rate=0.1), 3), models((8, 16, 25, 45), (2**16,), (0.1, 0.5, 0.9), 3)),
        lambda: [*tiny, sparse(32, 0.5, 1, patch=2, block="mlp", gamma=2)],
        {
            "all": [MASK, "the number of blocks is not printed; here: 8"],
            "cpu": ["Ω is 2^16 instead of 2^18 and 2^20, and there are 3 blocks"],
        },
        lambda source: protocols.figure_5(0.1), ("cifar10", "cifar100"),
    )  # fmt: skip


def expansion(scale: Scale) -> list[Part]:
    """Figure S.3: γ at one m, for several Ω and C."""

    def models(m: int, omegas: Iterable[int], channels: Iterable[int], blocks: int, **f: int) -> list[Model]:
        shapes = [(C, m // C, round(2 * omega / (m * (C + m / C)), 4)) for omega in omegas for C in channels]
        return with_random(mixer(C, S, blocks, gamma, **f) for C, S, gamma in shapes)

    small = models(256, (2**12, 2**13, 2**14), (16,), 3) + models(256, (2**13,), (4, 64), 3)
    return make_parts(
        "FS3", "expansion", "γ at one m", scale,
        lambda source: (recipes.figure_5(), models(4096, (2**n for n in range(19, 23)), (16, 32, 64, 128, 256), 8)),
        lambda: (shorten(recipes.figure_5(), 2), small),
        lambda: models(64, (2**8, 2**9), (4, 8), 1, patch=2),
        {
            "all": ["data, blocks and C of this figure are not printed; here: CIFAR-10, 8, and 16 to 256"],
            "cpu": ["m is 256 instead of 4096, Ω 2^12 to 2^14 at C = S and 2^13 elsewhere; 3 blocks"],
        },
        lambda source: protocols.figure_5(),
    )  # fmt: skip


def replacement(scale: Scale) -> list[Part]:
    """Figure S.4: one random block among four."""

    def models(size: int, blocks: int, **f: int) -> list[Model]:
        from isthmus.analysis.block_replacement import trained_configs

        return trained_configs(s_mixer(size, size, blocks, **f))

    return make_parts(
        "FS4", "replacement", "one random block", scale,
        lambda source: (recipes.figure_5(source), models(64, 4)),
        lambda: (shorten(recipes.figure_5(), 3), models(16, 4)),
        lambda: models(8, 2, patch=2),
        {
            "all": ["C = S = 64 as in the text of D.5; the caption of Figure S.4 says 128"],
            "cpu": ["C = S = 16 instead of 64"],
        },
        lambda source: protocols.figure_5(), THREE, fields=("C", "S", "depth", "permutation", "random_blocks"),
    )  # fmt: skip


def patches(scale: Scale) -> list[Part]:
    """Figure S.5: the patch size."""

    def models(sides: Iterable[int], size: int, blocks: int) -> list[Model]:
        return with_random(s_mixer(size, size, blocks, side) for side in sides)

    def paper(source: str) -> Setup:
        if source == "stl10":
            return recipes.stl10_90(), models((1, 3, 6, 10, 18, 30), 64, 4), 5
        return recipes.figure_5(source, 0.1), models((1, 2, 4, 8, 16, 32), 64, 4)

    return make_parts(
        "FS5", "patches", "patch size", scale, paper,
        lambda: (shorten(recipes.figure_5(rate=0.1), 4), models((2, 4, 8, 16, 32), 32, 4)),
        lambda: models((2, 4), 8, 1),
        {"cpu": ["C = S = 32 instead of 64; no patches of one pixel"]},
        protocols.patches, THREE, fields=("patch", "C", "S", "depth", "permutation"),
    )  # fmt: skip


def _losses(
    name: str, title: str, scale: Scale, recipe: RunConfig, train: Settings, paper: Iterable[Model],
    cpu: Iterable[Model], smoke: Iterable[Model], notes: Iterable[str], smaller: str, protocol: Protocol,
) -> list[Part]:  # fmt: skip
    """600 epochs at the paper's scale; at the cpu scale 30 epochs of 10,000 images, evaluated every third."""

    def on_few_rows() -> Setup:
        base = shorten(recipe, 30, **train, evaluate_every=3)
        source = type(base.source)(**base.source.model_dump() | {"validation": 40_000})
        return base.model_copy(update={"source": source}), cpu

    return make_parts(
        "FS6_FS8", name, title, scale, lambda source: (change_training(recipe, **train, epochs=600), paper, 5),
        on_few_rows, lambda: smoke, {"all": [CURVES, *notes], "cpu": [FEW_ROWS, smaller]},
        lambda source: protocol,
    )  # fmt: skip


def s_mixer_losses(scale: Scale) -> list[Part]:
    """Figure S.6: the loss of S-Mixers during training."""

    def models(omega: int, channels: Iterable[int], blocks: int, **f: int) -> list[Model]:
        return with_random(s_mixer(C, tokens_of(C, omega, 1), blocks, **f) for C in channels)

    return _losses(
        "overfitting", "loss during training", scale, recipes.figure_5(rate=0.1), {},
        models(2**18, (16, 32, 64, 114, 173), 8), models(2**14, (8, 25, 60), 8), models(2**9, (4, 12), 1, patch=2),
        [], "Ω is 2^14 instead of 2^18, C 8 to 60", protocols.S_MIXER_LOSSES,
    )  # fmt: skip


def mixer_losses(scale: Scale) -> list[Part]:
    """Figure S.7: the same for MLP-Mixers with AutoAugment."""

    def models(omega: int, channels: Iterable[int], blocks: int, gamma: float, **f: int) -> list[Model]:
        return with_random(mixer(C, tokens_of(C, omega, gamma), blocks, gamma, **f) for C in channels)

    sgd = {**recipes.NESTEROV, "learning_rate": 0.1, "batch_size": 256, "weight_decay": 0.0}
    return _losses(
        "overfitting-mlp", "loss during training, γ = 4", scale, recipes.figure_4(), sgd,
        models(2**20, (16, 32, 64, 114, 173), 8, 4), models(2**14, (40,), 3, 4), models(2**9, (4, 8), 1, 2, patch=2),
        [EIGHT_BLOCKS, "Ω is not printed; here 2^20, which gives the pairs of Figure S.6 with γ = 4"],
        "Ω is 2^14, C 40, and there are 3 blocks", protocols.MIXER_LOSSES,
    )  # fmt: skip


def adamw(scale: Scale) -> list[Part]:
    """Figure S.8: C = S with AdamW."""
    large, small, tiny = (
        with_random([mixer(size, size, blocks, gamma, patch)])
        for size, blocks, gamma, patch in ((64, 8, 4, 4), (32, 3, 2, 4), (8, 1, 2, 2))
    )
    return _losses(
        "adamw", "loss during training, AdamW", scale, recipes.figure_4(), {"batch_size": 256}, large, small, tiny,
        [EIGHT_BLOCKS], "C = S = 32 with γ = 2 and 3 blocks instead of 64 with γ = 4 and 8", protocols.ADAMW_LOSSES,
    )  # fmt: skip
