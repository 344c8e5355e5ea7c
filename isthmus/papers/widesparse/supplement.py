"""The studies behind the supplementary figures S.1 to S.8, at three scales; see `protocols.py` for their cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from isthmus.core.config import RunConfig, StudyConfig
from isthmus.papers.engine.protocol import Part, Scale
from isthmus.papers.engine.scales import Model, adjusted, brief
from isthmus.papers.widesparse import recipes
from isthmus.papers.widesparse.shapes import (
    MASK,
    Make,
    mixer,
    mixer_study,
    parts_for,
    s_mixer,
    smoke_study,
    sparse,
    tokens_of,
    with_random,
)

CURVES = "losses during training are measured on validation images, not on test images"
FEW_ROWS = "10,000 images to train on, so that 30 epochs can overfit; the other 40,000 are validation data"
SGD_256: dict[str, Any] = {**recipes.NESTEROV, "learning_rate": 0.1, "batch_size": 256, "weight_decay": 0.0}


def density(scale: Scale) -> list[Part]:
    """Figure S.1 (left): SW-MLP over p at one Ω."""

    def models(densities: Iterable[float], omega: int, blocks: int, **f: int) -> list[Model]:
        return [sparse(round(math.sqrt(omega / p)), p, blocks, **f) for p in densities]

    wide = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
    return parts_for(
        "FS1",
        "SW-MLP over its density",
        scale,
        {"CIFAR-10": lambda: mixer_study("density", "paper", recipes.figure_5(), models(wide, 2**16, 8), range(5))},
        lambda: mixer_study("density", "cpu", brief(recipes.figure_5(), 4), models(wide, 2**14, 8)),
        lambda: smoke_study("density", models((1.0, 0.5, 0.1), 2**10, 2, patch=2)),
        {"all": [MASK, "data, blocks and densities of this figure are not printed"], "cpu": ["Ω is 2^14, not 2^16"]},
    )


def expanded(scale: Scale) -> list[Part]:
    """Figure S.2: width with γ = 4."""

    def models(channels: Iterable[int], omegas: Sequence[int], densities: Iterable[float], blocks: int) -> list[Model]:
        shapes = [mixer(C, tokens_of(C, omega, 4), blocks, 4) for omega in omegas for C in channels]
        masks = [sparse(round(math.sqrt(omegas[-1] / (4 * p))), p, blocks, block="mlp", gamma=4) for p in densities]
        return [*with_random(shapes), *masks]

    def paper(source: str) -> Make:
        base = adjusted(recipes.figure_5(source), epochs=200, learning_rate=0.1)
        channels, densities = (16, 32, 48, 64, 83, 113, 173), (0.1, 0.3, 0.5, 0.7, 0.9)
        return lambda: mixer_study(f"expanded-{source}", "paper", base, models(channels, (2**18, 2**20), densities, 8))

    tiny = [mixer(4, 12, 1, 2, patch=2), mixer(8, 8, 1, 2, patch=2)]
    return parts_for(
        "FS2",
        "width with γ = 4",
        scale,
        {"CIFAR-10": paper("cifar10"), "CIFAR-100": paper("cifar100")},
        lambda: mixer_study(
            "expanded",
            "cpu",
            brief(recipes.figure_5(), 3, learning_rate=0.1),
            models((8, 16, 25, 45), (2**16,), (0.1, 0.5, 0.9), 3),
        ),
        lambda: smoke_study("expanded", [*with_random(tiny), sparse(32, 0.5, 1, patch=2, block="mlp", gamma=2)]),
        {
            "all": [MASK, "the number of blocks is not printed; here: 8"],
            "cpu": ["Ω is 2^16 instead of 2^18 and 2^20, and there are 3 blocks"],
        },
    )


def expansion(scale: Scale) -> list[Part]:
    """Figure S.3: γ at one m, for several Ω and C."""

    def models(m: int, omegas: Iterable[int], channels: Iterable[int], blocks: int, **f: int) -> list[Model]:
        shapes = [(C, m // C, round(2 * omega / (m * (C + m / C)), 4)) for omega in omegas for C in channels]
        return with_random(mixer(C, S, blocks, gamma, **f) for C, S, gamma in shapes)

    def paper() -> StudyConfig:
        channels = (16, 32, 64, 128, 256)
        return mixer_study(
            "expansion", "paper", recipes.figure_5(), models(4096, (2**n for n in range(19, 23)), channels, 8)
        )

    small = models(1024, (2**15, 2**16, 2**17), (32,), 3) + models(1024, (2**16,), (8, 16, 64, 128), 3)
    return parts_for(
        "FS3",
        "γ at one m",
        scale,
        {"CIFAR-10": paper},
        lambda: mixer_study("expansion", "cpu", brief(recipes.figure_5(), 3), small),
        lambda: smoke_study("expansion", models(64, (2**8, 2**9), (4, 8), 1, patch=2)),
        {
            "all": ["data, blocks and C of this figure are not printed; here: CIFAR-10, 8, and 16 to 256"],
            "cpu": ["m is 1024 instead of 4096, Ω 2^15 to 2^17 at C = S and 2^16 elsewhere; 3 blocks"],
        },
    )


def replacement(scale: Scale) -> list[Part]:
    """Figure S.4: one random block among four."""

    def models(size: int, blocks: int, **f: int) -> list[Model]:
        from isthmus.analysis.block_replacement import trained_configs

        return trained_configs(s_mixer(size, size, blocks, **f))

    def paper(source: str) -> Make:
        return lambda: mixer_study(f"replacement-{source}", "paper", recipes.figure_5(source), models(64, 4))

    titles = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "STL-10": "stl10"}
    return parts_for(
        "FS4",
        "one random block",
        scale,
        {title: paper(source) for title, source in titles.items()},
        lambda: mixer_study("replacement", "cpu", brief(recipes.figure_5(), 5), models(32, 4)),
        lambda: smoke_study("replacement", models(8, 2, patch=2)),
        {
            "all": ["C = S = 64 as in the text of D.5; the caption of Figure S.4 says 128"],
            "cpu": ["C = S = 32 instead of 64"],
        },
        fields=("C", "S", "depth", "permutation", "random_blocks"),
    )


def patches(scale: Scale) -> list[Part]:
    """Figure S.5: the patch size."""

    def models(sides: Iterable[int], size: int, blocks: int) -> list[Model]:
        return with_random(s_mixer(size, size, blocks, side) for side in sides)

    def paper(source: str) -> Make:
        base = adjusted(recipes.figure_5(source), epochs=200, learning_rate=0.1)
        return lambda: mixer_study(f"patches-{source}", "paper", base, models((1, 2, 4, 8, 16, 32), 64, 4))

    def stl10() -> StudyConfig:
        return mixer_study("patches-stl10", "paper", recipes.stl10_90(), models((1, 3, 6, 10, 18, 30), 64, 4), range(5))

    return parts_for(
        "FS5",
        "patch size",
        scale,
        {"CIFAR-10": paper("cifar10"), "CIFAR-100": paper("cifar100"), "STL-10": stl10},
        lambda: mixer_study(
            "patches", "cpu", brief(recipes.figure_5(), 4, learning_rate=0.1), models((2, 4, 8, 16, 32), 32, 4)
        ),
        lambda: smoke_study("patches", models((2, 4), 8, 1)),
        {"cpu": ["C = S = 32 instead of 64; no patches of one pixel"]},
        fields=("patch", "C", "S", "depth", "permutation"),
    )


def overfitting(scale: Scale) -> list[Part]:
    """Figure S.6: the loss of S-Mixers during training."""

    def models(omega: int, channels: Iterable[int], blocks: int, **f: int) -> list[Model]:
        return with_random(s_mixer(C, tokens_of(C, omega, 1), blocks, **f) for C in channels)

    def paper() -> StudyConfig:
        base = adjusted(recipes.figure_5(), epochs=600, learning_rate=0.1)
        return mixer_study("overfitting", "paper", base, models(2**18, (16, 32, 64, 114, 173), 8), range(5))

    return parts_for(
        "FS6_FS8",
        "loss during training",
        scale,
        {"CIFAR-10": paper},
        lambda: mixer_study(
            "overfitting",
            "cpu",
            few_rows(brief(recipes.figure_5(), 30, learning_rate=0.1)),
            models(2**14, (8, 25, 60), 8),
        ),
        lambda: smoke_study("overfitting", models(2**9, (4, 12), 1, patch=2)),
        {"all": [CURVES], "cpu": [FEW_ROWS, "Ω is 2^14 instead of 2^18, C 8 to 60"]},
    )


def overfitting_mlp(scale: Scale) -> list[Part]:
    """Figure S.7: the same of MLP-Mixers with AutoAugment."""

    def models(omega: int, channels: Iterable[int], blocks: int, gamma: float, **f: int) -> list[Model]:
        return with_random(mixer(C, tokens_of(C, omega, gamma), blocks, gamma, **f) for C in channels)

    def paper() -> StudyConfig:
        base = adjusted(recipes.figure_4(), **SGD_256, epochs=600)
        return mixer_study("overfitting-mlp", "paper", base, models(2**18, (16, 32, 64, 114, 173), 8, 4), range(5))

    return parts_for(
        "FS6_FS8",
        "loss during training, γ = 4",
        scale,
        {"CIFAR-10": paper},
        lambda: mixer_study(
            "overfitting-mlp",
            "cpu",
            few_rows(brief(recipes.figure_4(), 30, **SGD_256)),
            models(2**14, (16, 40), 3, 4),
        ),
        lambda: smoke_study("overfitting-mlp", models(2**9, (4, 8), 1, 2, patch=2)),
        {
            "all": [CURVES, "the number of blocks is not printed; here: 8, as in Figure S.6"],
            "cpu": [FEW_ROWS, "Ω is 2^14, C 16 and 40, and there are 3 blocks"],
        },
    )


def adamw(scale: Scale) -> list[Part]:
    """Figure S.8: C = S with AdamW."""

    def models(size: int, blocks: int, gamma: float, **f: int) -> list[Model]:
        return with_random([mixer(size, size, blocks, gamma, **f)])

    def paper() -> StudyConfig:
        return mixer_study(
            "adamw", "paper", adjusted(recipes.figure_4(), epochs=600, batch_size=256), models(64, 8, 4), range(5)
        )

    return parts_for(
        "FS6_FS8",
        "loss during training, AdamW",
        scale,
        {"CIFAR-10": paper},
        lambda: mixer_study("adamw", "cpu", few_rows(brief(recipes.figure_4(), 30, batch_size=256)), models(32, 3, 2)),
        lambda: smoke_study("adamw", models(8, 1, 2, patch=2)),
        {
            "all": [CURVES, "the number of blocks is not printed; here: 8, as in Figure S.6"],
            "cpu": [FEW_ROWS, "C = S = 32 with γ = 2 and 3 blocks instead of 64 with γ = 4 and 8"],
        },
    )


def few_rows(base: RunConfig) -> RunConfig:
    source = type(base.source)(**base.source.model_dump() | {"validation": 40_000})
    train = type(base.train)(**base.train.model_dump() | {"evaluate_every": 3})
    return base.model_copy(update={"source": source, "train": train})
