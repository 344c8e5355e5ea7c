"""Run every analysis that applies to a run."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.record import find_run, read_record
from isthmus.core.registry import catalogue, find
from isthmus.training.loading import load_model


def analyze(
    run: str,
    only: Sequence[str] = (),
    against: str | None = None,
    data_dir: Path | None = None,
    progress: Callable[[Sequence[str]], Iterable[str]] = iter,
) -> dict[str, Any]:
    """Measure and draw. Returns the numbers, the files of figures, and why other analyses do not apply.

    ``progress`` iterates over the names of the analyses and may show the current one.
    """
    folder = find_run(run)
    record = read_record(folder)
    if record.status != "finished":
        raise UserError(f"run {record.id} failed and left no weights to analyse: {record.reason}")
    chosen = {name: find("analyses", name) for name in _choose(only, against)}
    model = load_model(folder)
    reasons: dict[str, str | None] = {name: module.applies(model, record.task) for name, module in chosen.items()}
    for name in only:
        if reasons[name] is not None:
            raise UserError(f"{name} does not apply to run {record.id}: {reasons[name]}")
    place = folder / "analysis"
    found: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    files: list[Path] = []
    for name in progress([name for name in chosen if reasons[name] is None]):
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
    """Replace NaN and infinity, which JSON does not have."""
    return {title: value if isinstance(value, str) or math.isfinite(value) else "–" for title, value in numbers.items()}


def _choose(only: Sequence[str], against: str | None) -> Sequence[str]:
    """The requested analyses: by default all, or with ``against`` those that compare two runs."""
    names = list(dict.fromkeys(only)) or list(catalogue("analyses"))
    if against is None:
        return names
    compare = [name for name in names if "against" in inspect.signature(find("analyses", name).of_run).parameters]
    for name in only:
        if name not in compare:
            raise UserError(f"{name} measures one run; leave out --against")
    return compare
