"""A page of the studio: the parts that it is made of, and the frame around them.

Every value from a record, a file or a request passes through ``escape``; figures pass through ``script_json``.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from isthmus.reports.markup import copy_button
from isthmus.reports.page import script_json

PLACES = {"/": "Home", "/start": "Start", "/design": "Design"}
"""The pages that every page links to."""
REST = 100
"""What was made for an open page is not made again for so many times the processor time that it took."""


def read_file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Figure:
    """A figure of Plotly's, with its heading and a sentence that explains it. Without content it is hidden."""

    title: str
    content: Mapping[str, Any] | None
    note: str = ""

    @cached_property
    def as_json(self) -> str:
        """Its content as JSON; figures of runs that ended stay the same for many events."""
        return script_json(self.content)


Part = str | Figure


class View(ABC):
    """A page that follows what it shows. Its parts are sent again when they differ from what was sent before."""

    title: str
    place = "/"
    """The entry of the navigation that is marked."""
    is_live = True
    beside = ""
    """The part that a wide window shows on the left of all others, such as a form beside its answer."""

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """HTML or a figure by name, in the order of the page."""

    def stamp(self) -> Any:
        """Differs when something changed that only this page looks at. It is asked for at every look at the home."""
        return None


def pack(part: Part) -> str:
    """A part as it travels: HTML, or JSON of a figure."""
    return part if isinstance(part, str) else part.as_json


def render(view: View, live: str = "") -> str:
    """The page of a view; ``live`` is the address of its events."""
    parts = view.parts()
    seen = ".".join(_seal(pack(part)) for part in parts.values())
    placed = {name: _place(name, part) for name, part in parts.items()}
    left = placed.pop(view.beside, "")
    content = "".join(placed.values())
    if left:
        content = f'<div class="bench">{left}<div class="results">{content}</div></div>\n'
    return frame(view.title, content, view.place, live, seen if live else "")


def frame(title: str, content: str, place: str = "", live: str = "", seen: str = "") -> str:
    """A whole page. ``seen`` tells the events which parts the page has."""
    links = "".join(
        f'<li><a href="{path}"{" aria-current=page" * (path == place)}>{name}</a></li>' for path, name in PLACES.items()
    )
    return Template(read_file("studio.html")).substitute(
        title=escape(title),
        links=links,
        live=escape(live),
        seen=seen,
        plotly='<script defer src="/static/plotly.js"></script>' if 'class="plot"' in content else "",
        content=content,
    )


def _place(name: str, part: Part) -> str:
    if isinstance(part, str):
        return f'<div class="part" id="part-{name}">{part}</div>\n'
    note = f'<p class="note">{escape(part.note)}</p>'
    hidden = "" if part.content else " hidden"
    return (
        f'<section class="part" id="part-{name}"{hidden}><h2>{escape(part.title)}</h2>'
        f'<div class="plot" data-figure="{name}" role="img" aria-label="{escape(part.title)}"></div>{note}'
        f'<script type="application/json" data-for="{name}">{pack(part)}</script></section>\n'
    )


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Iterable[int] = (),
    lesser: Iterable[int] = (),
    least: Iterable[int] = (),
) -> str:
    """A table of cells that are HTML already.

    ``numbers`` are the columns that hold numbers, ``lesser`` those for which a narrow window has no room, ``least``
    those for which a telephone has none.
    """
    kinds = {"number": set(numbers), "lesser": set(lesser), "least": set(least)}

    def kind(place: int) -> str:
        names = " ".join(name for name, places in kinds.items() if place in places)
        return f' class="{names}"' if names else ""

    head = "".join(f'<th scope="col"{kind(i)}>{escape(text)}</th>' for i, text in enumerate(heads))
    body = "".join(f"<tr>{''.join(f'<td{kind(i)}>{cell}</td>' for i, cell in enumerate(row))}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="small">'
        f'<caption class="unseen">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(pairs: Mapping[str, str]) -> str:
    """Names with values that are HTML already."""
    return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{value}</dd>' for name, value in pairs.items())}</dl>"


def link(path: str, text: str) -> str:
    return f'<a href="{escape(path)}">{escape(text)}</a>'


def button(action: str, label: str, kind: str = "", **fields: str) -> str:
    """A form with one button, which works without any script."""
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields.items()
    )
    return (
        f'<form method="post" action="{escape(action)}" class="inline">{hidden}'
        f'<button class="act {kind}" id="{escape(action)}">{escape(label)}</button></form>'
    )


def command(text: str) -> str:
    """What to type for the same, with a button that copies it."""
    words = " ".join(f"<span>{escape(word)}</span>" for word in text.split(" "))  # lines end between words
    return f'<p class="command"><code>{words}</code> {copy_button(text, "copy")}</p>'


def moment(seconds: float) -> str:
    """When something happened, by the clock of this machine."""
    if not seconds:
        return "–"
    at = datetime.fromtimestamp(seconds).astimezone()
    return f'<time datetime="{at.isoformat(timespec="seconds")}">{at:%d %b %H:%M}</time>'


def show_clock(name: str, seconds: float, text: str) -> str:
    """A duration that the page counts on: ``since`` a moment, or ``until`` one."""
    return f'<span class="ticking" data-{name}="{seconds:.0f}">{escape(text)}</span>'


def as_content(parts: Mapping[str, Part]) -> dict[str, Any]:
    """Parts as JSON."""
    return {
        name: {"html": part}
        if isinstance(part, str)
        else {"figure": part.content, "title": part.title, "note": part.note}
        for name, part in parts.items()
    }


def as_event(parts: Mapping[str, Part], sent: dict[str, str]) -> str:
    """The parts that differ from what was sent, as one server-sent event; empty if none does."""
    packed = {name: pack(part) for name, part in parts.items()}
    seals = {name: _seal(text) for name, text in packed.items()}
    content = as_content({name: part for name, part in parts.items() if sent.get(name) != seals[name]})
    sent.update(seals)
    return f"data: {json.dumps(content, separators=(',', ':'))}\n\n" if content else ""


def read_seen(parts: Mapping[str, Part], seen: str) -> dict[str, str]:
    """What a page has already, by the seals that were written into it."""
    return dict(zip(parts, seen.split("."), strict=False)) if seen else {}


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
