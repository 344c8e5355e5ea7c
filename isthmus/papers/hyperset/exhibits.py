"""The tables and figures of the Hyper-SET paper that can be reproduced, and ``S4``, ablations of ours."""

from __future__ import annotations

from functools import partial

from isthmus.papers.engine.exhibit import Exhibits, by_id
from isthmus.papers.hyperset import claims, figures, masked, measurements, studies

_exhibit = Exhibits("hyperset", {f"F{number}": (f"Figure {number}", "F9_F12") for number in (9, 10, 11, 12)})
_iterations = partial(_exhibit, analyse=measurements.over_iterations)
_tokens = partial(_exhibit, analyse=measurements.tokens)
_boards = partial(_tokens, parts=studies.sudoku_tokens)
_images = partial(_tokens, parts=studies.image_tokens)
_both = partial(_tokens, parts=studies.both_tokens)
_masked = partial(_exhibit, parts=masked.parts, first=masked.tokenizers)
_pictures = partial(_masked, draw=masked.pictures, analyse=masked.restore_images("T2"))
_ranks, _angles = (partial(figures.over_heads, name) for name in ("effective_rank", "angle"))
_energies = partial(figures.over_seeds, ("attention_energy", "feed_forward_energy"))
_ranks_and_angles = partial(figures.over_seeds, ("effective_rank", "full_rank", "angle"), first_head=True)

TABLES = by_id(
    _iterations(
        "T1", claims.c5, claims.c6, claims.c7, claims.matched_crate, parts=studies.data_sets, draw=figures.one_layer
    ),
    *(
        _masked(
            table, masked.c8(table), *([masked.c9] if table == "T2" else []), draw=masked.quality,
            analyse=masked.restore_images(table),
        )
        for table in masked.SHARES
    ),
    _boards("F1", claims.c4, draw=figures.sphere),
    _iterations("F3", claims.c1, claims.c2, parts=studies.extrapolation, draw=figures.extrapolation),
    _both("F4", claims.c3, draw=_energies),
    _both("F5", claims.c4, draw=_ranks_and_angles),
    _exhibit("F6", claims.c10, parts=studies.splits, draw=figures.layers),
    _pictures("F7", masked.c8("T2"), masked.c9),
    _boards("F9", claims.c4, draw=_ranks),
    _boards("F10", claims.c4, draw=_angles),
    _images("F11", claims.c4, draw=_ranks),
    _images("F12", claims.c4, draw=_angles),
    _pictures("F13", masked.c8("T2"), masked.c9),
    _exhibit(
        "S4", claims.x0_leads, claims.time_layers_help, claims.zero_last_leads, claims.c11, parts=studies.ablations,
        draw=figures.ablations, analyse=measurements.boards_and_cells, printed_as="Section 4.3",
        shows="Hyper-SET with other step sizes, another start of them, and other positions.",
    ),
)  # fmt: skip
