"""The studies behind the figures and tables of the wide-and-sparse paper, at three scales.

``paper`` is appendix C. ``smoke`` shows in seconds that everything works. ``cpu`` applies the same rules to CIFAR-10
with smaller Ω, fewer blocks, points and epochs, and three seeds. Its cost with two workers of one thread, from the CPU
time of training steps on a shared machine (an upper bound):

    study                     runs   epochs   minutes   used by
    widesparse-table-1           6        3        30   T1
    widesparse-similarity       18        2         3   F2 (and 10 of a minute on MNIST)
    widesparse-width            27        3        12   F4
    widesparse-effective-width  27        3        12   F5
    widesparse-ratio            30        3        25   F6
    widesparse-depth            18        2         3   F7
    widesparse-density          21        4        15   FS1
    widesparse-expanded         33        3        40   FS2
    widesparse-expansion        30        2         3   FS3
    widesparse-replacement      15        3         2   FS4
    widesparse-patches          30        4        40   FS5
    widesparse-overfitting      18       30        25   FS6
    widesparse-overfitting-mlp   6       30         5   FS7
    widesparse-adamw             6       30        15   FS8
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from isthmus.analysis import shape_theory as theory
from isthmus.core.config import RunConfig
from isthmus.papers import load_paper
from isthmus.papers.engine.differences import SOURCES
from isthmus.papers.engine.exhibit import Part, Scale
from isthmus.papers.engine.networks import printed_network
from isthmus.papers.engine.parts import Model, Notes, Settings, describe_study, make_part, shorten, smoke_base
from isthmus.papers.engine.protocols import Protocol
from isthmus.papers.widesparse import protocols, recipes
from isthmus.papers.widesparse.recipes import mixer, s_mixer
from isthmus.recipes import published_network
from isthmus.studies.statistics import Sample

THREE = ("cifar10", "cifar100", "stl10")
FIELDS = ("C", "S", "m", "p", "gamma", "depth", "permutation")
FIGURE_4 = {  # C to S, at Ω = 2^19 and γ = 2
    4: 360, 8: 252, 12: 203, 16: 173, 20: 152, 24: 136, 28: 124, 32: 113, 36: 104, 40: 96, 44: 89, 48: 83, 64: 64,
}  # fmt: skip
FIGURE_5 = {  # Ω to pairs of C and S
    2**18: ((16, 173), (32, 113), (48, 83), (83, 48), (113, 32), (173, 16)),
    2**21: ((16, 504), (32, 346), (64, 226), (226, 64), (346, 32), (504, 16)),
    2**27: ((128, 1386), (256, 904), (904, 256), (1386, 128)),
}
SPARSE_5 = {0.9: 540, 0.7: 612, 0.5: 724, 0.3: 935, 0.1: 1619}  # p to m, at Ω = 2^18
MASK = (
    "the paper gives kept entries of a mask as 1/√p (section 4.3) and as 1 (A.2.5), and ticks (Table S.1) and omits "
    "(A.2.5) pooling; here: 1/√p and pooling beside a Mixer of the same S·C (Figures 2 and 4), 1 and the whole vector "
    "elsewhere, because with 1/√p plain SGD at these rates diverges"
)


Setup = tuple[RunConfig, Iterable[Model]] | tuple[RunConfig, Iterable[Model], int]
"""The base config, the networks, and the number of seeds if it is not three."""


def tokens_of(C: int, omega: float, gamma: float) -> int:
    """The integer S nearest to the solution of Ω = γ (C S² + C² S) / 2."""
    return theory.shape(C, omega, gamma).S


def sparse(m: int, p: float, depth: int, patch: int = 4, **fields: Any) -> Model:
    return {"name": "sw_mlp", "patch": patch, "m": m, "p": p, "depth": depth, "mask_scale": "one", **fields}


def sparse_beside(C: int, S: int, p: float, depth: int, gamma: float, patch: int = 4) -> Model:
    """The sparse MLP with the width of a Mixer; it has a block each for token and channel mixing."""
    return sparse(S * C, p, 2 * depth, patch, block="mlp", gamma=gamma, S=S, pool=True, mask_scale="inverse_root")


def with_random(models: Iterable[Model]) -> list[Model]:
    """Each network with normal and with random permutations."""
    models = list(models)
    return [*models, *({**model, "permutation": "random"} for model in models)]


def make_parts(
    figure: str, name: str, title: str, scale: Scale, paper: Callable[[str], Setup], cpu: Callable[[], Setup],
    smoke: Callable[[], Iterable[Model]], notes: Notes, protocol: Callable[[str], Protocol],
    sources: Sequence[str] = ("cifar10",), **more: Any,
) -> list[Part]:  # fmt: skip
    """A part for every source at the paper's scale; one at the others, which stands for the first source."""
    ticks = load_paper("widesparse").figures[figure].ticks
    axes = ", ".join(f"{axis.replace('_', ' ')} {low:g} to {high:g}" for axis, (low, high) in ticks.items())
    plotted = "the paper plots this and prints no values" + (f"; its axes are labelled: {axes}" if axes else "")
    all_notes = {**notes, "all": [*notes.get("all", ()), plotted]}
    if scale != "paper" and (others := [SOURCES[source] for source in sources[1:]]):
        untrained = f"the paper also has {', '.join(others)}; only one data set is run at this scale"
        all_notes[scale] = [*notes.get(scale, ()), untrained]

    def part(source: str) -> Part:
        def study(chosen: Scale) -> Settings:
            label = f"{name}-{source}" if chosen == "paper" and len(sources) > 1 else name
            return describe(label, chosen, lambda: paper(source), cpu, smoke)

        return make_part(title, scale, study, all_notes, protocol=protocol(source), **{"fields": FIELDS} | more)

    return [part(source) for source in (sources if scale == "paper" else sources[:1])]


