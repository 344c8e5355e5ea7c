"""The studies behind the figures and tables of the wide-and-sparse paper, at three scales.

``paper`` is appendix C. ``smoke`` shows in seconds that everything works. ``cpu`` applies the same rules to CIFAR-10
with smaller Ω, fewer blocks, points and epochs, and three seeds. Its cost with two workers of one thread, from the CPU
time of training steps on a shared machine (an upper bound):

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

from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import Part, PrintedRow, Scale, printed_row
from isthmus.papers.engine.parts import Model, Settings, Studies, describe_study, make_part, shorten
from isthmus.papers.widesparse import recipes
from isthmus.papers.widesparse.models import (
    FIGURE_4,
    FIGURE_5,
    HELD_OUT,
    MASK,
    SEEDS,
    SPARSE_5,
    UNPRINTED,
    Setup,
    describe,
    describe_smoke,
    make_parts,
    mixer,
    s_mixer,
    sparse,
    sparse_beside,
    tokens_of,
    with_random,
)
from isthmus.recipes.images import published_network
from isthmus.studies.statistics import Sample

THREE = ("cifar10", "cifar100", "stl10")


def table_1(scale: Scale) -> list[Part]:
    sources = ("cifar10", "cifar100") if scale == "paper" else ("cifar10",)
    return [
        *(_table_1_cifar(source, scale) for source in sources),
        *([_table_1_imagenet()] if scale == "paper" else []),
    ]


def _table_1_cifar(source: str, scale: Scale) -> Part:
    # 16 M instead of 256 M connections, by the paper's rule.
    small = [mixer(236, None, 2, 4, patch=8), mixer(96, None, 2, 4)]
    tiny = [mixer(40, None, 1, 2), mixer(16, None, 1, 2, patch=2)]

    def paper() -> Settings:
        models = [published_network("mlp_mixer", name) for name in ("ss-8", "ss-w")]
        rates = {"seeds": SEEDS, "learning_rates": (0.04, 0.05, 0.06)}
        return describe_study(f"widesparse-table-1-{source}", "paper", recipes.table_1("ss-8", source), models, **rates)

    def cpu() -> Settings:
        base = shorten(recipes.table_1("ss-8"), 3, batch_size=128, learning_rate=2e-3)
        return describe("table-1", "cpu", base, small)

    title = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}[source]
    notes = {
        "all": [
            "β-LASSO is quoted by the paper from another one, whose network is no Mixer: it is not trained here",
            "Mixer-SS-W has C = 467, which gives the printed 255 M connections; 487 is printed and gives 276 M",
            HELD_OUT,
            UNPRINTED,
        ],
        "cpu": ["both networks have 16 M connections instead of 256 M, by the paper's rule"],
    }
    studies: Studies = {"paper": paper, "cpu": cpu, "smoke": lambda: describe_smoke("table-1", tiny)}
    beside = _beside("T1a", f"Table 1, {title}", _printed_cifar(source))
    return make_part("wide and narrow Mixers", scale, studies, notes, **beside)


def _beside(table: str, title: str, printed: Mapping[str, PrintedRow]) -> Settings:
    return {"table": table, "printed_title": title, "printed": printed, "fields": ("patch", "C", "depth", "gamma")}


def _printed_cifar(source: str) -> dict[str, PrintedRow]:
    """Errors as accuracies. The quoted row has neither a spread nor a number of runs."""
    models: dict[str, Model] = {
        "beta_lasso": {"name": "beta_lasso"},
        "mixer_ss_8": {"name": "mlp_mixer", "patch": 8, "C": 986, "depth": 2},
        "mixer_ss_w": {"name": "mlp_mixer", "patch": 4, "C": 467, "depth": 2},
    }
    found = {}
    for row_id, row in load_paper("widesparse").tables["T1a"].rows.items():
        identity, size = f"{row_id}.{source}", 1e6 * row["connections_M"]
        quality = Sample(round(100 - row[f"{source}_error"], 4), row[f"{source}_spread"], 3)
        found[identity] = printed_row(identity, row, models[row["model"]], size, quality)
    return found


def _table_1_imagenet() -> Part:
    def paper() -> Settings:
        models = [published_network("mlp_mixer", "b", norm_eps=1e-5), published_network("mlp_mixer", "b-w")]
        return describe("table-1-imagenet1k", "paper", recipes.mixer_b_w(), models)

    printed = {}
    rows = load_paper("widesparse").tables["T1b"].rows.items()
    for (identity, row), (patch, C) in zip(rows, ((16, 768), (14, 588)), strict=True):
        quality = Sample(round(100 - row["imagenet1k_error"], 4), row["spread"], 3)
        model = {"name": "mlp_mixer", "patch": patch, "C": C}
        printed[identity] = printed_row(identity, row, model, row["omega"], quality)
    notes = [
        "Mixer-B-W has γ = 4.095, which gives the printed width of 6.2e5; 4.57 is printed",
        "Mixer-B/16 is quoted by the paper; here it is trained like Mixer-B-W",
        UNPRINTED,
    ]
    beside = _beside("T1b", "Table 1, ImageNet-1k", printed)
    return make_part("wide and narrow Mixers", "paper", {"paper": paper}, {"all": notes}, **beside)


def similarity(scale: Scale) -> list[Part]:
    """Figure 2: (a) to (c) on CIFAR-10, (d) on MNIST."""

    def models(sizes: Sequence[int], exponents: Sequence[int], depth: int, patch: int = 4) -> list[Model]:
        return [
            model
            for size in sizes
            for model in (
                mixer(size, size, depth, 2, patch),
                *(sparse_beside(size, size, 2.0**-n, depth, 2, patch) for n in exponents),
            )
        ]

    compared = make_parts(
        "F2", "similarity", "Mixer and sparse MLPs", scale,
        lambda source: (recipes.figure_4(), models((64, 32), range(11), 3)),
        lambda: (shorten(recipes.figure_4(), 3), models((32,), range(8), 3)),
        lambda: models((8,), (0, 1, 3, 5), 1, patch=2),
        {
            "all": [MASK, "the width of the sparse MLP is not printed; here it is the Mixer's S·C"],
            "cpu": ["one Mixer, S = C = 32 (m = 1024), and p from 1 to 2^-7"],
        },
    )  # fmt: skip
    shallow = make_part(
        "shallow nets",
        scale,
        {
            "paper": lambda: describe("shallow", "paper", recipes.mnist_monarch(), SHALLOW, range(5)),
            "cpu": lambda: describe("shallow", "cpu", shorten(recipes.mnist_monarch(), 10), SHALLOW, range(5)),
            "smoke": lambda: describe_smoke("shallow", SHALLOW),
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
    return make_parts(
        "F4", "width", "connections held fixed", scale,
        lambda source: (recipes.figure_4(), models(FIGURE_4, 2**19, 3), range(4)),
        lambda: (shorten(recipes.figure_4(), 3), models(small, 2**14, 3, (2048,))),
        lambda: models(tiny, 2**10, 1, patch=2),
        {"all": [MASK], "cpu": ["Ω is 2^14 instead of 2^19; one sparse MLP is wider than any Mixer can be"]},
    )  # fmt: skip


def effective_width(scale: Scale) -> list[Part]:
    """Figure 5: S-Mixer, RP S-Mixer and SW-MLP over the effective width."""

    def models(pairs: Iterable[tuple[int, int]], sparses: Mapping[float, int], depth: int, **f: int) -> list[Model]:
        mixers = with_random(s_mixer(C, S, depth, **f) for C, S in pairs)
        return [*mixers, *(sparse(m, p, depth, **f) for p, m in sparses.items())]

    printed = [pair for group in FIGURE_5.values() for pair in group]
    few = {0.9: 135, 0.5: 181, 0.1: 405}
    return make_parts(
        "F5", "effective-width", "connections held fixed", scale,
        lambda source: (recipes.figure_5(source), models(printed, SPARSE_5, 8)),
        lambda: (shorten(recipes.figure_5(), 3), models(((8, 60), (25, 25), (60, 8)), few, 8)),
        lambda: models(((4, 14), (8, 8)), {0.5: 32}, 2, patch=2),
        {"all": [MASK], "cpu": ["Ω is 2^14 instead of 2^18, 2^21 and 2^27"]},
        THREE,
    )  # fmt: skip


def ratio(scale: Scale) -> list[Part]:
    """Figure 6: C/S at the same Ω."""

    def paper(source: str) -> Setup:
        if source == "imagenet1k":
            sizes = [(3 * patch**2, patch) for patch in (7, 8, 14, 16, 28, 32)]
            wide = [mixer(C, tokens_of(C, 290_217_984, 4), 8, 4, patch) for C, patch in sizes]
            return recipes.ratio_imagenet1k(), with_random(wide)
        omega = 2**18 if source == "stl10" else 2**21
        side = round(omega ** (1 / 3))
        models = with_random(s_mixer(C, S, 12) for C, S in sorted([*FIGURE_5[omega], (side, side)]))
        return recipes.ratio(source), models, range(3 if source == "stl10" else 5)

    def cpu() -> Setup:
        base = shorten(recipes.ratio("cifar10"), 3, batch_size=128, learning_rate=2.5e-3)
        pairs = ((8, 124), (16, 83), (40, 40), (83, 16), (124, 8))
        return base, with_random(s_mixer(C, S, 6) for C, S in pairs)

    return make_parts(
        "F6", "ratio", "C/S at one Ω", scale, paper, cpu,
        lambda: with_random(s_mixer(C, S, 1, patch=2) for C, S in ((4, 14), (8, 8), (14, 4))),
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
        (*THREE, "imagenet1k"),
    )  # fmt: skip


def depth(scale: Scale) -> list[Part]:
    """Figure 7: the number of blocks."""

    def models(size: int, blocks: Iterable[int], **f: int) -> list[Model]:
        return with_random(s_mixer(size, size, number, **f) for number in blocks)

    def paper(source: str) -> Setup:
        blocks = (4, 8, 12, 16, 20)
        if source == "imagenet1k":
            return recipes.ratio_imagenet1k(), models(128, blocks, patch=16)
        return recipes.figure_5(source), models(128, blocks)

    return make_parts(
        "F7", "depth", "number of blocks", scale, paper,
        lambda: (shorten(recipes.figure_5(), 5), models(32, (2, 4, 8, 12))),
        lambda: models(8, (1, 3), patch=2),
        {
            "all": ["how ImageNet-1k is trained for Figure 7 is not printed; here: as for Figure 6"],
            "cpu": ["C = S = 32 instead of 128, with 2 to 12 blocks instead of 4 to 20"],
        },
        (*THREE, "imagenet1k"),
    )  # fmt: skip
