"""One self-contained HTML page: script, style, figures and pictures are embedded, and its policy forbids requests.

Every value from a record passes through ``escape`` or ``script_json``.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from isthmus.reports.contributions import list_contributions
from isthmus.reports.drawing import draw_network, widest_layer
from isthmus.reports.figures import answer_figure, curve_figures, front_figure, gap_figure
from isthmus.reports.html_tables import (
    areas_table,
    candidates_table,
    failed_table,
    outdated_table,
    pathways_table,
    refits_table,
    savings_table,
)
from isthmus.reports.markup import colour_of, copy_button, count, fill, keep_unbroken, read_file, shorten
from isthmus.reports.measures import Measures, measure
from isthmus.reports.plots import COLOURS, plotly_contributions, plotly_curves, plotly_fit, plotly_front, plotly_gap
from isthmus.reports.recommendation import evidence, fitted_partly, recommend
from isthmus.reports.sections import Run, Section, metric_names
from isthmus.reports.text import (
    answer,
    architecture_title,
    cost_kind,
    magnitude,
    metric_noun,
    metric_title,
    summary,
    unit,
    with_spread,
)
from isthmus.studies.fronts import best
from isthmus.studies.statistics import RULE

_COURSE = (
    "<div class='pair'><div><h3>What the search expects of each size</h3><div class='plot belief'></div>"
    "<p class='note'>Validation quality, the mean over folds or seeds. Band: what a Gaussian process, fitted to all "
    "trainings, expects of the best network up to each size.</p></div>"
    "<div><h3>What each network contributed</h3><div class='plot steps'></div>"
    "<p class='note'>The area under the front of all networks so far: quality over the logarithm of the parameters, "
    "above the worst network. Markers: networks that added to it when they were first trained.</p></div></div>"
)
_SPLITS = {"train": "training"}


def page(
    sections: Sequence[Section],
    unfinished: int,
    title: str,
    command: str,
    published: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> str:
    """The HTML text of a report."""
    from plotly.offline import get_plotlyjs

    return fill(
        "page.html",
        rule=RULE,
        title=escape(title),
        style=read_file("page.css") + colour_style(),
        summary=escape(_summary(sections, unfinished, published)),
        contents="".join(f"<p>{escape(note)}</p>\n" for note in notes) + _contents(sections),
        sections="\n".join(_section(section, number, command) for number, section in enumerate(sections, start=1)),
        compared="" if any(section.pairs and not section.found for section in sections) else "hidden",
        plotly=get_plotlyjs(),
        script=read_file("drawing.js") + read_file("page.js"),
    )


def script_json(value: Any) -> str:
    """JSON that cannot close the script element around it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def colour_style() -> str:
    """The palette as variables of a style sheet."""
    light, dark = (
        "".join(f"--shape-{i}: {pair[side]}; --shape-{i}-faint: {pair[side]}33; " for i, pair in enumerate(COLOURS))
        for side in (0, 1)
    )
    return f":root {{ {light}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n"


def _summary(sections: Sequence[Section], unfinished: int, published: Sequence[str]) -> str:
    runs = [run for section in sections for run in section.runs]
    parts = [count(len(runs), "run"), count(sum(len(section.candidates) for section in sections), "candidate")]
    failed = sum(len(section.failed_runs) for section in sections)
    parts += [f"{failed} failed"] if failed else []
    refits = sum(len(section.refits) for section in sections)
    parts += [count(refits, "refit")] if refits else []
    outdated = sum(len(section.outdated_runs) for section in sections)
    parts += [f"{outdated} not comparable"] if outdated else []
    parts += [f"{unfinished} unfinished, excluded"] if unfinished else []
    drawn = {item.name for section in sections for item in section.published}
    parts += [f"{name} not drawn: no section has its task" for name in dict.fromkeys(published) if name not in drawn]
    last = max(run.record.finished for run in runs)
    return " · ".join([*parts, f"last run {last[:10]}"] if last else parts)


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < 2:
        return ""
    items = [
        f'<li><a href="#section-{i}">{escape(section.name)}</a></li>' for i, section in enumerate(sections, start=1)
    ]
    return f'<nav aria-label="Sections"><ol>{"".join(items)}</ol></nav>'


def _section(section: Section, number: int, command: str) -> str:
    costs, found = section.costs, section.found
    # A search drops networks early, so that its fronts are too thin to compare architectures.
    measured = {} if found else {cost: measures for cost in costs if (measures := measure(section, cost))}
    figures = _figures(section, measured)
    return fill(
        "section.html",
        number=number,
        name=escape(section.name),
        evidence=evidence(section) if found else "",
        course=_COURSE if "contributions" in figures else "",
        lines=_lines_note(section),
        pathways=pathways_table(section) if not found else "",
        above=recommend(section) if found else _comparison(section, figures) + _best_networks(section),
        figures=script_json(figures),
        plots="" if section.candidates else "hidden",
        costs=_options({cost: cost_kind(cost).title for cost in costs}),
        metrics=_options({name: metric_title(name) for name in metric_names(section.candidates)}),
        published=_published_notes(section),
        measures="".join(_measures(section, measures) for measures in measured.values()),
        samples=_samples(section),
        table=candidates_table(section),
        failed=refits_table(section) + outdated_table(section) + failed_table(section),
        more_curves="" if any("visible" in trace for trace in figures["curves"][1]["data"]) else "hidden",
        reproduce=_reproduce(section, command),
    )


def _figures(section: Section, measured: Mapping[str, Measures]) -> dict[str, Any]:
    """The figures and texts among which the script of the page chooses."""
    costs, found = section.costs, section.found
    gaps = {cost: gap_figure(measures) for cost, measures in measured.items()}
    figures: dict[str, Any] = {
        "answers": {} if found else {cost: [*map(keep_unbroken, answer(section, cost))] for cost in costs},
        "gaps": {cost: plotly_gap(figure) for cost, figure in gaps.items() if figure},
        "curves": [plotly_curves(figure) for figure in curve_figures(section)],
        "fronts": {
            cost: {name: plotly_front(front_figure(section, cost, name)) for name in metric_names(section.candidates)}
            for cost in costs
        },
    }
    if found and "points" in found["test"]:
        figures["fit"] = plotly_fit(found["test"]["points"], section.targets[:1])
    if found and (listed := list_contributions(found, section.by_id)):
        figures["contributions"] = plotly_contributions(listed)
        figures["belief"] = plotly_front(answer_figure(found))
    return figures


def _comparison(section: Section, figures: Mapping[str, Any]) -> str:
    """Which architecture leads where, and the settings of the problem."""
    verdict, limits = map(escape, figures["answers"][section.costs[0]])
    return (
        f'<p class="answer" aria-live="polite">{verdict}</p>\n<p class="limits">{limits}</p>\n'
        f'<p class="quiet settings">{_problem_settings(section)}</p>\n'
    )


def _options(titles: dict[str, str]) -> str:
    return "".join(f'<option value="{escape(name)}">{escape(title)}</option>' for name, title in titles.items())


def _problem_settings(section: Section) -> str:
    """The rows of each split, and the settings of the task and the source that are not the defaults."""
    rows = section.first.data.get("rows", {})
    parts = [f"{number:,}&nbsp;{escape(_SPLITS.get(split, split))}&nbsp;rows" for split, number in rows.items()]
    for name, value in section.settings.items():
        if name not in ("path", "targets") and value != section.task:  # they are in the section's name
            text = Path(value).name if isinstance(value, str) and name.endswith("path") else str(value)
            parts.append(f"{escape(name)}&nbsp;{shorten(text)}")
    return " · ".join(parts)


def _best_networks(section: Section) -> str:
    """The best network of each architecture, drawn to scale."""
    figures = []
    candidates = [best(section.candidates_of(architecture)) for architecture in section.finished_architectures]
    widest = max((widest_layer(chosen.settings["model"]) for chosen in candidates), default=0)
    for chosen in candidates:
        drawing = draw_network(chosen.settings["model"], colour_of(section, chosen.architecture), widest)
        reached = f"{metric_noun(chosen.objective)} {with_spread(chosen.mean, chosen.std, chosen.objective)}"
        text = f"{magnitude(chosen.params)} parameters, test {reached} {unit(chosen.objective)}".strip()
        caption = f"<b>{escape(architecture_title(chosen.architecture))}</b>, best on validation data: {escape(text)}"
        figures += [f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"] if drawing else []
    return f'<div class="networks">{"".join(figures)}</div>\n' if figures else ""


def _lines_note(section: Section) -> str:
    """The note on what is drawn besides candidates."""
    note = ""
    if section.references:
        rows = "training and validation rows" if section.refits else "the training rows"
        rows = f"{rows}, some of them to a part" if fitted_partly(section.found) else rows
        note += f" Dotted: reference models, fitted to {rows}, on the same test rows."
    if section.versions:
        note += " Open markers: int8 weights in all layers, or (mixed) in those that lose little."
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
    sentences = "".join(f"<li>{escape(keep_unbroken(text))}</li>" for text in summary(section, measures.cost))
    return fill(
        "measures.html",
        cost=escape(measures.cost),
        block="" if measures.cost == section.costs[0] else "hidden",
        overlap="" if any(gap.points for gap in measures.gaps) else "hidden",
        sentences=sentences,
        areas=areas_table(measures),
        savings="".join(savings_table(savings) for savings in measures.savings),
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


def _reproduce(section: Section, command: str) -> str:
    commands = Counter(run.record.command for run in section.runs if run.record.command)
    lines = [command] if command else []
    lines += [f"{text}   # {count(number, 'run')}" for text, number in commands.items() if text != command]
    blocks = [f"<pre>{escape(chr(10).join(lines))}</pre>"] if lines else []
    blocks.append(
        "<p>Each run folder and each row of <code>runs.csv</code> holds the complete config of its run. Save it as "
        "<code>run.json</code> to train that run again: <code>isthmus train run.json</code>.</p>"
    )
    for architecture in section.architectures:
        if run := section.best_run(architecture):
            config_text = json.dumps(run.record.config, indent=2, ensure_ascii=False)
            summary_of = f"<summary>Config of the best {escape(architecture_title(architecture))} run</summary>"
            buttons = f"<p>Run {copy_button(run.record.id)} {copy_button(config_text, 'copy config')}</p>"
            blocks.append(f"<details>{summary_of}{buttons}<pre tabindex='0'>{escape(config_text)}</pre></details>")
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
        texts = [f"{value} ({count(number, 'run')})" if len(values) > 1 else value for value, number in values.items()]
        items.append(f"<dt>{escape(name)}</dt><dd>{'<br>'.join(map(escape, texts))}</dd>")
    return f"<dl>{''.join(items)}</dl>"


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
