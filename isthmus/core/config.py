"""RunConfig and StudyConfig: frozen, versioned descriptions of a run and of a study."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping
from numbers import Number
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from isthmus.core.errors import UserError, nearest
from isthmus.core.files import digest, read_text
from isthmus.core.protocols import Component, ModelConfig, Settings
from isthmus.core.registry import build_config, catalogue, component, find
from isthmus.core.space import Budget, Space, split_recipe
from isthmus.core.train_config import TrainConfig

_PAUSES = (0.1, 0.2, 0.4)
"""Parts of the epochs after which candidates of ``sampling.name=model`` may pause."""
_LARGEST_GRID, _MOST_RUNS = 10_000, 1_000_000
_MOST_SEEDS, _MOST_RATES = 1_000, 1_000
_LARGEST_FILE, _MOST_VALUES, _LONGEST_SCALAR, _DEEPEST = 2**20, 100_000, 10_000, 32
_LONGEST_OVERRIDE = 100_000
_NAMES = ("name", "pathway")
"""Fields that name a component; a pathway may be given by its name alone."""

_FIXED = ("epochs", "stop_epoch", "evaluate_every", "device", "devices", "strategy", "recompute", "compile")
_VARIABLE = [name for name in TrainConfig.model_fields if name not in _FIXED]
"""The training settings that a space may vary: not those that decide when runs are compared, or where they are."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]
SourceField = Annotated[SerializeAsAny[Component], BeforeValidator(lambda value: component("sources", value))]
TaskField = Annotated[SerializeAsAny[Component], BeforeValidator(lambda value: component("tasks", value))]
ModelField = Annotated[SerializeAsAny[ModelConfig], BeforeValidator(lambda value: component("models", value))]
Overrides = Iterable[str] | Mapping[str, Any]
"""Such as ``["model.d_h=64"]`` or ``{"model.d_h": 64}``."""


class Setup(Settings):
    """The settings that all runs of a study share: data, task, training and threads."""

    schema_version: Literal[1] = 1
    """The version of these fields."""
    source: SourceField
    """Where the rows come from; `isthmus sources` lists all."""
    task: TaskField
    """What is predicted; `isthmus tasks` lists all."""
    train: TrainConfig = TrainConfig()
    """How it is trained."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 2
    """CPU threads. They change the order of summation, and so the bits of the result."""


class RunConfig(Setup):
    """One training run. Together with the data fingerprint it determines every bit of the result."""

    model: ModelField
    """The network; `isthmus models` lists all."""
    seed: Seed = 0
    """Determines the initial weights and every random draw of the training."""
    init: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """The id of a finished run whose weights initialise the model."""

    def run_id(self, fingerprint: str) -> str:
        """The name of the run's folder. Fields at their defaults are not hashed, so that a new field renames no run."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        return digest({"schema": self.schema_version, "config": given, "seed": self.seed, "data": fingerprint}, 16)


class Sampling(Settings):
    """How candidates are chosen from the spaces."""

    name: Literal["grid", "random", "tpe", "nsga2", "gp", "model"] = "grid"
    """Every network of the spaces (``grid``), random ones, one of Optuna's samplers, or our own (``model``)."""
    candidates: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Number of candidates over all spaces; a grid is thinned to it (default: the whole grid, or 40 samples).

    With ``model``, the number of whole trainings, which may be spent on more candidates that stop early.
    """
    generation: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Candidates proposed at once; each generation uses the results of all earlier ones (default: 8; 1 with ``model``).

    With ``model``, decision n uses the results of all decisions up to n minus this number.
    """
    step_flops: Annotated[float, Field(gt=0, le=1e15)] = 2e7
    """With ``model``: what a step of training costs besides its arithmetic, in floating-point operations.

    A decision divides the expected gain by the predicted time, which is the counted operations plus this number for
    every step. The default is about 1 ms of one core of a processor at 20 GFLOP/s.
    """
    seed: Seed = 0
    """Seed of the sampler."""

    @property
    def draws(self) -> int:
        return self.candidates or 40

    @property
    def generation_size(self) -> int:
        return self.generation or (1 if self.name == "model" else 8)


