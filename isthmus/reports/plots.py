"""Draws the figures: Plotly JSON for the page, PNG by Matplotlib.

In the Plotly JSON, colours are names such as ``@shape-0``; the page replaces them according to its light or dark style.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.reports.figures import (
    Curve,
    CurvesFigure,
    FrontFigure,
    GapFigure,
    GapPoint,
    Series,
    curve_figures,
    front_figure,
    gap_figure,
)
from isthmus.reports.measures import measure
from isthmus.reports.sections import Section

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colour-blind-safe palette, for a light and a dark background.
COLOURS = (
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#f0a03c"),
    ("#007a5a", "#2fc49a"),
    ("#a8558a", "#dd9ec4"),
    ("#5b5b5b", "#b4b4b4"),
)
SYMBOLS = (("circle", "o"), ("square", "s"), ("diamond", "D"), ("triangle-up", "^"), ("x", "X"))
_INK, _RULE = "#22262b", "#dfe3e8"


def plotly_front(figure: FrontFigure) -> dict[str, Any]:
    """Fronts as steps with error bars, other candidates faint, published fronts dashed."""
    data: list[dict[str, Any]] = []
    for series in figure.series:
        data += [_plotly_points(series, on_front=False), _plotly_points(series, on_front=True)]
    layout = _plotly_layout(figure.x_title, figure.y_title, height=460)
    layout["xaxis"] |= _plotly_cost_axis(figure)
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def _plotly_cost_axis(figure: FrontFigure | GapFigure) -> dict[str, Any]:
    axis = {"type": "log", "tickformat": "~s" if figure.is_count else "~g"}
    digits = _labelled_digits(figure.costs)
    return axis | {"dtick": {9: "D1", 3: "D2", 1: 1}[len(digits)]} if digits else axis


def _labelled_digits(costs: Sequence[float]) -> tuple[int, ...]:
    """Which digits of a logarithmic axis get labels; none if the range is short enough for linear ticks."""
    ratio = max(costs) / min(costs)
    if ratio < 3:
        return ()
    return tuple(range(1, 10)) if ratio < 6 else (1, 2, 5) if ratio < 3000 else (1,)


def _plotly_points(series: Series, on_front: bool) -> dict[str, Any]:
    points = [point for point in series.points if point.on_front == on_front]
    colour, symbol = _colour(series.place), SYMBOLS[series.place % len(SYMBOLS)][0]
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": series.title,
        "legendgroup": series.title,
        "showlegend": on_front,
        "mode": "lines+markers" if on_front else "markers",
        "x": [point.x for point in points],
        "y": [point.y for point in points],
        "error_y": {
            "array": [point.spread or 0 for point in points],
            "color": colour,
            "thickness": 1.2,
            "width": 3,
            "visible": any(point.spread for point in points),
        },
        "marker": {"color": colour, "symbol": symbol, "size": 9 if on_front else 6, "line": {"width": 0}},
        "text": [_hover_text(series.title, *point.details) for point in points],
        "hovertemplate": "%{text}<extra></extra>",
    }
    if series.published:
        trace["name"] = series.title.replace(" (", "<br>(")  # two lines, to fit a small screen
        trace["line"] = {"color": colour, "width": 1.2, "shape": "hv", "dash": "4px,3px"}
        trace["marker"] |= {"symbol": f"{symbol}-open", "size": 7, "line": {"width": 1.2}}
    elif on_front:
        # Members are chosen on validation data, so a step in test values may go down.
        trace["line"] = {"color": colour, "width": 2, "shape": "hv"}
    else:
        trace["opacity"] = 0.38
    return trace


def plotly_gap(figure: GapFigure) -> dict[str, Any]:
    """The difference as steps within its 95 % band, around a line at zero."""
    data: list[dict[str, Any]] = []
    for place, series in enumerate(figure.series):
        x, y = _band(series.points)
        shared = {"type": "scatter", "legendgroup": series.title}
        band = {"mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": f"{_colour(place)}-faint"}
        data.append(shared | band | {"showlegend": False, "x": x, "y": y, "hoverinfo": "skip"})
        data.append(
            shared
            | {
                "name": f"{series.title}, 95 % interval",
                "showlegend": True,
                "mode": "lines+markers",
                "x": [point.x for point in series.points],
                "y": [point.y for point in series.points],
                "line": {"color": _colour(place), "width": 2, "shape": "hv"},
                "marker": {"color": _colour(place), "size": 6},
                # The last point starts no step, so its interval is an error bar.
                "error_y": {
                    "array": [0] * (len(series.points) - 1) + [_half(series.points[-1])],
                    "color": _colour(place),
                    "thickness": 1.2,
                    "width": 0,
                },
                "text": [_hover_text(*point.details) for point in series.points],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    layout = _plotly_layout(figure.x_title, figure.y_title, height=340)
    layout["xaxis"] |= _plotly_cost_axis(figure)
    layout["yaxis"] |= {"zeroline": True, "zerolinecolor": "@quiet", "zerolinewidth": 1}
    if len(figure.series) == 1:
        (series,) = figure.series
        layout["annotations"] = [
            _side(f"▲ {series.above} better", top=True),
            _side(f"▼ {series.below} better", top=False),
        ]
        layout["yaxis"]["rangemode"] = "tozero"
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def _half(point: GapPoint) -> float:
    return (point.interval[1] - point.interval[0]) / 2 if point.interval else 0.0


def _side(text: str, top: bool) -> dict[str, Any]:
    place = {"xref": "paper", "yref": "paper", "x": 1, "xanchor": "right", "showarrow": False}
    side = {"y": 1, "yanchor": "top"} if top else {"y": 0, "yanchor": "bottom"}
    return place | side | {"text": _hover_text(text), "font": {"color": "@quiet", "size": 12}}


def _band(points: Sequence[GapPoint]) -> tuple[list[float | None], list[float | None]]:
    """The outline of the steps' intervals; a point without an interval leaves a gap."""
    x: list[float | None] = []
    y: list[float | None] = []
    for start, stop in pairwise(points):
        if start.interval:
            low, high = start.interval
            x += [start.x, stop.x, stop.x, start.x, start.x, None]
            y += [high, high, low, low, high, None]
    return x, y


