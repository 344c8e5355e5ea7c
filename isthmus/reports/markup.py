"""Pieces of HTML that several parts of the page use. Every value from a record is escaped here or by its caller."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from string import Template

from isthmus.reports.plots import COLOURS
from isthmus.reports.sections import Section, cut_middle

_SHORT_ID = 8
"""Characters of a run's id that a button shows; it copies all of them."""
_LONGEST_NAME = 48


def read_file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def fill(template: str, **values: object) -> str:
    """A template of this folder with its placeholders replaced."""
    return Template(read_file(template)).substitute(values)


def copy_button(text: str, label: str = "") -> str:
    """A button that copies a text; without a label it shows the beginning of a run's id."""
    shown = escape(label) if label else f"<code>{escape(text[:_SHORT_ID])}</code>"
    return f'<button type="button" class="copy" data-copy="{escape(text)}" title="copy {escape(text)}">{shown}</button>'


def mark_code(text: str) -> str:
    """Escaped text in which names in backticks and options such as --within are code."""
    parts = re.split(r"`([^`]+)`", text)
    marked = [re.sub(r"(?<!\w)--[a-z][a-z-]*", r"<code class=option>\g<0></code>", escape(part)) for part in parts]
    marked[1::2] = [f"<code>{shorten(name)}</code>" for name in parts[1::2]]
    return "".join(marked)


def shorten(name: str, longest: int = _LONGEST_NAME) -> str:
    """An escaped name; the middle of a long one is left out, and a tooltip has the whole."""
    short = cut_middle(name, longest)
    return escape(name) if short == name else f'<span title="{escape(name)}">{escape(short)}</span>'


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def keep_unbroken(text: str) -> str:
    """Prevents a line break within a range such as 1.27–1.45 M."""
    return text.replace("–", "–\N{WORD JOINER}")


def colour_of(section: Section, architecture: str) -> str:
    return f"var(--shape-{section.architectures.index(architecture) % len(COLOURS)})"