class Pruning(Settings):
    """Which candidates stop early. Costs are known before training, so rungs compare quality only."""

    rungs: tuple[Annotated[int, Field(ge=1)], ...]
    """Epochs after which candidates are compared with each other. With ``sampling.name=model``, the epochs at which a
    candidate may pause; the fields below have no effect then. Without any, every candidate is trained to its end."""
    keep: Annotated[float, Field(ge=0, le=1)] = 0.25
    """The fraction that continues at a rung, by non-dominated rank; non-dominated candidates always continue."""
    margin: Annotated[float, Field(ge=0)] = 1.0
    """How much better a cheaper candidate must be to dominate, in units of best minus median at the rung.

    On recorded curves, 1 lost fewer than one in twenty members of final fronts; 0.25 lost one in four on MNIST, where
    deep networks improve late (EXPERIMENTS.md).
    """
    across_architectures: bool = False
    """Whether a candidate may be dominated by another architecture, which shortens the front of its own."""

    @model_validator(mode="after")
    def _rungs_rise(self) -> Self:
        if any(high <= low for low, high in itertools.pairwise(self.rungs)):
            raise ValueError(f"rungs={list(self.rungs)} must increase")
        return self


class Shared(Settings):
    """A super-network that ranks the candidates of a grid before any is trained alone."""

    epochs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Of each super-network (default: ``base.train.epochs``)."""
    slices: Annotated[int, Field(ge=2, le=64)] = 3
    """Candidates whose losses a step adds: the largest, the smallest, and random ones."""
    first: Annotated[int, Field(ge=3, le=10_000)] = 8
    """Candidates trained alone before the ranking is checked; if Kendall's τ is below 0.5, all others follow."""
    keep: Annotated[float, Field(gt=0, le=1)] = 0.1
    """The fraction of candidates that is trained alone if the ranking holds."""

    def count_epochs(self, epochs: int) -> int:
        return self.epochs or epochs

    def count_promising(self, candidates: int) -> int:
        return min(candidates, max(self.first, math.ceil(self.keep * candidates)))


