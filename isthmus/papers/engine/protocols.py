"""What a paper prints about an experiment, and what its authors' code has instead, by the fields of our configs.

A path starts with ``source``, ``task`` or ``train``, with the name of a model, whose networks it concerns, or with
``model``, which concerns all. A study at the paper's scale follows one of two protocols: ``printed`` is the text to the
letter; ``code`` has what the authors' code is known to have instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from pydantic import BaseModel

from isthmus.core.config import RunConfig, Setup, StudyConfig, override, study_config

Kind = Literal["printed", "code"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_SHARED = ("source", "task", "train")


@dataclass(frozen=True)
class Protocol:
    where: str
    """The tables and sections that print it."""
    printed: Mapping[str, Any]
    """By path."""
    unprinted: Mapping[str, Any] = field(default_factory=dict)
    """What the paper does not print: our choice by path."""
    code: Mapping[str, Any] = field(default_factory=dict)
    """What the authors' code has instead of a printed value, or where nothing is printed."""
    open: Mapping[Kind, Sequence[str]] = field(default_factory=dict)
    """Contradictions that no setting of ours removes."""
    unapplied: Mapping[str, str] = field(default_factory=dict)
    """Printed settings that a study does not follow, with the reason; they are among its contradictions."""

    def settings(self, kind: Kind) -> dict[str, Any]:
        return {**self.unprinted, **self.printed, **(self.code if kind == "code" else {})}

    def without(self, *paths: str) -> Protocol:
        """Of a study that varies these settings, or all of a model (``hyper_set.``)."""

        def keep(settings: Mapping[str, Any]) -> dict[str, Any]:
            return {path: value for path, value in settings.items() if not path.startswith(paths)}

        return replace(self, printed=keep(self.printed), unprinted=keep(self.unprinted), code=keep(self.code))

    def change(self, given: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
        """The settings of a study with those of the protocol."""
        wanted = {path: value for path, value in self.settings(kind).items() if path not in self.unapplied}
        shared = {path: value for path, value in wanted.items() if path.split(".")[0] in _SHARED}
        base = given["base"]
        if isinstance(base, RunConfig):
            base = base.model_dump(mode="json", exclude_defaults=True, include=set(Setup.model_fields))
        candidates = [
            override(
                model,
                {
                    path.split(".", 1)[1]: value
                    for path, value in wanted.items()
                    if path not in shared and path.split(".")[0] in ("model", model["name"])
                },
            )
            for model in given.get("candidates", ())
        ]
        return {**given, "base": override(base, shared), "candidates": candidates}

    def apply(self, study: StudyConfig, kind: Kind) -> StudyConfig:
        """The study with the settings of the protocol."""
        return study_config(self.change(study.model_dump(mode="json", exclude_defaults=True), kind))

    def contradictions(self, study: StudyConfig, kind: Kind) -> list[str]:
        """A line for each setting of the study that differs from the printed one, or from the authors' code."""
        found = list(self.open.get(kind, ()))
        for path, wanted in self.settings(kind).items():
            if path in self.unprinted and path not in self.code:
                continue
            home = "in the authors' code" if kind == "code" and path in self.code else f"printed ({self.where})"
            others = dict.fromkeys(show(value) for value in read(study, path) if show(value) != show(wanted))
            reason = f": {self.unapplied[path]}" if path in self.unapplied else ""
            found += [f"{path} is {other}; {show(wanted)} is {home}{reason}" for other in others]
        return found

    def describe_unprinted(self, study: StudyConfig, kind: Kind) -> list[str]:
        """A line for each of our choices, with its value in the study; then what the authors' code is known to have."""
        lines = [
            f"the paper does not print {path}; here {', '.join(dict.fromkeys(map(show, values)))}"
            for path in self.unprinted
            if not (kind == "code" and path in self.code) and (values := list(read(study, path)))
        ]
        if kind == "printed" and self.code:
            concerned = [path for path in self.code if list(read(study, path))]
            known = "; ".join(f"{path} {show(self.code[path])}" for path in concerned)
            lines += [f"the authors' code has (`--protocol code`): {known}"] if known else []
        return lines


def crop_photographs(protocol: Protocol, source: str) -> Protocol:
    """timm cuts its crops out of the whole photograph. CIFAR's images are whole in any case."""
    if source in ("cifar10", "cifar100"):
        return protocol
    return replace(
        protocol,
        unprinted={**protocol.unprinted, "source.extent": "square", "source.resampling": "bilinear"},
        code={**protocol.code, "source.extent": "whole", "source.resampling": "bicubic"},
        open={"code": ["timm cuts photographs at their full size; here they are reduced to 256 × 256 pixels first"]},
    )


def read(study: StudyConfig, path: str) -> Iterator[Any]:
    """The value of a path in a study: one, or one for each network that it concerns."""
    head, *rest = path.split(".")
    owners = [getattr(study.base, head)] if head in _SHARED else [
        model for model in study.candidates if head in ("model", model.name)
    ]  # fmt: skip
    for owner in owners:
        value: Any = owner
        for name in rest:
            value = getattr(value, name)
        yield value


def show(value: Any) -> str:
    """A value as it is typed; of a group of settings, those that are not at their defaults."""
    if isinstance(value, BaseModel):
        set_ = value.model_dump(exclude_defaults=True)
        return ", ".join(f"{name} {show(each)}" for name, each in set_.items()) or "none"
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "none"
    if isinstance(value, int | float):
        return f"{value:g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show, value))}]"
    return str(value)
