"""`isthmus analyze`: every analysis that applies to a run, its numbers in a table and its figures in files."""

from __future__ import annotations

import ast
import inspect
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

from isthmus import terminal
from isthmus.errors import UserError, nearest
from isthmus.loading import load
from isthmus.record import find_run, read_record


@cache
def list_analyses() -> tuple[str, ...]:
    """The files of this folder that define ``of_run``, read and not executed."""
    return tuple(path.stem for path in sorted(Path(__file__).parent.glob("*.py")) if _defines(path, "of_run"))


def _defines(path: Path, function: str) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(statement, ast.FunctionDef) and statement.name == function for statement in tree.body)


def find_analysis(name: str) -> ModuleType:
    if name not in list_analyses():
        raise UserError(f"unknown analysis {name!r}; {nearest(name, list_analyses())}")
    return import_module(f"isthmus.analysis.{name}")


def analyze(
    run: str, only: Sequence[str] = (), against: str | None = None, data_dir: Path | None = None
) -> dict[str, Any]:
    """Measure, draw, and answer with what was found, which files hold it, and what did not apply and why."""
    folder = find_run(run)
    record = read_record(folder)
    if record.status != "finished":
        raise UserError(f"run {record.id} failed and left no weights to analyse: {record.reason}")
    chosen = {name: find_analysis(name) for name in _chosen(only, against)}
    model = load(folder)
    reasons: dict[str, str | None] = {name: module.applies(model, record.task) for name, module in chosen.items()}
    for name in only:
        if reasons[name] is not None:
            raise UserError(f"{name} does not apply to run {record.id}: {reasons[name]}")
    place = folder / "analysis"
    found: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    files: list[Path] = []
    with _progress([name for name in chosen if reasons[name] is None]) as each:
        for name in each:
            module = chosen[name]
            found[name] = module.of_run(folder, data_dir, **{"against": against} if against is not None else {})
            shown[name] = _finite(module.summary(found[name]))
            files += module.draw(found[name], place)
    return {
        "run": record.id,
        "model": record.config["model"]["name"],
        "folder": str(place),
        "found": found,
        "summary": shown,
        "figures": [str(file) for file in files],
        "does_not_apply": {name: reason for name, reason in reasons.items() if reason is not None},
    }


def _finite(numbers: Mapping[str, float | str]) -> dict[str, float | str]:
    """JSON has no NaN, and a reader has no use for it."""
    return {title: value if isinstance(value, str) or math.isfinite(value) else "–" for title, value in numbers.items()}


def _chosen(only: Sequence[str], against: str | None) -> Sequence[str]:
    """The analyses that were asked for: all of one run, or those that compare it with another."""
    names = list(dict.fromkeys(only)) or list_analyses()
    if against is None:
        return names
    compare = [name for name in names if "against" in inspect.signature(find_analysis(name).of_run).parameters]
    for name in only:
        if name not in compare:
            raise UserError(f"{name} looks at one run and takes no --against")
    return compare


@contextmanager
def _progress(names: Sequence[str]) -> Iterator[Iterator[str]]:
    """The names, one after the other, with a bar that says which one is under way; plain lines where nobody watches."""
    bar = Progress(
        SpinnerColumn(), terminal.text_column("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), console=terminal.err, transient=True,
    )  # fmt: skip
    task = bar.add_task("", total=len(names))

    def each() -> Iterator[str]:
        for name in names:
            began = time.monotonic()
            bar.update(task, description=name)
            yield name
            bar.advance(task)
            if not terminal.err.is_terminal:
                terminal.err.print(f"{name}  {terminal.duration(time.monotonic() - began)}", highlight=False)

    with bar:
        yield each()


def show(answer: Mapping[str, Any]) -> None:
    """The numbers, the files, and what could not be measured on this model."""
    rows = [
        [name if place == 0 else "", title, value if isinstance(value, str) else f"{value:.4g}"]
        for name, numbers in answer["summary"].items()
        for place, (title, value) in enumerate(numbers.items())
    ]
    if rows:
        terminal.print_table(f"run {answer['run']}, {answer['model']}", ["analysis", "measured", "value"], rows)
    for name, reason in answer["does_not_apply"].items():
        terminal.out.print(f"{name} does not apply: {reason}", highlight=False, style="dim")
    for file in answer["figures"]:
        terminal.out.print(file, highlight=False, soft_wrap=True)
    if rows:
        terminal.out.print(f"the numbers are in {answer['folder']}", highlight=False, soft_wrap=True)
