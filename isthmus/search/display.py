"""Shows a search at work, in a terminal, in a notebook, or as plain lines."""

from __future__ import annotations

import sys
from typing import Any, Protocol, Self


class Display(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def say(self, text: str) -> None: ...

    def advance(self, fraction: float, text: str) -> None: ...


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


class Bar:
    """A bar over the time of the search with its last result; plain lines if the output is no terminal."""

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        # Markup is off, because a column or a class may be called ``[/x]``.
        self.console = console or Console(file=sys.stderr, markup=False, emoji=False)
        news = TextColumn("{task.fields[news]}", style="cyan", markup=False)
        columns = (SpinnerColumn(), BarColumn(), TimeElapsedColumn(), news)
        self.progress = Progress(*columns, console=self.console, transient=True)
        self.task = self.progress.add_task("", total=1.0, news="reading the data")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    def advance(self, fraction: float, text: str) -> None:
        self.progress.update(self.task, completed=fraction, news=text)
        if not (self.console.is_terminal or self.console.is_jupyter):
            self.say(text)
