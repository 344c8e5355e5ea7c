"""Terminal output: progress on standard error, results on standard output.

Rich markup is off, because a path or a class name may contain ``[/x]`` or ``:cat:``. Styles are given as ``style=`` or
as :class:`rich.text.Text`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from isthmus.training.listener import Listener

_WIDTH = 160  # columns if the output is no terminal


def _console(stream: TextIO | None, **settings: Any) -> Console:
    width = None if stream is not None and stream.isatty() else _WIDTH
    return Console(width=width, markup=False, emoji=False, **settings)


out = _console(sys.stdout)
err = _console(sys.stderr, stderr=True)


def text_column(text: str, style: str = "none") -> TextColumn:
    """A progress bar column without markup."""
    return TextColumn(text, style=style, markup=False)


def print_json(value: Any, sort_keys: bool = False) -> None:
    """Plain JSON; non-ASCII characters are escaped if the output is not UTF-8."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "").replace("_", "")
    plain = not encoding.startswith("utf")
    print(json.dumps(value, indent=2, ensure_ascii=plain, sort_keys=sort_keys))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Numbers are right-aligned, text left-aligned."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    for position, name in enumerate(columns):
        numeric = all(isinstance(row[position], int | float) or str(row[position])[:1] in "0123456789–" for row in rows)
        table.add_column(name, justify="right" if numeric and rows else "left", overflow="fold")
    for row in rows:
        table.add_row(
            *(
                cell
                if isinstance(cell, Text)
                else f"{cell:,}"
                if isinstance(cell, int) and not isinstance(cell, bool)
                else str(cell)
                for cell in row
            )
        )
    out.print(table)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def size(count: float) -> str:
    """1234567 as 1.23 M."""
    for unit in ("", " k", " M", " G", " T"):
        if abs(count) < 1000:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g} P"


class TrainingDisplay(Listener):
    """A progress bar for one run with its last validation; plain lines if the output is no terminal."""

    def __init__(self, objective: str, should_stop: Callable[[], bool] = lambda: False) -> None:
        self.objective, self._should_stop = objective, should_stop
        self.began = time.monotonic()
        self.first_step: int | None = None
        self.progress = Progress(
            SpinnerColumn(), BarColumn(), MofNCompleteColumn(), text_column("{task.fields[left]}"),
            text_column("{task.fields[news]}", "cyan"), console=err, transient=True,
        )  # fmt: skip
        self.task: TaskID = self.progress.add_task("", total=None, left="", news="")

    def __enter__(self) -> TrainingDisplay:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def step(self, step: int, steps: int) -> None:
        self.first_step = step - 1 if self.first_step is None else self.first_step
        pace = (time.monotonic() - self.began) / (step - self.first_step)
        self.progress.update(self.task, completed=step, total=steps, left=f"{duration(pace * (steps - step))} left")

    def should_stop(self) -> bool:
        return self._should_stop()

    def line(self, line: Mapping[str, Any]) -> None:
        if line["split"] != "validation":
            return
        value = line.get(self.objective)
        news = f"epoch {line['epoch']:g}  validation loss {line['loss']:.4g}"
        news += f"  {self.objective} {value:.4g}" if value is not None else ""
        self.progress.update(self.task, news=news)
        if not err.is_terminal:
            err.print(news, highlight=False)


class StudyDisplay:
    """A progress bar for the whole study, weighted by FLOPs, and one for each active run."""

    def __init__(self, work: float, runs: int, ended: int) -> None:
        self.work, self.runs, self.ended = work, runs, ended
        self.done: dict[str, float] = {}
        self.tasks: dict[str, TaskID] = {}
        self.first: tuple[float, float] | None = None
        self.progress = Progress(
            text_column("{task.description}"), BarColumn(), text_column("{task.percentage:>3.0f} %"),
            text_column("{task.fields[left]}"), TimeElapsedColumn(), console=err, transient=True,
        )  # fmt: skip
        self.whole = self.progress.add_task(self._title(), total=max(1.0, work), left="")

    def __enter__(self) -> StudyDisplay:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def _title(self) -> str:
        return f"{self.ended} of {max(self.runs, self.ended)} runs"

    def advance(self, run: str, work: float, fraction: float, name: str) -> None:
        self.done[run] = work * fraction
        if run not in self.tasks:
            self.tasks[run] = self.progress.add_task(f"  {name}", total=1.0, left="")
        self.progress.update(self.tasks[run], completed=fraction)
        done = sum(self.done.values())
        self.progress.update(self.whole, completed=done, left=self._time_left(done))

    def _time_left(self, done: float) -> str:
        """Estimated from the pace since the first progress, to exclude the start of the workers."""
        now = time.monotonic()
        self.first = self.first or (now, done)
        if done == self.first[1] or self.work <= done:
            return ""
        return f"{duration((now - self.first[0]) * (self.work - done) / (done - self.first[1]))} left"

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
            err.print(f"{self.ended} of {max(self.runs, self.ended)}  {name}  {note}", highlight=False)