def describe(
    name: str, scale: Scale, paper: Callable[[], Setup], cpu: Callable[[], Setup],
    smoke: Callable[[], Iterable[Model]], **fields: Any,
) -> Settings:  # fmt: skip
    if scale == "smoke":
        return describe_study(f"widesparse-{name}", scale, smoke_base(learning_rate=0.01), smoke())
    return describe_study(f"widesparse-{name}", scale, *(paper if scale == "paper" else cpu)(), **fields)


TABLE_1: dict[str, Model] = {
    "beta_lasso": {"name": "beta_lasso"},
    "mixer_ss_8": {"name": "mlp_mixer", "patch": 8, "C": 986, "depth": 2},
    "mixer_ss_w": {"name": "mlp_mixer", "patch": 4, "C": 467, "depth": 2},
    "mixer_b_16": {"name": "mlp_mixer", "patch": 16, "C": 768},
    "mixer_b_w": {"name": "mlp_mixer", "patch": 14, "C": 588},
}


def table_1(scale: Scale) -> list[Part]:
    sources = ("cifar10", "cifar100", "imagenet1k") if scale == "paper" else ("cifar10",)
    return [_table_1(source, source == "imagenet1k", scale) for source in sources]


def _table_1(source: str, imagenet: bool, scale: Scale) -> Part:
    def paper() -> Setup:
        if imagenet:
            narrow, wide = published_network("mlp_mixer", "b", norm_eps=1e-5), published_network("mlp_mixer", "b-w")
            return recipes.table_1("b-w", source), [narrow, wide]
        return recipes.table_1("ss-8", source), [published_network("mlp_mixer", name) for name in ("ss-8", "ss-w")]

    def cpu() -> Setup:
        """16 M instead of 256 M connections, by the paper's rule."""
        base = shorten(recipes.table_1("ss-8"), 3, batch_size=128, learning_rate=2e-3)
        return base, [mixer(236, None, 2, 4, patch=8), mixer(96, None, 2, 4)]

    def study(chosen: Scale) -> Settings:
        rates = {"learning_rates": (0.04, 0.05, 0.06)} if chosen == "paper" and not imagenet else {}
        name, tiny = "table-1", [mixer(40, None, 1, 2), mixer(16, None, 1, 2, patch=2)]
        return describe(f"{name}-{source}" if chosen == "paper" else name, chosen, paper, cpu, lambda: tiny, **rates)

    table, printed = "T1b" if imagenet else "T1a", []
    for identity, row in load_paper("widesparse").tables[table].rows.items():
        # Errors as accuracies. A quoted row has neither a spread nor a number of runs.
        spread = row["spread" if imagenet else f"{source}_spread"]
        quality = Sample(round(100 - row[f"{source}_error"], 4), spread, 3)
        size = row["omega"] if imagenet else 1e6 * row["connections_M"]
        name = identity if imagenet else f"{identity}.{source}"
        decimals = load_paper("widesparse").tables[table].decimals[f"{source}_error"]
        printed.append(printed_network(name, row, TABLE_1[row["model"]], size, quality, (decimals, decimals)))
    notes = [
        "β-LASSO is quoted by the paper from another one: it is not trained here (recipe widesparse-beta-lasso)",
    ]
    if imagenet:
        notes = [
            "Mixer-B/16 is quoted by the paper; here it is trained like Mixer-B-W",
        ]
    smaller = "both networks have 16 M connections instead of 256 M, by the paper's rule"
    return make_part(
        "wide and narrow Mixers", scale, study, {"all": notes, "cpu": [smaller]}, printed, table=table,
        protocol=protocols.TABLE_1_IMAGENET if imagenet else protocols.TABLE_1,
        printed_title=f"Table 1, {SOURCES[source]}", fields=("patch", "C", "depth", "gamma"),
    )  # fmt: skip


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
        lambda: (shorten(recipes.figure_4(), 2), models((16,), (0, 1, 2, 4, 6), 3)),
        lambda: models((8,), (0, 1, 3, 5), 1, patch=2),
        {
            "all": [MASK, "the width of the sparse MLP is not printed; here it is the Mixer's S·C"],
            "cpu": ["one Mixer, S = C = 16 (m = 256), and p from 1 to 2^-6"],
        },
        lambda source: protocols.FIGURE_4,
    )  # fmt: skip
    shallow: list[Model] = [{"name": "monarch_mlp"}, {"name": "kronecker_mlp"}]

    def study(chosen: Scale) -> Settings:
        recipe = recipes.shallow("monarch_mlp")
        return describe(
            "shallow", chosen, lambda: (recipe, shallow, 5), lambda: (shorten(recipe, 10), shallow, 5), lambda: shallow
        )

    shallow_part = make_part(
        "shallow nets", scale, study, {"all": ["the paper plots this and prints no values"]}, fields=("size", "S"),
        protocol=protocols.SHALLOW,
    )  # fmt: skip
    return [*compared, shallow_part]


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
        lambda source: (recipes.figure_4(), models(FIGURE_4, 2**19, 3), 4),
        lambda: (shorten(recipes.figure_4(), 3), models(small, 2**14, 3, (2048,))),
        lambda: models(tiny, 2**10, 1, patch=2),
        {"all": [MASK], "cpu": ["Ω is 2^14 instead of 2^19; one sparse MLP is wider than any Mixer can be"]},
        lambda source: protocols.FIGURE_4,
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
        lambda source: protocols.figure_5(), THREE,
    )  # fmt: skip


