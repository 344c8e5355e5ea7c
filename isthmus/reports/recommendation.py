"""What a search recommends, as the page shows it: the box at its top, and the evidence under it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from isthmus.reports.drawing import draw_network
from isthmus.reports.text import magnitude, metric_noun, quantity, unit

_SHORT_ID = 8
"""Characters of a run's id that a button shows; it copies all of them."""


def recommend(answer: Mapping[str, Any], task: str, colour: str) -> str:
    """The box: the verdict, the network, its figures, and what to type."""
    verdict, *reasons = answer["sentences"]
    best = answer["best"]
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd><b>{escape(value)}</b><span>{escape(note)}</span></dd></div>"
        for name, value, note in _facts(answer)
    )
    return Template(files(__package__).joinpath("recommendation.html").read_text(encoding="utf-8")).substitute(
        task=escape(task),
        verdict=escape(verdict),
        reasons="".join(f"<li>{escape(sentence)}</li>" for sentence in reasons),
        facts=facts,
        network=draw_network(best["model"], colour),
        title=f"{escape(best['title'])}, run {copy_button(best['run'])}",
        commands="".join(
            f"<dt>{escape(name)}</dt><dd><code>{escape(text)}</code>{copy_button(text, 'copy')}</dd>"
            for name, text in answer["commands"].items()
        ),
    )


def _facts(answer: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, value and explanation of each figure."""
    test, rows, metric = answer["test"], answer["rows"], answer["objective"]
    known = [value for value in test["values"] if value is not None]
    ends = " to ".join(quantity(test[end], metric) for end in ("low", "high") if end in test)
    seeds = f"{len(known)} seed{'s' * (len(known) > 1)}"
    split = f"{rows['train']:,} training, {rows['validation']:,} validation, {rows['test']:,} test"
    split += f" in each of {answer['folds']} folds" if answer["folds"] else ""
    facts = [
        (
            f"Test {metric_noun(metric)}",
            f"{quantity(statistics.fmean(known), metric)} {unit(metric)}".strip() if known else "–",
            ", ".join([f"95 % interval {ends}"] * bool(ends) + [f"{rows['test']:,} test rows", seeds]),
        ),
        ("Parameters", magnitude(answer["best"]["params"]), f"at most {magnitude(answer['budget'])} allowed"),
    ]
    if "latency" in answer:
        facts.append(("Latency", f"{answer['latency']:.2g} ms", "per row, one at a time, on the machine of the search"))
    return [*facts, ("Rows", f"{sum(rows.values()):,}", split)]


def evidence(answer: Mapping[str, Any]) -> str:
    """Predictions of single test rows, and what was found in the data."""
    test = answer["test"]
    shown = ""
    if "points" in test:
        number = len(test["points"]["true"])
        count = f"{number} of {answer['rows']['test']:,}" if number < answer["rows"]["test"] else f"All {number}"
        shown = (
            "<div><h3>Predicted against true</h3><div class='plot fit'></div>"
            f"<p class='note'>{count} test rows. On the line, a prediction is exact.</p></div>"
        )
    elif "confusion" in test:
        shown = f"<div><h3>Predicted against true classes</h3>{_confusion(**test['confusion'])}</div>"
    findings = [*answer["words"], *answer["findings"]]
    listed = "".join(f"<li>{_with_code(text)}</li>" for text in findings)
    found = f"<div><h3>What was found in the data</h3><ul class='facts'>{listed}</ul></div>" if findings else ""
    return f"<div class='pair evidence'>{shown}{found}</div>" if shown or found else ""


def _confusion(classes: list[str], counts: list[list[int]], omitted: int = 0) -> str:
    heads = "".join(f"<th scope='col'>{escape(name)}</th>" for name in classes)
    rows = ""
    for name, line in zip(classes, counts, strict=True):
        cells = "".join(f"<td style='--share: {count / max(sum(line), 1):.3f}'>{count or '·'}</td>" for count in line)
        rows += f"<tr><th scope='row'>{escape(name)}</th>{cells}</tr>"
    note = "Test rows. A row is a true class, a column the prediction; the diagonal is correct."
    note += f" {omitted} rarer classes are left out." if omitted else ""
    return (
        f"<div class='scroll'><table class='confusion'><thead><tr><th></th>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div><p class='note'>{note}</p>"
    )


def copy_button(text: str, label: str = "") -> str:
    """A button that copies a text; without a label it shows the beginning of a run's id."""
    shown = escape(label) if label else f"<code>{escape(text[:_SHORT_ID])}</code>"
    return f'<button type="button" class="copy" data-copy="{escape(text)}" title="copy {escape(text)}">{shown}</button>'


def _with_code(text: str) -> str:
    """Escaped text, with names in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
