"""The tables and figures of the iMixer paper that can be reproduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import Exhibits
from isthmus.papers.engine.figures import by_shape, plot_over
from isthmus.papers.engine.networks import Network
from isthmus.papers.imixer import claims, figures, measurements, studies

_exhibit = Exhibits(load_paper("imixer"), {f"F{number}": (f"Figure {number}", "F3") for number in (3, 5, 6)})


def _by(field: str, title: str) -> Callable[[Sequence[Network]], dict[str, list[Network]]]:
    def groups(networks: Sequence[Network]) -> dict[str, list[Network]]:
        values = sorted({network.model[field] for network in networks}, key=str)
        return {f"{title} {value}": [n for n in networks if n.model[field] == value] for value in values}

    return groups


_params = plot_over(lambda network: network.params, "parameters", by_shape)
_over_n = partial(plot_over, lambda network: float(network.model["iterations"]), "n", log=2)
_c9, _middle, _convergence = claims.c9, claims.middle, measurements.convergence

TABLES = {
    exhibit.id: exhibit
    for exhibit in (
        _exhibit("T1", studies.sizes, claims.c1, claims.c2, draw=_params),
        _exhibit("T2", studies.search, claims.c3, claims.c4, draw=_over_n(groups=_by("h_r", "h_r"))),
        _exhibit("T3", studies.norms, claims.c5, claims.c6, draw=_over_n(groups=_by("norm", "norm"))),
        _exhibit("T4", studies.data_sets, claims.c7, claims.c8, draw=_params),
        _exhibit("F3", studies.iterations, _c9, draw=figures.first_block, analyse=_convergence),
        _exhibit("F5", studies.iterations, _c9, _middle, draw=figures.norms, analyse=_convergence),
        _exhibit("F6", studies.iterations, _c9, _middle, draw=figures.cosines, analyse=_convergence),
        _exhibit("F7", studies.feature_maps, draw=figures.feature_maps, analyse=measurements.maps),
    )
}