def ratio(scale: Scale) -> list[Part]:
    """Figure 6: C/S at the same Ω."""

    def paper(source: str) -> Setup:
        if source == "imagenet1k":
            sizes = [(3 * patch**2, patch) for patch in (7, 8, 14, 16, 28, 32)]
            wide = [mixer(C, tokens_of(C, 290_217_984, 4), 8, 4, patch) for C, patch in sizes]
            return recipes.ratio(source), with_random(wide)
        omega = 2**18 if source == "stl10" else 2**21
        side = round(omega ** (1 / 3))
        models = with_random(s_mixer(C, S, 12) for C, S in sorted([*FIGURE_5[omega], (side, side)]))
        return recipes.ratio(source), models, 3 if source == "stl10" else 5

    pairs = ((8, 124), (16, 83), (40, 40), (83, 16), (124, 8))
    return make_parts(
        "F6", "ratio", "C/S at one Ω", scale, paper,
        lambda: (
            shorten(recipes.ratio("cifar10"), 3, batch_size=128, learning_rate=2.5e-3),
            with_random(s_mixer(C, S, 6) for C, S in pairs),
        ),
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
        protocols.ratio, (*THREE, "imagenet1k"),
    )  # fmt: skip


def depth(scale: Scale) -> list[Part]:
    """Figure 7: the number of blocks."""

    def models(size: int, blocks: Iterable[int], **f: int) -> list[Model]:
        return with_random(s_mixer(size, size, number, **f) for number in blocks)

    def paper(source: str) -> Setup:
        blocks = (4, 8, 12, 16, 20)
        if source == "imagenet1k":
            # MLP-Mixers, as section 5.4 says of ImageNet-1k.
            return recipes.ratio(source), with_random(mixer(128, 128, number, 4, 16) for number in blocks)
        return recipes.figure_5(source), models(128, blocks)

    return make_parts(
        "F7", "depth", "number of blocks", scale, paper,
        lambda: (shorten(recipes.figure_5(), 2), models(16, (2, 6, 12))),
        lambda: models(8, (1, 3), patch=2),
        {
            "all": ["how ImageNet-1k is trained for Figure 7 is not printed; here: as for Figure 6"],
            "cpu": ["C = S = 16 instead of 128, with 2 to 12 blocks instead of 4 to 20"],
        },
        protocols.depth, (*THREE, "imagenet1k"),
    )  # fmt: skip
