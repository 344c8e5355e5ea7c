"""Which networks are tried: a grid, or draws that learn from the results of the generations before.

Optuna proposes, and keeps no state between two proposals: its sampler is made anew for each, seeded by the study's
seed and the proposal's number, and is told the past. So a study that is killed goes on with the same proposals, and
who trained the past, or in which order, cannot matter.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from isthmus.core.config import Sampling, StudyConfig
from isthmus.core.draws import key
from isthmus.core.errors import UserError
from isthmus.core.space import Range, Space
from isthmus.studies.judging import Judge, Proposal

optuna.logging.set_verbosity(optuna.logging.WARNING)
_ATTEMPTS = 60
"""Proposals per candidate that may be refused; as many random ones follow before the space counts as exhausted."""


@dataclass(frozen=True)
class Tried:
    """A candidate of the past: its place in the space, and what it reached, larger being better.

    Without a quality it failed, or is still being trained.
    """

    varied: Mapping[str, Any]
    quality: float | None
    cost: float
    memory: Mapping[str, Any]
    """What the sampler wrote on it (NSGA-II: its generation)."""
    failed: bool = False


def grid(config: StudyConfig, judge: Judge) -> list[Proposal]:
    """All candidates that were given or lie on the grids, each once, thinned evenly by cost if there are too many."""
    taken: dict[str, Proposal] = {}
    listed: Iterable[tuple[dict[str, Any], int | None]] = [
        *((dict(model), None) for model in config.candidates),
        *((settings, i) for i, space in enumerate(config.spaces) for settings in _on_grid(space)),
    ]
    for settings, space in listed:
        if proposal := judge.judge(settings, space, taken):
            taken[proposal.key] = proposal
    if not taken:
        raise UserError(f"no candidate of the study {config.name!r} may be trained: {judge.complaint()}")
    return thinned(list(taken.values()), config.sampling.candidates)


def _on_grid(space: Space) -> Iterable[dict[str, Any]]:
    try:
        return space.grid() if space.grid_size() else ()
    except ValueError as error:
        raise UserError(f"{error}; or another sampler, such as sampling.name=tpe") from None


def thinned(proposals: list[Proposal], number: int | None) -> list[Proposal]:
    """At most so many, evenly spread over the cost of each architecture, whose shares stay the same."""
    if number is None or number >= len(proposals):
        return proposals
    kept: list[Proposal] = []
    groups: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        groups.setdefault(proposal.architecture, []).append(proposal)
    for place, group in enumerate(groups.values()):
        ordered = sorted(group, key=lambda item: (item.cost["params"], item.key))
        share = (number + len(groups) - 1 - place) // len(groups)
        chosen = {round(i * (len(group) - 1) / max(1, share - 1)) for i in range(min(share, len(group)))}
        kept += [ordered[i] for i in sorted(chosen)]
    places = {proposal.key: place for place, proposal in enumerate(proposals)}
    return sorted(kept, key=lambda item: places[item.key])


def draw(
    config: StudyConfig, space: int, number: int, past: Sequence[Tried], judge: Judge, taken: Collection[str]
) -> tuple[Proposal, dict[str, Any]] | None:
    """A new candidate of a space with what its sampler wrote on it, or None where nothing new is found any more."""
    place = config.spaces[space]
    distributions = {name: _distribution(item) for name, item in place.vary.items()}
    study = _told(place, distributions, past)
    for attempt in range(2 * _ATTEMPTS):
        seed = key(config.sampling.seed, f"sampler {space} {attempt}", number) % 2**32
        study.sampler = _sampler(config.sampling.name if attempt < _ATTEMPTS else "random", config.sampling, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of samplers that call themselves experimental
            trial = study.ask(distributions)
        varied = {name: _value(place.vary[name], value) for name, value in trial.params.items()}
        if proposal := judge.judge(place.model | varied, space, taken):
            written = study.trials[-1].system_attrs
            return proposal, {name: value for name, value in written.items() if "generation" in name}
        study.tell(trial, state=TrialState.FAIL)  # what was refused teaches a sampler nothing
    return None


def _told(space: Space, distributions: dict[str, BaseDistribution], past: Sequence[Tried]) -> optuna.Study:
    """A study in memory that knows the past.

    Qualities are divided by a power of two: Optuna takes deviations below 1e-10 for none, and an error in small units
    may have those. No bit of what a sampler computes from larger ones changes.
    """
    study = optuna.create_study(directions=["maximize", "minimize"])
    exponent = math.frexp(max((abs(tried.quality) for tried in past if tried.quality is not None), default=0.0))[1]
    for tried in past:
        place = {name: _coordinate(space.vary[name], value) for name, value in tried.varied.items()}
        values = None if tried.quality is None else [math.ldexp(tried.quality, -exponent), math.log(tried.cost)]
        memory = dict(tried.memory)
        study.add_trial(
            create_trial(
                state=_state(tried), values=values, params=place, distributions=distributions, system_attrs=memory
            )
        )
    return study


def _state(tried: Tried) -> TrialState:
    if tried.failed:
        return TrialState.FAIL
    return TrialState.RUNNING if tried.quality is None else TrialState.COMPLETE


def _sampler(name: str, sampling: Sampling, seed: int) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "tpe":
            return TPESampler(seed=seed, n_startup_trials=sampling.generation, multivariate=True)
        if name == "nsga2":
            return NSGAIISampler(seed=seed, population_size=max(2, sampling.generation))
        if name == "gp":
            return GPSampler(seed=seed, n_startup_trials=sampling.generation)
        return RandomSampler(seed=seed)


def _distribution(item: Range | tuple[Any, ...]) -> BaseDistribution:
    if isinstance(item, Range):
        if item.is_integer:
            return IntDistribution(int(item.low), int(item.high), log=item.log, step=item.step)
        return FloatDistribution(item.low, item.high, log=item.log)
    return IntDistribution(0, len(item) - 1) if _is_ordered(item) else CategoricalDistribution(item)


def _is_ordered(choices: tuple[Any, ...]) -> bool:
    """Numbers that rise are given to the sampler by their place, so that it knows which are neighbours."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in choices)
    return numbers and list(choices) == sorted(set(choices))


def _coordinate(item: Range | tuple[Any, ...], value: Any) -> Any:
    return item.index(value) if isinstance(item, tuple) and _is_ordered(item) else value


def _value(item: Range | tuple[Any, ...], coordinate: Any) -> Any:
    return item[coordinate] if isinstance(item, tuple) and _is_ordered(item) else coordinate
