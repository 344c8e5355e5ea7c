"""A trial: a network that a study trains, from the moment it is chosen until it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from isthmus.core.protocols import ModelConfig
from isthmus.core.registry import component
from isthmus.studies.proposals import Proposal
from isthmus.training.run import Prepared

State = Literal["open", "finished", "pruned", "failed"]
Run = tuple[float, int]  # learning rate and seed


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
