"""The content of the figures as plain data; `plots` draws it with Plotly and Matplotlib."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.reports.axes import fit_axis, label_lines
from isthmus.reports.measures import Measures
from isthmus.reports.published import PublishedFront, PublishedPoint
from isthmus.reports.sections import Run, Section, read_setting, varying_settings
from isthmus.reports.text import (
    architecture_title,
    axis_title,
    cost_kind,
    difference_text,
    magnitude,
    metric_title,
    unit,
    with_spread,
)
from isthmus.studies.fronts import Candidate, cost_of, sample_std, settings_of, upper_bound

_MOST_POINTS = 200
"""Per curve: more are indistinguishable on a screen and make the page larger."""
_MOST_CURVES = 6
"""Drawn at first."""
_REFERENCE_REACH = 1.5
"""Heights of the axis within which it extends to a reference."""


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    spread: float | None  # one standard deviation over the seeds
    on_front: bool
    details: tuple[str, ...]
    is_int8: bool = False  # in all layers or in some


@dataclass(frozen=True)
class Series:
    """One architecture. ``place`` is its position in the section, which determines its colour."""

    title: str
    place: int
    points: tuple[Point, ...]
    published: bool = False
    refit: bool = False  # the chosen network, trained on validation rows too


@dataclass(frozen=True)
class FrontFigure:
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    metric: str
    is_count: bool = True  # a count has letters for thousands and millions, a measured quantity has not
    lines: tuple[tuple[str, float], ...] = ()  # references: other models, by title
    band: tuple[tuple[float, float, float], ...] = ()  # size, and the interval in which the best quality is expected

    @property
    def points(self) -> list[Point]:
        return [point for series in self.series for point in series.points]

    @property
    def costs(self) -> list[float]:
        return [point.x for point in self.points]

    @property
    def range(self) -> tuple[float, float]:
        """The axis of the quality. It shows every member of a front, and references that are not far from them."""
        shown = [point for point in self.points if point.on_front]
        ends = [y for point in shown for y in (point.y - (point.spread or 0), point.y + (point.spread or 0))]
        values = [point.y for point in self.points]
        low, high = fit_axis(values, ends, self.metric)
        reach = _REFERENCE_REACH * (high - low)
        near = [y for _, y in self.lines if low - reach <= y <= high + reach]
        return fit_axis(values, [*ends, *near], self.metric)

    @property
    def labels(self) -> list[tuple[str, float]]:
        """The names of the references with their heights as fractions of the axis."""
        return label_lines(self.lines, *self.range)

    def bars(self, point: Point) -> tuple[float, float]:
        """The error bar below and above a point; it ends at the largest value that the metric can have."""
        spread = point.spread or 0.0
        return spread, max(0.0, min(spread, upper_bound(self.metric) - point.y))


@dataclass(frozen=True)
class GapPoint:
    x: float
    y: float
    interval: tuple[float, float] | None  # 95 %
    details: tuple[str, ...]

    @property
    def half_width(self) -> float:
        return (self.interval[1] - self.interval[0]) / 2 if self.interval else 0.0


@dataclass(frozen=True)
class GapSeries:
    """A pair of architectures: ``above`` is better where the gap is positive, ``below`` where it is negative."""

    title: str
    above: str
    below: str
    points: tuple[GapPoint, ...]


@dataclass(frozen=True)
class GapFigure:
    x_title: str
    y_title: str
    series: tuple[GapSeries, ...]
    is_count: bool = True

    @property
    def costs(self) -> list[float]:
        return [point.x for series in self.series for point in series.points]


@dataclass(frozen=True)
class Curve:
    """One run. ``mark`` is the epoch whose weights were kept; curves that are not ``shown`` are drawn on request."""

    title: str
    place: int
    x: tuple[float, ...]
    y: tuple[float, ...]
    mark: tuple[float, float] | None
    details: tuple[str, ...]
    shown: bool


@dataclass(frozen=True)
class CurvesFigure:
    y_title: str
    logarithmic: bool
    curves: tuple[Curve, ...]
    metric: str
    maximise: bool = False

    @property
    def range(self) -> tuple[float, float]:
        """The axis shows the best value and the kept epoch of each curve that is drawn at first."""
        needed: list[float] = []
        for curve in self.curves:
            if curve.shown:
                best = max(curve.y) if self.maximise else min(curve.y)
                needed += [best, *([curve.mark[1]] if curve.mark else [])]
        return fit_axis([y for curve in self.curves for y in curve.y], needed, self.metric)


def front_figure(section: Section, cost: str = "params", metric: str = "") -> FrontFigure:
    """Test quality over cost for every candidate.

    Whichever metric is shown, the front is that of the objective on validation data.
    """
    metric = metric or section.objective
    on_front = section.front_at(cost)
    names = varying_settings(section.candidates)
    series = []
    for place, architecture in enumerate(section.architectures):
        candidates = sorted(section.candidates_of(architecture, cost), key=lambda candidate: cost_of(candidate, cost))
        points = tuple(
            Point(
                x=cost_of(candidate, cost),
                y=statistics.fmean(candidate.metrics[metric]),
                spread=sample_std(candidate.metrics[metric]),
                on_front=candidate.identity in on_front,
                details=_details(candidate, metric, names),
                is_int8=candidate.precision != "float32",
            )
            for candidate in candidates
        )
        if points:
            series.append(Series(architecture_title(architecture), place, points))
    if (cost, metric) == ("params", "psnr"):
        series += [item for published in section.published for item in _published_series(published, section)]
    lines = tuple(section.references.items()) if metric == section.objective else ()
    series, kind = [*series, *_refit_series(section, cost, metric)], cost_kind(cost)
    return FrontFigure(kind.title, axis_title("Test", metric), tuple(series), metric, not kind.quantity, lines)


def answer_figure(answer: Mapping[str, Any]) -> FrontFigure:
    """Validation quality over size for every network of a search, in the band that is expected of the best ones.

    The references are lines, because they have no size that compares with a network's."""
    metric, best = answer["objective"], answer["best"]
    tried = [each for each in answer["networks"] if each["values"]]
    members = {place for place, _ in front_members(answer)}
    points = [
        Point(each["params"], statistics.fmean(each["values"]), sample_std(each["values"]), place in members,
              (each["title"],))
        for place, each in enumerate(tried)
    ]  # fmt: skip
    chosen = Point(best["params"], statistics.fmean(best["values"]), None, True, (best["title"],))
    series = (
        Series("Networks; the line joins the best for their size", 0, tuple(sorted(points, key=lambda item: item.x))),
        Series("Recommended", 1, (chosen,), refit=True),
    )
    lines = tuple((each["title"], statistics.fmean(each["values"])) for each in answer["references"] if each["values"])
    band = [(each["params"], each["low"], each["high"]) for each in answer.get("belief", ())]
    band += [(max(each["params"] for each in tried), *band[-1][1:])] if band else []  # the last step ends there
    return FrontFigure(
        cost_kind("params").title, axis_title("Validation", metric), series, metric, True, lines, tuple(band)
    )


