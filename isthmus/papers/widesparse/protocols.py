"""The studies behind the figures and tables of the wide-and-sparse paper, at three scales.

``paper`` is appendix C. ``smoke`` shows in seconds that everything works. ``cpu`` keeps the rules on CIFAR-10 with
smaller Ω, fewer blocks, points and epochs, and three seeds. Its cost with two workers of one thread, from the CPU time
of training steps that shared the machine with others (so it is an upper bound):

    study                     runs   epochs   minutes   used by
    widesparse-table-1           6        3        30   T1
    widesparse-similarity       27        3        40   F2 (and 10 of a minute on MNIST)
    widesparse-width            27        3        12   F4
    widesparse-effective-width  27        3        12   F5
    widesparse-ratio            30        3        25   F6
    widesparse-depth            24        5        20   F7
    widesparse-density          21        4        15   FS1
    widesparse-expanded         33        3        40   FS2
    widesparse-expansion        45        3        40   FS3
    widesparse-replacement      15        5        12   FS4
    widesparse-patches          30        4        40   FS5
    widesparse-overfitting      18       30        25   FS6
    widesparse-overfitting-mlp  12       30        30   FS7
    widesparse-adamw             6       30        15   FS8
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isthmus.core.config import StudyConfig
from isthmus.papers import load_paper
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.protocol import Part, Printed, Scale
from isthmus.papers.engine.scales import Model, brief, part_of, study
from isthmus.papers.widesparse import recipes
from isthmus.papers.widesparse.shapes import (
    FIGURE_4,
    FIGURE_5,
    HELD_OUT,
    MASK,
    SEEDS,
    SPARSE_5,
    UNPRINTED,
    Make,
    mixer,
    mixer_study,
    parts_for,
    s_mixer,
    smoke_study,
    sparse,
    sparse_beside,
    tokens_of,
    with_random,
)
from isthmus.studies.statistics import Sample

# Table 1


def table_1(scale: Scale) -> list[Part]:
    first = _table_1_cifar("CIFAR-10", "cifar10", scale)
    return [first] if scale != "paper" else [first, _table_1_cifar("CIFAR-100", "cifar100", scale), _table_1_imagenet()]


def _table_1_cifar(title: str, source: str, scale: Scale) -> Part:
    models = [recipes.mixer_ss_8().model.model_dump(), recipes.mixer_ss_w().model.model_dump()]
    # 16 M instead of 256 M connections, by the paper's rule.
    small = [
        {"name": "mlp_mixer", "patch": 8, "C": 236, "depth": 2, "gamma": 4},
        {"name": "mlp_mixer", "patch": 4, "C": 96, "depth": 2, "gamma": 4},
    ]
    tiny = [
        {"name": "mlp_mixer", "patch": 4, "C": 40, "depth": 1, "gamma": 2},
        {"name": "mlp_mixer", "patch": 2, "C": 16, "depth": 1, "gamma": 2},
    ]
    rates = (0.04, 0.05, 0.06)

    def paper() -> StudyConfig:
        base = recipes.mixer_ss_8(source)
        return study(f"widesparse-table-1-{source}", "paper", base, models, seeds=SEEDS, learning_rates=rates)

    return part_of(
        "wide and narrow Mixers",
        scale,
        {
            "paper": paper,
            "cpu": lambda: mixer_study(
                "table-1", "cpu", brief(recipes.mixer_ss_8(), 3, batch_size=128, learning_rate=2e-3), small
            ),
            "smoke": lambda: smoke_study("table-1", tiny),
        },
        {
            "all": [
                "β-LASSO is quoted by the paper from another one, whose network is no Mixer: it is not trained here",
                "Mixer-SS-W has C = 467, which gives the printed 255 M connections; 487 is printed and gives 276 M",
                HELD_OUT,
                UNPRINTED,
            ],
            "cpu": ["both networks have 16 M connections instead of 256 M, by the paper's rule"],
        },
        table="T1a",
        printed_title=f"Table 1, {title}",
        printed=_printed_cifar(source),
        fields=("patch", "C", "depth", "gamma"),
    )


def _printed_cifar(source: str) -> dict[str, Printed]:
    """Errors as accuracies. The quoted row has neither a spread nor a number of runs."""
    shapes = {"beta_lasso": "beta_lasso", "mixer_ss_8": "mlp_mixer", "mixer_ss_w": "mlp_mixer"}
    models = {
        "beta_lasso": {},
        "mixer_ss_8": {"patch": 8, "C": 986, "depth": 2},
        "mixer_ss_w": {"patch": 4, "C": 467, "depth": 2},
    }
    found = {}
    for row_id, row in load_paper("widesparse").tables["T1a"].rows.items():
        identity = f"{row_id}.{source}"
        quality = Sample(round(100 - row[f"{source}_error"], 4), row[f"{source}_spread"], 3)
        size = 1e6 * row["connections_M"]
        network = Network(
            identity, shapes[row["model"]], models[row["model"]], size, size, quality.mean, quality, "points"
        )
        found[identity] = Printed(row, network)
    return found


def _table_1_imagenet() -> Part:
    base = recipes.mixer_b_w()
    baseline = {"name": "mlp_mixer", "patch": 16, "C": 768, "depth": 12, "token_hidden": 384, "channel_hidden": 3072}
    models = [baseline, base.model.model_dump()]
    rows = load_paper("widesparse").tables["T1b"].rows
    settings = [{"patch": 16, "C": 768}, {"patch": 14, "C": 588}]
    printed = {
        identity: Printed(row, _printed_imagenet(identity, row, model))
        for (identity, row), model in zip(rows.items(), settings, strict=True)
    }
    return part_of(
        "wide and narrow Mixers",
        "paper",
        {"paper": lambda: mixer_study("table-1-imagenet1k", "paper", base, models)},
        {
            "all": [
                "Mixer-B-W has γ = 4.095, which gives the printed width of 6.2e5; 4.57 is printed",
                "Mixer-B/16 is quoted by the paper; here it is trained like Mixer-B-W",
                UNPRINTED,
            ]
        },
        table="T1b",
        printed_title="Table 1, ImageNet-1k",
        printed=printed,
        fields=("patch", "C", "depth", "gamma"),
    )


def _printed_imagenet(identity: str, row: Mapping[str, Any], model: Model) -> Network:
    quality = Sample(round(100 - row["imagenet1k_error"], 4), row["spread"], 3)
    return Network(identity, "mlp_mixer", model, row["omega"], row["omega"], quality.mean, quality, "points")


# Figures 2 and 4


def similarity(scale: Scale) -> list[Part]:
    """Figure 2: (a) to (c) on CIFAR-10, (d) on MNIST."""

    def models(sizes: Sequence[int], exponents: Iterable[int], depth: int, patch: int = 4) -> list[Model]:
        exponents = list(exponents)
        return [
            model
            for size in sizes
            for model in (
                mixer(size, size, depth, 2, patch),
                *(sparse_beside(size, size, 2.0**-n, depth, 2, patch) for n in exponents),
            )
        ]

    compared = parts_for(
        "F2",
        "Mixer and sparse MLPs",
        scale,
        {"CIFAR-10": lambda: mixer_study("similarity", "paper", recipes.figure_4(), models((64, 32), range(11), 3))},
        lambda: mixer_study("similarity", "cpu", brief(recipes.figure_4(), 3), models((32,), range(8), 3)),
        lambda: smoke_study("similarity", models((8,), (0, 1, 3, 5), 1, patch=2)),
        {
            "all": [MASK, "the width of the sparse MLP is not printed; here it is the Mixer's S·C"],
            "cpu": ["one Mixer, S = C = 32 (m = 1024), and p from 1 to 2^-7"],
        },
    )
    shallow = part_of(
        "shallow nets",
        scale,
        {
            "paper": lambda: mixer_study("shallow", "paper", recipes.mnist_monarch(), SHALLOW, range(5)),
            "cpu": lambda: mixer_study("shallow", "cpu", brief(recipes.mnist_monarch(), 10), SHALLOW, range(5)),
            "smoke": lambda: smoke_study("shallow", SHALLOW),
        },
        {"all": ["the paper prints neither batch size nor weight decay of the shallow nets; here: 128 and 0.01"]},
        fields=("size", "S"),
    )
    return [*compared, shallow]


SHALLOW: list[Model] = [{"name": "monarch_mlp"}, {"name": "kronecker_mlp"}]


def width(scale: Scale) -> list[Part]:
    """Figure 4: Mixers and sparse MLPs of the same Ω over their width."""

    def models(pairs: Mapping[int, int], omega: float, depth: int, wider: Iterable[int] = (), **f: int) -> list[Model]:
        own = [(C, S, omega / (2 * (S * C) ** 2)) for C, S in pairs.items()]
        further = [(m // 64, 64, omega / (2 * m * m)) for m in wider]
        return [
            *(mixer(C, S, depth, 2, **f) for C, S in pairs.items()),
            *(sparse_beside(C, S, round(p, 8), depth, 2, **f) for C, S, p in (*own, *further)),
        ]

    small = {C: tokens_of(C, 2**14, 2) for C in (4, 8, 16, 20)}
    tiny = {C: tokens_of(C, 2**10, 2) for C in (2, 8)}
    return parts_for(
        "F4",
        "connections held fixed",
        scale,
        {"CIFAR-10": lambda: mixer_study("width", "paper", recipes.figure_4(), models(FIGURE_4, 2**19, 3), range(4))},
        lambda: mixer_study("width", "cpu", brief(recipes.figure_4(), 3), models(small, 2**14, 3, (2048,))),
        lambda: smoke_study("width", models(tiny, 2**10, 1, patch=2)),
        {"all": [MASK], "cpu": ["Ω is 2^14 instead of 2^19; one sparse MLP is wider than any Mixer can be"]},
    )


# Figures 5 to 7


def effective_width(scale: Scale) -> list[Part]:
    """Figure 5: S-Mixer, RP S-Mixer and SW-MLP over the effective width."""

    def models(pairs: Mapping[int, Iterable[tuple[int, int]]], sparses: Mapping[float, int], depth: int) -> list[Model]:
        shapes = [s_mixer(C, S, depth) for group in pairs.values() for C, S in group]
        return [*with_random(shapes), *(sparse(m, p, depth) for p, m in sparses.items())]

    small = {2**14: ((8, 60), (25, 25), (60, 8))}
    tiny = [*with_random([s_mixer(4, 14, 2, patch=2), s_mixer(8, 8, 2, patch=2)]), sparse(32, 0.5, 2, patch=2)]
    sources = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "STL-10": "stl10"}

    def paper(source: str) -> Make:
        models_ = models(FIGURE_5, SPARSE_5, 8)
        return lambda: mixer_study(f"effective-width-{source}", "paper", recipes.figure_5(source), models_)

    return parts_for(
        "F5",
        "connections held fixed",
        scale,
        {title: paper(source) for title, source in sources.items()},
        lambda: mixer_study(
            "effective-width", "cpu", brief(recipes.figure_5(), 3), models(small, {0.9: 135, 0.5: 181, 0.1: 405}, 8)
        ),
        lambda: smoke_study("effective-width", tiny),
        {"all": [MASK], "cpu": ["Ω is 2^14 instead of 2^18, 2^21 and 2^27"]},
    )


def ratio(scale: Scale) -> list[Part]:
    """Figure 6: C/S at the same Ω."""
    pairs: dict[str, Sequence[tuple[int, int]]] = {
        "cifar10": _with_middle(2**21),
        "cifar100": _with_middle(2**21),
        "stl10": _with_middle(2**18),
    }
    bases = {"cifar10": recipes.ratio_cifar10, "cifar100": recipes.ratio_cifar100, "stl10": recipes.ratio_stl10}
    titles = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "stl10": "STL-10"}

    def paper(source: str) -> Make:
        models = with_random(s_mixer(C, S, 12) for C, S in pairs[source])
        seeds = range(3 if source == "stl10" else 5)
        return lambda: mixer_study(f"ratio-{source}", "paper", bases[source](), models, seeds)

    small = ((8, 124), (16, 83), (40, 40), (83, 16), (124, 8))
    tiny = ((4, 14), (8, 8), (14, 4))
    return parts_for(
        "F6",
        "C/S at one Ω",
        scale,
        {titles[source]: paper(source) for source in pairs} | {"ImageNet-1k": _ratio_imagenet},
        lambda: mixer_study(
            "ratio",
            "cpu",
            brief(recipes.ratio_cifar10(), 3, batch_size=128, learning_rate=2.5e-3),
            with_random(s_mixer(C, S, 6) for C, S in small),
        ),
        lambda: smoke_study("ratio", with_random(s_mixer(C, S, 1, patch=2) for C, S in tiny)),
        {
            "all": [
                "where Table S.2 and the text of C.5 differ (Ω, rate and epochs for CIFAR-10), Table S.2 is followed",
                "the pairs are those of Figure 5; C = S, where the paper sees the lowest error, is added to them",
            ],
            "cpu": [
                "Ω is 2^16 instead of 2^21, and there are 6 blocks instead of 12",
                "the learning rate is an eighth of the paper's, as the batch is",
            ],
        },
    )


def _with_middle(omega: int) -> list[tuple[int, int]]:
    side = round(omega ** (1 / 3))
    return sorted([*FIGURE_5[omega], (side, side)])


def _ratio_imagenet() -> StudyConfig:
    omega = 290_217_984
    models = [mixer(3 * patch**2, tokens_of(3 * patch**2, omega, 4), 8, 4, patch) for patch in (7, 8, 14, 16, 28, 32)]
    return mixer_study("ratio-imagenet1k", "paper", recipes.ratio_imagenet1k(), with_random(models))


def depth(scale: Scale) -> list[Part]:
    """Figure 7: the number of blocks."""
    blocks = (4, 8, 12, 16, 20)

    def paper(source: str) -> Make:
        models = with_random(s_mixer(128, 128, number) for number in blocks)
        return lambda: mixer_study(f"depth-{source}", "paper", recipes.figure_5(source), models)

    def imagenet() -> StudyConfig:
        models = with_random(s_mixer(128, 128, number, patch=16) for number in blocks)
        return mixer_study("depth-imagenet1k", "paper", recipes.ratio_imagenet1k(), models)

    papers = {"CIFAR-10": paper("cifar10"), "CIFAR-100": paper("cifar100"), "STL-10": paper("stl10")}
    return parts_for(
        "F7",
        "number of blocks",
        scale,
        papers | {"ImageNet-1k": imagenet},
        lambda: mixer_study(
            "depth",
            "cpu",
            brief(recipes.figure_5(), 5),
            with_random(s_mixer(32, 32, number) for number in (2, 4, 8, 12)),
        ),
        lambda: smoke_study("depth", with_random(s_mixer(8, 8, number, patch=2) for number in (1, 3))),
        {
            "all": ["how ImageNet-1k is trained for Figure 7 is not printed; here: as for Figure 6"],
            "cpu": ["C = S = 32 instead of 128, with 2 to 12 blocks instead of 4 to 20"],
        },
    )
