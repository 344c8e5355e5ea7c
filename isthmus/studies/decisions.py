"""Which network a study trains next, and until which epoch: where the expected gain per time of training is largest.

The time is predicted from counted operations and ``sampling.step_flops``, never measured, so that decisions are the
same on every machine.

A decision starts a candidate, or continues one that was paused, until its next rung or its end. Decision n reads only
what decisions up to n − q have found (q is ``sampling.generation``), so the list of decisions does not depend on who
carries them out, or how fast. What the others will find counts as what the surrogate expects. A number has no decision
if only candidates whose results are awaited could continue; a later number continues them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from isthmus.core.config import StudyConfig
from isthmus.core.draws import numpy_generator
from isthmus.core.errors import UserError
from isthmus.core.space import Range, Space
from isthmus.studies.proposals import Judge, Proposal, Trial, plain_settings
from isthmus.studies.surrogate import Array, Observations, Surrogate, expected_gain

_POOL = 384
"""Candidates of all spaces among which a search chooses; smaller grids are taken whole."""
_STARTS, _WHOLE_STARTS = 8, 4
"""Candidates that are started before anything is known, as different from each other as possible: to the first rung, or
to the end where there are no rungs."""
_SHARED = ("params", "macs", "training_flops")
"""Costs that every family has."""


class Decision(NamedTuple):
    """Train a candidate, which is new or a trial of the study, until an epoch."""

    proposal: Proposal
    trial: Trial | None
    epoch: int


@dataclass(frozen=True)
class Pool:
    """The candidates among which a search chooses, and what is known of them before training."""

    config: StudyConfig
    proposals: Sequence[Proposal]

    @classmethod
    def of(cls, config: StudyConfig, judge: Judge) -> Pool:
        listed = [judge.judge(plain_settings(model), None) for model in config.candidates]
        found = {proposal.key: proposal for proposal in listed if proposal}
        share = math.ceil(_POOL / max(1, len(config.spaces)))
        for place, space in enumerate(config.spaces):
            for varied in _list_points(space, share, config.sampling.seed, place):
                if proposal := judge.judge(space.model | varied, place, found):
                    found[proposal.key] = proposal
        if all(proposal.space is None for proposal in found.values()):
            raise UserError(f"no candidate of the study {config.name!r} may be trained: {judge.complaint()}")
        return cls(config, tuple(found.values()))

    @cached_property
    def places(self) -> dict[str, int]:
        return {proposal.key: place for place, proposal in enumerate(self.proposals)}

    @cached_property
    def features(self) -> Array:
        return to_columns([describe(proposal) for proposal in self.proposals])

    @cached_property
    def costs(self) -> Array:
        """Logarithms."""
        return np.log([proposal.cost[self.config.cost] for proposal in self.proposals])

    @cached_property
    def work(self) -> Array:
        """Of a row of data in training: the operations that are counted, and its share of what a step costs besides."""
        size, step = self.config.base.train.batch_size, self.config.sampling.step_flops
        flops = [proposal.cost["training_flops"] for proposal in self.proposals]
        sizes = [proposal.recipe.get("batch_size", size) for proposal in self.proposals]
        return np.array(flops, dtype=np.float64) + step / np.array(sizes, dtype=np.float64)

    @cached_property
    def starts(self) -> list[int]:
        """The first candidates: a random one, then those that are farthest from all before."""
        number = max(_STARTS if self.config.stopping else _WHOLE_STARTS, self.config.sampling.generation_size)
        first = int(numpy_generator(self.config.sampling.seed, "start").integers(len(self.proposals)))
        return spread_out(self.features, number, first)


def spread_out(features: Array, number: int, first: int) -> list[int]:
    """Rows as different as possible: after the first, always the one that is farthest from all before."""
    chosen = [first]
    while len(chosen) < min(number, len(features)):
        distance = ((features[:, None] - features[chosen]) ** 2).sum(-1).min(1)
        distance[chosen] = -1.0
        chosen.append(int(distance.argmax()))
    return chosen


def describe(proposal: Proposal) -> dict[str, Any]:
    """The features of a candidate by name: numbers, texts and truths."""
    layout = getattr(proposal.model, "layout", None)
    known: dict[str, Any] = {name: float(proposal.cost[name]) for name in _SHARED if proposal.cost[name] > 0}
    if layout is not None:
        known |= {"width": float(layout.width), "places": float(1 + layout.places * layout.iterations)}
    return describe_settings(known | {"name": proposal.model.name}, proposal.settings | dict(proposal.varied))


def describe_settings(known: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Known features, those of settings of a model and its training, and the ratios of its sizes."""
    known, sizes = dict(known), {}
    for name, value in settings.items():
        if name in known:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        known[name] = float(value) if is_number else value
        if isinstance(value, int) and is_number and value > 0 and not name.startswith("train."):
            sizes[name] = value
    return known | {f"{one} / {two}": sizes[one] / sizes[two] for one, two in itertools.combinations(sizes, 2)}