class StudyConfig(Settings):
    """A study: candidates, each with learning rates and seeds, on one task."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=80)]
    """The study's name; the same name resumes it."""
    base: Setup
    """The settings that all its runs share."""
    candidates: tuple[ModelField, ...] = ()
    """Explicit candidates, before those of the spaces."""
    spaces: tuple[Space, ...] = ()
    """Where further candidates are drawn from."""
    sampling: Sampling = Sampling()
    """How candidates are chosen from the spaces."""
    budget: Budget = Budget()
    """The largest costs that a candidate may have."""
    quality: str | None = None
    """A validation metric (default: the task's objective)."""
    cost: str = "params"
    """The cost axis of the front: any registered cost. Latency is measured on this machine before training."""
    learning_rates: Annotated[tuple[Annotated[float, Field(gt=0, le=1_000)], ...], Field(max_length=_MOST_RATES)] = ()
    """Learning rates to try, selected per candidate on validation data (default: that of ``base``)."""
    rates_on: Literal["first_seed", "every_seed"] = "every_seed"
    """The seeds on which all learning rates are tried; with ``first_seed``, other seeds use the selected rate."""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=_MOST_SEEDS)] = (0,)
    """Each candidate is trained once with every seed."""
    pruning: Pruning | None = None
    """Which candidates stop early (default: none; with ``sampling.name=model``, candidates may pause after 10, 20 and
    40 % of the epochs)."""
    # Left out while it is None, so that the configs of other studies are written as before.
    shared: Annotated[Shared | None, Field(exclude_if=lambda value: value is None)] = None
    """A super-network that ranks the candidates of a grid (default: none)."""
    precision: Annotated[
        tuple[Literal["float32", "int8"], ...], Field(exclude_if=lambda value: value == ("float32",))
    ] = ("float32",)
    """With ``[float32, int8]``, each trained network is on the front with int8 weights too: in all layers, and in those
    that lose little quality. Bytes, latency in onnxruntime and quality are measured."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        train = self.base.train
        if find("costs", self.cost).is_measured and self.sampling.name == "model":
            raise ValueError(f"sampling.name=model needs a cost that is counted; {self.cost} is measured, use tpe")
        if not self.candidates and not self.spaces:
            raise ValueError("a study needs candidates or spaces")
        if any(rate < train.final_learning_rate for rate in self.learning_rates):
            raise ValueError(f"learning_rates must be at least final_learning_rate={train.final_learning_rate:g}")
        for name in ("learning_rates", "seeds"):
            given = getattr(self, name)
            if twice := [value for value in set(given) if given.count(value) > 1]:
                raise ValueError(f"{name} contains {min(twice)} twice")
        if self.shared is not None and self.sampling.name != "grid":
            raise ValueError(f"--shared ranks a grid; use sampling.name=grid instead of {self.sampling.name}")
        self._check_precision()
        for space in self.spaces:
            self._check_recipe(split_recipe(space.vary)[1])
        for rung in self.pruning.rungs if self.pruning else ():
            if rung >= train.epochs or rung % train.evaluate_every:
                raise ValueError(
                    f"rung {rung} must be a validated epoch before the last one "
                    f"(epochs={train.epochs}, evaluate_every={train.evaluate_every})"
                )
        return self

    def _check_precision(self) -> None:
        if self.precision not in (("float32",), ("float32", "int8")):
            raise ValueError(f"precision={list(self.precision)} must be [float32] or [float32, int8]")
        if "int8" in self.precision and self.cost not in ("bytes", "latency"):
            raise ValueError(f"precision=int8 does not change cost={self.cost}; use cost=bytes or cost=latency")

    def _check_recipe(self, recipe: Mapping[str, Any]) -> None:
        for name in recipe:
            if name not in _VARIABLE:
                known = [f"train.{known}" for known in _VARIABLE]
                raise ValueError(f"a space cannot vary train.{name}; {nearest(f'train.{name}', known)}")
        if "learning_rate" in recipe and self.learning_rates:
            raise ValueError("give learning_rates, or vary train.learning_rate, not both")

    @model_validator(mode="after")
    def _can_be_counted(self) -> Self:
        """Refuse a grid or a number of runs that is too large to enumerate."""
        number = self.sampling.draws if self.spaces else 0
        if self.sampling.name == "grid":
            size = sum(space.grid_size() for space in self.spaces)
            if size > _LARGEST_GRID:
                raise ValueError(f"the grid has more than {_LARGEST_GRID:,} networks; use fewer, or sampling.name=tpe")
            number = min(size, self.sampling.candidates or size)
        if (number + len(self.candidates)) * len(self.rates) * len(self.seeds) > _MOST_RUNS:
            raise ValueError(f"the study has more than {_MOST_RUNS:,} runs; give fewer candidates, rates or seeds")
        return self

    @property
    def stopping(self) -> Pruning | None:
        """Which candidates stop early: what the config says, or what was measured to be best with the sampler."""
        if self.pruning is not None:
            return self.pruning if self.pruning.rungs else None
        train = self.base.train
        rungs = {max(1, round(part * train.last_epoch / train.evaluate_every)) for part in _PAUSES}
        fit = [rung * train.evaluate_every for rung in sorted(rungs) if rung * train.evaluate_every < train.last_epoch]
        return Pruning(rungs=tuple(fit)) if fit and self.sampling.name == "model" else None

    @property
    def rates(self) -> tuple[float, ...]:
        return self.learning_rates or (self.base.train.learning_rate,)

    def run(self, model: ModelConfig, rate: float, seed: int, recipe: Mapping[str, Any] | None = None) -> RunConfig:
        """The config of one run of a candidate. Its ``recipe`` overrides training settings, the rate included."""
        train = build_config(TrainConfig, self.base.train.model_dump() | {"learning_rate": rate} | dict(recipe or {}))
        shared = {name: getattr(self.base, name) for name in Setup.model_fields}
        return RunConfig(**shared | {"model": model, "seed": seed, "train": train})


Given = str | Path | Mapping[str, Any] | RunConfig | StudyConfig
"""A recipe, a JSON or YAML file, a mapping of the same fields, or a config."""


def run_config(settings: Mapping[str, Any]) -> RunConfig:
    """A RunConfig from plain values; a mistake is a one-line UserError."""
    return build_config(RunConfig, settings)


def study_config(settings: Mapping[str, Any]) -> StudyConfig:
    """A StudyConfig from plain values. ``base`` may be a RunConfig, whose model and seed are ignored."""
    if isinstance(base := settings.get("base"), RunConfig):
        settings = {**settings, "base": {name: getattr(base, name) for name in Setup.model_fields}}
    return build_config(StudyConfig, settings)


def find_settings(given: Given, kind: type[RunConfig] | type[StudyConfig], overrides: Overrides = ()) -> dict[str, Any]:
    """The settings of a recipe, a JSON or YAML file, a mapping or a config, with the overrides applied."""
    if isinstance(given, Mapping):
        return override(given, overrides)
    if isinstance(given, str | Path) and Path(given).suffix in (".json", ".yaml", ".yml"):
        settings = read_settings(Path(given))
        if kind is RunConfig and "spaces" in settings:
            raise UserError(f"{given} is a study of many runs; `isthmus study {given}` carries it out")
        if kind is StudyConfig and "model" in settings:
            raise UserError(f"{given} is one run, not a study; `isthmus train {given}` trains it")
        return override(settings, overrides)
    if isinstance(given, str | Path) and str(given) not in catalogue("recipes") and os.path.exists(given):  # noqa: PTH110
        raise UserError(f"{str(given)!r} is no recipe and no JSON or YAML file; `isthmus find {given}` trains on data")
    config = find("recipes", str(given))() if isinstance(given, str | Path) else given
    if not isinstance(config, kind):
        raise UserError(_explain_kind(given, config))
    return override(config.model_dump(mode="json", exclude_defaults=True), overrides)


def _explain_kind(given: Any, config: Any) -> str:
    if not isinstance(given, str | Path):
        return f"got {type(given).__name__}; give the name of a recipe, a JSON or YAML file, or a mapping of its fields"
    if isinstance(config, StudyConfig):
        return f"recipe {given!r} is a study of many runs, for `isthmus study {given}`; `isthmus recipes` lists all"
    studies = [name for name in catalogue("recipes") if isinstance(find("recipes", name)(), StudyConfig)]
    return f"recipe {given!r} is one run, for `isthmus train`; studies are: {', '.join(studies)}"


def _plain(value: Any) -> Any:
    """Convert a value that JSON cannot hold to one that it can."""
    if isinstance(value, RunConfig):  # the base of a study
        return {name: getattr(value, name) for name in Setup.model_fields}
    if isinstance(value, Settings):
        return value.model_dump(mode="json", exclude_defaults=True)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Number) and hasattr(value, "item"):  # of numpy
        return value.item()
    raise UserError(f"a setting is a number, a text, a list or a mapping, not {type(value).__name__}")


def read_settings(path: Path) -> dict[str, Any]:
    """Read a JSON or YAML file of settings."""
    text = read_text(path, _LARGEST_FILE)
    try:
        settings = json.loads(text, object_pairs_hook=_build_mapping) if path.suffix == ".json" else _read_yaml(text)
        need_shallow(settings)
        settings = json.loads(json.dumps(settings))  # refuses YAML's dates, bytes and sets
    except Exception as error:  # YAML raises many kinds of error for a wrong tag
        raise UserError(f"{path} is not valid {path.suffix[1:].upper()}: {' '.join(str(error).split())}") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path} must contain a mapping of fields, not {type(settings).__name__}")
    return settings


def _build_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _refuse_duplicates([name for name, _ in pairs])
    return dict(pairs)


def _refuse_duplicates(names: list[str]) -> None:
    """Refuse a field that is given twice, because either value may be meant."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} is given twice")


