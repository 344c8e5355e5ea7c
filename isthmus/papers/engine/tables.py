"""A result as text: Markdown, CSV, and the tables that the terminal shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.core.record import flatten
from isthmus.core.titles import pathway_title
from isthmus.reports.tables import csv_text, markdown_table
from isthmus.reports.text import architecture_title
from isthmus.studies.statistics import Interval

Result = Mapping[str, Any]
NOTE = (
    "Means ± one standard deviation over runs (a fifth of the printed spread where a paper prints five). Learning "
    "rates and weights are selected on validation data."
)
RIVALS = (
    " A rival is the best network of the other shape, selected on validation data, with at most 1.02 times the "
    "parameters. Each lead is printed with its 95 % interval."
)
LEADS = ("lead over rival", "as published")
CLAIM = {
    "claim": "id", "says": "statement", "measured": "measured", "same test, printed numbers": "published",
    "supported by its own tables": "supported",
}  # fmt: skip
NOTHING = "–"


def note(result: Result) -> str:
    """How to read the rows."""
    compared = any(row["rival"]["measured"] or row["rival"]["published"] for row in result["rows"])
    percent = " Accuracies are in percent." if any(row["unit"] == "points" for row in result["rows"]) else ""
    return NOTE + percent + RIVALS * compared


def table(result: Result) -> list[dict[str, str]]:
    """The rows as text: printed beside measured, and each lead over a rival, if there are any."""
    fields = list(dict.fromkeys(name for row in result["rows"] for name in row["model"]))
    parts = len({row["part"] for row in result["rows"]}) > 1
    uneven = len({len(row["seeds"]) for row in result["rows"] if row["measured"]}) > 1
    rows = [
        {
            "row": row["id"],
            **({"part": row["part"] if row["measured"] else row["printed_in"]} if parts else {}),
            "shape": architecture_title(row["architecture"]),
            **{name: _show_setting(row["model"], name) for name in fields},
            "parameters": f"{row['params'] / 1e6:.3f} M",
            "published": _quality(row["published"], row["unit"]),
            "measured": _quality(row["measured"], row["unit"]),
            **({"seeds": str(len(row["seeds"]))} if uneven else {}),
            "against published": row["verdict"]["word"],
            "lead over rival": _lead(row["rival"]["measured"]),
            "as published": _lead(row["rival"]["published"]),
        }
        for row in result["rows"]
    ]
    empty = all(row[name] == NOTHING for row in rows for name in LEADS)
    return [{name: cell for name, cell in row.items() if not (empty and name in LEADS)} for row in rows]


def _show_setting(model: Mapping[str, Any], name: str) -> str:
    if name == "pathway":
        return pathway_title(model.get(name) or "plain")
    return "" if model.get(name) is None else str(model[name])


def _quality(value: Mapping[str, Any] | None, unit: str) -> str:
    if value is None:
        return NOTHING
    digits, more = value.get("decimals") or ((2, 2) if unit == "points" else (3, 4))
    return f"{value['mean']:.{digits}f}" + ("" if value["std"] is None else f" ± {value['std']:.{more}f}")


def _lead(lead: Mapping[str, Any] | None) -> str:
    if lead is None or lead["interval"] is None:
        return NOTHING if lead is None else lead["word"]
    return f"{lead['word']}: {Interval(**lead['interval']).text()} over {lead['id']}"


def markdown(result: Result) -> str:
    lines = [
        f"# {result['title']}: {result['printed_as']}, measured again",
        "",
        f"{result['shows']} Scale `{result['scale']}`: `{result['command']}`",
        "",
        *_section("Rows", table(result), note(result)),
        *_section("Values", quantities(result)),
        "## Claims",
        "",
        *markdown_table([{title: claim[key] or NOTHING for title, key in CLAIM.items()} for claim in result["claims"]]),
    ]
    for claim in result["claims"]:
        lines += ["", f"**{claim['id']}** {claim['statement']} *Test:* {claim['test']}"]
        lines += [f"*Measured, {claim['measured']}:* {claim['because']}."]
        lines += [f"*Printed, {claim['published']}:* {claim['printed_because']}."] if claim["printed_because"] else []
    if result["analysis"].get("summary"):
        lines += ["", "## Also measured", "", *(f"- {line}" for line in result["analysis"]["summary"])]
    against = result.get("contradictions", [])
    rest = [line for line in result["differences"] if line not in against]
    lines += ["", "## What differs from the paper", ""]
    if against:
        lines += ["These contradict the paper, so that no value can agree or disagree with a printed one:", ""]
        lines += [*(f"- {line}" for line in against), "", "These are not printed, or concern everything here:", ""]
    lines += [f"- {line}" for line in rest]
    return "\n".join(lines) + "\n"


def _section(title: str, rows: Sequence[Mapping[str, str]], below: str = "") -> list[str]:
    if not rows:
        return []
    return [f"## {title}", "", *markdown_table(rows), "", *([below, ""] if below else [])]


def quantities(result: Result) -> list[dict[str, str]]:
    """Values other than the quality of networks, printed beside measured."""
    return [
        {
            "value": item["id"],
            "of": item["what"],
            "published": _value(item["published"], item.get("decimals")),
            "measured": _value(item["measured"]),
            "against published": item["word"] or NOTHING,
            "note": item["note"],
        }
        for item in result["quantities"]
    ]


def _value(value: Any, decimals: int | None = None) -> str:
    if decimals is not None and value is not None:
        return f"{value:,.{decimals}f}"
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def rows_csv(result: Result) -> str:
    """Every row with all digits, then every other value; lists are JSON."""
    rows = [
        flatten({name: value for name, value in row.items() if name != "config" and value is not None})
        | {"config": row["config"]}
        for row in result["rows"]
    ]
    rows += result["quantities"]
    return csv_text([{k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in row.items()} for row in rows])
