"""What a study needs to know before it starts: its data, its task, and which candidates it may train."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from isthmus.core.config import Sampling, StudyConfig
from isthmus.core.errors import UserError, nearest
from isthmus.core.protocols import Data, ModelConfig, Task
from isthmus.studies.judging import Judge, Proposal
from isthmus.studies.sampling import draw, grid
from isthmus.training.run import Options, Prepared, learn_task, load_data, prepare


@dataclass(frozen=True)
class Plan:
    """A study's config with everything that its data decides."""

    config: StudyConfig
    options: Options
    data: Data
    task: Task

    @classmethod
    def of(cls, config: StudyConfig, options: Options) -> Plan:
        data = load_data(config.base.source, options.data_dir)
        task = learn_task(config.base.task, data)
        plan = cls(config, options, data, task)
        known = ["loss", *task.metrics("validation")]
        if plan.quality not in known:
            raise UserError(f"quality={plan.quality!r} is no validation metric; {nearest(plan.quality, known)}")
        if plan.quality not in task.directions():
            raise UserError(f"quality={plan.quality!r}: the metric lacks higher_is_better, which says which way is up")
        return plan

    @property
    def identity(self) -> dict[str, Any]:
        """What a study of this name must agree on. What was decided by another version of a metric is decided anew."""
        given = self.config.model_dump(mode="json", exclude_defaults=True) | {"data": self.data.fingerprint}
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
        """The seeds on which all learning rates are tried."""
        return self.config.seeds if self.config.rates_on == "every_seed" else self.config.seeds[:1]

    @property
    def runs_per_candidate(self) -> int:
        searched = len(self.search_seeds)
        return searched * len(self.config.rates) + len(self.config.seeds) - searched

    @cached_property
    def judge(self) -> Judge:
        return Judge(self.config, self.task.signature)

    def run(self, model: ModelConfig, rate: float, seed: int) -> Prepared:
        return prepare(self.config.run(model, rate, seed), self.options, self.data, self.task)

    @cached_property
    def listed(self) -> list[Proposal]:
        """The candidates that are known before anything is trained: the grid, or those given by hand."""
        if self.config.sampling.name == "grid":
            return grid(self.config, self.judge)
        return grid(self.config.model_copy(update={"spaces": ()}), self.judge) if self.config.candidates else []

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
        judge, found = Judge(config, self.task.signature), list(self.listed)
        for space, quota in enumerate(self.quotas):
            drawn: dict[str, Proposal] = {}
            for number in range(min(quota, 16)):
                if proposed := draw(config, space, number, (), judge, drawn):
                    drawn[proposed[0].key] = proposed[0]
            if quota and not drawn:
                raise UserError(f"no candidate of the study {config.name!r} may be trained: {judge.complaint()}")
            found += (list(drawn.values()) * quota)[:quota] if drawn else []
        return found

    def thinned(self, candidates: int) -> Plan:
        sampling = self.config.sampling.model_copy(update={"candidates": candidates})
        return replace(self, config=self.config.model_copy(update={"sampling": sampling}))
