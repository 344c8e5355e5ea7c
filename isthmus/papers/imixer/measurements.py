"""How the iteration of trained iMixers converges, block by block (Figures 3, 5, 6), and its feature maps (Figure 7)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from isthmus.papers.engine.exhibit import AnalysisInput, Quantity

FAR = 1e6
"""Replaces a step that is not a number: an iteration that diverged has not converged."""


def convergence(given: AnalysisInput) -> dict[str, Any]:
    """The mean over 16 test images for every run: ``norms[block][run][a]``, likewise ``cosines``, by the trained n.

    ``remaining_by_block[n][block][run]`` is the step after n iterations as a share of the first.
    """
    from isthmus.analysis.fixed_point import of_run

    (item,) = given.parts
    found: dict[str, Any] = {}
    remaining: dict[str, list[list[float]]] = {}
    quantities = []
    for network, folders in sorted(item.runs(), key=lambda pair: pair[0].model["iterations"]):
        n = int(network.model["iterations"])
        runs = [of_run(folder, given.data_dir) for folder in folders]
        norms, cosines = (
            [[[_mean(rows) for rows in run[name][block]] for run in runs] for block in range(len(runs[0][name]))]
            for name in ("norms", "cosines")
        )
        found[str(n)] = {"norms": norms, "cosines": cosines, "row": network.id}
        last = min(n, len(norms[0][0]) - 1)
        remaining[str(n)] = [[min(FAR, run[last] / max(run[0], math.ulp(1.0))) for run in block] for block in norms]
        for number, (block, curves) in enumerate(zip(remaining[str(n)], cosines, strict=True), start=1):
            note = f"cosine there {statistics.fmean(run[min(n, len(run) - 1)] for run in curves):.4f}"
            what = "step after n iterations, as a share of the first"
            quantities.append(Quantity(f"n {n}, block {number}", what, None, statistics.fmean(block), "", note))
    return {
        "convergence": found,
        "remaining": {n: blocks[0] for n, blocks in remaining.items()},
        "remaining_by_block": remaining,
        "quantities": quantities,
        "differences": ["the paper plots these curves and prints no values; all runs are iterated eight times here"],
    }


def _mean(rows: Sequence[float | None]) -> float:
    known = [value for value in rows if value is not None]
    return statistics.fmean(known) if len(known) == len(rows) else FAR


def maps(given: AnalysisInput) -> dict[str, Any]:
    """Figure 7, for the first seed."""
    from isthmus.analysis.fixed_point import of_run

    (item,) = given.parts
    ((_, folders),) = item.runs()
    found = of_run(folders[0], given.data_dir)
    return {
        "maps": {"channels": found["channels"], "iterates": found["maps"]},
        "differences": [
            "what the paper calls the output of an iteration is not said; here: what the last block would add to the "
            "stream if it stopped there, in the channels that change most"
        ],
    }
