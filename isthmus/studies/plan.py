"""What a study knows before it starts: its data, its task, and the candidates that it may train."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution

from isthmus.core.config import Sampling, StudyConfig
from isthmus.core.errors import UserError, nearest
from isthmus.core.protocols import Data, ModelConfig, Task
from isthmus.core.record import runs_folder
from isthmus.core.space import Range, Space
from isthmus.studies.decisions import Pool
from isthmus.studies.proposals import Judge, Proposal, Run, Trial
from isthmus.studies.sampling import describe_parameters, draw, list_candidates
from isthmus.training.prepare import Options, Prepared, learn_task, load_data, prepare

_PREVIEWED = 16  # random draws from a space, whose costs stand for all


@dataclass(frozen=True)
class Plan:
    """A study's config with everything that its data decide."""

    config: StudyConfig
    options: Options
    data: Data
    task: Task
    inherited: Mapping[str, float] | None = None
    """With ``shared``: the quality of each candidate with inherited weights, by its key, the most promising first."""
    _runs: dict[tuple[Path, str], Prepared] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, config: StudyConfig, options: Options, data: Data | None = None, task: Task | None = None) -> Plan:
        """Load the data and let the task learn from them, unless both are given."""
        data = data or load_data(config.base.source, options.data_dir)
        plan = cls(config, options, data, task or learn_task(config.base.task, data))
        known = ["loss", *plan.task.metrics("validation")]
        if plan.quality not in known:
            raise UserError(f"quality={plan.quality!r} is no validation metric; {nearest(plan.quality, known)}")
        if plan.quality not in plan.task.directions():
            raise UserError(f"quality={plan.quality!r}: the metric lacks higher_is_better, which says which way is up")
        return plan

    @property
    def identity(self) -> dict[str, Any]:
        """What all studies of one name must agree on, with the version of the metric that decides."""
        given = self.config.model_dump(mode="json", exclude_defaults=True) | {"data": self.data.fingerprint}
        # As decided, whether configured or by default; a size of 8 was once the default of every sampler.
        size, stopping = self.config.sampling.generation_size, self.config.stopping
        given["sampling"] = given.get("sampling", {}) | {"generation": None if size == 8 else size}
        given["sampling"] = {name: value for name, value in given["sampling"].items() if value is not None}
        given["pruning"] = stopping.model_dump(mode="json", exclude_defaults=True) if stopping else None
        given = {name: value for name, value in given.items() if value not in ({}, None)}
        version = self.task.metric_versions.get(self.quality)
        return given if version is None else given | {"metric_versions": {self.quality: version}}

    @property
    def quality(self) -> str:
        return self.config.quality or self.task.objective

    @property
    def maximise(self) -> bool:
        return self.task.directions()[self.quality]

    @property
    def search_seeds(self) -> tuple[int, ...]:
        """The seeds with which all learning rates are tried."""
        return self.config.seeds if self.config.rates_on == "every_seed" else self.config.seeds[:1]

    @property
    def runs_per_candidate(self) -> int:
        searched = len(self.search_seeds)
        return searched * len(self.config.rates) + len(self.config.seeds) - searched

    @property
    def runs_at_once(self) -> float:
        """How many runs do not wait for the results of others, at least while no candidate ends."""
        sampling = self.config.sampling
        waits = sampling.name == "model" and self.config.spaces
        return sampling.generation_size * len(self.search_seeds) * len(self.config.rates) if waits else math.inf

    @cached_property
    def judge(self) -> Judge:
        return Judge(self.config, self.task.signature)

    def run(self, model: ModelConfig, rate: float, seed: int, recipe: Mapping[str, Any] | None = None) -> Prepared:
        """A run of a candidate, prepared once."""
        config = self.config.run(model, rate, seed, recipe)
        place = runs_folder(), config.model_dump_json()
        if place not in self._runs:
            self._runs[place] = prepare(config, self.options, self.data, self.task)
        return self._runs[place]

    def runs(self, candidate: Proposal | Trial) -> dict[Run, Prepared]:
        """The runs of a candidate with every learning rate and seed."""
        runs = itertools.product(self.config.rates, self.config.seeds)
        return {(rate, seed): self.run(candidate.model, rate, seed, candidate.recipe) for rate, seed in runs}

    @cached_property
    def candidates(self) -> list[Proposal]:
        """The candidates that are known before anything is trained."""
        listed = list_candidates(self.config, self.judge)
        if self.inherited is None:
            return listed
        places = {key: place for place, key in enumerate(self.inherited)}
        return sorted(listed, key=lambda proposal: places.get(proposal.key, len(places)))

    @cached_property
    def pool(self) -> Pool:
        """The candidates among which ``sampling.name=model`` chooses."""
        return Pool.of(self.config, self.judge)

    @cached_property
    def parameters(self) -> dict[str, BaseDistribution]:
        """What Optuna's dashboard shows of a candidate."""
        return describe_parameters(self.config)

    @cached_property
    def quotas(self) -> list[int]:
        """How many candidates are drawn from each space."""
        if self.config.sampling.name == "grid" or not self.config.spaces:
            return [0] * len(self.config.spaces)
        number, spaces = self.config.sampling.draws, len(self.config.spaces)
        return [number // spaces + (place < number % spaces) for place in range(spaces)]

    @cached_property
    def preview(self) -> list[Proposal]:
        """The candidates, or random ones where a sampler will choose them: their costs are alike."""
        config = self.config.model_copy(update={"sampling": Sampling(name="random", seed=self.config.sampling.seed)})
        judge, found = Judge(config, self.task.signature), list(self.candidates)
        for space, quota in enumerate(self.quotas):
            examples: dict[str, Proposal] = {}
            for number in range(min(quota, _PREVIEWED)):
                if proposed := draw(judge, space, number, examples):
                    examples[proposed[0].key] = proposed[0]
            if quota and not examples:
                raise UserError(f"no candidate of the study {config.name!r} may be trained: {judge.complaint()}")
            found += (list(examples.values()) * quota)[:quota] if examples else []
        return found

    def limit(self, candidates: int) -> Plan:
        """The plan with at most so many candidates."""
        sampling = self.config.sampling.model_copy(update={"candidates": candidates})
        return replace(self, config=self.config.model_copy(update={"sampling": sampling}))

    def check(self, trial: Trial, before: Trial | None) -> None:
        """Raise ValueError if a trial is no candidate of this config. ``before`` is the previous trial."""
        if trial.number < len(self.candidates):
            proposal, generations = self.candidates[trial.number], {0}
            if self.config.shared and self.inherited is not None:
                generations = {int(trial.number >= self.config.shared.first)}
        else:
            proposal, last = self._propose_again(trial), -1 if before is None else before.generation
            generations = {max(last, 0), last + 1}
        if trial.generation not in generations:
            raise ValueError(f"generation {trial.generation} cannot be")
        stored = (trial.key, trial.space, dict(trial.varied), dict(trial.settings))
        if stored != (proposal.key, proposal.space, dict(proposal.varied), proposal.settings):
            raise ValueError("it is not a candidate of the config")
        name, cost = self.config.cost, trial.costs[self.config.cost]
        if not isinstance(cost, int | float) or not 0 < cost < math.inf or cost != proposal.cost.get(name, cost):
            raise ValueError(f"its cost of {cost!r} {name} cannot be")

    def check_progress(self, trial: Trial) -> None:
        """Raise ValueError if a trial cannot be in its state."""
        rungs = self.config.stopping.rungs if self.config.stopping else ()
        if tuple(sorted(trial.rungs)) != rungs[: len(trial.rungs)]:
            raise ValueError(f"it was compared at epochs {sorted(trial.rungs)}, which are no rungs of the config")
        if trial.state == "pruned" and not trial.rungs:
            raise ValueError("it is pruned and was never compared")
        if trial.state == "finished" and (trial.quality is None or len(trial.rungs) < len(rungs)):
            raise ValueError("it is finished and has no quality")

    def _propose_again(self, trial: Trial) -> Proposal:
        spaces = self.config.spaces
        is_drawn = self.config.sampling.name != "grid"
        if not isinstance(trial.space, int) or not 0 <= trial.space < len(spaces) or not is_drawn:
            raise ValueError(f"there is no space {trial.space}")
        space, proposal = spaces[trial.space], None
        if _is_in(space, trial.varied):
            proposal = self.judge.judge(space.model | dict(trial.varied), trial.space)
        if proposal is None:
            raise ValueError("it does not lie in its space")
        return proposal


def _is_in(space: Space, varied: Mapping[str, Any]) -> bool:
    return varied.keys() == space.vary.keys() and all(
        _is_among(item, varied[name]) for name, item in space.vary.items()
    )


def _is_among(item: Range | tuple[Any, ...], value: Any) -> bool:
    if not isinstance(item, Range):
        return any(value == choice and type(value) is type(choice) for choice in item)
    if isinstance(value, bool) or not isinstance(value, int if item.is_integer else int | float):
        return False
    return item.low <= value <= item.high and (not item.is_integer or (value - item.low) % item.step == 0)
