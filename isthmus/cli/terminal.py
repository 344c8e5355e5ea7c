"""Terminal output: progress on standard error, results on standard output.

Rich markup is off, because a path or a class name may contain ``[/x]`` or ``:cat:``. Styles are given as ``style=`` or
as :class:`rich.text.Text`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TextIO

from rich import progress as bars
from rich.console import Console
from rich.table import Table
from rich.text import Text

from isthmus.search.display import describe_validation
from isthmus.training.listener import Listener

_WIDTH = 160  # columns if the output is no terminal
_PERIOD = 3600.0  # seconds of progress from which the remaining time is estimated; runs may take many minutes


def _console(stream: TextIO | None, **settings: Any) -> Console:
    width = None if stream is not None and stream.isatty() else _WIDTH
    return Console(width=width, markup=False, emoji=False, highlight=False, **settings)


out = _console(sys.stdout)
err = _console(sys.stderr, stderr=True)


def text_column(text: str, style: str = "none") -> bars.TextColumn:
    """A progress bar column without markup."""
    return bars.TextColumn(text, style=style, markup=False)


def print_json(value: Any, sort_keys: bool = False) -> None:
    """Plain JSON; non-ASCII characters are escaped if the output is not UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    print(json.dumps(value, indent=2, ensure_ascii=not encoding.startswith("utf"), sort_keys=sort_keys))


_SHORT = 16
"""Characters of the cells, such as ids and dates, that are not broken into lines."""
_NUMBER = re.compile(r"-?[0-9–]|$")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None = None) -> None:
    """Numbers are right-aligned, text left-aligned. ``width``: the most columns of the terminal that it may take."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    width = out.width if width is None else min(width, out.width)
    cells = [list(map(_cell, row)) for row in rows]
    longest = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    short = [length <= _SHORT for length in longest]
    needed = sum(2 + (length if is_short else _SHORT) for length, is_short in zip(longest, short, strict=True))
    for position, name in enumerate(columns):
        numeric = all(isinstance(row[position], int | float) or _NUMBER.match(str(row[position])) for row in rows)
        # A broken id or date cannot be copied; where not everything fits, the first column stays whole.
        whole = short[position] and (needed <= width or position == 0)
        table.add_column(name, justify="right" if numeric and rows else "left", overflow="fold", no_wrap=whole)
    for row in cells:
        table.add_row(*row)
    out.print(table, width=width)


def print_trackers(tensorboard: bool, mlflow: str | None) -> None:
    """What to type to see the runs of this command in TensorBoard and MLflow."""
    from isthmus.core.record import runs_folder
    from isthmus.training.tracking import tracking_uri

    if tensorboard:
        out.print(f"tensorboard --logdir {runs_folder()}", style="dim", soft_wrap=True)
    if mlflow is not None and (uri := tracking_uri(mlflow)).startswith("sqlite:"):
        out.print(f"mlflow ui --backend-store-uri {uri}    (pip install mlflow)", style="dim", soft_wrap=True)


def print_pairs(title: str, rows: Sequence[Sequence[str]]) -> None:
    """Names, each with its meaning beside it, below a title."""
    table = Table(title=title or None, title_justify="left", title_style="bold", show_header=False, box=None)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, meaning in rows:
        table.add_row(Text(name, "cyan"), meaning)
    out.print(table)


def _cell(value: Any) -> Text | str:
    if isinstance(value, Text):
        return value
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def figure(value: float) -> str:
    """Four decimals, so that the points of a column align; four digits if it is large."""
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.4g}"


def size(count: float) -> str:
    """1234567 as 1.23 M."""
    for unit in ("", " k", " M", " G", " T"):
        if abs(count) < 1000:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} P"


class _Display:
    """Shows its progress bars within a ``with`` block."""

    progress: bars.Progress

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()


class TrainingDisplay(_Display, Listener):
    """A progress bar for one run with its last validation; plain lines if the output is no terminal."""

    def __init__(self, objective: str, should_stop: Callable[[], bool] = lambda: False) -> None:
        self.objective, self._should_stop = objective, should_stop
        self.progress = bars.Progress(
            bars.SpinnerColumn(), bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn(),
            text_column("{task.fields[news]}", "cyan"), console=err, transient=True, disable=not err.is_terminal,
        )  # fmt: skip
        self.task: bars.TaskID = self.progress.add_task("", total=None, news="")

    def step(self, step: int, steps: int) -> None:
        self.progress.update(self.task, completed=step, total=steps)

    def should_stop(self) -> bool:
        return self._should_stop()

    def line(self, line: Mapping[str, Any]) -> None:
        if line["split"] != "validation":
            return
        news = describe_validation(line, self.objective)
        self.progress.update(self.task, news=news)
        if not err.is_terminal:
            err.print(news)


class StudyDisplay(_Display):
    """A progress bar for the whole study, weighted by FLOPs, and one for each active run."""

    def __init__(self, work: float, runs: int, ended: int) -> None:
        self.runs, self.ended = runs, ended
        self.done: dict[str, float] = {}
        self.tasks: dict[str, bars.TaskID] = {}
        self.progress = bars.Progress(
            text_column("{task.description}"), bars.BarColumn(), text_column("{task.percentage:>3.0f} %"),
            bars.TimeRemainingColumn(), bars.TimeElapsedColumn(),
            console=err, transient=True, disable=not err.is_terminal, speed_estimate_period=_PERIOD,
        )  # fmt: skip
        self.whole = self.progress.add_task(self._title(), total=max(1.0, work))

    def _title(self) -> str:
        return f"{self.ended} of {max(self.runs, self.ended)} runs"

    def advance(self, run: str, work: float, fraction: float, name: str) -> None:
        self.done[run] = work * fraction
        if run not in self.tasks:
            self.tasks[run] = self.progress.add_task(f"  {name}", total=1.0)
        self.progress.update(self.tasks[run], completed=fraction)
        self.progress.update(self.whole, completed=sum(self.done.values()))

    def hide(self, run: str) -> None:
        """Remove the bar of a run that waits at a rung."""
        if run in self.tasks:
            self.progress.remove_task(self.tasks.pop(run))

    def finish(self, run: str, work: float, name: str, note: str) -> None:
        self.ended += 1
        self.advance(run, work, 1.0, name)
        self.hide(run)
        self.progress.update(self.whole, description=self._title())
        if not err.is_terminal or note.startswith("failed"):
            err.print(f"{self.ended} of {max(self.runs, self.ended)}  {name}  {note}")