def plotly_curves(figure: CurvesFigure) -> dict[str, Any]:
    """One trace per architecture with gaps between runs, which stays fast for hundreds of runs."""
    data: list[dict[str, Any]] = []
    for title, place in sorted({(curve.title, curve.place) for curve in figure.curves}, key=lambda pair: pair[1]):
        curves = [curve for curve in figure.curves if curve.place == place]
        for chosen in (False, True):
            data.append(_plotly_lines(title, place, [curve for curve in curves if curve.chosen == chosen], chosen))
        data.append(_plotly_marks(title, place, [curve for curve in curves if curve.mark and curve.chosen]))
    layout = _plotly_layout("Epoch", figure.y_title, height=340)
    layout["xaxis"] |= {"rangemode": "tozero"}
    if figure.logarithmic:
        layout["yaxis"] |= {"type": "log", "dtick": "D2", "tickformat": "~g"}
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def _plotly_lines(title: str, place: int, curves: Iterable[Curve], chosen: bool) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    text: list[str] = []
    for curve in curves:
        x += [*curve.x, None]
        y += [*curve.y, None]
        text += [_hover_text(*curve.details)] * len(curve.x) + [""]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": title,
        "legendgroup": title,
        "showlegend": chosen,
        "x": x,
        "y": y,
        "text": text,
        "opacity": 0.75 if chosen else 0.22,
        "line": {"color": _colour(place), "width": 1.4 if chosen else 1},
        "hovertemplate": "%{text}<br>epoch %{x:.3~g}: %{y:.4~g}<extra></extra>",
    }


def _plotly_marks(title: str, place: int, curves: Sequence[Curve]) -> dict[str, Any]:
    marks = [curve.mark for curve in curves if curve.mark]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{title}, kept",
        "legendgroup": title,
        "showlegend": False,
        "x": [mark[0] for mark in marks],
        "y": [mark[1] for mark in marks],
        "text": [_hover_text(*curve.details) for curve in curves],
        "marker": {"color": _colour(place), "symbol": SYMBOLS[place % len(SYMBOLS)][0], "size": 7},
        "hovertemplate": "%{text}<br>weights kept at epoch %{x:.3~g}: %{y:.4~g}<extra></extra>",
    }


def _plotly_layout(x_title: str, y_title: str, height: int) -> dict[str, Any]:
    axis = {
        "gridcolor": "@rule",
        "linecolor": "@rule",
        "zeroline": False,
        "automargin": True,
        "ticks": "",
        "tickfont": {"color": "@quiet", "size": 12},
    }
    title = {"font": {"color": "@quiet", "size": 13}}
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 8, "r": 12, "t": 36, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "color": "@ink", "size": 13},
        "hovermode": "closest",
        "hoverlabel": {
            "align": "left",
            "bgcolor": "@paper",
            "bordercolor": "@rule",
            "font": {"color": "@ink", "size": 12},
        },
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        "xaxis": axis | {"title": title | {"text": x_title, "standoff": 14}},
        "yaxis": axis | {"title": title | {"text": y_title, "standoff": 14}},
    }


def _hover_text(*lines: str) -> str:
    """Lines of a hover text, escaped because Plotly interprets some HTML tags."""
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def _colour(place: int) -> str:
    return f"@shape-{place % len(COLOURS)}"


def front_png(sections: Sequence[Section], path: Path) -> None:
    """Every section's fronts, one below the other."""
    figure, axes = _matplotlib_page(len(sections), columns=1)
    for section, (axis,) in zip(sections, axes, strict=True):
        if section.candidates:
            _matplotlib_front(axis, front_figure(section))
        _finish(axis, section.name)
    figure.savefig(path, format="png", dpi=160)


