"""Fronts published in papers, drawn over measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.core.errors import UserError
from isthmus.papers import Paper, Table, load_paper

_DEFAULT = "hourglass"
"""The paper whose fronts are drawn by default on runs of the same data and task."""
_NEEDED = {"architecture", "params_M", "psnr_dB"}
_TASKS = {"denoising": "denoise", "super_resolution": "super_resolution"}
_ARCHITECTURES = {"hourglass": "hourglass_mlp", "conventional": "conventional_mlp"}
_DATASETS = {"imagenet32": "ImageNet-32", "imagenet224": "ImageNet-224"}


@dataclass(frozen=True)
class PublishedPoint:
    """One row of a table. ``spread`` is one standard deviation; the table prints five."""

    row: str
    architecture: str
    params: float
    psnr: float
    spread: float | None
    settings: str


@dataclass(frozen=True)
class PublishedFront:
    """One table. ``source`` and ``task`` are names of this package."""

    name: str  # "hourglass/T8"
    title: str  # "Table 8, ImageNet-32"
    paper: str
    source: str
    task: str
    points: tuple[PublishedPoint, ...]


def load_fronts(names: Sequence[str]) -> list[PublishedFront]:
    """Tables by names such as ``hourglass/T8``."""
    return [_load(name) for name in dict.fromkeys(names)]


def matching_fronts(source: str, task: str) -> list[PublishedFront]:
    """The tables of the same data and the same task."""
    if source not in _DATASETS or task not in _TASKS.values():
        return []
    paper = load_paper(_DEFAULT)
    fronts = [_front(paper, table) for table in paper.tables.values() if _is_front(table)]
    return [front for front in fronts if (front.source, front.task) == (source, task)]


def _load(name: str) -> PublishedFront:
    key, _, table = name.partition("/")
    paper = load_paper(key)
    fronts = [f"{key}/{item.id}" for item in paper.tables.values() if _is_front(item)]
    if name not in fronts:
        raise UserError(f"{name!r} is not a published front; choose from: {', '.join(fronts)}")
    return _front(paper, paper.tables[table])


def _is_front(table: Table) -> bool:
    return set(table.columns) >= _NEEDED and table.task.get("name") in _TASKS


def _front(paper: Paper, table: Table) -> PublishedFront:
    dataset = table.task["dataset"]
    return PublishedFront(
        name=f"{paper.key}/{table.id}",
        title=f"{table.printed_as}, {_DATASETS.get(dataset, dataset)}",
        paper=paper.title,
        source=dataset,
        task=_TASKS[table.task["name"]],
        points=tuple(
            PublishedPoint(
                row=name,
                architecture=_ARCHITECTURES.get(row["architecture"], row["architecture"]),
                params=1e6 * row["params_M"],
                psnr=row["psnr_dB"],
                spread=row["psnr_5sigma_dB"] / 5 if "psnr_5sigma_dB" in row else None,
                settings=", ".join(f"{column} {row[column]}" for column in ("d_z", "d_h", "L") if column in row),
            )
            for name, row in table.rows.items()
        ),
    )
