"""The figures drawn by Matplotlib, for PNG files and notebooks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isthmus.reports.axes import INK, fit_costs, labelled_digits, style_axis
from isthmus.reports.figures import (
    CurvesFigure,
    FrontFigure,
    GapFigure,
    answer_figure,
    curve_figures,
    front_figure,
    gap_figure,
)
from isthmus.reports.measures import measure
from isthmus.reports.plots import COLOURS, SYMBOLS
from isthmus.reports.sections import Section, cut_middle

_LONGEST_TITLE = 84
_DPI = 160


class Picture(Figure):
    """A Matplotlib figure that a notebook shows even if pyplot, which keeps global state, was never imported."""

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png", dpi=_DPI // 2)
        return image.getvalue()


def draw_front(sections: Sequence[Section], cost: str | None = None) -> Picture:
    """Every section's fronts, one below the other (default: over its first cost)."""
    figure, axes = _matplotlib_page(len(sections), columns=1)
    for section, (axis,) in zip(sections, axes, strict=True):
        if section.candidates:
            _matplotlib_front(axis, front_figure(section, cost or section.costs[0]))
        _finish(axis, section.name)
    return figure


def draw_answer(answer: Mapping[str, Any], title: str) -> Picture:
    """The networks of a search by their size, the front, and the references as lines."""
    figure, ((axis,),) = _matplotlib_page(1, columns=1)
    _matplotlib_front(axis, answer_figure(answer))
    _finish(axis, title)
    return figure


def has_gap(sections: Iterable[Section]) -> bool:
    return any(_gap(section) for section in sections)


def draw_gap(sections: Sequence[Section]) -> Picture:
    """The gap at equal parameters of every section with overlapping fronts, one below the other."""
    shown = [(section, content) for section in sections if (content := _gap(section))]
    figure, axes = _matplotlib_page(len(shown), columns=1)
    for (section, content), (axis,) in zip(shown, axes, strict=True):
        _matplotlib_gap(axis, content)
        _finish(axis, section.name)
    return figure


def _gap(section: Section) -> GapFigure | None:
    measures = measure(section)
    return gap_figure(measures) if measures else None


def draw_curves(sections: Sequence[Section]) -> Picture:
    """A row per section: validation objective and training loss."""
    figure, axes = _matplotlib_page(len(sections), columns=2)
    for section, row in zip(sections, axes, strict=True):
        for axis, content in zip(row, curve_figures(section, hidden=False), strict=True):
            _matplotlib_curves(axis, content)
            _finish(axis, section.name if axis is row[0] else "")
    return figure


def save(picture: Picture, path: Path) -> None:
    picture.savefig(path, format="png", dpi=_DPI)


def _matplotlib_page(rows: int, columns: int) -> tuple[Picture, list[list[Axes]]]:
    figure = Picture(figsize=(4 + 3.5 * columns, 4.4 * rows), layout="constrained")
    return figure, [
        [figure.add_subplot(rows, columns, row * columns + i + 1) for i in range(columns)] for row in range(rows)
    ]


def _matplotlib_front(axis: Axes, content: FrontFigure) -> None:
    low, high = content.range
    if content.band:
        sizes, lowest, highest = zip(*content.band, strict=True)
        label = "Expected, 95 % interval"
        axis.fill_between(
            sizes, lowest, highest, step="post", color=COLOURS[0][0], alpha=0.15, linewidth=0, label=label
        )
    for series in content.series:
        colour, marker = COLOURS[series.place % len(COLOURS)][0], SYMBOLS[series.place % len(SYMBOLS)][1]
        if series.refit:
            colour, marker = INK, "*"
        dashes = "dashed" if series.published else "solid"
        others = [point for point in series.points if not point.on_front and low <= point.y <= high]
        members = [point for point in series.points if point.on_front]
        axis.scatter(
            [p.x for p in others], [p.y for p in others], s=16, color=colour, marker=marker, alpha=0.35, linewidths=0,
            clip_on=False,
        )  # fmt: skip
        axis.step(
            [p.x for p in members], [p.y for p in members], where="post", color=colour, linewidth=1.6, linestyle=dashes
        )
        axis.errorbar(
            [p.x for p in members],
            [p.y for p in members],
            yerr=list(zip(*map(content.bars, members), strict=True)) or None,
            clip_on=False,
            fmt=marker,
            color=colour,
            markersize=10 if series.refit else 5.5,
            markerfacecolor="none" if series.published else colour,
            elinewidth=1,
            capsize=2.5,
            label=series.title,
        )
        inner = [point for point in members if point.is_int8]
        axis.scatter([p.x for p in inner], [p.y for p in inner], s=9, color="white", marker=marker, zorder=3)
    for _, y in content.lines:
        axis.axhline(y, color=INK, linewidth=0.8, linestyle="dotted")
    for text, place in content.labels:
        axis.text(1.01, place, text, transform=axis.transAxes, fontsize=7, va="center")
    _matplotlib_cost_axis(axis, content)
    axis.set_ylim(low, high)
    axis.set_ylabel(f"{content.y_title}, mean ± 1 σ of runs")


def _matplotlib_gap(axis: Axes, content: GapFigure) -> None:
    for place, series in enumerate(content.series):
        colour = COLOURS[place % len(COLOURS)][0]
        costs, values = [point.x for point in series.points], [point.y for point in series.points]
        for start, stop in pairwise(series.points):
            if start.interval:
                axis.fill_between([start.x, stop.x], *start.interval, color=colour, alpha=0.18, linewidth=0)
        axis.step(costs, values, where="post", color=colour, linewidth=1.6)
        axis.errorbar(costs[-1:], values[-1:], yerr=series.points[-1].half_width, color=colour, elinewidth=1)
        axis.plot(costs, values, "o", color=colour, markersize=3.5, label=f"{series.title}, 95 % interval")
    axis.axhline(0, color=INK, linewidth=0.8)
    _matplotlib_cost_axis(axis, content)
    axis.set_ylabel(content.y_title)


def _matplotlib_cost_axis(axis: Axes, content: FrontFigure | GapFigure) -> None:
    from matplotlib.ticker import AutoLocator, EngFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    axis.set_xlim(*fit_costs(content.costs))
    digits = labelled_digits(content.costs)
    axis.xaxis.set_major_locator(LogLocator(subs=digits, numticks=12) if digits else AutoLocator())
    axis.xaxis.set_major_formatter(EngFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel(content.x_title)


def _matplotlib_curves(axis: Axes, content: CurvesFigure) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    named: set[str] = set()
    for curve in sorted((curve for curve in content.curves if curve.shown), key=lambda curve: curve.place):
        colour, marker = COLOURS[curve.place % len(COLOURS)][0], SYMBOLS[curve.place % len(SYMBOLS)][1]
        label = curve.title if curve.title not in named else None
        named.add(curve.title)
        axis.plot(curve.x, curve.y, color=colour, alpha=0.8, linewidth=1.1, label=label)
        if curve.mark:
            axis.plot(*curve.mark, marker, color=colour, markersize=4)
    if content.logarithmic and content.curves:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    elif content.curves:
        axis.set_ylim(*content.range)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("Epoch")
    axis.set_ylabel(content.y_title)


def _finish(axis: Axes, title: str) -> None:
    # A name with two $ signs is no formula.
    axis.set_title(cut_middle(title, _LONGEST_TITLE), loc="left", fontsize=11, color=INK, parse_math=False)
    style_axis(axis)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False)
    else:
        axis.text(0.5, 0.5, "no finished run", transform=axis.transAxes, ha="center", color=INK)
