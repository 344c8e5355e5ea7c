"""RunConfig and StudyConfig: frozen, versioned, and the only way to say what is to be run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import digest, read_text
from isthmus.core.protocols import Component, ModelConfig, Settings
from isthmus.core.registry import catalogue, component, explain
from isthmus.core.space import Budget, Space
from isthmus.core.train_config import TrainConfig

_LARGEST_GRID, _MOST_RUNS = 10_000, 1_000_000
_MOST_SEEDS, _MOST_RATES = 1_000, 1_000
_LARGEST_FILE, _MOST_VALUES, _LONGEST_SCALAR, _DEEPEST = 2**20, 100_000, 10_000, 32
_LONGEST_OVERRIDE = 100_000

Seed = Annotated[int, Field(ge=0, lt=2**63)]
SourceField = Annotated[SerializeAsAny[Component], BeforeValidator(lambda value: component("sources", value))]
TaskField = Annotated[SerializeAsAny[Component], BeforeValidator(lambda value: component("tasks", value))]
ModelField = Annotated[SerializeAsAny[ModelConfig], BeforeValidator(lambda value: component("models", value))]


def _need_cost(name: str) -> str:
    if name not in catalogue("costs"):
        raise ValueError(f"unknown cost {name!r}; {nearest(name, catalogue('costs'))}")
    return name


CostName = Annotated[str, AfterValidator(_need_cost)]


class Setup(Settings):
    """What the runs of a study share: data, task, training and arithmetic."""

    schema_version: Literal[1] = 1
    source: SourceField
    task: TaskField
    train: TrainConfig = TrainConfig()
    threads: Annotated[int, Field(ge=1, le=1024)] = 2
    """CPU threads of the arithmetic: the same sum in another order has other bits."""


class RunConfig(Setup):
    """One training. With the data's fingerprint it determines every bit of the result."""

    model: ModelField
    seed: Seed = 0
    init: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """The id of a finished run whose weights are the starting point."""

    def run_id(self, fingerprint: str) -> str:
        """The name of the run's folder. A field at its default stays out of it, so that a new field renames no run."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        return digest({"schema": self.schema_version, "config": given, "seed": self.seed, "data": fingerprint}, 16)


class Sampling(Settings):
    """How candidates are chosen from the spaces."""

    name: Literal["grid", "random", "tpe", "nsga2", "gp"] = "grid"
    candidates: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many, over all spaces; a grid is thinned to as many. Without it: the whole grid, or 40 draws."""
    generation: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Candidates asked for at once: the next ones know the results of all before them, whoever trained them."""
    seed: Seed = 0

    @property
    def draws(self) -> int:
        return self.candidates or 40


class Pruning(Settings):
    """Which candidates are not trained to the end. Cost is known before training, so quality alone is compared."""

    rungs: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    """Epochs after which candidates are compared, each with those that reached the same epoch."""
    keep: Annotated[float, Field(ge=0, le=1)] = 0.25
    """The part that goes on at a rung, by non-dominated rank; whoever is not dominated goes on in any case."""
    margin: Annotated[float, Field(ge=0)] = 1.0
    """How much better a cheaper candidate must be to dominate, in units of best minus median at the rung.

    At 1, fewer than one in twenty members of final fronts were lost on recorded curves; at 0.25 it was one in four on
    MNIST, where deep networks start late (EXPERIMENTS.md).
    """
    across_architectures: bool = False
    """Whether another architecture may dominate; then its rival's front is cut short."""

    @model_validator(mode="after")
    def _rungs_rise(self) -> Self:
        if any(high <= low for low, high in itertools.pairwise(self.rungs)):
            raise ValueError(f"rungs={list(self.rungs)} must rise")
        return self


