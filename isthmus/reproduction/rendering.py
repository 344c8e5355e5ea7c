"""A result in words: a Markdown file, a CSV file, and what the terminal shows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.record import flat
from isthmus.reports.wording import architecture_title
from isthmus.reproduction.verdicts import Interval

Result = Mapping[str, Any]
NOTE = (
    "Means ± one standard deviation over runs (where a paper prints five, a fifth of that). Learning rates and weights "
    "are selected on validation data. A rival is the best network of the other shape, selected on validation data, "
    "with at most 1.02 times the parameters; beside a lead stands its interval at 95 %."
)


def table(result: Result) -> list[dict[str, str]]:
    """The rows as text: printed beside measured, and each lead over its rival as measured and as printed."""
    fields = list(dict.fromkeys(name for row in result["rows"] for name in row["model"]))
    parts = len({row["part"] for row in result["rows"]}) > 1
    return [
        {
            "row": row["id"],
            **({"part": row["part"] if row["measured"] else row["printed_in"]} if parts else {}),
            "shape": architecture_title(row["architecture"]),
            **{name: str(row["model"].get(name, "")) for name in fields},
            "parameters": f"{row['params'] / 1e6:.3f} M",
            "published": _quality(row["published"]),
            "measured": _quality(row["measured"]),
            "against published": row["verdict"]["word"],
            "lead over rival": _lead(row["rival"]["measured"]),
            "as published": _lead(row["rival"]["published"]),
        }
        for row in result["rows"]
    ]


def _quality(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "–"
    digits = 3 if round(value["mean"], 3) == value["mean"] or "values" in value else 4
    spread = "" if value["std"] is None else f" ± {value['std']:.4f}"
    return f"{value['mean']:.{digits}f}{spread}"


def _lead(lead: Mapping[str, Any] | None) -> str:
    if lead is None or lead["interval"] is None:
        return "–" if lead is None else lead["word"]
    return f"{lead['word']}: {Interval(**lead['interval']).text()} over {lead['id']}"


def markdown(result: Result) -> str:
    lines = [
        f"# {result['title']}: {result['printed_as']}, measured again",
        "",
        f"{result['shows']} Scale `{result['scale']}`: `{result['command']}`",
        "",
        "## Rows",
        "",
        *_markdown_table(table(result)),
        "",
        NOTE,
        "",
        "## Claims",
        "",
        *_markdown_table([_claim(claim) for claim in result["claims"]]),
    ]
    for claim in result["claims"]:
        lines += ["", f"**{claim['id']}** {claim['statement']} *Test:* {claim['test']}"]
        lines += [f"*Measured, {claim['measured']}:* {claim['because']}."]
        lines += [f"*Printed, {claim['published']}:* {claim['printed_because']}."] if claim["printed_because"] else []
    if result["analysis"].get("summary"):
        lines += ["", "## Also measured", "", *(f"- {line}" for line in result["analysis"]["summary"])]
    lines += ["", "## What differs from the paper", "", *(f"- {line}" for line in result["differences"])]
    return "\n".join(lines) + "\n"


def _claim(claim: Mapping[str, Any]) -> dict[str, str]:
    return {
        "claim": claim["id"],
        "says": claim["statement"],
        "measured": claim["measured"],
        "same test, printed numbers": claim["published"],
        "borne out by its own tables": claim["supported"] or "–",
    }


def _markdown_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    if not rows:
        return ["none"]
    cells = [[cell.replace("|", "\\|") for cell in row.values()] for row in rows]
    return [" | ".join(["", *line, ""]).strip() for line in [list(rows[0]), ["---"] * len(rows[0]), *cells]]


def rows_csv(result: Result) -> str:
    """Every row with all digits; lists are JSON."""
    rows = []
    for row in result["rows"]:
        values = flat({name: value for name, value in row.items() if name != "config" and value is not None})
        values |= {"config": row["config"]}
        rows.append({name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in values.items()})
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def show(result: Result, folder: str) -> None:
    from isthmus import terminal

    rows = table(result)
    trained = [row for row in rows if row["measured"] != "–"]
    terminal.print_table(
        f"{result['printed_as']}: {result['shows']}", list(rows[0]), [list(r.values()) for r in trained]
    )
    if left := len(rows) - len(trained):
        terminal.out.print(f"{left} printed rows are not run at this scale; table.md lists them", style="dim")
    terminal.out.print(NOTE, style="dim", highlight=False)
    for claim in result["claims"]:
        said = f"[bold]{claim['id']}: {claim['measured']}[/bold]  {claim['statement']}"
        terminal.out.print(f"{said}\n    {claim['because']}", highlight=False)
    for line in result["analysis"].get("summary", ()):
        terminal.out.print(line, highlight=False)
    terminal.out.print("[bold]What differs from the paper[/bold]")
    for line in result["differences"]:
        terminal.out.print(f"  {line}", highlight=False)
    terminal.out.print(f"page, figure, table.md, rows.csv, result.json: {folder}", highlight=False, soft_wrap=True)
