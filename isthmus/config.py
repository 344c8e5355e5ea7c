"""RunConfig and StudyConfig: frozen, versioned, and the only way to say what is to be run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from isthmus.errors import UserError
from isthmus.files import digest
from isthmus.protocols import Component, ModelConfig, Settings
from isthmus.registry import component, explain
from isthmus.training.settings import TrainConfig

Seed = Annotated[int, Field(ge=0, lt=2**63)]
SourceField = Annotated[SerializeAsAny[Component], BeforeValidator(lambda value: component("sources", value))]
TaskField = Annotated[SerializeAsAny[Component], BeforeValidator(lambda value: component("tasks", value))]
ModelField = Annotated[SerializeAsAny[ModelConfig], BeforeValidator(lambda value: component("models", value))]


class RunConfig(Settings):
    """One training. With the data's fingerprint it determines every bit of the result."""

    schema_version: Literal[1] = 1
    source: SourceField
    task: TaskField
    model: ModelField
    train: TrainConfig = TrainConfig()
    seed: Seed = 0
    threads: Annotated[int, Field(ge=1, le=1024)] = 2
    """CPU threads of the arithmetic: the same sum in another order has other bits."""
    init: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """The id of a finished run whose weights are the starting point."""

    def run_id(self, fingerprint: str) -> str:
        """The name of the run's folder. A field at its default stays out of it, so that a new field renames no run."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        return digest({"schema": self.schema_version, "config": given, "seed": self.seed, "data": fingerprint}, 16)


class StudyConfig(Settings):
    """Many trainings that answer one question: every candidate with every learning rate and every seed."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=80)]
    base: RunConfig
    candidates: Annotated[tuple[ModelField, ...], Field(min_length=1)]
    learning_rates: tuple[Annotated[float, Field(gt=0, le=1_000)], ...] = ()
    """Empty: the one of ``base``. Otherwise each candidate's is selected on validation data."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)

    @model_validator(mode="after")
    def _rates_fit_the_schedule(self) -> Self:
        final = self.base.train.final_learning_rate
        if any(rate < final for rate in self.learning_rates):
            raise ValueError(f"a learning rate is below the final one of the schedule, {final:g}")
        return self

    def runs(self) -> list[RunConfig]:
        """Seeds outermost: an interrupted study has seen every candidate before any candidate twice."""
        rates = self.learning_rates or (self.base.train.learning_rate,)
        return [
            self.base.model_copy(
                update={
                    "model": candidate,
                    "seed": seed,
                    "train": TrainConfig(**self.base.train.model_dump() | {"learning_rate": rate}),
                }
            )
            for seed in self.seeds
            for candidate in self.candidates
            for rate in rates
        ]


def run_config(settings: Mapping[str, Any]) -> RunConfig:
    """A checked config from plain values; what is wrong is said in one line."""
    try:
        return RunConfig(**settings)
    except ValidationError as error:
        raise UserError(explain(error, RunConfig)) from None


def study_config(settings: Mapping[str, Any]) -> StudyConfig:
    """Likewise for a study."""
    try:
        return StudyConfig(**settings)
    except ValidationError as error:
        raise UserError(explain(error, StudyConfig)) from None


def read_settings(path: Path) -> dict[str, Any]:
    """The mapping in a JSON or YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    try:
        settings = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        settings = json.loads(json.dumps(settings))  # YAML also knows dates, bytes, sets and cycles
    except Exception as error:  # YAML raises a dozen kinds for a value that does not fit its tag
        raise UserError(f"{path} is not valid {path.suffix[1:].upper()}: {' '.join(str(error).split())}") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path} must hold a mapping of fields, not {type(settings).__name__}")
    return settings


def parse_override(text: str) -> tuple[list[str], Any]:
    """``model.d_h=64`` as a path and a value; the value is JSON where it can be, else a string."""
    name, equals, value = text.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path):
        raise UserError(f"{text!r} is not of the form key=value, such as model.d_h=64")
    try:
        return path, json.loads(value)
    except (ValueError, RecursionError):
        return path, None if value == "None" else value  # "none" is the name of a norm


def overridden(settings: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """The settings with each ``key=value`` put in its place. Another component's name drops the old one's fields."""
    result: dict[str, Any] = json.loads(json.dumps(settings))
    # Names first: another component drops the old one's fields, and must not drop what this call gives.
    parsed = sorted((parse_override(text) for text in overrides), key=lambda pair: pair[0][-1] != "name")
    for path, value in parsed:
        place = result
        for part in path[:-1]:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise UserError(f"{'.'.join(path)}: {part!r} has no fields of its own")
        if path[-1] == "name" and place.get("name") != value:
            place.clear()
        place[path[-1]] = value
    return result