def _read_yaml(text: str) -> Any:
    """``yaml.safe_load`` with a limit on expanded aliases, because a few lines can expand to billions of values."""
    if node := yaml.compose(text, yaml.SafeLoader):
        _count_values(node, {})
    return yaml.safe_load(text)


def _count_values(node: yaml.Node, counts: dict[yaml.Node, int]) -> int:
    """The number of values in a node with its aliases expanded; too many raise a ValueError."""
    if node in counts:
        if not counts[node]:
            raise ValueError("a value contains itself")
        return counts[node]
    counts[node] = 0
    inner: Iterable[yaml.Node] = ()
    if isinstance(node, yaml.MappingNode):
        _refuse_duplicates([name.value for name, _ in node.value if isinstance(name, yaml.ScalarNode)])
        inner = itertools.chain.from_iterable(node.value)
    elif isinstance(node, yaml.SequenceNode):
        inner = node.value
    elif len(node.value) > _LONGEST_SCALAR:  # parsing a number takes quadratic time
        raise ValueError(f"a value of {len(node.value):,} characters is too long; the limit is {_LONGEST_SCALAR:,}")
    counts[node] = 1 + sum(_count_values(each, counts) for each in inner)
    if counts[node] > _MOST_VALUES:
        raise ValueError(f"it contains more than {_MOST_VALUES:,} values, with aliases expanded")
    return counts[node]


