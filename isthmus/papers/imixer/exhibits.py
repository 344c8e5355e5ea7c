"""The tables and figures of the iMixer paper that can be reproduced."""

from __future__ import annotations

from functools import partial

from isthmus.papers.engine.exhibit import Exhibits, by_id
from isthmus.papers.engine.figures import by_field, over_parameters, plot_over
from isthmus.papers.imixer import claims, convergence, studies

_exhibit = Exhibits("imixer", {f"F{number}": (f"Figure {number}", "F3") for number in (3, 5, 6)})
_over_n = partial(plot_over, lambda network: float(network.model["iterations"]), "n", log=2)
_convergence = partial(_exhibit, parts=studies.iterations, analyse=convergence.measure)

TABLES = by_id(
    _exhibit("T1", claims.c1, claims.c2, parts=studies.sizes, draw=over_parameters),
    _exhibit("T2", claims.c3, claims.c4, parts=studies.search, draw=_over_n(by_field("h_r"))),
    _exhibit("T3", claims.c5, claims.c6, parts=studies.norms, draw=_over_n(by_field("norm"))),
    _exhibit("T4", claims.c7, claims.c8, parts=studies.data_sets, draw=over_parameters),
    _convergence("F3", claims.c9, draw=convergence.first_block),
    _convergence("F5", claims.c9, claims.middle, draw=partial(convergence.by_block, "norms")),
    _convergence("F6", claims.c9, claims.middle, draw=partial(convergence.by_block, "cosines")),
    _exhibit("F7", parts=studies.feature_maps, draw=convergence.draw_maps, analyse=convergence.measure_maps),
)
