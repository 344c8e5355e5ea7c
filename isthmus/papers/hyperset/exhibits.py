"""The tables and figures of the Hyper-SET paper that can be reproduced, and ``S4``, ablations of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import Exhibit, Exhibits, Findings
from isthmus.papers.hyperset import claims, figures, masked, measurements, studies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_exhibit = Exhibits(
    load_paper("hyperset"), {f"F{number}": (f"Figure {number}", "F9_F12") for number in (9, 10, 11, 12)}
)
_tokens = partial(_exhibit, analyse=measurements.tokens)
_over_iterations = measurements.over_iterations


def _masked_exhibit(name: str, table: str, draw: Callable[[Findings], Figure]) -> Exhibit:
    """A table of masked images, or pictures beside one."""
    tests = (masked.c8(table), masked.c9) if table == "T2" else (masked.c8(table),)
    restore = masked.restore_images(table)
    return _exhibit(name, masked.parts, *tests, draw=draw, analyse=restore, first=masked.tokenizers)


TABLES = {
    exhibit.id: exhibit
    for exhibit in (
        _exhibit(
            "T1", studies.data_sets, claims.c5, claims.c6, claims.c7, claims.matched_crate, draw=figures.one_layer,
            analyse=_over_iterations,
        ),
        *(_masked_exhibit(name, name, masked.quality) for name in masked.SHARES),
        _tokens("F1", studies.sudoku_tokens, claims.c4, draw=figures.sphere),
        _exhibit(
            "F3", studies.extrapolation, claims.c1, claims.c2, draw=figures.extrapolation, analyse=_over_iterations
        ),
        _tokens("F4", studies.both_tokens, claims.c3, draw=figures.energies),
        _tokens("F5", studies.both_tokens, claims.c4, draw=figures.ranks_and_angles),
        _exhibit("F6", studies.splits, claims.c10, draw=figures.layers),
        _masked_exhibit("F7", "T2", masked.pictures),
        _tokens("F9", studies.sudoku_tokens, claims.c4, draw=figures.ranks_of_heads),
        _tokens("F10", studies.sudoku_tokens, claims.c4, draw=figures.angles_of_heads),
        _tokens("F11", studies.image_tokens, claims.c4, draw=figures.ranks_of_heads),
        _tokens("F12", studies.image_tokens, claims.c4, draw=figures.angles_of_heads),
        _masked_exhibit("F13", "T2", masked.pictures),
        Exhibit(
            "S4", "Section 4.3", "Hyper-SET with other step sizes, another start of them, and other positions.",
            studies.ablations,
            {test.id: test for test in (claims.conditioning, claims.time_network, claims.start, claims.c11)},
            figures.ablations, measurements.boards_and_cells,
        ),
    )
}  # fmt: skip
