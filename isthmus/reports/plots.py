"""The figures as Plotly JSON, for the page.

Colours are names such as ``@shape-0``; the page replaces them according to its light or dark style.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from isthmus.reports.axes import fit_costs, labelled_digits
from isthmus.reports.contributions import Contribution
from isthmus.reports.figures import Curve, CurvesFigure, FrontFigure, GapFigure, GapPoint, Point, Series
from isthmus.reports.sections import cut_middle

# Okabe and Ito's colour-blind-safe palette, for a light and a dark background.
COLOURS = (
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#f0a03c"),
    ("#007a5a", "#2fc49a"),
    ("#a8558a", "#dd9ec4"),
    ("#5b5b5b", "#b4b4b4"),
)
SYMBOLS = (("circle", "o"), ("square", "s"), ("diamond", "D"), ("triangle-up", "^"), ("x", "X"))
_LABEL_WIDTH = 168
"""Pixels to the right of the front for the names of references."""


def plotly_front(figure: FrontFigure) -> dict[str, Any]:
    """Fronts as steps with error bars, other candidates faint, published fronts dashed."""
    data = [_plotly_belief(figure.band)] if figure.band else []
    for series in figure.series:
        data += [_plotly_points(figure, series, on_front=False), _plotly_points(figure, series, on_front=True)]
    low, high = figure.range
    layout = plotly_layout(figure.x_title, figure.y_title, height=460)
    layout["xaxis"] |= _plotly_cost_axis(figure)
    layout["yaxis"]["range"] = [low, high]
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": "@quiet", "width": 1, "dash": "dot"}}
    layout["shapes"] = [across | {"y0": y, "y1": y} for _, y in figure.lines if low <= y <= high]
    beside = {"xref": "paper", "yref": "paper", "x": 1, "xanchor": "left", "xshift": 6, "yanchor": "middle"}
    beside |= {"showarrow": False, "font": {"color": "@quiet", "size": 11}}
    layout["annotations"] = [beside | {"text": _hover_text(text), "y": y} for text, y in figure.labels]
    if figure.lines:
        layout["margin"]["r"] = _LABEL_WIDTH
    outside = sum(not low <= point.y <= high for point in figure.points)
    if outside:
        text = f"{outside} other candidate{'s' * (outside > 1)} beyond this axis"
        layout["annotations"].append(_side(text, top=False))
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def _plotly_belief(band: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    """The band as steps, each from its size to the next."""
    sizes = [size for size, _, _ in band]
    x = [each for start, stop in pairwise([*sizes, sizes[-1]]) for each in (start, stop)]
    low, high = ([each for row in band for each in (row[end], row[end])] for end in (1, 2))
    return {
        "type": "scatter", "mode": "lines", "name": "Expected, 95 % interval", "line": {"width": 0}, "fill": "toself",
        "fillcolor": f"{_colour(0)}-faint", "hoverinfo": "skip", "showlegend": True,
        "x": [*x, *reversed(x)], "y": [*high, *reversed(low)],
    }  # fmt: skip


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
    axis["range"] = [math.log10(end) for end in fit_costs(figure.costs)]
    return axis | _plotly_log_ticks(figure.costs)


def _plotly_log_ticks(values: Sequence[float]) -> dict[str, Any]:
    digits = labelled_digits(values)
    return {"dtick": {9: "D1", 3: "D2", 1: 1}[len(digits)]} if digits else {}


def _plotly_points(figure: FrontFigure, series: Series, on_front: bool) -> dict[str, Any]:
    low, high = figure.range
    points = [point for point in series.points if point.on_front == on_front and low <= point.y <= high]
    colour, symbol = _colour(series.place), SYMBOLS[series.place % len(SYMBOLS)][0]
    if series.refit:
        colour, symbol = "@ink", "star"
    is_mixed = any(point.is_int8 for point in points)
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
            "symbol": [f"{symbol}-open" if point.is_int8 else symbol for point in points] if is_mixed else symbol,
            "size": 14 if series.refit else 9 if on_front else 6,
            "line": {"width": 2, "color": colour} if is_mixed else {"width": 0},
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
                    "array": [0] * (len(series.points) - 1) + [series.points[-1].half_width],
                    "color": _colour(place),
                    "thickness": 1.2,
                    "width": 0,
                },
                "text": [_hover_text(*point.details) for point in series.points],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    layout = plotly_layout(figure.x_title, figure.y_title, height=340)
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


def plotly_fit(points: Mapping[str, Sequence[float]], target: Sequence[str] = ()) -> dict[str, Any]:
    """Predicted against true values, on axes of one range, with the line on which they agree."""
    values = [*points["true"], *points["predicted"]]
    room = 0.04 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 0.05
    ends = [min(values) - room, max(values) + room]
    agree = {"x": ends, "y": ends, "mode": "lines", "line": {"color": "@quiet", "width": 1}, "hoverinfo": "skip"}
    marks = {
        "x": points["true"],
        "y": points["predicted"],
        "mode": "markers",
        "marker": {"color": _colour(0), "size": 6, "opacity": 0.6, "line": {"width": 0}},
        "hovertemplate": "true %{x:.4~g}<br>predicted %{y:.4~g}<extra></extra>",
    }
    name = "".join(f" {_hover_text(cut_middle(each, 30))}" for each in target)
    layout = plotly_layout(f"True{name}", f"Predicted{name}", height=400) | {"showlegend": False}
    layout["margin"] |= {"t": 8}
    layout["xaxis"]["range"] = layout["yaxis"]["range"] = ends
    return {"data": [each | {"type": "scatter"} for each in (agree, marks)], "layout": layout}


def plotly_contributions(listed: Sequence[Contribution]) -> dict[str, Any]:
    """The area of the front over the trainings, as a share of the last one; a marker for each network that added."""
    shares = [100 * each.area / (listed[-1].area or 1.0) for each in listed]
    added = [place for place, (before, now) in enumerate(pairwise([0.0, *shares])) if now > before]
    line = {"x": [each.runs for each in listed], "y": shares, "mode": "lines", "hoverinfo": "skip"}
    line |= {"line": {"color": _colour(0), "width": 2, "shape": "hv"}}
    texts = [
        _hover_text(
            listed[place].title,
            f"mean {listed[place].quality:.4g}",
            f"{shares[place] - (shares[place - 1] if place else 0.0):+.3g} % of the area",
        )
        for place in added
    ]
    marks = {"x": [listed[place].runs for place in added], "y": [shares[place] for place in added], "mode": "markers"}
    marks |= {"marker": {"color": _colour(0), "size": 7}, "text": texts, "hovertemplate": "%{text}<extra></extra>"}
    layout = plotly_layout("Trainings", "Area of the front (%)", height=340) | {"showlegend": False}
    layout["margin"] |= {"t": 8}
    layout["xaxis"]["rangemode"] = layout["yaxis"]["rangemode"] = "tozero"
    return {"data": [each | {"type": "scatter"} for each in (line, marks)], "layout": layout}


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
    layout = plotly_layout("Epoch", figure.y_title, height=340)
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
    texts: list[tuple[str, int]] = []
    for curve in curves:
        x += [*curve.x, None]
        y += [*curve.y, None]
        texts.append((_hover_text(*curve.details), len(curve.x)))
    return {
        "type": "scatter",
        "mode": "lines",
        "name": title,
        "legendgroup": title,
        "x": x,
        "y": y,
        "meta": texts,  # and how many points have each; the page repeats them
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


def plotly_layout(x_title: str, y_title: str, height: int) -> dict[str, Any]:
    """The look that all figures share."""
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