def front_members(answer: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """The networks of a search that no other one beats with as few parameters, the smallest first, with their places
    among those that were tried."""
    sign, members = 1 if answer["maximise"] else -1, list[tuple[int, Mapping[str, Any]]]()
    tried = list(enumerate(each for each in answer["networks"] if each["values"]))
    highest = -math.inf
    for place, each in sorted(tried, key=lambda pair: (pair[1]["params"], -sign * statistics.fmean(pair[1]["values"]))):
        if sign * statistics.fmean(each["values"]) > highest:
            highest = sign * statistics.fmean(each["values"])
            members.append((place, each))
    return members


def _refit_series(section: Section, cost: str, metric: str) -> list[Series]:
    """The network that was trained on all rows but the test rows; empty unless there is exactly one."""
    records = [run.record for run in section.refits]
    settings = {json.dumps(settings_of(record), sort_keys=True) for record in records}
    if len(settings) != 1 or cost not in records[0].cost or any(metric not in each.metrics["test"] for each in records):
        return []
    values = [record.metrics["test"][metric] for record in records]
    details = (
        f"{metric_title(metric)} {with_spread(statistics.fmean(values), sample_std(values), metric)}",
        "trained on training and validation rows",
        f"{magnitude(records[0].cost['params'])} parameters",
        f"run {records[0].id}" + (f" and {len(values) - 1} more" if len(values) > 1 else ""),
    )
    point = Point(records[0].cost[cost], statistics.fmean(values), sample_std(values), True, details)
    return [Series("Recommended, refitted", len(section.architectures), (point,), refit=True)]


def gap_figure(measures: Measures) -> GapFigure | None:
    """The gap between fronts over cost, pair by pair; None if no two fronts overlap."""
    series = []
    for gap in measures.gaps:
        above, below = map(architecture_title, gap.architectures)
        title = f"{above} − {below}" if gap.maximise else f"{below} − {above}"
        points = tuple(
            GapPoint(
                x=point.cost,
                y=point.difference.difference,
                interval=point.difference.bounds,
                details=(
                    difference_text(point.difference, gap.objective),
                    *(
                        f"{architecture_title(item.architecture)}: {magnitude(cost_of(item, gap.cost))}, "
                        f"{with_spread(item.mean, item.std, gap.objective)}, run {item.run_ids[0]}"
                        for item in (point.first, point.second)
                    ),
                ),
            )
            for point in gap.points
        )
        if points:
            series.append(GapSeries(title, above, below, points))
    if not series:
        return None
    kind = cost_kind(measures.cost)
    return GapFigure(kind.title, axis_title("Difference in", measures.objective), tuple(series), not kind.quantity)


def _published_series(published: PublishedFront, section: Section) -> list[Series]:
    places = list(dict.fromkeys([*section.architectures, *(point.architecture for point in published.points)]))
    other = "" if published.source == section.source else ": other data"
    return [
        Series(
            title=f"{architecture_title(architecture)}, published ({published.title}{other})",
            place=place,
            points=tuple(
                Point(point.params, point.psnr, point.spread, True, _published_details(point))
                for point in sorted(published.points, key=lambda point: point.params)
                if point.architecture == architecture
            ),
            published=True,
        )
        for place, architecture in enumerate(places)
        if any(point.architecture == architecture for point in published.points)
    ]


def _published_details(point: PublishedPoint) -> tuple[str, ...]:
    return (
        f"PSNR {with_spread(point.psnr, point.spread, 'psnr')} dB",
        point.settings,
        f"{magnitude(point.params)} parameters",
        f"row {point.row}",
    )


def curve_figures(section: Section, hidden: bool = True) -> tuple[CurvesFigure, CurvesFigure]:
    """The validation objective and the training loss over the epochs, one curve per finished run.

    Without ``hidden``, only the curves that are drawn at first.
    """
    failed = {run.record.id for run in (*section.failed_runs, *section.outdated_runs)}
    objective, first = section.objective, _first_curves(section)
    validation, training = [], []
    for run in section.runs:
        shown = run.record.id in first
        if run.record.id in failed or not (shown or hidden):
            continue
        lines, place = run.metrics, section.architectures.index(run.architecture)
        validation.append(_curve(run, lines, "validation", objective, place, shown))
        training.append(_curve(run, lines, "train", "loss", place, shown))
    return (
        CurvesFigure(
            axis_title("Validation", objective),
            False,
            tuple(filter(None, validation)),
            objective,
            section.first.maximise,
        ),
        CurvesFigure("Training loss", True, tuple(filter(None, training)), "loss"),
    )


def _first_curves(section: Section) -> set[str]:
    """The best run of each architecture, then of the best candidates: the curves that are drawn at first."""
    sign = -1 if section.first.maximise else 1
    ordered = sorted(section.candidates, key=lambda item: sign * item.validation)
    leaders = {item.architecture: item for item in reversed(ordered)}.values()
    chosen = [*sorted(leaders, key=ordered.index), *(item for item in ordered if item not in leaders)]
    return {section.best_of(candidate).record.id for candidate in chosen[:_MOST_CURVES]}


def _details(candidate: Candidate, metric: str, names: Sequence[str]) -> tuple[str, ...]:
    values = candidate.metrics[metric]
    quality = with_spread(statistics.fmean(values), sample_std(values), metric)
    seeds = f"{len(values)} seed{'s' * (len(values) > 1)}"
    return (
        f"{metric_title(metric)} {quality} {unit(metric)}".strip(),
        ", ".join(f"{name.rpartition('.')[2]} {read_setting(candidate, name)}" for name in names),
        f"{magnitude(candidate.params)} parameters, {magnitude(candidate.trainable_params)} trainable",
        f"{magnitude(candidate.macs)} MACs per row",
        f"learning rate {candidate.learning_rate:g}, {seeds}",
        *([] if candidate.precision == "float32" else [f"precision {candidate.precision}"]),
        f"run {candidate.run_ids[0]}" + (f" and {len(values) - 1} more" if len(values) > 1 else ""),
    )


def _curve(run: Run, lines: list[dict[str, Any]], split: str, metric: str, place: int, shown: bool) -> Curve | None:
    points = [line for line in lines if line.get("split") == split and line.get(metric) is not None]
    if not points:
        return None
    kept = run.record.selected.get("step")
    mark = next(((line["epoch"], line[metric]) for line in points if line["step"] == kept), None)
    stride = -(-len(points) // _MOST_POINTS)
    kept_points = [*points[::stride], points[-1]] if (len(points) - 1) % stride else points[::stride]
    return Curve(
        title=architecture_title(run.architecture),
        place=place,
        x=tuple(line["epoch"] for line in kept_points),
        y=tuple(float(f"{line[metric]:.6g}") for line in kept_points),
        mark=mark if split == "validation" else None,
        details=(f"run {run.record.id}", run.settings),
        shown=shown,
    )
