"""The tables and figures of the Hourglass paper that can be reproduced, and ``S4``, a study of ours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import ClaimTest, Exhibit, Exhibits, Findings, Part, Scale, no_parts
from isthmus.papers.engine.figures import by_shape, fronts, plot_over, ratios
from isthmus.papers.hourglass import claims, figures, measurements, studies, vit_claims, vit_measurements, vit_studies

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_exhibit = Exhibits(
    load_paper("hourglass"), {f"F{number}": (f"Figure {number}", "F10_F13") for number in (10, 11, 12, 13)}
)
_t6, _t7, _t8, _t9 = (partial(studies.colour, table) for table in studies.COLOUR)
_c3, _c11, _c12, _c13 = claims.c3, claims.c11, claims.c12, claims.c13
_params = plot_over(lambda network: network.params, "parameters", by_shape)
_curves = partial(_exhibit, draw=vit_measurements.draw_curves, analyse=vit_measurements.curves)


def _mlps(
    name: str, *studies: Callable[[Scale], Part], tests: tuple[ClaimTest, ...],
    draw: Callable[[Findings], Figure] = fronts,
) -> Exhibit:  # fmt: skip
    """An exhibit of one or two studies of MLPs."""
    return _exhibit(name, lambda scale: [study(scale) for study in studies], *tests, draw=draw)


TABLES = {
    exhibit.id: exhibit
    for exhibit in (
        _exhibit(
            "T1", lambda scale: [studies.ranks(scale)], claims.c5, claims.c6, draw=figures.ranks,
            analyse=measurements.effective_ranks,
        ),
        _exhibit(
            "T2", no_parts, vit_claims.cheaper, vit_claims.not_slower, draw=ratios, analyse=vit_measurements.costs
        ),
        _exhibit("T3", vit_studies.table_3, vit_claims.tiny_leads, vit_claims.c7, vit_claims.c8, draw=_params),
        _exhibit("T4", vit_studies.table_4, vit_claims.c9, vit_claims.c10, draw=_params),
        _mlps("T6", _t6, tests=(claims.c1, _c3, _c11)),
        _mlps("T7", _t7, tests=(claims.c2, _c3, _c11)),
        _mlps("T8", _t8, tests=(_c3, _c11, _c12, _c13)),
        _mlps("T9", _t9, tests=(_c3, _c11, _c12, _c13)),
        _mlps("F3", _t6, _t7, tests=(claims.c1, claims.c2, _c3, _c11)),
        _exhibit("F4", studies.fixed_input, claims.c4, claims.conventional_gains, draw=figures.fixed_input),
        _mlps("F6", partial(studies.mnist, "generative_classification"), tests=(claims.generative_front,)),
        _mlps("F7", partial(studies.mnist, "denoise"), _t8, tests=(_c3, _c11, _c13)),
        _mlps("F8", partial(studies.mnist, "super_resolution"), _t9, tests=(_c3, _c11, _c13)),
        _mlps("F9", studies.ablation, tests=(_c12,), draw=figures.sweeps),
        _curves("F10", partial(vit_studies.curves_of, "tiny"), vit_claims.faster),
        _curves("F11", partial(vit_studies.curves_of, "small"), vit_claims.faster),
        _curves("F12", partial(vit_studies.curves_of, "large"), vit_claims.faster),
        _curves("F13", vit_studies.hourglasses, vit_claims.sooner),
        Exhibit(
            "S4", "Section 4", "Both shapes with every norm, activation and initialisation.",
            lambda scale: [studies.norm_activation_init(scale)], {"S4": claims.s4}, figures.settings,
        ),
    )
}  # fmt: skip
