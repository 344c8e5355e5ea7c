"""The tables and figures of the Hourglass paper that can be reproduced, and ``S4``, a study of ours."""

from __future__ import annotations

from functools import partial

from isthmus.papers.engine.exhibit import Exhibits, by_id
from isthmus.papers.engine.figures import fronts, over_parameters, ratios
from isthmus.papers.hourglass import claims, figures, measurements, studies, vit

_exhibit = Exhibits("hourglass", {f"F{number}": (f"Figure {number}", "F10_F13") for number in (10, 11, 12, 13)})
_fronts = partial(_exhibit, draw=fronts)
_accuracies = partial(_exhibit, draw=over_parameters)
_curves = partial(_exhibit, draw=figures.curves, analyse=measurements.curves)
_t6, _t7, _t8, _t9 = (partial(studies.colour, table) for table in studies.COLOUR)

TABLES = by_id(
    _exhibit("T1", claims.c5, claims.c6, parts=studies.ranks, draw=figures.ranks, analyse=measurements.effective_ranks),
    _exhibit("T2", vit.cheaper, vit.not_slower, draw=ratios, analyse=measurements.costs),
    _accuracies("T3", vit.tiny_leads, vit.c7, vit.c8, parts=vit.table_3),
    _accuracies("T4", vit.c9, vit.c10, parts=vit.table_4),
    _fronts("T6", claims.c1, claims.c3, claims.c11, parts=_t6),
    _fronts("T7", claims.c2, claims.c3, claims.c11, parts=_t7),
    _fronts("T8", claims.c3, claims.c11, claims.c12, claims.c13, parts=_t8),
    _fronts("T9", claims.c3, claims.c11, claims.c12, claims.c13, parts=_t9),
    _fronts("F3", claims.c1, claims.c2, claims.c3, claims.c11, parts=lambda scale: [*_t6(scale), *_t7(scale)]),
    _exhibit("F4", claims.c4, claims.conventional_gains, parts=studies.fixed_input, draw=figures.fixed_input),
    _fronts("F6", claims.generative_front, parts=partial(studies.mnist, "generative_classification")),
    _fronts(
        "F7", claims.c3, claims.c11, claims.c13, parts=lambda scale: [*studies.mnist("denoise", scale), *_t8(scale)]
    ),
    _fronts(
        "F8", claims.c3, claims.c11, claims.c13,
        parts=lambda scale: [*studies.mnist("super_resolution", scale), *_t9(scale)],
    ),
    _exhibit("F9", claims.c12, parts=studies.ablation, draw=figures.sweeps),
    *(
        _curves(name, vit.faster, parts=partial(vit.curves_of, size))
        for name, size in zip(("F10", "F11", "F12"), vit.SIZES, strict=True)
    ),
    _curves("F13", vit.sooner, parts=vit.hourglasses),
    _exhibit(
        "SC2", claims.c11, parts=studies.searched_shapes, draw=fronts, printed_as="Appendix C.2",
        shows="The shape of the best Hourglass as its budget grows.",
    ),
    _accuracies(
        "S4V", vit.stacked, vit.iterated, vit.latent, parts=vit.future_work, printed_as="Section 4, Transformers",
        shows="Stacked and iterated feed-forward blocks, and latent attention.",
    ),
    _exhibit(
        "S4", claims.s4, parts=studies.norm_activation_init, draw=figures.settings, printed_as="Section 4",
        shows="Both shapes with every norm, activation and initialisation.",
    ),
)  # fmt: skip
