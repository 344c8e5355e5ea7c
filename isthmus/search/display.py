"""Shows a search, a training or a study at work: in a terminal, in a notebook, or as plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from html import escape
from typing import Any, Protocol, Self

_PERIOD = 0.25
"""Seconds between two updates of a notebook, which keeps every one that it is sent."""


class Display(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def advance(self, fraction: float, text: str) -> None:
        """Move the bar and show the last result beside it; a line where there is no bar."""

    def move(self, fraction: float) -> None:
        """Move the bar only."""


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def advance(self, fraction: float, text: str) -> None:
        pass

    def move(self, fraction: float) -> None:
        pass


class Bar:
    """A bar with the time that has passed and the last result; plain lines if nobody watches the output."""

    def __init__(self, console: Any = None, begins: str = "reading the data") -> None:
        from rich.console import Console

        # Markup is off, because a column or a class may be called ``[/x]``.
        self.console = console or Console(file=sys.stderr, markup=False, emoji=False)
        self.bar = _NotebookBar(begins) if self.console.is_jupyter else _TerminalBar(self.console, begins)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def say(self, text: str) -> None:
        self.bar.say(text)

    def advance(self, fraction: float, text: str) -> None:
        self.bar.update(fraction, text)
        if not (self.console.is_terminal or self.console.is_jupyter):
            self.say(text)

    def move(self, fraction: float) -> None:
        self.bar.update(fraction)


class _TerminalBar:
    def __init__(self, console: Any, text: str) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        news = TextColumn("{task.fields[news]}", style="cyan", markup=False)
        columns = (SpinnerColumn(), BarColumn(), TimeElapsedColumn(), news)
        self.console, self.progress = (
            console,
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal),
        )
        self.task = self.progress.add_task("", total=1.0, news=text)

    def start(self) -> None:
        self.progress.start()

    def stop(self) -> None:
        self.progress.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    def update(self, fraction: float, text: str | None = None) -> None:
        self.progress.update(self.task, completed=fraction)
        if text is not None:
            self.progress.update(self.task, news=text)


class _NotebookBar:
    """One area of HTML below the cell. Rich would need ipywidgets, and warns at every update without them."""

    def __init__(self, text: str) -> None:
        self.text, self.fraction, self.lines = text, 0.0, list[str]()
        self.began = self.shown = time.monotonic()
        self.area: Any = None
        self.is_over = False

    def start(self) -> None:
        from IPython.display import HTML, display

        self.began, self.area = time.monotonic(), display(HTML(self.html()), display_id=True)

    def stop(self) -> None:
        self.is_over = True
        self._show()

    def say(self, text: str) -> None:
        self.lines.append(text)
        self._show()

    def update(self, fraction: float, text: str | None = None) -> None:
        self.fraction, self.text = fraction, self.text if text is None else text
        if time.monotonic() - self.shown >= _PERIOD:
            self._show()

    def _show(self) -> None:
        from IPython.display import HTML

        self.shown = time.monotonic()
        if self.area is not None:
            self.area.update(HTML(self.html()))

    def html(self) -> str:
        said = "".join(f"<div>{escape(line)}</div>" for line in self.lines)
        if self.is_over:
            return said
        passed = f"{time.monotonic() - self.began:.0f} s"
        bar = f"<progress max='1' value='{self.fraction:.3f}' style='width:16em'></progress>"
        return f"{said}<div>{bar} {passed} <code>{escape(self.text)}</code></div>"


def describe_validation(line: Mapping[str, Any], objective: str) -> str:
    """A line of the log in words."""
    value = line.get(objective)
    news = f"epoch {line['epoch']:g}  validation loss {line['loss']:.4g}"
    return news + (f"  {objective} {value:.4g}" if value is not None else "")
