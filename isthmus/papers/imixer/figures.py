"""The figures of the fixed-point iteration."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from isthmus.analysis.pictures import finish, style
from isthmus.papers.engine.exhibit import Findings
from isthmus.papers.engine.figures import draw_band, draw_grid, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"norms": "‖x^{a+1} − x^a‖ / √(SC)", "cosines": "cos(x^{a+1}, x^a)"}


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


def feature_maps(findings: Findings) -> Figure:
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
