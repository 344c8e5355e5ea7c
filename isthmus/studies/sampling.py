"""Which networks a study tries: a grid, or draws by a sampler that learns from earlier generations.

Optuna's sampler is created again for each proposal, seeded by the study's seed and the proposal's number, and given all
past results. It keeps no other state, so that a study that is killed resumes with the same proposals.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from isthmus.core.config import Sampling, StudyConfig
from isthmus.core.draws import key
from isthmus.core.errors import UserError
from isthmus.core.space import Range
from isthmus.studies.proposals import Judge, Proposal, Trial, plain_settings

optuna.logging.set_verbosity(optuna.logging.WARNING)
_ATTEMPTS = 60
"""Proposals that may be refused; as many random ones follow before the space counts as exhausted."""


def list_candidates(config: StudyConfig, judge: Judge) -> list[Proposal]:
    """All candidates of the config or of its grids, each once; evenly thinned by cost if too many."""
    taken: dict[str, Proposal] = {}
    grids = config.spaces if config.sampling.name == "grid" else ()
    listed: list[tuple[dict[str, Any], int | None]] = [
        *((dict(model), None) for model in config.candidates),
        *((settings, i) for i, space in enumerate(grids) for settings in space.grid()),
    ]
    for settings, space in listed:
        if proposal := judge.judge(settings, space, taken):
            taken[proposal.key] = proposal
    if not taken and (config.candidates or grids):
        raise UserError(f"no candidate of the study {config.name!r} may be trained: {judge.complaint()}")
    return thin(list(taken.values()), config.sampling.candidates)


def thin(proposals: list[Proposal], number: int | None) -> list[Proposal]:
    """At most ``number`` proposals: equally many of each architecture, evenly spread over their cost."""
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
    judge: Judge,
    space: int,
    number: int,
    taken: Collection[str],
    past: Sequence[Trial] = (),
    *,
    maximise: bool = True,
    generation: int | None = None,
) -> tuple[Proposal, dict[str, Any]] | None:
    """A new candidate of a space with the sampler's notes on it, or None if the space holds no new one.

    Past trials of the ``generation`` being drawn count as running, whatever has become of them since.
    """
    config, place = judge.config, judge.config.spaces[space]
    distributions = {name: _distribution(item) for name, item in place.vary.items()}
    sign = 1 if maximise else -1
    reached = [None if trial.generation == generation else _quality(trial, sign) for trial in past]
    study = optuna.create_study(directions=["maximize", "minimize"])
    # Divided by a power of two: Optuna takes deviations below 1e-10 for none, and an error in small units may have
    # those. No bit of what a sampler computes from larger ones changes.
    exponent = math.frexp(max((abs(quality) for quality in reached if quality is not None), default=0.0))[1]
    for trial, quality in zip(past, reached, strict=True):
        failed = trial.state == "failed" and trial.generation != generation
        without = TrialState.FAIL if failed else TrialState.RUNNING
        cost = math.log(trial.costs[config.cost])
        study.add_trial(
            create_trial(
                state=without if quality is None else TrialState.COMPLETE,
                values=None if quality is None else [math.ldexp(quality, -exponent), cost],
                params={name: _coordinate(place.vary[name], value) for name, value in trial.varied.items()},
                distributions=distributions,
                system_attrs=dict(trial.memory),
            )
        )
    for attempt in range(2 * _ATTEMPTS):
        seed = key(config.sampling.seed, f"sampler {space} {attempt}", number) % 2**32
        study.sampler = _sampler(config.sampling.name if attempt < _ATTEMPTS else "random", config.sampling, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some samplers warn that they are experimental
            asked = study.ask(distributions)
        varied = {name: _value(place.vary[name], value) for name, value in asked.params.items()}
        if proposal := judge.judge(place.model | varied, space, taken):
            notes = study.trials[-1].system_attrs
            return proposal, {name: value for name, value in notes.items() if "generation" in name}
        study.tell(asked, state=TrialState.FAIL)  # a refusal teaches a sampler nothing
    return None


def describe_parameters(config: StudyConfig) -> dict[str, BaseDistribution]:
    """The architecture and the fields in which candidates differ, for Optuna's dashboard; samplers do not see them.

    A field has one distribution in the whole study, because Optuna refuses two kinds of one parameter.
    """
    fixed = [*(space.model for space in config.spaces), *map(plain_settings, config.candidates)]
    values: dict[str, list[Any]] = {}
    for settings in fixed:
        for name, value in settings.items():
            values.setdefault("model" if name == "name" else name, []).append(_plain(value))
    differing = {name for name, found in values.items() if len({repr(value) for value in found}) > 1}
    for space in config.spaces:
        for name, item in space.vary.items():
            values.setdefault(name, []).extend([item.low, item.high] if isinstance(item, Range) else item)
            differing.add(name)
    return {name: _span(values[name]) for name in values if name in differing}


def parameters_of(proposal: Proposal, distributions: Mapping[str, BaseDistribution]) -> dict[str, Any]:
    """The values of a candidate, as far as they are set and the distributions hold them."""
    settings = {**proposal.settings, **proposal.varied, "model": proposal.model.name}
    known = {name: _plain(settings[name]) for name in distributions if name in settings}
    return {name: value for name, value in known.items() if _holds(distributions[name], value)}


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and distribution.low <= value <= distribution.high


def _plain(value: Any) -> Any:
    """A value that Optuna can store; a list as text."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


def _span(values: Sequence[Any]) -> BaseDistribution:
    """A distribution that holds all values: a range of numbers, otherwise choices."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        low, high = min(values), max(values)
        if all(isinstance(value, int) for value in values):
            return IntDistribution(low, high)
        return FloatDistribution(low, high)
    return CategoricalDistribution(list({repr(value): value for value in values}.values()))


def _quality(trial: Trial, sign: int) -> float | None:
    """Its quality, larger being better; of a pruned trial, the last one known."""
    quality = trial.rungs[max(trial.rungs)] if trial.state == "pruned" else trial.quality
    return None if quality is None else sign * quality


def _sampler(name: str, sampling: Sampling, seed: int) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "tpe":
            return TPESampler(seed=seed, n_startup_trials=sampling.generation_size, multivariate=True)
        if name == "nsga2":
            return NSGAIISampler(seed=seed, population_size=max(2, sampling.generation_size))
        if name == "gp":
            return GPSampler(seed=seed, n_startup_trials=sampling.generation_size)
        return RandomSampler(seed=seed)


def _distribution(item: Range | tuple[Any, ...]) -> BaseDistribution:
    if isinstance(item, Range):
        if item.is_integer:
            return IntDistribution(int(item.low), int(item.high), log=item.log, step=item.step)
        return FloatDistribution(item.low, item.high, log=item.log)
    return IntDistribution(0, len(item) - 1) if _is_ordered(item) else CategoricalDistribution(item)


def _is_ordered(choices: tuple[Any, ...]) -> bool:
    """Whether choices are rising numbers. A sampler gets their index, so that it knows which are neighbours."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in choices)
    return numbers and list(choices) == sorted(set(choices))


def _coordinate(item: Range | tuple[Any, ...], value: Any) -> Any:
    return item.index(value) if isinstance(item, tuple) and _is_ordered(item) else value


def _value(item: Range | tuple[Any, ...], coordinate: Any) -> Any:
    return item[coordinate] if isinstance(item, tuple) and _is_ordered(item) else coordinate