def to_columns(rows: Sequence[Mapping[str, Any]]) -> Array:
    """A row per description. Numbers go from 0 to 1, a field that a family lacks is in the middle."""
    columns = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        if {type(value) for value in values if value is not None} == {float}:
            values = _take_logarithms(values)
            known = [value for value in values if value is not None]
            low, high = min(known), max(known)
            if high > low:
                columns.append([0.5 if value is None else (value - low) / (high - low) for value in values])
        else:
            kinds = list(dict.fromkeys(map(repr, values)))
            # Two kinds are as far apart as the two ends of a range.
            columns += [
                [math.sqrt(0.5) * (repr(value) == kind) for value in values] for kind in kinds if len(kinds) > 1
            ]
    return np.array(columns, dtype=np.float64).T.reshape(len(rows), -1)


def _take_logarithms(values: Sequence[float | None]) -> list[float | None]:
    """Of the numbers, unless one is negative; 0 goes one mean distance below the smallest of the others."""
    known = {value for value in values if value is not None}
    if min(known) < 0:
        return list(values)
    logs = [math.log(value) for value in known if value > 0] or [0.0]
    zero = min(logs) - ((max(logs) - min(logs)) / (len(logs) - 1) if len(logs) > 1 else 1.0)
    return [None if value is None else math.log(value) if value > 0 else zero for value in values]


def _list_points(space: Space, number: int, seed: int, place: int) -> list[dict[str, Any]]:
    """The grid of a space if it is small, otherwise random points."""
    is_listed = all(not isinstance(item, Range) or item.is_integer or item.points for item in space.vary.values())
    if is_listed and space.grid_size() <= number:
        return [{name: settings[name] for name in space.vary} for settings in space.grid()]
    draw = numpy_generator(seed, "pool", place)
    return [{name: _draw(item, draw) for name, item in space.vary.items()} for _ in range(2 * number)][:number]


