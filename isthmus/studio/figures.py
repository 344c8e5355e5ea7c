"""Figures that only the studio draws, as plain data for Plotly in the look of the report."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from isthmus.core.record import RunRecord
from isthmus.core.registry import task_objective
from isthmus.reports.plots import plotly_layout
from isthmus.reports.text import axis_title
from isthmus.studies.fronts import is_measured, settings_of
from isthmus.studies.volumes import area, open_corner

_MOST_POINTS = 400
_MOST_TIMES = 60
_NO_METRICS = frozenset({"step", "epoch", "split", "seconds", "check", "loss", "metric_versions"})


def line_trace(x: Sequence[Any], y: Sequence[Any], colour: int = 0, **more: Any) -> dict[str, Any]:
    trace = {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "line": {"color": f"@shape-{colour}"}}
    return trace | more


def draw_lines(
    traces: Sequence[Mapping[str, Any]], x_title: str, y_title: str, *, log: bool = False, height: int = 340
) -> dict[str, Any]:
    """Traces on linear axes, or over a logarithmic y axis."""
    layout = plotly_layout(x_title, y_title, height)
    layout["showlegend"] = len(traces) > 1
    layout["margin"] |= {} if len(traces) > 1 else {"t": 8}
    if log:
        layout["yaxis"] |= {"type": "log", "tickformat": "~g"}
    return {"data": list(traces), "layout": layout}


def find_objective(config: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> str:
    """The objective of a run that has not ended.

    Of the task of a plug-in that is missing here, it is guessed: the first metric of the validation, or the loss.
    """
    if known := task_objective(str(config.get("task", {}).get("name"))):
        return known
    last: Mapping[str, Any] = next((line for line in reversed(lines) if line.get("split") == "validation"), {})
    return next((name for name, value in last.items() if name not in _NO_METRICS and _is_number(value)), "loss")


def draw_log(logs: Mapping[str, Sequence[Mapping[str, Any]]], split: str, metric: str) -> dict[str, Any] | None:
    """A metric of one or several runs, by their names, over the epochs."""
    traces = []
    for place, (name, lines) in enumerate(logs.items()):
        points = [(line["epoch"], line[metric]) for line in lines if line["split"] == split and metric in line]
        points = [point for point in points if all(map(_is_number, point))]
        points = [*points[: -1 : -(-len(points) // _MOST_POINTS)], points[-1]] if points else []
        if points:
            x, y = zip(*points, strict=True)
            mode = "lines" if len(points) > 1 else "markers"  # a line of one point cannot be seen
            traces.append(line_trace(x, y, place, name=escape(name, quote=False), mode=mode))  # Plotly reads some tags
    if not traces:
        return None
    y_title = axis_title("Validation", metric) if split == "validation" else "Training loss"
    is_positive = all(value > 0 for trace in traces for value in trace["y"])
    return draw_lines(traces, "Epoch", y_title, log=metric == "loss" and is_positive)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def draw_volume(records: Sequence[RunRecord]) -> dict[str, Any] | None:
    """How the area below the front of all networks grew: the best so far, at each time at which runs ended.

    A network counts with the mean of its runs so far, so that the area itself may fall. It is measured on validation
    data, from twice the size of the largest network and the worst quality of all.
    """
    ended = sorted((record for record in records if is_measured(record) and record.finished), key=lambda r: r.finished)
    if len(ended) < 2:
        return None
    values = [record.metrics["validation"][record.objective] for record in ended]
    sizes, maximise = [float(record.cost["params"]) for record in ended], ended[0].maximise
    if len(set(sizes)) < 2:  # there is no area below networks of one size
        return None
    corner = open_corner(list(zip(sizes, values, strict=True)), maximise)
    keys = [
        json.dumps([settings_of(record), record.config["train"]["learning_rate"]], sort_keys=True) for record in ended
    ]
    times = [datetime.fromisoformat(record.finished) for record in ended]
    begin = min(datetime.fromisoformat(record.started or record.finished) for record in records if record.finished)
    last = [number for number, time in enumerate(times) if time not in times[number + 1 : number + 2]]
    shown = {last[round(place * (len(last) - 1) / (_MOST_TIMES - 1))] for place in range(_MOST_TIMES)}
    networks, points = defaultdict[tuple[str, float], list[float]](list), [(0.0, 0.0)]  # nothing is found at first
    for number, time in enumerate(times):
        networks[keys[number], sizes[number]].append(values[number])
        if number in shown:
            means = [(size, sum(found) / len(found)) for (_, size), found in networks.items()]
            best = max(area(means, corner, maximise), points[-1][1])
            points.append(((time - begin).total_seconds(), best))
    x, y = zip(*points, strict=True)
    trace = line_trace(x, y) | {"line": {"color": "@shape-0", "shape": "hv", "width": 2}}
    figure = draw_lines([trace], "Seconds since the first run began", "Best hypervolume so far", height=280)
    figure["layout"]["xaxis"] |= {"rangemode": "tozero"}
    return figure
