"""Figures in the style of the reports, written atomically as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.files import write_with
from isthmus.reports.axes import INK, style_axis
from isthmus.reports.plots import COLOURS, SYMBOLS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

DASHED: dict[str, Any] = {"color": "#5b5b5b", "linewidth": 0.9, "linestyle": (0, (3, 3))}


def page(
    rows: int, columns: int, width: float = 4.6, height: float = 3.8, **look: Any
) -> tuple[Figure, list[list[Axes]]]:
    # pyplot would keep global state and look for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False, subplot_kw=look)]


def style(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % len(COLOURS)][0], "marker": SYMBOLS[place % len(SYMBOLS)][1]}


def finish(axis: Axes, title: str, x: str, y: str) -> None:
    """Titles, grid and legend of an axis with curves or points."""
    axis.set_title(title, loc="left", fontsize=10, color=INK)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    style_axis(axis)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=8)


def matrix(axis: Axes, values: Sequence[Sequence[float]], title: str, **look: Any) -> AxesImage:
    """A matrix as a picture without ticks, its first row at the top."""
    image = axis.imshow(values, **{"cmap": "viridis", "interpolation": "nearest"} | look)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, loc="left", fontsize=10, color=INK)
    return image


def save(figure: Figure, path: Path) -> Path:
    write_with(path, lambda temporary: figure.savefig(temporary, format="png", dpi=150))
    return path
