"""The tables and figures of the Hourglass paper that can be measured again, and ``S4``, a study of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from isthmus.papers import load_paper
from isthmus.reproduction.drawing import by_shape, fronts, over, ratios
from isthmus.reproduction.hourglass import claims, figures, protocols, transformers
from isthmus.reproduction.hourglass import transformer_claims as vit_claims
from isthmus.reproduction.hourglass import transformer_values as vit_values
from isthmus.reproduction.hourglass.ranks import effective_ranks
from isthmus.reproduction.protocol import ClaimTest, Exhibit, Findings, Judgement, Part, Scale, tests_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = load_paper("hourglass")
TESTS: dict[str, Callable[[Findings], Judgement]] = {
    "C1": claims.c1, "C2": claims.c2, "C3": claims.c3, "C4": claims.c4, "C5": claims.c5, "C6": claims.c6,
    "C11": claims.c11, "C12": claims.c12, "C13": claims.c13,
    "C.2.1": claims.f6, "C.2": claims.conventional_gains, "S4": claims.s4,
    "C7": vit_claims.c7, "C8": vit_claims.c8, "C9": vit_claims.ahead, "C10": vit_claims.c10,
    "2.T": vit_claims.cheaper, "2.L": vit_claims.not_slower, "3.3.1": vit_claims.ahead, "E.1": vit_claims.faster,
    "E.2": vit_claims.sooner,
}  # fmt: skip
STATEMENTS = {
    "C.2.1": "In generative classification, too, the Hourglass front is the higher one (appendix C.2.1).",
    "C.2": "A conventional network can gain from a random input projection that keeps the dimension (appendix C.2).",
    "2.T": "At every size the Hourglass ViT is smaller and cheaper to train than the conventional one (Table 2).",
    "2.L": "At every size the Hourglass ViT is as fast as the conventional one (our question, of Table 2).",
    "3.3.1": "As ViT-Tiny the Hourglass is ahead on every data set (section 3.3.1).",
    "E.1": "The Hourglass ViT gains accuracy faster, from early on (appendix E.1).",
    "E.2": "The larger the Hourglass ViT, the sooner it reaches its plateau (appendix E.2).",
    "S4": "Which shape is ahead does not depend on norm, activation and initialisation (our question; section 4).",
}


def _tests(*names: str) -> dict[str, ClaimTest]:
    return tests_of(PAPER, names, TESTS, STATEMENTS)


def _table(name: str, part: Callable[[Scale], Part], *tests: str) -> Exhibit:
    table = PAPER.tables[name]
    return Exhibit(table.printed_as, table.caption, lambda scale: [part(scale)], _tests(*tests), fronts)


def _figure(
    name: str, parts: Callable[[Scale], Sequence[Part]], *tests: str, draw: Callable[[Findings], Figure] = fronts
) -> Exhibit:
    figure = PAPER.figures[name]
    return Exhibit(figure.printed_as, figure.shows, parts, _tests(*tests), draw)


def _curves(number: int, parts: Callable[[Scale], Sequence[Part]], *tests: str) -> Exhibit:
    """Figures 10 to 13 share an entry of the published data."""
    shows = PAPER.figures["F10_F13"].shows
    return Exhibit(f"Figure {number}", shows, parts, _tests(*tests), vit_values.draw_curves, vit_values.curves)


def _accuracies(name: str, parts: Callable[[Scale], Sequence[Part]], *tests: str) -> Exhibit:
    table = PAPER.tables[name]
    draw = over(lambda network: network.params, "parameters", by_shape)
    return Exhibit(table.printed_as, table.caption, parts, _tests(*tests), draw)


TABLES = {
    "T1": Exhibit(
        PAPER.tables["T1"].printed_as,
        PAPER.tables["T1"].caption,
        lambda scale: [protocols.ranks(scale)],
        _tests("C5", "C6"),
        figures.ranks,
        effective_ranks,
    ),
    "T2": Exhibit(
        PAPER.tables["T2"].printed_as,
        PAPER.tables["T2"].caption,
        lambda scale: [],
        _tests("2.T", "2.L"),
        ratios,
        vit_values.costs,
    ),
    "T3": _accuracies("T3", transformers.table_3, "3.3.1", "C7", "C8"),
    "T4": _accuracies("T4", transformers.table_4, "C9", "C10"),
    "T6": _table("T6", protocols.imagenet224_denoise, "C1", "C3", "C11"),
    "T7": _table("T7", protocols.imagenet224_super_resolution, "C2", "C3", "C11"),
    "T8": _table("T8", protocols.imagenet32_denoise, "C3", "C11", "C12", "C13"),
    "T9": _table("T9", protocols.imagenet32_super_resolution, "C3", "C11", "C12", "C13"),
    "F3": _figure(
        "F3",
        lambda scale: [protocols.imagenet224_denoise(scale), protocols.imagenet224_super_resolution(scale)],
        "C1", "C2", "C3", "C11",
    ),
    "F4": _figure("F4", protocols.fixed_input, "C4", "C.2", draw=figures.fixed_input),
    "F6": _figure("F6", lambda scale: [protocols.mnist_generative_classification(scale)], "C.2.1"),
    "F7": _figure(
        "F7", lambda scale: [protocols.mnist_denoise(scale), protocols.imagenet32_denoise(scale)], "C3", "C11", "C13"
    ),
    "F8": _figure(
        "F8",
        lambda scale: [protocols.mnist_super_resolution(scale), protocols.imagenet32_super_resolution(scale)],
        "C3", "C11", "C13",
    ),
    "F9": _figure("F9", lambda scale: [protocols.ablation(scale)], "C12", draw=figures.sweeps),
    "F10": _curves(10, lambda scale: transformers.curves_of("tiny", scale), "E.1"),
    "F11": _curves(11, lambda scale: transformers.curves_of("small", scale), "E.1"),
    "F12": _curves(12, lambda scale: transformers.curves_of("large", scale), "E.1"),
    "F13": _curves(13, transformers.hourglasses, "E.2"),
    "S4": Exhibit(
        "Section 4",
        "Both shapes with every norm, activation and initialisation.",
        lambda scale: [protocols.norm_activation_init(scale)],
        _tests("S4"),
        figures.settings,
    ),
}  # fmt: skip