class StudyConfig(Settings):
    """Many trainings that answer one question: candidates, each with learning rates and seeds, on one task."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=80)]
    base: Setup
    candidates: tuple[ModelField, ...] = ()
    """Given one by one; they come before those of the spaces."""
    spaces: tuple[Space, ...] = ()
    sampling: Sampling = Sampling()
    budget: Budget = Budget()
    quality: str | None = None
    """A validation metric; without it, the task's objective."""
    cost: CostName = "params"
    """What quality is weighed against: any registered cost. Latency is measured before a candidate is trained."""
    learning_rates: Annotated[tuple[Annotated[float, Field(gt=0, le=1_000)], ...], Field(max_length=_MOST_RATES)] = ()
    """Empty: the one of ``base``. Otherwise each candidate's is selected on validation data."""
    rates_on: Literal["first_seed", "every_seed"] = "every_seed"
    """Where all learning rates are tried. After the first seed, the others get the selected rate alone."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=_MOST_SEEDS)] = (0,)
    pruning: Pruning | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        train = self.base.train
        if not self.candidates and not self.spaces:
            raise ValueError("a study needs candidates or spaces")
        if any(rate < train.final_learning_rate for rate in self.learning_rates):
            raise ValueError(f"a learning rate is below the final one of the schedule, {train.final_learning_rate:g}")
        for name in ("learning_rates", "seeds"):
            given = getattr(self, name)
            if twice := [value for value in set(given) if given.count(value) > 1]:
                raise ValueError(f"{name} names one twice: {min(twice)}")
        for rung in self.pruning.rungs if self.pruning else ():
            if rung >= train.epochs or rung % train.evaluate_every:
                raise ValueError(
                    f"rung {rung} is no epoch with a validation before the last one "
                    f"(epochs={train.epochs}, evaluate_every={train.evaluate_every})"
                )
        return self

    @model_validator(mode="after")
    def _can_be_counted(self) -> Self:
        """A few words may ask for more networks than can be listed, or runs than can be planned."""
        number = self.sampling.draws if self.spaces else 0
        if self.sampling.name == "grid":
            size = sum(space.grid_size() for space in self.spaces)
            if size > _LARGEST_GRID:
                raise ValueError(
                    f"the grid has more than {_LARGEST_GRID:,} networks; give fewer values or points, or say "
                    "sampling.name=tpe, which tries sampling.candidates of them"
                )
            number = min(size, self.sampling.candidates or size)
        if (number + len(self.candidates)) * len(self.rates) * len(self.seeds) > _MOST_RUNS:
            raise ValueError(
                f"the study has more than {_MOST_RUNS:,} runs (candidates × learning rates × seeds); give fewer of them"
            )
        return self

    @property
    def rates(self) -> tuple[float, ...]:
        return self.learning_rates or (self.base.train.learning_rate,)

    def run(self, model: ModelConfig, rate: float, seed: int) -> RunConfig:
        """One training of a candidate."""
        train = TrainConfig(**self.base.train.model_dump() | {"learning_rate": rate})
        shared = {name: getattr(self.base, name) for name in Setup.model_fields}
        return RunConfig(**shared | {"model": model, "seed": seed, "train": train})


def run_config(settings: Mapping[str, Any]) -> RunConfig:
    """A checked config from plain values; what is wrong is said in one line."""
    try:
        return RunConfig(**settings)
    except ValidationError as error:
        raise UserError(explain(error, RunConfig)) from None


def study_config(settings: Mapping[str, Any]) -> StudyConfig:
    """Likewise for a study. A run's config may stand as its base: the model and the seed are the study's to choose."""
    if isinstance(base := settings.get("base"), RunConfig):
        settings = {**settings, "base": {name: getattr(base, name) for name in Setup.model_fields}}
    try:
        return StudyConfig(**settings)
    except ValidationError as error:
        raise UserError(explain(error, StudyConfig)) from None


def read_settings(path: Path) -> dict[str, Any]:
    """The mapping in a JSON or YAML file."""
    text = read_text(path, _LARGEST_FILE)
    try:
        settings = json.loads(text, object_pairs_hook=_mapping) if path.suffix == ".json" else _read_yaml(text)
        need_shallow(settings)
        settings = json.loads(json.dumps(settings))  # YAML also knows dates, bytes and sets
    except Exception as error:  # YAML raises a dozen kinds for a value that does not fit its tag
        raise UserError(f"{path} is not valid {path.suffix[1:].upper()}: {' '.join(str(error).split())}") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path} must hold a mapping of fields, not {type(settings).__name__}")
    return settings


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _need_different([name for name, _ in pairs])
    return dict(pairs)


def _need_different(names: list[str]) -> None:
    """Of a field that is given twice, nobody knows which one was meant."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} is given twice")


def _read_yaml(text: str) -> Any:
    """As ``yaml.safe_load``, after counting what the aliases stand for: a few lines of them may stand for billions."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count_values(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count_values(node: yaml.Node, counts: dict[yaml.Node, int]) -> int:
    """How many values a node holds, those of its aliases included; too many are a ValueError."""
    if node in counts:
        if not counts[node]:
            raise ValueError("a value contains itself")
        return counts[node]
    counts[node] = 0
    inner: Iterable[yaml.Node] = ()
    if isinstance(node, yaml.MappingNode):
        _need_different([name.value for name, _ in node.value if isinstance(name, yaml.ScalarNode)])
        inner = itertools.chain.from_iterable(node.value)
    elif isinstance(node, yaml.SequenceNode):
        inner = node.value
    elif len(node.value) > _LONGEST_SCALAR:  # the time to read a number grows with the square of its length
        raise ValueError(f"a value of {len(node.value):,} characters is too long; it may have {_LONGEST_SCALAR:,}")
    counts[node] = 1 + sum(_count_values(each, counts) for each in inner)
    if counts[node] > _MOST_VALUES:
        raise ValueError(f"it holds more than {_MOST_VALUES:,} values, those of its aliases included")
    return counts[node]


def need_shallow(settings: Any) -> None:
    """A ValueError for values that are nested deeper than any config."""
    level = [settings]
    for _ in range(_DEEPEST):
        nested = [value for value in level if isinstance(value, dict | list)]
        level = [inner for value in nested for inner in (value.values() if isinstance(value, dict) else value)]
        if not level:
            return
    raise ValueError(f"its values are nested more than {_DEEPEST} deep")


def parse_override(text: str) -> tuple[list[str], Any]:
    """``model.d_h=64`` as a path and a value; the value is JSON where it can be, else a string."""
    if len(text) > _LONGEST_OVERRIDE:
        raise UserError(f"{text[:40]!r}… is too long: an override may have {_LONGEST_OVERRIDE:,} characters")
    name, equals, value = text.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path) or len(path) > _DEEPEST:
        raise UserError(f"{text[:200]!r} is not of the form key=value, such as model.d_h=64")
    try:
        parsed = json.loads(value)
        need_shallow(parsed)
    except (ValueError, RecursionError):
        return path, None if value == "None" else value  # "none" is the name of a norm
    return path, parsed


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
