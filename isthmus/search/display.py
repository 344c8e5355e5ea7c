"""Shows a search, a training or a study at work: in a terminal, in a notebook, or as plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Protocol, Self

_PERIOD = 0.25
"""Seconds between two updates of a notebook, which keeps every one that it is sent."""
_MOST_ROWS = 8
"""Of a table that is shown while it grows."""

Row = tuple[str, str, str]
"""A network, its quality and its size in words."""
_COLUMNS = ("best of their size so far", "validation", "parameters")


class Display(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def advance(self, fraction: float, text: str) -> None:
        """Move the bar and show the last result beside it; a line where there is no bar."""

    def move(self, fraction: float) -> None:
        """Move the bar only."""

    def show(self, front: Sequence[Row]) -> None:
        """Show below the bar the networks that no smaller one matches, instead of those shown before."""


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

    def show(self, front: Sequence[Row]) -> None:
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

    def show(self, front: Sequence[Row]) -> None:
        self.bar.front = list(front[-_MOST_ROWS:])


class _TerminalBar:
    def __init__(self, console: Any, text: str) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        news = TextColumn("{task.fields[news]}", style="cyan", markup=False)
        columns = (SpinnerColumn(), BarColumn(), TimeElapsedColumn(), news)
        self.console, self.front = console, list[Row]()
        self.progress = Progress(*columns, console=console)
        self.task = self.progress.add_task("", total=1.0, news=text)
        self.live = Live(console=console, get_renderable=self.draw, transient=True)

    def start(self) -> None:
        if self.console.is_terminal:
            self.live.start()

    def stop(self) -> None:
        self.live.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    def update(self, fraction: float, text: str | None = None) -> None:
        self.progress.update(self.task, completed=fraction)
        if text is not None:
            self.progress.update(self.task, news=text)

    def draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name, side in zip(_COLUMNS, ("left", "right", "right"), strict=True):
            table.add_column(name, justify=side)  # type: ignore[arg-type]
        for row in self.front:
            table.add_row(*map(Text, row))
        return Group(self.progress, table) if self.front else self.progress


class _NotebookBar:
    """One area of HTML below the cell. Rich would need ipywidgets, and warns at every update without them."""

    def __init__(self, text: str) -> None:
        self.text, self.fraction, self.lines, self.front = text, 0.0, list[str](), list[Row]()
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
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.front)
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        table = f"<table><tr>{head}</tr>{rows}</table>" if rows else ""
        return f"{said}<div>{bar} {passed} <code>{escape(self.text)}</code></div>{table}"


def describe_validation(line: Mapping[str, Any], objective: str) -> str:
    """A line of the log in words."""
    value = line.get(objective)
    news = f"epoch {line['epoch']:g}  validation loss {line['loss']:.4g}"
    return news + (f"  {objective} {value:.4g}" if value is not None else "")
