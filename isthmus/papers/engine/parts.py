"""Builds a part from a study that is defined at three scales."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from isthmus.core.config import RunConfig, study_config
from isthmus.papers.engine.differences import SOURCES
from isthmus.papers.engine.exhibit import Part, Scale
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.protocols import Protocol

Settings = dict[str, Any]
Model = dict[str, Any]
Base = RunConfig | Settings
Notes = Mapping[str, Sequence[str]]
"""Differences that the configs do not show, for one scale or for ``all``."""


def make_part(
    title: str, scale: Scale, study: Callable[[Scale], Settings], notes: Notes, printed: Iterable[Network] = (),
    protocol: Protocol | None = None, **more: Any,
) -> Part:  # fmt: skip
    """A study at one scale, to be compared with the paper's. ``study`` gives the settings of its StudyConfig; at the
    paper's scale those of the ``protocol`` replace them."""

    def settings(chosen: Scale) -> Settings:
        made = study(chosen)
        return protocol.change(made, "printed") if protocol and chosen == "paper" else made

    here = study_config(settings(scale))
    return Part(
        title=f"{title}, {SOURCES.get(here.base.source.name, here.base.source.name)}",
        study=here,
        notes=[*notes.get(scale, ()), *notes.get("all", ())],
        paper_study=None if scale == "paper" else lambda: study_config(settings("paper")),
        printed={row.id: row for row in printed},
        protocol=protocol,
        **more,
    )


def describe_study(
    name: str, scale: Scale, base: Base, models: Iterable[Model], seeds: int = 3, **fields: Any
) -> Settings:
    """The settings of a study whose networks share one set-up; two seeds at the smoke scale.

    The paper's scale uses a GPU where there is one.
    """
    if scale == "paper" and isinstance(base, RunConfig):
        base = change_training(base, device=_best_device())
    repeats = range(2 if scale == "smoke" else seeds)
    return {"name": f"{name}-{scale}", "base": base, "candidates": list(models), "seeds": repeats, **fields}


def smoke_base(**train: Any) -> Settings:
    """Classification of embedded digits, in seconds."""
    shared = {"epochs": 1, "batch_size": 64, "learning_rate": 3e-3, "schedule": "cosine", "select": "last"}
    return {"source": {"name": "digits"}, "task": {"name": "classification"}, "train": shared | train, "threads": 1}


def change_training(recipe: RunConfig, **train: Any) -> RunConfig:
    return recipe.model_copy(update={"train": type(recipe.train)(**recipe.train.model_dump() | train)})


def shorten(recipe: RunConfig, epochs: int, task: Settings | None = None, **train: Any) -> RunConfig:
    """A recipe with fewer epochs, a changed task, and one thread, so that two workers share two cores."""
    changed = type(recipe.task)(**recipe.task.model_dump() | (task or {}))
    return change_training(recipe, epochs=epochs, **train).model_copy(update={"task": changed, "threads": 1})


def _best_device() -> str:
    from isthmus.training.devices import best_device

    return best_device().type
