"""What a network can be designed for: a source and a task, their shapes, and the architectures that fit them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import UserError
from isthmus.core.registry import component
from isthmus.reports.sections import name_problem
from isthmus.studio.index import Index, Run, problem_key

if TYPE_CHECKING:
    from isthmus.core.protocols import Signature

EMBEDDED = (
    ("digits", "classification"), ("digits", "denoise"), ("mnist5k", "denoise"), ("bikes", "regression"),
    ("sudoku", "sudoku"),
)  # fmt: skip
"""Problems that every home has."""
_KNOWN_PROBLEMS = 20
FIRST_BUDGET = 50_000


@dataclass(frozen=True)
class Problem:
    """A source and a task, and what the task asks of a network."""

    key: str
    title: str
    config: Mapping[str, Any]
    run: Path | None = None
    """A finished run, whose task knows the shapes without the data."""


def list_problems(index: Index) -> list[Problem]:
    """The problems of finished runs, the latest first, and the embedded ones."""
    found: dict[str, Problem] = {}
    for run in itertools.islice(index.newest(), 1000):
        if run.record and run.record.status == "finished" and run.problem not in found:
            found[run.problem] = _of_run(run)
            if len(found) == _KNOWN_PROBLEMS:
                break
    for source, task in EMBEDDED:
        config = {
            "source": component("sources", {"name": source}).model_dump(mode="json"),
            "task": component("tasks", {"name": task}).model_dump(mode="json"),
        }
        key = problem_key(config)
        found.setdefault(key, Problem(key, name_problem(config), config))
    return list(found.values())


def _of_run(run: Run) -> Problem:
    config = {name: run.config[name] for name in ("source", "task")}
    source = {name: value for name, value in config["source"].items() if name not in ("fold", "folds")}
    return Problem(run.problem, name_problem(config), config | {"source": source}, run.folder)


@cache
def find_signature(key: str, config: str, run: Path | None) -> Signature:
    """The shapes of a problem, from a run's task or from its data."""
    from isthmus.training.loading import load_task
    from isthmus.training.prepare import learn_task, load_data

    if run is not None:
        return load_task(run).signature
    parts = json.loads(config)
    data = load_data(component("sources", parts["source"]))
    return learn_task(component("tasks", parts["task"]), data).signature


def signature_of(problem: Problem) -> Signature:
    return find_signature(problem.key, json.dumps(problem.config), problem.run)


def is_usable(problem: Problem) -> bool:
    """Whether its shapes are known; the embedded problems always are."""
    try:
        return bool(list_spaces(signature_of(problem)))
    except UserError:
        return False


@cache
def list_spaces(signature: Signature) -> dict[str, Any]:
    """The architectures that fit a problem, each with what a search varies."""
    from isthmus.studies.budget import declared_spaces

    found: dict[str, Any] = {}
    for budget in (FIRST_BUDGET, 50 * FIRST_BUDGET):
        for space in declared_spaces(signature, budget):
            found.setdefault(space.model["name"], space)
    return found


@cache
def first_settings(signature: Signature, name: str, budget: int) -> dict[str, Any]:
    """The most promising network of an architecture within a budget, or within the next larger one that has any."""
    from isthmus.studies.budget import fit_widths

    space = list_spaces(signature)[name]
    for enough in (budget, 10 * budget, 100 * budget, 1000 * budget):
        for shape in space.shapes()[:8]:
            fitted = fit_widths(space, shape, signature, [enough])[0]
            if fitted is not None:
                return dict(fitted.model)
    raise UserError(f"{name} has no network for this problem; choose another architecture")