def _draw(item: Range | tuple[Any, ...], draw: np.random.Generator) -> Any:
    if not isinstance(item, Range):
        return item[int(draw.integers(len(item)))]
    to, back = (math.log, math.exp) if item.log else (float, float)
    if not item.is_integer:
        return min(max(back(draw.uniform(to(item.low), to(item.high))), item.low), item.high)
    if not item.log:
        return int(item.low) + item.step * int(draw.integers((int(item.high) - int(item.low)) // item.step + 1))
    return min(max(round(back(draw.uniform(to(item.low - 0.5), to(item.high + 0.5)))), int(item.low)), int(item.high))


def count_left(config: StudyConfig, trials: Sequence[Trial]) -> int:
    """The epochs that no decision has used yet. A study may use as many as ``sampling.draws`` whole trainings."""
    used = sum(max(trial.decisions.values(), default=0) for trial in trials)
    return config.sampling.draws * config.base.train.last_epoch - used


def choose(pool: Pool, trials: Sequence[Trial], number: int, maximise: bool = True) -> Decision | None:
    """Decision ``number``, given all trials and earlier decisions.

    None if nothing fits into the budget now. Once the results of earlier decisions are known, a later number may
    continue their candidates, unless the search `is_over`.
    """
    config = pool.config
    last = config.base.train.last_epoch
    mine = _find_trials(pool, trials)
    reached = _list_reached(pool, mine)
    is_possible = _fits_budget(pool, trials, reached)
    for place, trial in mine.items():
        # One whose last decision is not known yet, or that has ended, cannot be continued.
        is_possible[place] &= (
            max(trial.decisions, default=-1) <= number - config.sampling.generation_size and trial.state == "open"
        )
    if not is_possible.any():
        return None
    starts = [place for place in pool.starts if is_possible[place] and place not in mine]
    if number < len(pool.starts) and starts:
        place = starts[0]
    else:
        gain = _expect_gains(pool, trials, number, 1 if maximise else -1)
        work = np.maximum(last - reached, 1) * pool.work
        place = int(np.where(is_possible, gain / work, -math.inf).argmax())
    rungs = (*(config.stopping.rungs if config.stopping else ()), last)
    epoch = next(rung for rung in rungs if rung > reached[place])
    return Decision(pool.proposals[place], mine.get(place), epoch)


def is_over(pool: Pool, trials: Sequence[Trial], number: int) -> bool:
    """Whether a number without a decision ends the search: none was made later, and no candidate of an earlier one
    whose result is not known yet could continue."""
    mine = _find_trials(pool, trials)
    latest = {place: max(trial.decisions, default=-1) for place, trial in mine.items()}
    awaited = [place for place, decision in latest.items() if decision > number - pool.config.sampling.generation_size]
    fits = _fits_budget(pool, trials, _list_reached(pool, mine))
    return max(latest.values(), default=-1) < number and not fits[awaited].any()


def _find_trials(pool: Pool, trials: Sequence[Trial]) -> dict[int, Trial]:
    """By the place in the pool."""
    return {pool.places[trial.key]: trial for trial in trials if trial.key in pool.places}


def _list_reached(pool: Pool, mine: Mapping[int, Trial]) -> Array:
    """The epoch until which every candidate was decided to be trained. A listed candidate is trained to its end."""
    last = pool.config.base.train.last_epoch
    return np.array([max(mine[i].decisions.values(), default=last) if i in mine else 0 for i in range(len(pool.costs))])


def _fits_budget(pool: Pool, trials: Sequence[Trial], reached: Array) -> Array:
    """Which candidates are not trained to their end, and could be."""
    missing = pool.config.base.train.last_epoch - reached
    fits: Array = (missing > 0) & (missing <= count_left(pool.config, trials))
    return fits


def _expect_gains(pool: Pool, trials: Sequence[Trial], number: int, sign: int) -> Array:
    """The hypervolume that every candidate is expected to add at its end."""
    config, last = pool.config, pool.config.base.train.last_epoch
    known: list[tuple[int, int, float]] = []  # candidate, epoch, quality
    awaited: list[tuple[int, int]] = []
    for trial in trials:
        if (place := pool.places.get(trial.key)) is None:
            continue
        for decision, epoch in (trial.decisions or {-1: last}).items():  # a listed candidate is trained before all
            quality = trial.quality if epoch == last else trial.rungs.get(epoch)
            if decision > number - config.sampling.generation_size:
                awaited.append((place, epoch))
            elif quality is not None:
                known.append((place, epoch, sign * quality))
    if not known:  # everything has failed so far
        return np.ones(len(pool.costs))
    places, epochs, qualities = (np.array(column) for column in zip(*known, strict=True))
    surrogate = Surrogate(Observations(pool.features[places], np.log(epochs), qualities))
    if awaited:
        places, epochs, qualities = _believe(surrogate, pool, awaited, places, epochs, qualities)
    mean, deviation = surrogate.predict(pool.features, np.full(len(pool.costs), math.log(last)))
    ended = epochs == last
    front = list(zip(pool.costs[places[ended]], qualities[ended], strict=True))
    worst = min([*qualities[ended], *mean[places]])
    # From the largest cost itself, the costliest candidate could add nothing.
    return expected_gain(pool.costs, mean, deviation, front, (pool.costs.max() + math.log(2), worst))


def _believe(
    surrogate: Surrogate, pool: Pool, awaited: Sequence[tuple[int, int]], places: Array, epochs: Array, qualities: Array
) -> tuple[Array, Array, Array]:
    """Observe what is expected of decisions whose results are not known yet."""
    more, until = (np.array(column) for column in zip(*awaited, strict=True))
    expected, _ = surrogate.predict(pool.features[more], np.log(until))
    places, epochs = np.concatenate([places, more]), np.concatenate([epochs, until])
    qualities = np.concatenate([qualities, expected])
    surrogate.observe(Observations(pool.features[places], np.log(epochs), qualities))
    return places, epochs, qualities