def has_gap(sections: Iterable[Section]) -> bool:
    return any(_gap(section) for section in sections)


def gap_png(sections: Sequence[Section], path: Path) -> None:
    """The gap at equal parameters of every section with overlapping fronts, one below the other."""
    shown = [(section, content) for section in sections if (content := _gap(section))]
    figure, axes = _matplotlib_page(len(shown), columns=1)
    for (section, content), (axis,) in zip(shown, axes, strict=True):
        _matplotlib_gap(axis, content)
        _finish(axis, section.name)
    figure.savefig(path, format="png", dpi=160)


def _gap(section: Section) -> GapFigure | None:
    measures = measure(section)
    return gap_figure(measures) if measures else None


def curves_png(sections: Sequence[Section], path: Path) -> None:
    """A row per section: validation objective and training loss."""
    figure, axes = _matplotlib_page(len(sections), columns=2)
    for section, row in zip(sections, axes, strict=True):
        for axis, content in zip(row, curve_figures(section), strict=True):
            _matplotlib_curves(axis, content)
            _finish(axis, section.name)
    figure.savefig(path, format="png", dpi=160)


def _matplotlib_page(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    # pyplot would keep global state and look for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 + 3.5 * columns, 4.4 * rows), layout="constrained")
    return figure, [
        [figure.add_subplot(rows, columns, row * columns + i + 1) for i in range(columns)] for row in range(rows)
    ]


def _matplotlib_front(axis: Axes, content: FrontFigure) -> None:
    for series in content.series:
        colour, marker = COLOURS[series.place % len(COLOURS)][0], SYMBOLS[series.place % len(SYMBOLS)][1]
        dashes = "dashed" if series.published else "solid"
        others = [point for point in series.points if not point.on_front]
        members = [point for point in series.points if point.on_front]
        axis.scatter(
            [p.x for p in others], [p.y for p in others], s=16, color=colour, marker=marker, alpha=0.35, linewidths=0
        )
        axis.step(
            [p.x for p in members], [p.y for p in members], where="post", color=colour, linewidth=1.6, linestyle=dashes
        )
        axis.errorbar(
            [p.x for p in members],
            [p.y for p in members],
            yerr=[p.spread or 0.0 for p in members],
            fmt=marker,
            color=colour,
            markersize=5.5,
            markerfacecolor="none" if series.published else colour,
            elinewidth=1,
            capsize=2.5,
            label=series.title,
        )
    _matplotlib_cost_axis(axis, content)
    axis.set_ylabel(f"{content.y_title}, mean ± 1 σ of seeds")


def _matplotlib_gap(axis: Axes, content: GapFigure) -> None:
    for place, series in enumerate(content.series):
        colour = COLOURS[place % len(COLOURS)][0]
        costs, values = [point.x for point in series.points], [point.y for point in series.points]
        for start, stop in pairwise(series.points):
            if start.interval:
                axis.fill_between([start.x, stop.x], *start.interval, color=colour, alpha=0.18, linewidth=0)
        axis.step(costs, values, where="post", color=colour, linewidth=1.6)
        axis.errorbar(costs[-1:], values[-1:], yerr=_half(series.points[-1]), color=colour, elinewidth=1)
        axis.plot(costs, values, "o", color=colour, markersize=3.5, label=f"{series.title}, 95 % interval")
    axis.axhline(0, color=_INK, linewidth=0.8)
    _matplotlib_cost_axis(axis, content)
    axis.set_ylabel(content.y_title)


def _matplotlib_cost_axis(axis: Axes, content: FrontFigure | GapFigure) -> None:
    from matplotlib.ticker import AutoLocator, EngFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    digits = _labelled_digits(content.costs)
    axis.xaxis.set_major_locator(LogLocator(subs=digits, numticks=12) if digits else AutoLocator())
    axis.xaxis.set_major_formatter(EngFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel(content.x_title)


def _matplotlib_curves(axis: Axes, content: CurvesFigure) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    named: set[str] = set()
    for curve in sorted(content.curves, key=lambda curve: (curve.chosen, curve.place)):
        colour, marker = COLOURS[curve.place % len(COLOURS)][0], SYMBOLS[curve.place % len(SYMBOLS)][1]
        label = curve.title if curve.chosen and curve.title not in named else None
        named |= {curve.title} if label else set()
        axis.plot(curve.x, curve.y, color=colour, alpha=0.75 if curve.chosen else 0.2, linewidth=1.1, label=label)
        if curve.mark and curve.chosen:
            axis.plot(*curve.mark, marker, color=colour, markersize=4)
    if content.logarithmic and content.curves:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("Epoch")
    axis.set_ylabel(content.y_title)


def _finish(axis: Axes, title: str) -> None:
    axis.set_title(title, loc="left", fontsize=11, color=_INK)
    axis.grid(color=_RULE, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False)
    else:
        axis.text(0.5, 0.5, "no finished run", transform=axis.transAxes, ha="center", color=_INK)
