"""An answer as a notebook shows it: a few lines of HTML without scripts or a style sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from isthmus.reports.drawing import draw_network

_CELL = "padding:2px 10px;border:0"
_MOST_ROWS = 12


def summarise_answer(sentences: Sequence[str], model: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The conclusion, the recommended network drawn to scale, and the networks of the front."""
    verdict, *others = sentences
    said = "".join(f"<div>{escape(sentence)}</div>" for sentence in others)
    drawn = draw_network(model)
    beside = f"<div style='flex:0 1 300px'>{drawn}</div>" if drawn else ""
    return (
        f"<div style='max-width:1000px'><p style='font-weight:600;margin:0 0 4px'>{escape(verdict)}</p>{said}"
        f"<div style='display:flex;flex-wrap:wrap;gap:24px;align-items:center;margin-top:8px'>"
        f"{beside}<div style='overflow-x:auto'>{_table(rows)}</div></div></div>"
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    left = len(rows) - _MOST_ROWS
    heads = "".join(
        f"<th style='{_CELL};text-align:{_side(value)}'>{escape(name)}</th>" for name, value in rows[0].items()
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td style='{_CELL};text-align:{_side(value)}'>{escape(_text(value))}</td>" for value in row.values()
        )
        + "</tr>"
        for row in rows[:_MOST_ROWS]
    )
    more = f"<div>and {left} more</div>" if left > 0 else ""
    return (
        "<table style='border-collapse:collapse;font-size:0.9em'>"
        f"<caption style='text-align:left;font-weight:600'>The front</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


def _side(value: Any) -> str:
    return "right" if isinstance(value, int | float) else "left"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "●" if value else ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)
