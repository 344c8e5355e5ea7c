"""Shape laws as tables, sentences and a picture; `studies/laws.py` fits them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from matplotlib.axes import Axes

from isthmus.reports.axes import INK, fit_costs, labelled_digits, style_axis
from isthmus.reports.pictures import Picture
from isthmus.reports.plots import COLOURS, SYMBOLS
from isthmus.reports.tables import markdown_table
from isthmus.reports.text import architecture_title, axis_title, cost_kind, magnitude, percent, quantity
from isthmus.studies.laws import LEAST_BUDGETS, LEFT_OUT, LEVEL, Crossing, Estimate, FamilyLaw, Scaling

_LOWEST_CHANCE = 0.005
_NO_CHOICE = f"fewer than {LEAST_BUDGETS} budgets with a choice of shapes"
_DECADES = 50
"""A small panel whose costs span more has labels at powers of ten only."""


def title(law: Scaling) -> str:
    return f"{law.source} {law.task}, continued to {magnitude(law.to)} {cost_kind(law.cost).unit}".strip()


def quality_rows(law: Scaling) -> list[dict[str, str]]:
    """Per family: the best quality that was measured, the law, and its prediction."""
    return [
        {
            "Shape": architecture_title(each.family),
            "Budgets": f"{len(each.points)}, {magnitude(each.points[0].budget)} to {magnitude(each.points[-1].budget)}",
            axis_title(f"Best {law.split}", law.objective): quantity(each.points[-1].quality, law.objective),
            f"At {magnitude(law.to)}": _interval(each.quality, lambda value: quantity(value, law.objective)),
            "Limit": _interval(each.limit, lambda value: quantity(value, law.objective)),
            "Exponent": _interval(each.exponent, _decimals),
        }
        for each in law.families
    ]


def slope_rows(law: Scaling) -> list[dict[str, str]]:
    """Per family and field: how it grows with the budget, and its value at the larger one."""
    return [
        {
            "Shape": architecture_title(each.family),
            "Field": field,
            "Measured": f"{_width(each.points[0].shape[field])} to {_width(each.points[-1].shape[field])}",
            "Slope": _interval(slope, _decimals),
            f"At {magnitude(law.to)}": _interval(each.shape[field], _width) if field in each.shape else "–",
            "Budgets with a choice": f"{sum(point.shapes > 1 for point in each.points)} of {len(each.points)}",
            "Ends at the largest tried": "yes" if field in each.edges else "no",
        }
        for each in law.families
        for field, slope in each.slopes.items()
    ]


def check_rows(law: Scaling) -> list[dict[str, str]]:
    """Per left-out budget: measured beside what the law of the smaller budgets predicts."""
    return [
        {
            "Shape": architecture_title(each.family),
            "Left out": magnitude(check.budget),
            "Measured": quantity(check.measured, law.objective),
            "Predicted": _interval(check.predicted, lambda value: quantity(value, law.objective)),
            "Within": "yes" if check.is_inside else "no",
        }
        for each in law.families
        for check in each.checks
    ]


def sentences(law: Scaling) -> list[str]:
    """What the laws predict, in words."""
    said = [f"{architecture_title(family)}: {reason}" for family, reason in law.skipped.items()]
    for each in law.families:
        if each.network is not None:
            fields = " ".join(f"{name}={value}" for name, value in each.network.fields.items())
            part = each.network.followed
            limit = (
                "" if part == 1 else f"; the law is followed {percent(part)} of the way, as far as such networks exist"
            )
            said.append(f"Predicted network, {architecture_title(each.family)}: {fields}{limit}")
        elif not each.shape:
            ratio = each.points[-1].budget / each.points[0].budget
            name = architecture_title(each.family)
            said.append(f"{name}: its budgets span a factor of {ratio:.2f}, too little to predict a shape")
    if len(law.families) == 1:
        said.append("One family has a law here, so nothing can be said of a crossing; it needs budgets of another one.")
    return said + [_describe(crossing, law) for crossing in law.crossings]


def _describe(crossing: Crossing, law: Scaling) -> str:
    before, after = architecture_title(crossing.before), architecture_title(crossing.after)
    leader, chance = max(crossing.leads.items(), key=lambda item: item[1])
    lead = f"at {magnitude(law.to)} {architecture_title(leader)} leads with a chance of {percent(chance)}"
    if crossing.budget is None or crossing.chance < _LOWEST_CHANCE:
        return f"{before} and {after} do not cross up to {magnitude(law.to)}: {lead}."
    where = _interval(crossing.budget, magnitude)
    return f"With a chance of {percent(crossing.chance)} the lead passes from {before} to {after}, at {where}; {lead}."


def check_summary(laws: Iterable[Scaling]) -> dict[str, Any]:
    """How often the left-out budgets were predicted, how wide the intervals are, and how far the predictions are off.

    Widths and errors are parts of what the family gained over all its budgets, so that decibels and losses compare.
    """
    widths, errors, stays, inside, above = [], [], [], 0, 0
    for law in laws:
        sign = 1 if law.maximise else -1
        for each in law.families:
            gain = abs(each.points[-1].quality - each.points[0].quality) or 1.0
            for check in each.checks:
                inside += check.is_inside
                above += sign * (check.measured - check.predicted.value) > 0
                widths.append((check.predicted.high - check.predicted.low) / 2 / gain)
                errors.append(abs(check.measured - check.predicted.value) / gain)
                stays.append(abs(check.measured - check.reached) / gain)
    return {
        "cases": len(errors),
        "inside": inside,
        "better_than_predicted": above,
        "median_half_width": statistics.median(widths),
        "median_error": statistics.median(errors),
        "median_error_without_a_law": statistics.median(stays),
    }


def summary_sentence(laws: Iterable[Scaling]) -> str:
    found = check_summary(laws)
    error, width, stay = (
        percent(found[name]) for name in ("median_error", "median_half_width", "median_error_without_a_law")
    )
    return (
        f"Fitted without the {LEFT_OUT} largest budgets, the laws predict the best quality there within their "
        f"{percent(LEVEL)} interval in {found['inside']} of {found['cases']} cases. In parts of the family’s gain, "
        f"the median error is {error} and half the interval {width}; the best quality of the smaller budgets is {stay} "
        f"off. The measured quality is better than predicted in {found['better_than_predicted']} cases."
    )


def plain(law: Scaling) -> dict[str, Any]:
    """For JSON: without the bands of the picture; an infinite limit is null."""
    content = asdict(law)
    for family in content["families"]:
        del family["band"], family["check_band"]
        each = next(each for each in law.families if each.family == family["family"])
        family["searched"] = each.is_searched
        family["network"] = None if each.network is None else each.network._asdict()
        for name in ("exponent", "limit", "quality"):
            family[name] = _plain(getattr(each, name))
        for name in ("slopes", "shape"):
            family[name] = {field: _plain(value) for field, value in getattr(each, name).items()}
        family["checks"] = [
            {**asdict(check), "predicted": _plain(check.predicted), "inside": check.is_inside} for check in each.checks
        ]
    content["crossings"] = [
        {**asdict(each), "budget": None if each.budget is None else _plain(each.budget)} for each in law.crossings
    ]
    return content


def markdown(laws: Sequence[tuple[str, Scaling]], command: str) -> str:
    """The tables of all studies, each below its name."""
    lines = ["# Shape laws", "", f"`{command}` wrote this.", "", summary_sentence(law for _, law in laws), ""]
    lines += [f"Intervals are at {percent(LEVEL)}; a slope is the exponent of the budget.", ""]
    for study, law in laws:
        lines += [f"## {study}: {title(law)}", ""]
        for rows in (quality_rows(law), slope_rows(law), check_rows(law)):
            lines += [*markdown_table(rows), ""]
        lines += [f"- {said}" for said in sentences(law)] + [""]
    return "\n".join(lines).rstrip() + "\n"


def draw_laws(laws: Sequence[Scaling]) -> Picture:
    """A row per problem: quality over budget with law, band and left-out budgets, and a panel per field of the best
    networks' shapes."""
    fields = [list(dict.fromkeys(name for each in law.families for name in each.slopes)) for law in laws]
    heights = [max(4.8, 1.9 * math.ceil(len(names) / 2)) for names in fields]
    figure = Picture(figsize=(13, sum(heights)), layout="constrained")
    rows = figure.add_gridspec(len(laws), 2, height_ratios=heights)
    for row, (law, names) in enumerate(zip(laws, fields, strict=True)):
        _draw_qualities(figure.add_subplot(rows[row, 0]), law)
        panels = rows[row, 1].subgridspec(math.ceil(len(names) / 2), 2)
        for number, name in enumerate(names):
            _draw_shapes(figure.add_subplot(panels[number // 2, number % 2]), law, name)
    return figure


def _draw_qualities(axis: Axes, law: Scaling) -> None:
    for place, each in enumerate(law.families):
        _draw_quality(axis, each, place)
    seen = [point.quality for each in law.families for point in each.points]
    seen += [value for each in law.families for check in each.checks for value in check.predicted]
    seen += [each.quality.value for each in law.families]
    room = 0.08 * (max(seen) - min(seen))
    axis.set_ylim(min(seen) - room, max(seen) + room)
    axis.set_ylabel(axis_title(f"Best {law.split}", law.objective))
    axis.set_title(title(law), loc="left", fontsize=11, color=INK, parse_math=False)
    # What the lines mean is the same for all families.
    axis.plot([], [], color=INK, linewidth=1.6, label=f"law, {percent(LEVEL)} band")
    axis.plot([], [], color=INK, linewidth=1.1, linestyle="dashed", label="law without the left-out budgets")
    axis.plot([], [], "o", color=INK, markerfacecolor="white", label=f"left out, {percent(LEVEL)} prediction")
    if not all(each.is_searched for each in law.families):
        axis.plot([], [], color=INK, linewidth=1.2, linestyle="dotted", label=_NO_CHOICE)
    axis.legend(frameon=False, fontsize=8)
    _finish(axis, law)


def _draw_quality(axis: Axes, law: FamilyLaw, place: int) -> None:
    colour, marker = COLOURS[place % len(COLOURS)][0], SYMBOLS[place % len(SYMBOLS)][1]
    name, seen = architecture_title(law.family), len(law.points) - len(law.checks)
    costs, estimates = [cost for cost, _ in law.band], [estimate for _, estimate in law.band]
    low, high = [each.low for each in estimates], [each.high for each in estimates]
    axis.fill_between(costs, low, high, color=colour, alpha=0.13, linewidth=0)
    axis.plot(costs, [each.value for each in estimates], color=colour, linewidth=1.6)
    axis.plot(
        [cost for cost, _ in law.check_band], [each.value for _, each in law.check_band],
        color=colour, linewidth=1.1, linestyle="dashed",
    )  # fmt: skip
    known, left = law.points[:seen], law.points[seen:]
    axis.plot([p.budget for p in known], [p.quality for p in known], marker, color=colour, markersize=5.5, label=name)
    for check in law.checks:
        axis.plot([check.budget] * 2, [check.predicted.low, check.predicted.high], color=colour, linewidth=1, alpha=0.7)
    axis.plot(
        [p.budget for p in left], [p.quality for p in left], marker, color=colour, markerfacecolor="white",
        markersize=6.5,
    )  # fmt: skip


def _draw_shapes(axis: Axes, law: Scaling, field: str) -> None:
    """One field of all families that have it, with its slopes. A line goes through the middle of the points."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    shown: list[float] = []
    for place, each in ((place, each) for place, each in enumerate(law.families) if field in each.slopes):
        colour, marker = COLOURS[place % len(COLOURS)][0], SYMBOLS[place % len(SYMBOLS)][1]
        budgets, slope = [point.budget for point in each.points], each.slopes[field]
        values = [point.shape[field] for point in each.points]
        axis.plot(budgets, values, marker, color=colour, markersize=4.5, alpha=0.8)
        middle, height = statistics.geometric_mean(budgets), statistics.geometric_mean(values)
        ends = [budgets[0], law.to if field in each.shape else budgets[-1]]
        line = [height * (end / middle) ** slope.value for end in ends]
        style = "solid" if each.is_searched else "dotted"
        said = f"slope {_interval(slope, _decimals)}"
        axis.plot(ends, line, color=colour, linewidth=1.2, linestyle=style, label=said)
        shown += [*values, *line]
    _finish(axis, law, is_small=True)
    axis.set_yscale("log")
    spread = max(1.3, (max(shown) / min(shown)) ** 0.15)
    axis.set_ylim(min(shown) / spread, max(shown) * spread ** (1 + len(axis.lines) // 2))  # room for the legend
    digits = labelled_digits([*axis.get_ylim()])
    axis.yaxis.set_major_locator(LogLocator(subs=digits, numticks=9) if digits else MaxNLocator(4))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _width(value)))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_title(field, loc="left", fontsize=10, color=INK, parse_math=False)
    axis.legend(frameon=False, fontsize=7.5, loc="upper left", handlelength=1.5, borderaxespad=0.1)


def _finish(axis: Axes, law: Scaling, is_small: bool = False) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    costs = [law.to, *(point.budget for each in law.families for point in each.points)]
    axis.set_xscale("log")
    axis.set_xlim(*fit_costs(costs))
    digits = (1,) if is_small and max(costs) > _DECADES * min(costs) else (1, 2, 5)
    axis.xaxis.set_major_locator(LogLocator(subs=digits, numticks=12))
    axis.xaxis.set_major_formatter(EngFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    if is_small:
        axis.tick_params(labelsize=8)
    else:
        axis.set_xlabel(cost_kind(law.cost).title)
    style_axis(axis)


def _interval(estimate: Estimate, show: Any) -> str:
    """19.96 (19.80 to 20.11)."""
    value, low, high = ("∞" if math.isinf(number) else show(number) for number in estimate)
    return f"{value} ({low} to {high})" if low != high else value


def _decimals(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _width(value: float) -> str:
    return f"{value:.3g}" if value < 100 else magnitude(round(value)) if value >= 1e5 else f"{value:,.0f}"


def _plain(estimate: Estimate) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in estimate._asdict().items()}
