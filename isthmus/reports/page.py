"""One self-contained HTML page: script, style, figures and pictures are embedded, and its policy forbids requests.

Every value from a record passes through ``escape`` or ``_json``.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from isthmus.core.record import CONFIG
from isthmus.reports.drawing import draw_network, widest_layer
from isthmus.reports.figures import curve_figures, front_figure, gap_figure
from isthmus.reports.measures import Measures, measure
from isthmus.reports.plots import COLOURS, plotly_curves, plotly_fit, plotly_front, plotly_gap
from isthmus.reports.recommendation import copy_button, evidence, recommend
from isthmus.reports.sections import Run, Section, metric_names
from isthmus.reports.tables import Column, columns
from isthmus.reports.text import (
    answer,
    architecture_title,
    cost_kind,
    level,
    magnitude,
    metric_noun,
    metric_title,
    percent,
    span,
    summary,
    unit,
    with_spread,
)
from isthmus.studies.fronts import Candidate, best
from isthmus.studies.statistics import RULE
from isthmus.studies.volumes import Savings


def page(
    sections: Sequence[Section],
    unfinished: int,
    title: str,
    command: str,
    published: Sequence[str] = (),
    found: Mapping[str, Any] | None = None,
) -> str:
    """The HTML text of a report; it begins with the answer of a search, if there is one."""
    from plotly.offline import get_plotlyjs

    return Template(_file("page.html")).substitute(
        rule=RULE,
        title=escape(title),
        style=_file("page.css") + _colour_style(),
        summary=escape(_summary(sections, unfinished, published)),
        contents=_contents(sections),
        recommendation=_recommendation(sections[0], found) if found else "",
        sections="\n".join(
            _section(section, number, command, found if number == 1 else None)
            for number, section in enumerate(sections, start=1)
        ),
        plotly=get_plotlyjs(),
        script=_file("page.js"),
    )


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that cannot close the script element around it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _keep_unbroken(text: str) -> str:
    """Prevents a line break within a range such as 1.27–1.45 M."""
    return text.replace("–", "–\N{WORD JOINER}")


def _colour_style() -> str:
    light, dark = (
        "".join(f"--shape-{i}: {pair[side]}; --shape-{i}-faint: {pair[side]}33; " for i, pair in enumerate(COLOURS))
        for side in (0, 1)
    )
    return f":root {{ {light}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n"


def _summary(sections: Sequence[Section], unfinished: int, published: Sequence[str]) -> str:
    runs = [run for section in sections for run in section.runs]
    parts = [_count(len(runs), "run"), _count(sum(len(section.candidates) for section in sections), "candidate")]
    failed = sum(len(section.failed_runs) for section in sections)
    parts += [f"{failed} failed"] if failed else []
    refits = sum(len(section.refits) for section in sections)
    parts += [_count(refits, "refit")] if refits else []
    outdated = sum(len(section.outdated_runs) for section in sections)
    parts += [f"{outdated} not comparable"] if outdated else []
    parts += [f"{unfinished} unfinished, excluded"] if unfinished else []
    drawn = {item.name for section in sections for item in section.published}
    parts += [f"{name} not drawn: no section has its task" for name in dict.fromkeys(published) if name not in drawn]
    last = max(run.record.finished for run in runs)
    return " · ".join([*parts, f"last run {last[:10]}"] if last else parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < 2:
        return ""
    items = [
        f'<li><a href="#section-{i}">{escape(section.name)}</a></li>' for i, section in enumerate(sections, start=1)
    ]
    return f'<nav aria-label="Sections"><ol>{"".join(items)}</ol></nav>'


def _section(section: Section, number: int, command: str, found: Mapping[str, Any] | None) -> str:
    costs = section.costs
    # A search drops networks early, so that its fronts are too thin to compare architectures.
    measured = {} if found else {cost: measures for cost in costs if (measures := measure(section, cost))}
    figures: dict[str, Any] = {"answers": {cost: [*map(_keep_unbroken, answer(section, cost))] for cost in costs}}
    gaps = {cost: gap_figure(measures) for cost, measures in measured.items()}
    figures["gaps"] = {cost: plotly_gap(figure) for cost, figure in gaps.items() if figure}
    figures["curves"] = [plotly_curves(figure) for figure in curve_figures(section)]
    figures["fronts"] = {
        cost: {name: plotly_front(front_figure(section, cost, name)) for name in metric_names(section.candidates)}
        for cost in costs
    }
    if found and "points" in found["test"]:
        figures["fit"] = plotly_fit(found["test"]["points"])
    verdict, limits = map(escape, figures["answers"]["params"])
    words = f'<p class="answer" aria-live="polite">{verdict}</p>\n<p class="limits">{limits}</p>\n'
    return Template(_file("section.html")).substitute(
        number=number,
        evidence=evidence(found) if found else "",
        lines=_lines_note(section),
        kicker="" if found else f'<p class="kicker">{escape(section.name)}</p>\n',
        settings=_problem_settings(section),
        above="" if found else words + _best_networks(section),
        figures=_json(figures),
        plots="" if section.candidates else "hidden",
        costs=_options({cost: cost_kind(cost).title for cost in costs}),
        metrics=_options({name: metric_title(name) for name in metric_names(section.candidates)}),
        published=_published_notes(section),
        measures="".join(_measures(section, measures) for measures in measured.values()),
        samples=_samples(section),
        table=_candidates_table(section),
        failed=_refits_table(section) + _outdated_table(section) + _failed_table(section),
        more_curves="" if any("visible" in trace for trace in figures["curves"][1]["data"]) else "hidden",
        reproduce=_reproduce(section, command),
    )


def _options(titles: dict[str, str]) -> str:
    return "".join(f'<option value="{escape(name)}">{escape(title)}</option>' for name, title in titles.items())


def _problem_settings(section: Section) -> str:
    """The rows of each split, and the settings of the task and the source that are not the defaults."""
    rows = section.first.data.get("rows", {})
    parts = [f"{number:,}&nbsp;{escape(split)}&nbsp;rows" for split, number in rows.items()]
    for name, value in section.settings.items():
        if name not in ("path", "targets") and value != section.task:  # they are in the section's name
            text = Path(value).name if isinstance(value, str) and name.endswith("path") else str(value)
            parts.append(f"{escape(name)}&nbsp;{escape(text)}")
    return " · ".join(parts)


def _colour(section: Section, architecture: str) -> str:
    return f"var(--shape-{section.architectures.index(architecture) % len(COLOURS)})"


def _recommendation(section: Section, found: Mapping[str, Any]) -> str:
    name = found["best"]["model"]["name"]
    return recommend(found, section.name, _colour(section, name) if name in section.architectures else "var(--ink)")


def _best_networks(section: Section) -> str:
    """The best network of each architecture, drawn to scale."""
    figures = []
    candidates = [best(section.candidates_of(architecture)) for architecture in section.finished_architectures]
    widest = max((widest_layer(chosen.settings["model"]) for chosen in candidates), default=0)
    for chosen in candidates:
        drawing = draw_network(chosen.settings["model"], _colour(section, chosen.architecture), widest)
        reached = f"{metric_noun(chosen.objective)} {with_spread(chosen.mean, chosen.std, chosen.objective)}"
        text = f"{magnitude(chosen.params)} parameters, test {reached} {unit(chosen.objective)}".strip()
        caption = f"<b>{escape(architecture_title(chosen.architecture))}</b>, best on validation data: {escape(text)}"
        figures += [f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"] if drawing else []
    return f'<div class="networks">{"".join(figures)}</div>\n' if figures else ""


def _lines_note(section: Section) -> str:
    """What is drawn besides candidates."""
    note = ""
    if section.references:
        rows = "training and validation rows" if section.refits else "the training rows"
        note += f" Dotted: reference models, fitted to {rows}, on the same test rows."
    if section.refits:
        note += " Star: the chosen network, trained on training and validation rows."
    return note


def _published_notes(section: Section) -> str:
    """The origin of the dashed fronts."""
    notes = []
    for front in section.published:
        note = f"Dashed, unfilled: {front.title}, as printed in “{front.paper}”; PSNR over parameters only."
        if front.source != section.source:
            note += f" These runs use other data ({section.source}): compare the shapes of the curves, not the values."
        notes.append(f"<p class='note'>{escape(note)}</p>")
    return "".join(notes)


def _measures(section: Section, measures: Measures) -> str:
    """Hypervolumes, gap and savings for one cost; the page shows the block of the selected cost."""
    sentences = "".join(f"<li>{escape(_keep_unbroken(text))}</li>" for text in summary(section, measures.cost))
    return Template(_file("measures.html")).substitute(
        cost=escape(measures.cost),
        block="" if measures.cost == section.costs[0] else "hidden",
        overlap="" if any(gap.points for gap in measures.gaps) else "hidden",
        sentences=sentences,
        areas=_areas_table(measures),
        savings="".join(_savings_table(savings) for savings in measures.savings),
    )


def _areas_table(measures: Measures) -> str:
    rows = [
        [
            architecture_title(area.architecture),
            _keep_unbroken(span(area.start, area.stop)),
            str(area.members),
            f"{area.validation:.3g}",
            f"{area.test:.3g}",
        ]
        for area in measures.areas
    ]
    corner = f"{magnitude(measures.reference.cost)}, {level(measures.reference.quality, measures.objective)}"
    heads = ["Shape", "Tried", "On front", "Validation", "Test"]
    return _small_table(f"Hypervolume, measured from the worst of the grid: {corner}.", heads, rows)


def _savings_table(savings: Savings) -> str:
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
    return _small_table(f"{cost_kind(savings.cost).title} for the same quality on test data.{bound}", heads, rows)


def _small_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    kinds = ["", *[" class=number"] * (len(heads) - 1)]
    head = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for kind, text in zip(kinds, heads, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{escape(text)}</td>' for kind, text in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return (
        f"<div><p class='note'>{escape(caption)}</p><div class='scroll'><table class='small'>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _samples(section: Section) -> str:
    pictures = []
    for architecture in section.architectures:
        run = section.best_run(architecture)
        content = run.samples() if run else None
        if run and content:
            title = architecture_title(architecture)
            pictures.append(
                f'<figure><img alt="Input, output and target of {escape(title)}" '
                f'src="data:image/png;base64,{base64.b64encode(content).decode()}">'
                f"<figcaption><b>{escape(title)}</b>, run {copy_button(run.record.id)}</figcaption></figure>"
            )
    if not pictures:
        return ""
    return (
        "<h3>Samples</h3><p class='note'>Rows from top to bottom: input, output, target. "
        "The same test rows for each architecture; each run is the best on validation data.</p>"
        f"<div class='samples'>{''.join(pictures)}</div>"
    )


def _candidates_table(section: Section) -> str:
    if not section.candidates:
        return ""
    shown = columns(section.candidates)
    heads = "".join(
        f'<th scope="col"{_classes(column)}><button type="button">{escape(column.title)}</button></th>'
        for column in shown
    )
    ordered = [candidate for architecture in section.architectures for candidate in section.candidates_of(architecture)]
    rows = "".join(_candidate_row(candidate, section, shown) for candidate in ordered)
    return (
        "<h3>All candidates</h3><p class='note'>● is on the front of its architecture over parameters, "
        "chosen on validation data. Click a header to sort and a run to copy its id. "
        f"Mean ± 1 σ over {'folds' if section.is_folded else 'seeds'}"
        '<span class="extra">, and 5 σ as in the papers</span>.</p>'
        '<p><button type="button" class="more columns" aria-pressed="false">Show all columns</button></p>'
        '<div class="scroll"><table class="sortable">'
        '<thead><tr><th scope="col"><button type="button">Front</button></th>'
        f'{heads}<th scope="col">Run</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _candidate_row(candidate: Candidate, section: Section, shown: Iterable[Any]) -> str:
    member = candidate.run_ids in section.front_ids
    cells = "".join(
        f'<td{_classes(column)} data-value="{escape(str(column.value(candidate)))}">'
        f"{escape(column.text(candidate))}</td>"
        for column in shown
    )
    mark = (
        f'<span class="mark" style="--mark: {_colour(section, candidate.architecture)}">{"●" if member else "○"}</span>'
    )
    number = len(candidate.run_ids)
    runs = copy_button(section.best_of(candidate).record.id)
    runs += " " + copy_button(" ".join(candidate.run_ids), f"all {number}") if number > 1 else ""
    opening = '<tr class="front">' if member else "<tr>"
    return f'{opening}<td data-value="{int(member)}">{mark}</td>{cells}<td>{runs}</td></tr>'


def _classes(column: Column) -> str:
    names = ["number"] * column.numeric + ["extra"] * column.extra
    return f' class="{" ".join(names)}"' if names else ""


def _refits_table(section: Section) -> str:
    note = "Trained on training and validation rows together: test figures only, and no part in the comparison."
    figures = {run.record.id: level(run.record.quality() or 0.0, section.objective) for run in section.refits}
    return _runs_table(section.refits, "refit", note, "Test", figures)


def _failed_table(section: Section) -> str:
    note = "Excluded from means. A learning rate with a failed seed is not selected if another has none."
    records = [run.record for run in section.failed_runs]
    reasons = {record.id: record.reason or f"{record.objective} is not a finite number" for record in records}
    return _runs_table(section.failed_runs, "failed run", note, "Reason", reasons)


def _outdated_table(section: Section) -> str:
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
        f"<h3>{_count(len(runs), noun)}</h3><p class='note'>{note}</p>"
        f"<div class='scroll'><table><thead><tr><th>Run</th><th>Shape</th><th>Settings</th><th>{head}</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _reproduce(section: Section, command: str) -> str:
    commands = Counter(run.record.command for run in section.runs if run.record.command)
    lines = [command] if command else []
    lines += [f"{text}   # {_count(number, 'run')}" for text, number in commands.items() if text != command]
    blocks = [f"<pre>{escape(chr(10).join(lines))}</pre>"] if lines else []
    blocks.append(
        "<p>Each run folder and each row of <code>runs.csv</code> holds the complete config of its run. Save it as "
        "<code>run.json</code> to train that run again: <code>isthmus train run.json</code>.</p>"
    )
    for architecture in section.architectures:
        if run := section.best_run(architecture):
            config = escape(json.dumps(run.record.config, indent=2, ensure_ascii=False))
            name = f"{escape(architecture_title(architecture))} run, <code>{escape(run.record.id)}</code>"
            blocks.append(f"<details><summary>Config of the best {name}</summary><pre>{config}</pre></details>")
    return "".join(blocks) + _provenance(section.runs)


def _provenance(runs: Sequence[Run]) -> str:
    """Data, code, machine and versions; a value that differs between runs is listed with its number of runs."""
    facts = {
        "Data fingerprint": Counter(run.record.fingerprint for run in runs),
        "Code": Counter(_pairs(run.record.code) for run in runs),
        "Machine": Counter(_pairs(run.record.machine) for run in runs),
        "Versions": Counter(_pairs(run.record.versions) for run in runs),
    }
    items = []
    for name, values in facts.items():
        texts = [f"{value} ({_count(number, 'run')})" if len(values) > 1 else value for value, number in values.items()]
        items.append(f"<dt>{escape(name)}</dt><dd>{'<br>'.join(map(escape, texts))}</dd>")
    return f"<dl>{''.join(items)}</dl>"


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