def need_shallow(settings: Any) -> None:
    """Raise a ValueError for values nested deeper than any config."""
    level = [settings]
    for _ in range(_DEEPEST):
        nested = [value for value in level if isinstance(value, dict | list)]
        level = [inner for value in nested for inner in (value.values() if isinstance(value, dict) else value)]
        if not level:
            return
    raise ValueError(f"its values are nested more than {_DEEPEST} deep")


def parse_override(text: str) -> tuple[list[str], Any]:
    """Split ``model.d_h=64`` into a path and a value; the value is parsed as JSON, or is a string."""
    if len(text) > _LONGEST_OVERRIDE:
        raise UserError(f"{text[:40]!r}… is too long: the limit is {_LONGEST_OVERRIDE:,} characters")
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


def override(settings: Mapping[str, Any], overrides: Overrides = ()) -> dict[str, Any]:
    """The settings with each ``key=value`` applied. A changed component name drops the old component's fields."""
    result: dict[str, Any] = json.loads(json.dumps(settings, default=_plain))
    given = [overrides] if isinstance(overrides, str) else overrides
    if isinstance(given, Mapping):
        plain = json.loads(json.dumps(dict(given), default=_plain))
        parsed = [(str(name).split("."), value) for name, value in plain.items()]
    else:
        parsed = [parse_override(text) for text in given]
    # Names first, so that a changed name does not drop fields of the same call.
    for path, value in sorted(parsed, key=lambda pair: pair[0][-1] not in _NAMES):
        place = result
        for part in path[:-1]:
            if part == "pathway" and isinstance(place.get(part), str):
                place[part] = {"name": place[part]}
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise UserError(f"{'.'.join(path)}: {part!r} has no fields of its own")
        if len(path) > 1 and path[-1] == "name" and place.get("name") != value:
            place.clear()
        place[path[-1]] = value
    return result
