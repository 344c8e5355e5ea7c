"""The tables and figures of the iMixer paper that can be measured again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isthmus.papers import load_paper
from isthmus.papers.engine.drawing import by_shape, over
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.protocol import Exhibits, Findings, Judgement
from isthmus.papers.imixer import claims, figures, fixed_points, protocols

PAPER = load_paper("imixer")
TESTS: dict[str, Callable[[Findings], Judgement]] = {
    "C1": claims.c1, "C2": claims.c2, "C3": claims.c3, "C4": claims.c4, "C5": claims.c5, "C6": claims.c6,
    "C7": claims.c7, "C8": claims.c8, "C9": claims.c9, "C.3": claims.middle,
}  # fmt: skip
STATEMENTS = {
    "C.3": "The iteration converges faster in the middle blocks than in the first and the last (appendix C.3)."
}
SHARED = {f"F{number}": (f"Figure {number}", "F3") for number in (3, 5, 6)}

_exhibit = Exhibits(PAPER, TESTS, STATEMENTS, SHARED)


def _steps(network: Network) -> float:
    return float(network.model["iterations"])


def _by(field: str, title: str) -> Callable[[Sequence[Network]], dict[str, list[Network]]]:
    def groups(networks: Sequence[Network]) -> dict[str, list[Network]]:
        values = sorted({network.model[field] for network in networks}, key=str)
        return {f"{title} {value}": [n for n in networks if n.model[field] == value] for value in values}

    return groups


_params = over(lambda network: network.params, "parameters", by_shape)

TABLES = {
    "T1": _exhibit("T1", protocols.sizes, "C1", "C2", draw=_params),
    "T2": _exhibit("T2", protocols.search, "C3", "C4", draw=over(_steps, "n", _by("h_r", "h_r"), log=2)),
    "T3": _exhibit("T3", protocols.norms, "C5", "C6", draw=over(_steps, "n", _by("norm", "norm"), log=2)),
    "T4": _exhibit("T4", protocols.data_sets, "C7", "C8", draw=_params),
    "F3": _exhibit("F3", protocols.iterations, "C9", draw=figures.first_block, analyse=fixed_points.convergence),
    "F5": _exhibit("F5", protocols.iterations, "C9", "C.3", draw=figures.norms, analyse=fixed_points.convergence),
    "F6": _exhibit("F6", protocols.iterations, "C9", "C.3", draw=figures.cosines, analyse=fixed_points.convergence),
    "F7": _exhibit("F7", protocols.feature_maps, draw=figures.feature_maps, analyse=fixed_points.maps),
}
