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
    for network, folders in sorted(item.runs(), key=lambda pair: pair[0].model["iterations"]):
        n = int(network.model["iterations"])
        runs = [of_run(folder, given.data_dir) for folder in folders]
        lines = {name: _by_block([run[name] for run in runs]) for name in ("norms", "cosines")}
        found[str(n)] = {**lines, "row": network.id}
        remaining[str(n)] = [[_share(steps, n) for steps in block] for block in lines["norms"]]
    return {
        "convergence": found,
        "remaining": {n: blocks[0] for n, blocks in remaining.items()},
        "remaining_by_block": remaining,
        "quantities": [
            Quantity(
                f"n {n}, block {number}", "step after n iterations, as a share of the first", None,
                statistics.fmean(block), "", f"cosine there {_cosine(found[n], number - 1, int(n)):.4f}",
            )
            for n, blocks in remaining.items()
            for number, block in enumerate(blocks, start=1)
        ],
        "differences": ["the paper plots these curves and prints no values; all runs are iterated eight times here"],
    }  # fmt: skip


def _by_block(runs: Sequence[Sequence[Sequence[Sequence[float | None]]]]) -> list[list[list[float]]]:
    """``[run][block][a][row]`` as ``[block][run][a]``, in the mean over rows."""
    return [[[_mean(rows) for rows in run[block]] for run in runs] for block in range(len(runs[0]))]


def _mean(rows: Sequence[float | None]) -> float:
    known = [value for value in rows if value is not None]
    return statistics.fmean(known) if len(known) == len(rows) else FAR


def _share(steps: Sequence[float], n: int) -> float:
    return min(FAR, steps[min(n, len(steps) - 1)] / max(steps[0], math.ulp(1.0)))


def _cosine(lines: dict[str, Any], block: int, n: int) -> float:
    return statistics.fmean(run[min(n, len(run) - 1)] for run in lines["cosines"][block])


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
