"""How a part is made of the studies of three scales, and what every paper's studies share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from isthmus.core.config import RunConfig, StudyConfig, study_config
from isthmus.papers.engine.differences import SOURCES, from_paper
from isthmus.papers.engine.protocol import Part, Scale

Model = dict[str, Any]
Studies = Mapping[Scale, Callable[[], StudyConfig]]


def study(
    name: str, scale: Scale, base: RunConfig | Mapping[str, Any], models: Iterable[Model], **fields: Any
) -> StudyConfig:
    """Networks with one set-up; the paper's own scale is nothing for a CPU, if there is anything else."""
    if scale == "paper" and isinstance(base, RunConfig):
        base = base.model_copy(update={"train": base.train.model_copy(update={"device": device()})})
    return study_config({"name": f"{name}-{scale}", "base": base, "candidates": list(models), **fields})


def adjusted(recipe: RunConfig, threads: int | None = None, **train: Any) -> RunConfig:
    """A recipe trained in another way."""
    settings = type(recipe.train)(**recipe.train.model_dump() | train)
    return recipe.model_copy(update={"train": settings, "threads": threads or recipe.threads})


def brief(recipe: RunConfig, epochs: int, **train: Any) -> RunConfig:
    """Fewer epochs, and one thread, so that two workers share two cores."""
    return adjusted(recipe, threads=1, epochs=epochs, **train)


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def part_of(task: str, scale: Scale, studies: Studies, notes: Mapping[str, Sequence[str]], **more: Any) -> Part:
    """The study of one scale, with its differences from the paper's; a note is for one scale or for ``all``."""
    chosen = studies[scale]()
    differences = [] if scale == "paper" else from_paper(chosen, studies["paper"]())
    differences += [*notes.get(scale, ()), *notes.get("all", ())]
    title = f"{task}, {SOURCES[chosen.base.source.name]}"
    return Part(title=title, study=chosen, differences=differences, **{"same_setup": scale == "paper"} | more)
