"""The networks of a study: proposals, which conditions and budgets must allow, and trials, which are trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from isthmus.core.config import StudyConfig
from isthmus.core.errors import UserError, nearest
from isthmus.core.files import digest
from isthmus.core.protocols import ModelConfig, Signature
from isthmus.core.registry import component
from isthmus.core.space import condition, split_recipe
from isthmus.training.counting import count_costs
from isthmus.training.prepare import Prepared

State = Literal["open", "finished", "pruned", "failed"]
Run = tuple[float, int]  # learning rate and seed


@dataclass(frozen=True)
class Proposal:
    """A network that may be trained. ``space`` is None for one that the config lists."""

    model: ModelConfig
    key: str
    """Equal for equal networks, however their settings are written."""
    cost: Mapping[str, Any]
    space: int | None = None
    varied: Mapping[str, Any] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return self.model.name

    @property
    def settings(self) -> dict[str, Any]:
        """Of its model, in plain values."""
        return plain_settings(self.model)

    @property
    def recipe(self) -> dict[str, Any]:
        """The training settings that are its own."""
        return split_recipe(self.varied)[1]


def plain_settings(model: ModelConfig) -> dict[str, Any]:
    """The settings of a model that differ from their defaults, and its name."""
    return model.model_dump(mode="json", exclude_defaults=True) | {"name": model.name}


@dataclass
class Trial:
    """A network of a study as its database holds it, and what the study knows of its runs."""

    number: int
    generation: int
    key: str
    space: int | None
    settings: Mapping[str, Any]
    """Of its model."""
    varied: Mapping[str, Any]
    costs: Mapping[str, float]
    memory: Mapping[str, Any] = field(default_factory=dict)
    """What the sampler noted on it."""
    state: State = "open"
    quality: float | None = None
    rungs: Mapping[int, float] = field(default_factory=dict)
    decisions: Mapping[int, int] = field(default_factory=dict)
    """The numbers of the decisions to train it, and until which epoch; of a sampler that decides step by step."""
    failures: dict[str, str] = field(default_factory=dict)
    """Runs that failed without leaving a record, and why."""
    reason: str = ""

    runs: dict[Run, Prepared] = field(default_factory=dict, compare=False)
    rate: float | None = field(default=None, compare=False)
    """The learning rate that was best on validation data, once that is known."""
    has_lost_records: bool = field(default=False, compare=False)
    """Whether it has ended, and some of its runs must be trained again."""

    @classmethod
    def of(cls, proposal: Proposal, number: int, generation: int = 0, memory: Mapping[str, Any] | None = None) -> Trial:
        return cls(
            number, generation, proposal.key, proposal.space, proposal.settings, proposal.varied, proposal.cost,
            memory or {},
        )  # fmt: skip

    @property
    def is_open(self) -> bool:
        return self.state == "open" or self.has_lost_records

    @cached_property
    def model(self) -> ModelConfig:
        return cast("ModelConfig", component("models", dict(self.settings)))

    @property
    def recipe(self) -> dict[str, Any]:
        """The training settings that are its own."""
        return split_recipe(self.varied)[1]


class Judge:
    """Accepts proposals, and counts why others were refused."""

    def __init__(self, config: StudyConfig, signature: Signature) -> None:
        self.config, self.signature = config, signature
        self.conditions = [[(text, condition(text)) for text in space.where] for space in config.spaces]
        self.refused: Counter[str] = Counter()

    def judge(self, settings: Mapping[str, Any], space: int | None, taken: Collection[str] = ()) -> Proposal | None:
        """The proposal with these settings, or None if it breaks a condition or the budget, or is already taken."""
        model, recipe = split_recipe(settings)
        try:
            config = component("models", model)
            assert isinstance(config, ModelConfig)
            if recipe:
                self.config.run(config, self.config.rates[0], self.config.seeds[0], recipe)  # refuses wrong values
            complete = config.complete(self.signature, self.config.seeds[0])
            counted = count_costs(complete, [self.config.cost, *(self.config.budget.model_extra or ())])
        except UserError as error:
            self.refused[str(error)] += 1
            return None
        names, network = complete.model_dump() | counted, complete.model_dump(mode="json")
        key = digest({"model": network, "train": recipe} if recipe else network, 16)
        conditions = [] if space is None else self.conditions[space]
        reasons = [text for text, holds in conditions if not _check(text, holds, names)]
        if over := self.config.budget.exceeded_limit(counted):
            reasons.append(over)
        if key in taken:
            reasons.append("proposed twice")
        if reasons:
            self.refused[reasons[0]] += 1
            return None
        varied = {} if space is None else {name: settings[name] for name in self.config.spaces[space].vary}
        return Proposal(config, key, counted, space, varied)

    def complaint(self) -> str:
        """Why nothing was accepted, the most frequent reason first."""
        if not self.refused:
            return "it is empty"
        return "; ".join(f"{number} × {reason}" for reason, number in self.refused.most_common(3))


def _check(text: str, holds: Any, names: Mapping[str, Any]) -> bool:
    try:
        return bool(holds(names))
    except KeyError as error:
        unknown = str(error.args[0])
        raise UserError(f"where {text!r}: there is no field {unknown!r}; {nearest(unknown, names)}") from None
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise UserError(f"where {text!r}: {error}") from None
