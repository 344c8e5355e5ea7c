"""The tables and figures of the Hourglass paper that can be measured again, and ``S4``, a study of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from isthmus.papers import load_paper
from isthmus.papers.engine.drawing import by_shape, fronts, over, ratios
from isthmus.papers.engine.protocol import Exhibit, Exhibits, Findings, Judgement, Part, Scale, tests_of
from isthmus.papers.hourglass import claims, figures, protocols, transformers
from isthmus.papers.hourglass import transformer_claims as vit_claims
from isthmus.papers.hourglass import transformer_values as vit_values
from isthmus.papers.hourglass.ranks import effective_ranks

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

SHARED = {f"F{number}": (f"Figure {number}", "F10_F13") for number in (10, 11, 12, 13)}

_exhibit = Exhibits(PAPER, TESTS, STATEMENTS, SHARED)


def _mlps(name: str, *tests: str, draw: Callable[[Findings], Figure] = fronts) -> Exhibit:
    """An exhibit of one or two studies of MLPs."""
    return _exhibit(name, lambda scale: [study(scale) for study in STUDIES[name]], *tests, draw=draw)


def _curves(name: str, parts: Callable[[Scale], Sequence[Part]], test: str) -> Exhibit:
    return _exhibit(name, parts, test, draw=vit_values.draw_curves, analyse=vit_values.curves)


STUDIES: dict[str, tuple[Callable[[Scale], Part], ...]] = {
    "T6": (protocols.imagenet224_denoise,),
    "T7": (protocols.imagenet224_super_resolution,),
    "T8": (protocols.imagenet32_denoise,),
    "T9": (protocols.imagenet32_super_resolution,),
    "F3": (protocols.imagenet224_denoise, protocols.imagenet224_super_resolution),
    "F6": (protocols.mnist_generative_classification,),
    "F7": (protocols.mnist_denoise, protocols.imagenet32_denoise),
    "F8": (protocols.mnist_super_resolution, protocols.imagenet32_super_resolution),
    "F9": (protocols.ablation,),
}
_params = over(lambda network: network.params, "parameters", by_shape)

TABLES = {
    "T1": _exhibit(
        "T1", lambda scale: [protocols.ranks(scale)], "C5", "C6", draw=figures.ranks, analyse=effective_ranks
    ),
    "T2": _exhibit("T2", lambda scale: [], "2.T", "2.L", draw=ratios, analyse=vit_values.costs),
    "T3": _exhibit("T3", transformers.table_3, "3.3.1", "C7", "C8", draw=_params),
    "T4": _exhibit("T4", transformers.table_4, "C9", "C10", draw=_params),
    "T6": _mlps("T6", "C1", "C3", "C11"),
    "T7": _mlps("T7", "C2", "C3", "C11"),
    "T8": _mlps("T8", "C3", "C11", "C12", "C13"),
    "T9": _mlps("T9", "C3", "C11", "C12", "C13"),
    "F3": _mlps("F3", "C1", "C2", "C3", "C11"),
    "F4": _exhibit("F4", protocols.fixed_input, "C4", "C.2", draw=figures.fixed_input),
    "F6": _mlps("F6", "C.2.1"),
    "F7": _mlps("F7", "C3", "C11", "C13"),
    "F8": _mlps("F8", "C3", "C11", "C13"),
    "F9": _mlps("F9", "C12", draw=figures.sweeps),
    "F10": _curves("F10", lambda scale: transformers.curves_of("tiny", scale), "E.1"),
    "F11": _curves("F11", lambda scale: transformers.curves_of("small", scale), "E.1"),
    "F12": _curves("F12", lambda scale: transformers.curves_of("large", scale), "E.1"),
    "F13": _curves("F13", transformers.hourglasses, "E.2"),
    "S4": Exhibit(
        "Section 4",
        "Both shapes with every norm, activation and initialisation.",
        lambda scale: [protocols.norm_activation_init(scale)],
        tests_of(PAPER, ("S4",), TESTS, STATEMENTS),
        figures.settings,
    ),
}
