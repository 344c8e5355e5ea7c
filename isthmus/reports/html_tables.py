"""The tables of the page as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape

from isthmus.core.record import CONFIG
from isthmus.core.titles import title_fields
from isthmus.reports.markup import colour_of, copy_button, count, keep_unbroken
from isthmus.reports.measures import Measures
from isthmus.reports.sections import Run, Section
from isthmus.reports.tables import Column, columns
from isthmus.reports.text import (
    architecture_title,
    cost_kind,
    interval_ends,
    level,
    magnitude,
    metric_title,
    percent,
    span,
    unit,
)
from isthmus.studies.fronts import Candidate
from isthmus.studies.pathway_gaps import PathwayGap
from isthmus.studies.statistics import Interval
from isthmus.studies.volumes import Savings

_MOST_ROWS = 40
"""A table of more candidates scrolls in a box of its own."""


def areas_table(measures: Measures) -> str:
    rows = [
        [
            architecture_title(area.architecture),
            keep_unbroken(span(area.start, area.stop)),
            str(area.members),
            f"{area.validation:.3g}",
            f"{area.test:.3g}",
        ]
        for area in measures.areas
    ]
    corner = f"{magnitude(measures.reference.cost)}, {level(measures.reference.quality, measures.objective)}"
    heads = ["Shape", "Tried", "On front", "Validation", "Test"]
    return small_table(f"Hypervolume, measured from the worst of the grid: {corner}.", heads, rows)


def savings_table(savings: Savings) -> str:
    first, second = map(architecture_title, savings.architectures)
    heads = [metric_title(savings.objective), second, first, "Saved", "Saved, significant"]
    rows = [
        [
            level(saving.quality, savings.objective),
            magnitude(saving.second_cost),
            "not reached" if saving.first_cost is None else "≤ " * saving.smallest + magnitude(saving.first_cost),
            "–" if saving.fraction is None else "≥ " * saving.smallest + percent(saving.fraction),
            "–" if saving.sure_fraction is None else percent(saving.sure_fraction),
        ]
        for saving in savings.savings
    ]
    bound = f" ≤: the smallest {first} tried." if any(saving.smallest for saving in savings.savings) else ""
    return small_table(f"{cost_kind(savings.cost).title} for the same quality on test data.{bound}", heads, rows)


_VERDICTS = {"ahead": "better", "behind": "worse", "undecided": "undecided"}


def pathways_table(section: Section) -> str:
    """Every pathway against plain at equal shapes, on average and by shape."""
    gaps = section.pathway_gaps
    if not gaps:
        return ""
    metric = section.objective
    title = f"{metric_title(metric)} ({unit(metric)})" if unit(metric) else metric_title(metric)
    heads = ["Pathway", "Shapes", f"{title}, difference", "95 % interval", "Verdict", "Params", "MACs", "Time"]
    rows = [
        [gap.pathway, str(len(gap.shapes)), *_difference(gap.mean), _VERDICTS[gap.decision], *_ratios(gap)]
        for gap in gaps
    ]
    note = (
        "Networks that differ in nothing but the pathway, paired by seed, on test data: means over the shapes tried "
        "with both. A positive difference is better. Params, MACs and training time are ratios to plain."
    )
    tables = small_table(note, heads, rows)
    shapes = list(dict.fromkeys(_shape_title(shape.plain) for gap in gaps for shape in gap.shapes))
    if len(shapes) > 1:
        cells = {
            (gap.pathway, _shape_title(each.plain)): " ± ".join(_half(each.difference))
            for gap in gaps
            for each in gap.shapes
        }
        by_shape = [[shape, *(cells.get((gap.pathway, shape), "–") for gap in gaps)] for shape in shapes]
        tables += small_table(
            "Difference by shape, ± half of the 95 % interval.", ["Shape", *(gap.pathway for gap in gaps)], by_shape
        )
    return f"<h3>Pathways against plain</h3><div class='pathways'>{tables}</div>"


def _difference(difference: Interval) -> tuple[str, str]:
    value, ends = interval_ends(difference)
    return value if value.startswith("−") else f"+{value}", ends or "one seed"


def _half(difference: Interval) -> list[str]:
    half = difference.half_width
    return [
        _difference(difference)[0],
        *([] if half is None else [interval_ends(replace(difference, difference=half))[0]]),
    ]


def _ratios(gap: PathwayGap) -> list[str]:
    costs = (
        gap.ratio(lambda each: each.params),
        gap.ratio(lambda each: each.macs),
        gap.ratio(lambda each: each.wall_seconds),
    )
    return [f"× {cost:.2f}" for cost in costs]


def _shape_title(candidate: Candidate) -> str:
    model = candidate.settings["model"]
    sizes = ", ".join(f"{name} {value}" for name, value in title_fields(model).items())
    return f"{architecture_title(model['name'])} {sizes}"


def small_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    kinds = ["", *[" class=number"] * (len(heads) - 1)]
    head = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for kind, text in zip(kinds, heads, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{escape(text)}</td>' for kind, text in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return (
        f"<div><p class='note'>{escape(caption)}</p><div class='scroll' tabindex='0'><table class='small'>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def candidates_table(section: Section) -> str:
    if not section.candidates:
        return ""
    cost = section.costs[0]
    shown, members = columns(section.at(cost)), section.front_at(cost)
    heads = "".join(
        f'<th scope="col"{_classes(column)}><button type="button">{escape(column.title)}</button></th>'
        for column in shown
    )
    ordered = [
        candidate for architecture in section.architectures for candidate in section.candidates_of(architecture, cost)
    ]
    rows = "".join(_candidate_row(each, section, shown, each.identity in members) for each in ordered)
    return (
        "<h3>All candidates</h3><p class='note'>● is on the front of its architecture over "
        f"{cost_kind(cost).noun}, "
        "chosen on validation data. Click a header to sort and a run to copy its id. "
        f"Mean ± 1 σ over {'folds' if section.is_folded else 'seeds'}"
        '<span class="extra">, and 5 σ as in the papers</span>.</p>'
        '<p><button type="button" class="more columns" aria-pressed="false">Show all columns</button></p>'
        f'<div class="scroll{" tall" * (len(ordered) > _MOST_ROWS)}"><table class="sortable">'
        '<thead><tr><th scope="col"><button type="button">Front</button></th>'
        f'{heads}<th scope="col">Run</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _candidate_row(candidate: Candidate, section: Section, shown: Iterable[Column], member: bool) -> str:
    cells = "".join(
        f'<td{_classes(column)} data-value="{escape(str(column.value(candidate)))}">'
        f"{escape(column.text(candidate))}</td>"
        for column in shown
    )
    colour = colour_of(section, candidate.architecture)
    mark = f'<span class="mark" style="--mark: {colour}">{"●" if member else "○"}</span>'
    number = len(candidate.run_ids)
    runs = copy_button(section.best_of(candidate).record.id)
    runs += " " + copy_button(" ".join(candidate.run_ids), f"all {number}") if number > 1 else ""
    opening = '<tr class="front">' if member else "<tr>"
    return f'{opening}<td data-value="{int(member)}">{mark}</td>{cells}<td>{runs}</td></tr>'


def _classes(column: Column) -> str:
    names = ["number"] * column.numeric + ["extra"] * column.extra
    return f' class="{" ".join(names)}"' if names else ""


def refits_table(section: Section) -> str:
    note = "Trained on training and validation rows together: test figures only, and no part in the comparison."
    figures = {run.record.id: level(run.record.quality() or 0.0, section.objective) for run in section.refits}
    return _runs_table(section.refits, "refit", note, "Test", figures)


def failed_table(section: Section) -> str:
    note = "Excluded from means. A learning rate with a failed seed is not selected if another has none."
    records = [run.record for run in section.failed_runs]
    reasons = {record.id: record.reason or f"{record.objective} is not a finite number" for record in records}
    return _runs_table(section.failed_runs, "failed run", note, "Reason", reasons)


def outdated_table(section: Section) -> str:
    note = "Excluded: an earlier version computed their quality differently."
    reasons = {
        run.record.id: f"not comparable; `isthmus train {run.folder / CONFIG}` evaluates it again"
        for run in section.outdated_runs
    }
    return _runs_table(section.outdated_runs, "older run", note, "Reason", reasons)


def _runs_table(runs: Sequence[Run], noun: str, note: str, head: str, texts: Mapping[str, str]) -> str:
    """Runs that are no candidates, with a text for each under ``head``."""
    if not runs:
        return ""
    rows = ""
    for run in runs:
        cells = [architecture_title(run.architecture), run.settings, texts[run.record.id]]
        rows += f"<tr><td>{copy_button(run.record.id)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    return (
        f"<h3>{count(len(runs), noun)}</h3><p class='note'>{note}</p>"
        "<div class='scroll' tabindex='0'><table>"
        f"<thead><tr><th>Run</th><th>Shape</th><th>Settings</th><th>{head}</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )
