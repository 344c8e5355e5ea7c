"""What a search recommends, as the page shows it: the box at the top of its section, and the evidence below."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from isthmus.reports.drawing import draw_network
from isthmus.reports.html_tables import small_table
from isthmus.reports.markup import colour_of, copy_button, count, fill, mark_code, shorten
from isthmus.reports.sections import Section
from isthmus.reports.text import magnitude, metric_noun, quantity, unit

_FEW_CLASSES, _SHORT_NAMES = 8, 60
"""Up to so many classes, and characters of all their names, the names are the heads of columns too."""


def recommend(section: Section) -> str:
    """The box: the verdict, the network, its figures, and what to type."""
    found = section.found
    verdict, *reasons = found["sentences"]
    best, name = found["best"], found["best"]["model"]["name"]
    return fill(
        "recommendation.html",
        verdict=mark_code(verdict),
        reasons="".join(f"<li>{mark_code(sentence)}</li>" for sentence in reasons),
        facts="".join(
            f"<div><dt>{escape(title)}</dt><dd><b>{escape(value)}</b><span>{escape(note)}</span></dd></div>"
            for title, value, note in _facts(found)
        ),
        network=draw_network(
            best["model"], colour_of(section, name) if name in section.architectures else "var(--ink)"
        ),
        title=f"{escape(best['title'])}, run {copy_button(best['run'])}",
        commands="".join(
            f"<dt>{escape(title)}</dt><dd><code>{escape(text)}</code>{copy_button(text, 'copy')}</dd>"
            for title, text in found["commands"].items()
        ),
    )


def _facts(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and explanation of each figure."""
    test, rows, metric = found["test"], found["rows"], found["objective"]
    known, ends = _finite(test["values"]), _finite([test.get("low"), test.get("high")])
    interval = f"95 % interval {' to '.join(quantity(end, metric) for end in ends)}"
    seeds = [count(len(known), "seed")] if known else ["not defined for these rows"]
    split = f"{rows['train']:,} training, {rows['validation']:,} validation, {rows['test']:,} test"
    split += f" in each of {found['folds']} folds" if found["folds"] else ""
    facts = [
        (
            f"Test {metric_noun(metric)}",
            f"{quantity(statistics.fmean(known), metric)} {unit(metric)}".strip() if known else "–",
            ", ".join([interval] * bool(known and ends) + [count(rows["test"], "test row"), *seeds]),
        ),
        ("Parameters", magnitude(found["best"]["params"]), f"at most {magnitude(found['budget'])} allowed"),
    ]
    if "latency" in found:
        facts.append(("Latency", f"{found['latency']:.2g} ms", "per row, one at a time, on the machine of the search"))
    return [*facts, ("Rows", f"{sum(rows.values()):,}", split)]


def evidence(section: Section) -> str:
    """Predictions of single test rows, the reference models, and what was found in the data."""
    test, found = section.found["test"], section.found
    shown, wide = "", ""
    if "points" in test:
        shown = f"<h3>Predicted against true</h3><div class='plot fit'></div><p class='note'>{_fit_note(section)}</p>"
    elif "confusion" in test:
        shown = f"<h3>Predicted against true classes</h3>{_confusion(**test['confusion'])}"
        wide = " class='wide'" if len(test["confusion"]["classes"]) > _FEW_CLASSES else ""
    listed = "".join(f"<li>{mark_code(text)}</li>" for text in [*found["words"], *found["findings"]])
    beside = _references(section) if section.references else ""
    beside += f"<h3>What was found in the data</h3><ul class='facts'>{listed}</ul>" if listed else ""
    return f"<div class='pair evidence'><div{wide}>{shown}</div><div>{beside}</div></div>" if shown or beside else ""


def _references(section: Section) -> str:
    """The recommended network among the reference models, on the same test rows."""
    found, metric = section.found, section.objective
    known = _finite(found["test"]["values"])
    ours = [found["test"] | {"title": "recommended network", "test": statistics.fmean(known)}] if known else []
    theirs = [each for each in found["references"] if each["title"] in section.references]
    rows, partly = [], fitted_partly(found)
    for each in sorted([*ours, *theirs], key=lambda each: each["test"], reverse=section.first.maximise):
        interval = " to ".join(quantity(end, metric) for end in _finite([each.get("low"), each.get("high")]))
        name = each["title"].removeprefix("the ").capitalize()
        name += f" ({partly[each['title']]:,} rows)" if each["title"] in partly else ""
        rows.append([name, quantity(each["test"], metric), interval or "–"])
    heads = ["Model", f"Test {metric_noun(metric)}", "95 % interval"]
    return f"<h3>Beside reference models</h3>{small_table('On the same test rows.', heads, rows)}"


def fitted_partly(found: Mapping[str, Any]) -> dict[str, int]:
    """How many rows the references saw for which there was no time to see all training rows, by title."""
    every, references = found["rows"]["train"], found["references"]
    return {each["title"]: each["fitted_rows"] for each in references if each.get("fitted_rows", every) < every}


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _fit_note(section: Section) -> str:
    """How many test rows are drawn, of which target, and how far their predictions are off."""
    points, rows, targets = section.found["test"]["points"], section.found["rows"]["test"], section.targets
    number = len(points["true"])
    which = f"{number} of {rows:,} test rows" if number < rows else f"All {number} test rows"
    which += f", {shorten(targets[0])} only (the first of {len(targets)} targets)" if len(targets) > 1 else ""
    errors = [abs(true - predicted) for true, predicted in zip(points["true"], points["predicted"], strict=True)]
    half = f"Half of the predictions are within {statistics.median(errors):.3g} of the true value."
    return f"{which}. On the line, a prediction is exact. {half}"


def _confusion(classes: Sequence[str], counts: Sequence[Sequence[int]], omitted: int = 0) -> str:
    """How often each class was taken for another; many or long names are numbered, to keep columns narrow."""
    numbered = len(classes) > _FEW_CLASSES or sum(map(len, classes)) > _SHORT_NAMES
    heads = rows = ""
    for number, (name, line) in enumerate(zip(classes, counts, strict=True), start=1):
        head = f"<span title='{escape(name)}'>{number}</span>" if numbered else escape(name)
        heads += f"<th scope='col'>{head}</th>"
        cells = "".join(f"<td style='--share: {each / max(sum(line), 1):.3f}'>{each or '·'}</td>" for each in line)
        first = f"<span class='quiet'>{number}</span> {shorten(name, 40)}" if numbered else escape(name)
        rows += f"<tr><th scope='row'>{first}</th>{cells}</tr>"
    note = "Test rows. A row is a true class, a column the prediction; the diagonal is correct."
    note += f" {omitted} rarer {'classes are' if omitted > 1 else 'class is'} left out." if omitted else ""
    return (
        f"<div class='scroll' tabindex='0'><table class='confusion'><thead><tr><td></td>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div><p class='note'>{note}</p>"
    )
