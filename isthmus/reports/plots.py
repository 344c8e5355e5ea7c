"""Draws the figures: Plotly JSON for the page, PNG by Matplotlib.

In the Plotly JSON, colours are names such as ``@shape-0``; the page replaces them according to its light or dark style.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.reports.figures import (
    Curve,
    CurvesFigure,
    FrontFigure,
    GapFigure,
    GapPoint,
    Point,
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
_LABEL_WIDTH, _LABEL_SPACE = 168, 0.045
"""Pixels to the right of the front for the names of references, and their distance as a fraction of the height."""


def plotly_front(figure: FrontFigure) -> dict[str, Any]:
    """Fronts as steps with error bars, other candidates faint, published fronts dashed."""
    data: list[dict[str, Any]] = []
    for series in figure.series:
        data += [_plotly_points(figure, series, on_front=False), _plotly_points(figure, series, on_front=True)]
    low, high = figure.range
    layout = _plotly_layout(figure.x_title, figure.y_title, height=460)
    layout["xaxis"] |= _plotly_cost_axis(figure)
    layout["yaxis"]["range"] = [low, high]
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": "@quiet", "width": 1, "dash": "dot"}}
    layout["shapes"] = [across | {"y0": y, "y1": y} for _, y in figure.lines if low <= y <= high]
    beside = {"xref": "paper", "yref": "paper", "x": 1, "xanchor": "left", "xshift": 6, "yanchor": "middle"}
    beside |= {"showarrow": False, "font": {"color": "@quiet", "size": 11}}
    layout["annotations"] = [beside | {"text": _hover_text(text), "y": y} for text, y in _line_labels(figure)]
    if figure.lines:
        layout["margin"]["r"] = _LABEL_WIDTH
    outside = sum(not low <= point.y <= high for point in figure.points)
    if outside:
        text = f"{outside} other candidate{'s' * (outside > 1)} beyond this axis"
        layout["annotations"].append(_side(text, top=False))
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def _line_labels(figure: FrontFigure) -> list[tuple[str, float]]:
    """The names of the references, and their heights as fractions of the axis, apart from each other."""
    low, high = figure.range
    lines = sorted(figure.lines, key=lambda line: line[1])
    places: list[float] = []
    for _, y in lines:
        places.append(max([0.0, min((y - low) / (high - low), 1.0), *(last + _LABEL_SPACE for last in places[-1:])]))
    limit, labels = 1.0, list[tuple[str, float]]()
    for (title, y), wanted in reversed(list(zip(lines, places, strict=True))):
        beyond = " ↓" if y < low else " ↑" if y > high else ""
        place = min(wanted, limit)
        labels.append((f"{title.removeprefix('the ')} {y:.3g}{beyond}".replace("-", "−"), place))
        limit = place - _LABEL_SPACE
    return labels


def _plotly_bars(figure: FrontFigure, points: Sequence[Point], colour: str) -> dict[str, Any]:
    below, above = zip(*map(figure.bars, points), strict=True) if points else ((), ())
    return {
        "type": "data",
        "symmetric": False,
        "array": above,
        "arrayminus": below,
        "color": colour,
        "thickness": 1.2,
        "width": 3,
        "visible": any(point.spread for point in points),
    }


def _plotly_cost_axis(figure: FrontFigure | GapFigure) -> dict[str, Any]:
    axis: dict[str, Any] = {"type": "log", "tickformat": "~s" if figure.is_count else "~g"}
    axis["range"] = [math.log10(end) for end in _cost_range(figure.costs)]
    return axis | _plotly_log_ticks(figure.costs)


def _plotly_log_ticks(values: Sequence[float]) -> dict[str, Any]:
    digits = _labelled_digits(values)
    return {"dtick": {9: "D1", 3: "D2", 1: 1}[len(digits)]} if digits else {}


def _cost_range(costs: Sequence[float]) -> tuple[float, float]:
    """A little more than the costs; one cost alone gets less than a decade."""
    low, high = min(costs), max(costs)
    room = max((high / low) ** 0.05, 1.15 if high > low else 1.6)
    return low / room, high * room


def _labelled_digits(values: Sequence[float]) -> tuple[int, ...]:
    """Which digits of a logarithmic axis get labels; none if the range is short enough for linear ticks."""
    ratio = max(values) / min(values)
    if ratio < 3:
        return ()
    return tuple(range(1, 10)) if ratio < 6 else (1, 2, 5) if ratio < 3000 else (1,)


def _plotly_points(figure: FrontFigure, series: Series, on_front: bool) -> dict[str, Any]:
    low, high = figure.range
    points = [point for point in series.points if point.on_front == on_front and low <= point.y <= high]
    colour, symbol = _colour(series.place), SYMBOLS[series.place % len(SYMBOLS)][0]
    if series.refit:
        colour, symbol = "@ink", "star"
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": series.title,
        "legendgroup": series.title,
        "showlegend": on_front,
        "mode": "lines+markers" if on_front else "markers",
        "x": [point.x for point in points],
        "y": [point.y for point in points],
        "error_y": _plotly_bars(figure, points, colour),
        "marker": {
            "color": colour,
            "symbol": symbol,
            "size": 14 if series.refit else 9 if on_front else 6,
            "line": {"width": 0},
        },
        "cliponaxis": False,
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
        trace["error_y"]["visible"] = False  # bars of many candidates hide each other
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


def plotly_fit(points: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Predicted against true values with the line on which they agree."""
    ends = [min(*points["true"], *points["predicted"]), max(*points["true"], *points["predicted"])]
    agree = {"x": ends, "y": ends, "mode": "lines", "line": {"color": "@quiet", "width": 1}, "hoverinfo": "skip"}
    marks = {
        "x": points["true"],
        "y": points["predicted"],
        "mode": "markers",
        "marker": {"color": _colour(0), "size": 6, "opacity": 0.6, "line": {"width": 0}},
        "hovertemplate": "true %{x:.4~g}<br>predicted %{y:.4~g}<extra></extra>",
    }
    layout = _plotly_layout("True", "Predicted", height=400) | {"showlegend": False}
    layout["margin"] |= {"t": 8}
    return {"data": [each | {"type": "scatter"} for each in (agree, marks)], "layout": layout}


