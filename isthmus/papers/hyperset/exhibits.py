"""The tables and figures of the Hyper-SET paper that can be measured again, and ``S4``, ablations of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from isthmus.papers import load_paper
from isthmus.papers.engine.protocol import Exhibit, Exhibits, Findings, Judgement, tests_of
from isthmus.papers.hyperset import claims, dynamics, figures, masked, protocols

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = load_paper("hyperset")
TESTS: dict[str, Callable[[Findings], Judgement]] = {
    "C1": claims.c1, "C2": claims.c2, "C3": claims.c3, "C4": claims.c4, "C5": claims.c5, "C6": claims.c6,
    "C7": claims.c7, "C9": masked.c9, "C10": claims.c10, "C11": claims.c11,
    "5.2a": claims.matched_crate, "4.3a": claims.conditioning, "4.3b": claims.time_network, "4.3c": claims.start,
}  # fmt: skip
STATEMENTS = {
    "5.2a": "With the Transformer's parameters, Hyper-SET is ahead of CRATE with as many (our question; section 5.2).",
    "4.3a": "Step sizes that are conditioned on x(0) fill in more cells than others (our question; section 4.3).",
    "4.3b": "The layers after the time embedding help (our question; appendix A.4 leaves them out for masked images).",
    "4.3c": "Only the last layer of the step network should start at zero (our question; section 4.3).",
}
SHARED = {f"F{number}": (f"Figure {number}", "F9_F12") for number in (9, 10, 11, 12)}

_exhibit = Exhibits(PAPER, TESTS, STATEMENTS, SHARED)


def _masked(name: str, table: str, draw: Callable[[Findings], Figure]) -> Exhibit:
    """A table of masked images, or pictures beside one."""
    exhibit = replace(_exhibit, judges={**TESTS, "C8": masked.c8(table)})
    tests = ("C8", "C9") if table == "T2" else ("C8",)
    restored = masked.restored(table)
    return exhibit(name, masked.parts, *tests, draw=draw, analyse=restored, first=masked.tokenizers)


TABLES = {
    "T1": _exhibit(
        "T1", protocols.data_sets, "C5", "C6", "C7", "5.2a", draw=figures.one_layer, analyse=dynamics.over_iterations
    ),
    **{name: _masked(name, name, masked.quality) for name in masked.SHARES},
    "F1": _exhibit("F1", protocols.sudoku_tokens, "C4", draw=figures.sphere, analyse=dynamics.tokens),
    "F3": _exhibit(
        "F3", protocols.extrapolation, "C1", "C2", draw=figures.extrapolation, analyse=dynamics.over_iterations
    ),
    "F4": _exhibit("F4", protocols.both_tokens, "C3", draw=figures.energies, analyse=dynamics.tokens),
    "F5": _exhibit("F5", protocols.both_tokens, "C4", draw=figures.ranks_and_angles, analyse=dynamics.tokens),
    "F6": _exhibit("F6", protocols.splits, "C10", draw=figures.layers),
    "F7": _masked("F7", "T2", masked.pictures),
    "F9": _exhibit("F9", protocols.sudoku_tokens, "C4", draw=figures.ranks_of_heads, analyse=dynamics.tokens),
    "F10": _exhibit("F10", protocols.sudoku_tokens, "C4", draw=figures.angles_of_heads, analyse=dynamics.tokens),
    "F11": _exhibit("F11", protocols.image_tokens, "C4", draw=figures.ranks_of_heads, analyse=dynamics.tokens),
    "F12": _exhibit("F12", protocols.image_tokens, "C4", draw=figures.angles_of_heads, analyse=dynamics.tokens),
    "F13": _masked("F13", "T2", masked.pictures),
    "S4": Exhibit(
        "Section 4.3",
        "Hyper-SET with other step sizes, another start of them, and other positions.",
        protocols.ablations,
        tests_of(PAPER, ("4.3a", "4.3b", "4.3c", "C11"), TESTS, STATEMENTS),
        figures.compared,
        dynamics.boards_and_cells,
    ),
}
