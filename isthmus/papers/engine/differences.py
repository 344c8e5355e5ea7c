"""The differences between a study and the paper's own, computed from the two configs so that none is missed."""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.core.config import StudyConfig
from isthmus.core.record import flatten

SOURCES = {
    "mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "stl10": "STL-10", "food101": "Food-101",
    "cars": "Stanford Cars", "flowers102": "Flowers-102", "imagenet1k": "ImageNet-1k", "imagenet100": "ImageNet-100",
    "imagenet32": "ImageNet-32", "imagenet224": "ImageNet-224 patches", "digits": "8×8 digits",
    "mnist5k": "5,000 digits of MNIST", "photos": "photographs", "tokens": "tokens of images",
    "sudoku": "generated Sudoku", "sudoku_csv": "hard Sudoku",
}  # fmt: skip
ROWS = {"mnist": 50_000, "cifar10": 45_000, "cifar100": 45_000, "imagenet32": 1_281_167, "imagenet224": 11_530_503}
"""Training images per source; for other sources the number of steps is not compared."""


def list_differences(here: StudyConfig, paper: StudyConfig) -> list[str]:
    """A line for each difference in data, task, training, learning rates, seeds and candidates."""
    found = []
    names = here.base.source.name, paper.base.source.name
    if names[0] != names[1]:
        titles = [SOURCES.get(name, name) for name in names]
        found.append(f"other data: {titles[0]} instead of {titles[1]}")
    else:
        found += _settings(here.base.source.model_dump(), paper.base.source.model_dump(), "source")
    found += _settings(flatten(here.base.task.model_dump()), flatten(paper.base.task.model_dump()), "task")
    train = here.base.train.model_dump(exclude={"learning_rate"}), paper.base.train.model_dump()
    found += _settings(*train, "training")
    steps = _steps(here), _steps(paper)
    if None not in steps and steps[0] != steps[1]:
        found.append(f"{steps[0]:,} optimiser steps instead of {steps[1]:,}")
    if here.rates != paper.rates:
        rates = [", ".join(f"{rate:g}" for rate in study.rates) for study in (here, paper)]
        found.append(f"learning rates: {rates[0]} instead of {rates[1]}")
    if here.rates_on != paper.rates_on and len(here.rates) > 1:
        found.append("the learning rate is selected on the first seed alone, and the other seeds are trained with it")
    if len(here.seeds) != len(paper.seeds):
        found.append(f"{_count(len(here.seeds), 'seed')} instead of {len(paper.seeds)}")
    return found + _candidates(here, paper)


def _steps(study: StudyConfig) -> int | None:
    """``ROWS``, corrected where a study holds out another number of validation images than the default."""
    source, train = study.base.source, study.base.train
    rows, field = ROWS.get(source.name), type(source).model_fields.get("validation")
    if rows is None:
        return None
    if field is not None and isinstance(held_out := getattr(source, "validation", None), int):
        rows += field.default - held_out
    rows = min(rows, getattr(source, "rows", None) or rows)
    views = 4 if getattr(study.base.task, "flips", False) else 1
    return -(-rows * views // train.batch_size) * train.epochs


def _settings(here: Mapping[str, object], paper: Mapping[str, object], of: str) -> list[str]:
    words = {"epochs": _count(here.get("epochs"), "epoch"), "batch_size": f"batches of {here.get('batch_size')}"}
    found = []
    for name, value in here.items():
        if name in ("name", "device") or value == paper.get(name, value):
            continue
        if name == "validation":
            found.append(f"{_show_rows(value)} held out for validation instead of {_show_rows(paper[name])}")
        elif name == "rows":
            found.append(f"{value:,} training images instead of all" if value else "all training images")
        elif name == "flips":
            found.append("every training image in four orientations" if value else "no fourfold flips")
        else:
            found.append(f"{words.get(name, f'{of} {name}={value}')} instead of {paper[name]}")
    return found


def _show_rows(held_out: object) -> str:
    return f"{held_out:,} training rows" if isinstance(held_out, int) and held_out else "no training rows"


def _candidates(here: StudyConfig, paper: StudyConfig) -> list[str]:
    if not paper.candidates:
        searched = ", ".join(dict.fromkeys(name for space in paper.spaces for name in space.vary))
        return [f"{_count(len(here.candidates), 'network')} instead of a search over {searched}"]
    theirs = [candidate.model_dump() for candidate in paper.candidates]
    ours = [candidate.model_dump() for candidate in here.candidates]
    shared = sum(model in theirs for model in ours)
    if shared == len(theirs) == len(ours):
        return []
    others = f", and {len(ours) - shared} others" if shared < len(ours) else ""
    return [f"{shared} of the {len(theirs)} networks of the paper's scale are trained{others}"]


def _count(number: object, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
