"""``isthmus analyze``: measurements on a trained run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from isthmus.cli.options import DataDir, Json, Run
from isthmus.core.units import duration


def analyze(
    run: Run,
    against: Annotated[
        str | None, typer.Option(help="Compare with this run (CKA), or with the same model `untrained`.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Run only this analysis, such as `cka`; repeatable.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Measure a trained run; numbers and figures are stored beside its record and reused.

    For example: `isthmus analyze RUN --only cka --against untrained`
    """
    from isthmus.analysis.analyze import analyze as measure
    from isthmus.cli import terminal

    answer = measure(run, only or (), against, data_dir, _show_progress)
    if as_json:
        terminal.print_json(answer)
        return
    rows = [
        [name if place == 0 else "", title, value if isinstance(value, str) else f"{value:.4g}"]
        for name, numbers in answer["summary"].items()
        for place, (title, value) in enumerate(numbers.items())
    ]
    if rows:
        terminal.print_table(f"run {answer['run']}, {answer['model']}", ["analysis", "measured", "value"], rows)
    for name, reason in answer["does_not_apply"].items():
        terminal.out.print(f"{name} does not apply: {reason}", style="dim")
    for file in answer["figures"]:
        terminal.out.print(file, soft_wrap=True)
    if rows:
        terminal.out.print(f"the numbers are in {answer['folder']}", soft_wrap=True)


def _show_progress(names: Sequence[str]) -> Iterator[str]:
    """Yields the names, each while its spinner is shown; prints plain lines if the output is no terminal."""
    from rich.text import Text

    from isthmus.cli import terminal

    for place, name in enumerate(names, start=1):
        began = time.monotonic()
        with terminal.err.status(Text(f"{name} ({place} of {len(names)}) …")):
            yield name
        if not terminal.err.is_terminal:
            terminal.err.print(f"{name}  {duration(time.monotonic() - began)}")
