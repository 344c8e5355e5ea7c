"""How the iteration of trained iMixers converges, block by block (Figures 3, 5, 6), and its feature maps (Figure 7)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from isthmus.analysis.pictures import finish, style
from isthmus.papers.engine.exhibit import AnalysisInput, Findings, Quantity
from isthmus.papers.engine.figures import draw_band, draw_grid, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"norms": "‖x^{a+1} − x^a‖ / √(SC)", "cosines": "cos(x^{a+1}, x^a)"}
FAR = 1e6
"""Replaces a step that is not a number: an iteration that diverged has not converged."""


def measure(given: AnalysisInput) -> dict[str, Any]:
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


def measure_maps(given: AnalysisInput) -> dict[str, Any]:
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


def first_block(findings: Findings) -> Figure:
    """Figure 3."""
    figure, (axes,) = page(1, 2)
    for axis, name in zip(axes, TITLES, strict=True):
        _curves(axis, findings.analysis["convergence"], 0, name)
    return figure


def by_block(name: str, findings: Findings) -> Figure:
    """Figures 5 and 6."""
    found = findings.analysis["convergence"]
    blocks = len(next(iter(found.values()))[name])
    return draw_grid(blocks, lambda axis, block: _curves(axis, found, block, name), width=4)


def _curves(axis: Axes, found: dict[str, Any], block: int, name: str) -> None:
    """A line for each trained n, with the range of its seeds; the dot is the last iteration of its training."""
    for place, (n, lines) in enumerate(sorted(found.items(), key=lambda entry: int(entry[0]))):
        runs = lines[name][block]
        draw_band(axis, runs, f"trained with n = {n}", place)
        last = min(int(n), len(runs[0])) - 1
        axis.plot([last], [statistics.fmean(run[last] for run in runs)], linestyle="none", **style(place))
    if name == "norms":
        axis.set_yscale("log")
    finish(axis, f"block {block + 1}", "a", TITLES[name])


def draw_maps(findings: Findings) -> Figure:
    """Figure 7: a row for each channel, a column for each iterate, one scale of colours per channel."""
    found = findings.analysis["maps"]
    channels, iterates = found["channels"], found["iterates"]
    figure, axes = page(len(channels), len(iterates), width=1.6, height=1.7)
    for row, channel in enumerate(channels):
        pictures = [iterate[row] for iterate in iterates]
        largest = max(abs(value) for picture in pictures for line in picture for value in line) or 1.0
        for a, (axis, picture) in enumerate(zip(axes[row], pictures, strict=True)):
            axis.imshow(picture, cmap="RdBu_r", vmin=-largest, vmax=largest)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(f"a = {a}" if row == 0 else "", fontsize=9)
        axes[row][0].set_ylabel(f"channel {channel}", fontsize=8)
    return figure
