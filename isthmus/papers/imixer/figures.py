"""The figures of the fixed-point iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.papers.engine.drawing import finish, page, style
from isthmus.papers.engine.protocol import Findings

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


def norms(findings: Findings) -> Figure:
    """Figure 5."""
    return _by_block(findings.analysis["convergence"], "norms")


def cosines(findings: Findings) -> Figure:
    """Figure 6."""
    return _by_block(findings.analysis["convergence"], "cosines")


def _by_block(found: dict[str, Any], name: str) -> Figure:
    blocks = len(next(iter(found.values()))[name])
    columns = min(4, blocks)
    figure, axes = page(-(-blocks // columns), columns, width=4)
    for block, axis in enumerate(axis for row in axes for axis in row):
        if block < blocks:
            _curves(axis, found, block, name)
        else:
            axis.axis("off")
    return figure


def _curves(axis: Axes, found: dict[str, Any], block: int, name: str) -> None:
    """A line for each trained n, with the range of its seeds; the dot is the last iteration of its training."""
    for place, (n, lines) in enumerate(sorted(found.items(), key=lambda entry: int(entry[0]))):
        runs = lines[name][block]
        mean = [sum(values) / len(values) for values in zip(*runs, strict=True)]
        look = {"color": style(place)["color"]}
        axis.plot(range(len(mean)), mean, label=f"trained with n = {n}", **look)
        low, high = ([pick(values) for values in zip(*runs, strict=True)] for pick in (min, max))
        axis.fill_between(range(len(mean)), low, high, alpha=0.15, **look)
        last = min(int(n), len(mean)) - 1
        axis.plot([last], [mean[last]], linestyle="none", **style(place))
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
