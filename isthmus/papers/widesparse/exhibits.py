"""The tables and figures of the wide-and-sparse paper that can be measured again."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.papers import load_paper
from isthmus.papers.engine.drawing import by_shape, over, ratios
from isthmus.papers.engine.protocol import Exhibits, Findings, Judgement, Part, Scale
from isthmus.papers.widesparse import claims, figures, protocols, supplement, values

PAPER = load_paper("widesparse")
TESTS: dict[str, Callable[[Findings], Judgement]] = {
    "C1": claims.c1, "C2": claims.c2, "C3": claims.c3, "C4": claims.c4, "C5": claims.c5, "C6": claims.c6,
    "C7": claims.c7, "C8": claims.c8, "C9": claims.c9, "C10": claims.c10, "C11": claims.c11, "C12": claims.c12,
    "C13": claims.c13, "4.1": claims.widest, "D.1": claims.sparser, "D.1b": claims.largest_value, "D.2": claims.wider,
    "D.6": claims.best_patch, "D.7": claims.surpasses, "TS1": claims.listed, "TS2": claims.listed,
}  # fmt: skip
STATEMENTS = {
    "4.1": "With the connections held fixed, the width is largest and the density smallest where C = S (eq. 15).",
    "D.1": "An SW-MLP that is too sparse learns worse, though it is wider (appendix D.1).",
    "D.1b": "The sparser a random weight of the same connections is, the larger its largest singular value (D.1).",
    "D.2": "Accuracy grows with the width also with γ = 4, for normal and RP Mixers and for SW-MLP (appendix D.2).",
    "D.6": "On CIFAR the best patches have 4 pixels, C0 = 48 (appendix D.6).",
    "D.7": "With AdamW and C = S the RP Mixer passes the normal one (appendix D.7).",
    "TS1": "The models built here have the components that Table S.1 ticks (our question).",
    "TS2": "Figure 6 is trained here, at the paper's scale, as Table S.2 says (our question).",
}

SHARED = {"T1": ("Table 1", "T1a")} | {f"FS{number}": (f"Figure S.{number}", "FS6_FS8") for number in (6, 7, 8)}

_exhibit = Exhibits(PAPER, TESTS, STATEMENTS, SHARED)


def _no_parts(scale: Scale) -> list[Part]:
    return []


_ratio = over(lambda network: network.model["C"] / network.model["S"], "C/S", figures.families, log=10)
_depth = over(lambda network: float(network.model["depth"]), "blocks", by_shape)
_width = over(lambda network: float(claims.width(network)), "effective width m", figures.families, log=10)
_patch = over(lambda network: 3.0 * network.model["patch"] ** 2, "C0", by_shape, log=10)
_connections = over(lambda network: network.params, "parameters", by_shape, log=10)

TABLES = {
    "T1": _exhibit("T1", protocols.table_1, "C1", "C2", draw=_connections),
    "TS1": _exhibit("TS1", _no_parts, "TS1", draw=figures.table, analyse=values.components),
    "TS2": _exhibit("TS2", _no_parts, "TS2", draw=figures.table, analyse=values.settings),
    "TS3": _exhibit("TS3", _no_parts, "C11", draw=ratios, analyse=values.costs),
    "F2": _exhibit("F2", protocols.similarity, "C8", "C9", draw=figures.similarity, analyse=values.similarities),
    "F3": _exhibit("F3", _no_parts, "4.1", draw=figures.shape_curves, analyse=values.shape_curves),
    "F4": _exhibit("F4", protocols.width, "C3", "C4", draw=figures.widths, analyse=values.widths),
    "F5": _exhibit("F5", protocols.effective_width, "C5", draw=_width),
    "F6": _exhibit("F6", protocols.ratio, "C6", draw=_ratio),
    "F7": _exhibit("F7", protocols.depth, "C7", draw=_depth),
    "FS1": _exhibit("FS1", supplement.density, "D.1", "D.1b", draw=figures.densities, analyse=values.exponents),
    "FS2": _exhibit("FS2", supplement.expanded, "D.2", draw=_width),
    "FS3": _exhibit("FS3", supplement.expansion, "C10", draw=figures.expansions),
    "FS4": _exhibit("FS4", supplement.replacement, "C12", draw=figures.replaced),
    "FS5": _exhibit("FS5", supplement.patches, "D.6", draw=_patch),
    "FS6": _exhibit("FS6", supplement.overfitting, "C13", draw=figures.losses, analyse=values.curves),
    "FS7": _exhibit("FS7", supplement.overfitting_mlp, "C13", draw=figures.losses, analyse=values.curves),
    "FS8": _exhibit("FS8", supplement.adamw, "D.7", draw=figures.losses, analyse=values.curves),
    "FS9": _exhibit("FS9", _no_parts, draw=figures.pictures, analyse=values.pictures),
}