def plotly_curves(figure: CurvesFigure) -> dict[str, Any]:
    """The curves that are shown at first, and the rest as invisible traces, which the page shows on request.

    One trace per architecture with gaps between runs stays fast for hundreds of runs.
    """
    data: list[dict[str, Any]] = []
    for title, place in sorted({(curve.title, curve.place) for curve in figure.curves}, key=lambda pair: pair[1]):
        curves = [curve for curve in figure.curves if curve.place == place]
        rest = [curve for curve in curves if not curve.shown]
        shown = [curve for curve in curves if curve.shown]
        data.append(_plotly_lines(title, place, rest) | {"visible": False, "opacity": 0.3, "showlegend": False})
        data.append(_plotly_lines(title, place, shown))
        data.append(_plotly_marks(title, place, [curve for curve in shown if curve.mark]))
    layout = _plotly_layout("Epoch", figure.y_title, height=340)
    layout["xaxis"] |= {"rangemode": "tozero"}
    if figure.logarithmic:
        losses = [y for curve in figure.curves if curve.shown for y in curve.y if y > 0]
        layout["yaxis"] |= {"type": "log", "tickformat": "~g"} | _plotly_log_ticks(losses or [1.0])
    elif figure.curves:
        layout["yaxis"]["range"] = figure.range
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def _plotly_lines(title: str, place: int, curves: Iterable[Curve]) -> dict[str, Any]:
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
        "x": x,
        "y": y,
        "text": text,
        "opacity": 0.8,
        "line": {"color": _colour(place), "width": 1.5},
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
        "cliponaxis": False,
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
    low, high = content.range
    for series in content.series:
        colour, marker = COLOURS[series.place % len(COLOURS)][0], SYMBOLS[series.place % len(SYMBOLS)][1]
        if series.refit:
            colour, marker = _INK, "*"
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
    for _, y in content.lines:
        axis.axhline(y, color=_INK, linewidth=0.8, linestyle="dotted")
    for text, place in _line_labels(content):
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
        axis.errorbar(costs[-1:], values[-1:], yerr=_half(series.points[-1]), color=colour, elinewidth=1)
        axis.plot(costs, values, "o", color=colour, markersize=3.5, label=f"{series.title}, 95 % interval")
    axis.axhline(0, color=_INK, linewidth=0.8)
    _matplotlib_cost_axis(axis, content)
    axis.set_ylabel(content.y_title)


def _matplotlib_cost_axis(axis: Axes, content: FrontFigure | GapFigure) -> None:
    from matplotlib.ticker import AutoLocator, EngFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    axis.set_xlim(*_cost_range(content.costs))
    digits = _labelled_digits(content.costs)
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
    axis.set_title(title, loc="left", fontsize=11, color=_INK)
    axis.grid(color=_RULE, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False)
    else:
        axis.text(0.5, 0.5, "no finished run", transform=axis.transAxes, ha="center", color=_INK)
