"""Which network a study trains next, and until which epoch: where the expected gain per step of training is largest.

A decision starts a candidate, or continues one that was paused, until its next rung or its end. Decision n reads only
what decisions up to n − q have found (q is ``sampling.generation``), so the list of decisions does not depend on who
carries them out, or how fast. What the others will find counts as what the surrogate expects.
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
        """A row per candidate. Numbers go from 0 to 1, a field that a family lacks is in the middle."""
        rows = [describe(proposal) for proposal in self.proposals]
        return _to_columns(rows)

    @cached_property
    def costs(self) -> Array:
        """Logarithms."""
        return np.log([proposal.cost[self.config.cost] for proposal in self.proposals])

    @cached_property
    def starts(self) -> list[int]:
        """The first candidates: a random one, then always the one that is farthest from all before."""
        number = max(_STARTS if self.config.pruning else _WHOLE_STARTS, self.config.sampling.generation)
        chosen = [int(numpy_generator(self.config.sampling.seed, "start").integers(len(self.proposals)))]
        while len(chosen) < min(number, len(self.proposals)):
            distance = ((self.features[:, None] - self.features[chosen]) ** 2).sum(-1).min(1)
            distance[chosen] = -1.0
            chosen.append(int(distance.argmax()))
        return chosen


def describe(proposal: Proposal) -> dict[str, Any]:
    """The features of a candidate by name: numbers, texts and truths."""
    model, layout = proposal.model, getattr(proposal.model, "layout", None)
    known: dict[str, Any] = {name: math.log(proposal.cost[name]) for name in _SHARED if proposal.cost[name] > 0}
    if layout is not None:
        known |= {"width": math.log(layout.width), "places": math.log(1 + layout.places * layout.iterations)}
    known |= {"name": model.name}
    sizes = {}
    for name, value in (proposal.settings | dict(proposal.varied)).items():
        if name in known:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        known[name] = math.log(value) if is_number and value > 0 else float(value) if is_number else value
        if isinstance(value, int) and is_number and value > 0 and not name.startswith("train."):
            sizes[name] = known[name]
    known |= {f"{one} / {two}": sizes[one] - sizes[two] for one, two in itertools.combinations(sizes, 2)}
    return known


def _to_columns(rows: Sequence[Mapping[str, Any]]) -> Array:
    columns = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        if all(value is None or isinstance(value, float) for value in values):
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
    """Decision ``number``, given all trials and earlier decisions; None if nothing more fits into the budget."""
    config = pool.config
    last = config.base.train.last_epoch
    left = count_left(config, trials)
    mine = {pool.places[trial.key]: trial for trial in trials if trial.key in pool.places}
    reached = np.array(
        [max(mine[i].decisions.values(), default=last) if i in mine else 0 for i in range(len(pool.costs))]
    )
    is_possible = (reached < last) & (last - reached <= left)
    for place, trial in mine.items():
        # One whose last decision is not known yet, or that has ended, cannot be continued.
        is_possible[place] &= (
            max(trial.decisions, default=-1) <= number - config.sampling.generation and trial.state == "open"
        )
    if not is_possible.any():
        return None
    starts = [place for place in pool.starts if is_possible[place] and place not in mine]
    if number < len(pool.starts) and starts:
        place = starts[0]
    else:
        gain = _expect_gains(pool, trials, number, 1 if maximise else -1)
        place = int(np.where(is_possible, gain / np.maximum(last - reached, 1), -math.inf).argmax())
    rungs = (*(config.pruning.rungs if config.pruning else ()), last)
    epoch = next(rung for rung in rungs if rung > reached[place])
    return Decision(pool.proposals[place], mine.get(place), epoch)


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
            if decision > number - config.sampling.generation:
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
    return expected_gain(pool.costs, mean, deviation, front, (pool.costs.max(), worst))


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
