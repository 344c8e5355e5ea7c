"""How a part is built from a study that is defined at three scales."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from isthmus.core.config import RunConfig, study_config
from isthmus.papers.engine.differences import SOURCES
from isthmus.papers.engine.exhibit import SCALES, Part, Scale

Settings = dict[str, Any]
Model = dict[str, Any]
Studies = Mapping[Scale, Callable[[], Settings]]
"""The settings of a StudyConfig at each scale, made on request."""


def make_part(title: str, scale: Scale, studies: Studies, notes: Mapping[str, Sequence[str]], **more: Any) -> Part:
    """A study at one scale, to be compared with the paper's. ``notes`` are for one scale, or for ``all``."""
    study = study_config(studies[scale]())
    return Part(
        title=f"{title}, {SOURCES.get(study.base.source.name, study.base.source.name)}",
        study=study,
        notes=[*notes.get(scale, ()), *notes.get("all", ())],
        paper_study=None if scale == "paper" else lambda: study_config(studies["paper"]()),
        **{"same_setup": scale == "paper"} | more,
    )


def at_each_scale(make: Callable[[Scale], Settings]) -> Studies:
    return {scale: partial(make, scale) for scale in SCALES}


def describe_study(
    name: str, scale: Scale, base: RunConfig | Mapping[str, Any], models: Iterable[Model], **fields: Any
) -> Settings:
    """The settings of a study whose networks share one set-up. The paper's scale uses a GPU where there is one."""
    if scale == "paper" and isinstance(base, RunConfig):
        base = base.model_copy(update={"train": base.train.model_copy(update={"device": device()})})
    return {"name": f"{name}-{scale}", "base": base, "candidates": list(models), **fields}


def smoke_base(**train: Any) -> Settings:
    """Classification of embedded digits, in seconds."""
    shared = {"epochs": 1, "batch_size": 64, "learning_rate": 3e-3, "schedule": "cosine", "select": "last"}
    return {"source": {"name": "digits"}, "task": {"name": "classification"}, "train": shared | train, "threads": 1}


def change_training(recipe: RunConfig, threads: int | None = None, **train: Any) -> RunConfig:
    settings = type(recipe.train)(**recipe.train.model_dump() | train)
    return recipe.model_copy(update={"train": settings, "threads": threads or recipe.threads})


def shorten(recipe: RunConfig, epochs: int, **train: Any) -> RunConfig:
    """Fewer epochs, and one thread, so that two workers share two cores."""
    return change_training(recipe, threads=1, epochs=epochs, **train)


def change_task(recipe: RunConfig, **settings: Any) -> RunConfig:
    task = type(recipe.task)(**recipe.task.model_dump() | settings)
    return recipe.model_copy(update={"task": task})


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
