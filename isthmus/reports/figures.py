"""The content of the figures as plain data; `plots` draws it with Plotly and Matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
from isthmus.studies.fronts import Candidate, cost_of, front, sample_std

_MOST_POINTS = 200
"""Per curve: more are indistinguishable on a screen and make the page larger."""


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    spread: float | None  # one standard deviation over the seeds
    on_front: bool
    details: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """One architecture. ``place`` is its position in the section, which determines its colour."""

    title: str
    place: int
    points: tuple[Point, ...]
    published: bool = False


@dataclass(frozen=True)
class FrontFigure:
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    is_count: bool = True  # a count has letters for thousands and millions, a measured quantity has not

    @property
    def costs(self) -> list[float]:
        return [point.x for series in self.series for point in series.points]


@dataclass(frozen=True)
class GapPoint:
    x: float
    y: float
    interval: tuple[float, float] | None  # 95 %
    details: tuple[str, ...]


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
    """One run. ``chosen``: trained with the selected learning rate; ``mark``: the epoch whose weights were kept."""

    title: str
    place: int
    x: tuple[float, ...]
    y: tuple[float, ...]
    chosen: bool
    mark: tuple[float, float] | None
    details: tuple[str, ...]


@dataclass(frozen=True)
class CurvesFigure:
    y_title: str
    logarithmic: bool
    curves: tuple[Curve, ...]


def front_figure(section: Section, cost: str = "params", metric: str = "") -> FrontFigure:
    """Test quality over cost for every candidate.

    Whichever metric is shown, the front is that of the objective on validation data.
    """
    metric = metric or section.objective
    on_front = {candidate.run_ids for candidate in front(section.candidates, cost)}
    names = varying_settings(section.candidates)
    series = []
    for place, architecture in enumerate(section.architectures):
        candidates = sorted(section.candidates_of(architecture), key=lambda candidate: cost_of(candidate, cost))
        points = tuple(
            Point(
                x=cost_of(candidate, cost),
                y=statistics.fmean(candidate.metrics[metric]),
                spread=sample_std(candidate.metrics[metric]),
                on_front=candidate.run_ids in on_front,
                details=_details(candidate, metric, names),
            )
            for candidate in candidates
        )
        if points:
            series.append(Series(architecture_title(architecture), place, points))
    if (cost, metric) == ("params", "psnr"):
        series += [item for published in section.published for item in _published_series(published, section)]
    return FrontFigure(cost_kind(cost).title, axis_title("Test", metric), tuple(series), not cost_kind(cost).quantity)


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


def curve_figures(section: Section) -> tuple[CurvesFigure, CurvesFigure]:
    """The validation objective and the training loss over the epochs, one curve per finished run."""
    chosen = {identity for candidate in section.candidates for identity in candidate.run_ids}
    failed = {run.record.id for run in (*section.failed_runs, *section.outdated_runs)}
    objective = section.objective
    validation, training = [], []
    for run in section.runs:
        if run.record.id in failed:
            continue
        lines = run.metrics()
        place, is_chosen = section.architectures.index(run.architecture), run.record.id in chosen
        validation.append(_curve(run, lines, "validation", objective, place, is_chosen))
        training.append(_curve(run, lines, "train", "loss", place, is_chosen))
    return (
        CurvesFigure(axis_title("Validation", objective), False, tuple(filter(None, validation))),
        CurvesFigure("Training loss", True, tuple(filter(None, training))),
    )


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
        f"run {candidate.run_ids[0]}" + (f" and {len(values) - 1} more" if len(values) > 1 else ""),
    )


def _curve(run: Run, lines: list[dict[str, Any]], split: str, metric: str, place: int, chosen: bool) -> Curve | None:
    points = [line for line in lines if line.get("split") == split and line.get(metric) is not None]
    if not points:
        return None
    kept = run.record.selected.get("step")
    mark = next(((line["epoch"], line[metric]) for line in points if line["step"] == kept), None)
    stride = -(-len(points) // _MOST_POINTS)
    shown = [*points[::stride], points[-1]] if (len(points) - 1) % stride else points[::stride]
    return Curve(
        title=architecture_title(run.architecture),
        place=place,
        x=tuple(line["epoch"] for line in shown),
        y=tuple(line[metric] for line in shown),
        chosen=chosen,
        mark=mark if split == "validation" else None,
        details=(f"run {run.record.id}", run.settings),
    )
