"""How the best quality and the best shape of a family grow with its budget, and what they are at a larger one.

    quality(B) = level + gain · f(B),   f(B) ∝ (1 − (B / B₁)^−α) / α     a power law with an offset; α → 0: logarithmic
    width(B)   = width₁ · (B / B₁)^slope                                 for d_z, d_h, depth; of mixers C, S, depth

A budget is a range of cost, B₁ the smallest; its best network is the best on validation data that costs at most B.
Every draw resamples the seeds, which all networks share, and the candidates within each budget. Then it draws the law
from its posterior: flat for level and gain, uniform for α from 0 to 4, and for the scatter of the budgets around the
law a scaled inverse χ², which two observations of a tenth of the measured gain would give. So a law exists from two
budgets on, and its interval is wide there. Intervals are at 90 %. Plain numbers, no torch.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from isthmus.core.errors import UserError, nearest
from isthmus.core.registry import component
from isthmus.studies.fronts import BUDGET_TOLERANCE, Candidate, cost_of, noise_of, upper_bound

LEVEL = 0.9
DRAWS = 2000
LEAST_BUDGETS = 4
MOST_BUDGETS = 8
"""A family with more costs than this is cut into ranges of equal ratio."""
LEFT_OUT = 2
"""The largest budgets, by which a law checks itself."""
REACH = 4.0
"""How many times the largest budget a law is continued if no other budget is asked for."""
LEAST_SPAN = 2.0
"""The least ratio of the largest to the smallest budget from which a shape is continued."""
SHAPE_FIELDS = ("d_z", "d_h", "m", "p", "C", "S", "depth")
RATIO = "d_h/d_z"
"""How narrow the computation is within the stream."""
_WIDTHS = ("d_z", "d_h", "m", "C", "S")
_EXPONENTS = np.linspace(0.0, 4.0, 41)
_SCATTER, _SCATTER_WEIGHT, _RESOLUTION = 0.1, 2, 1e-9
_GRID, _BAND = 241, 61
_WIDEST, _HALVINGS = 64.0, 30

Array = np.ndarray[Any, np.dtype[np.float64]]


class Estimate(NamedTuple):
    """The median of the draws, and the ends of their 90 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, draws: Array) -> Estimate:
        low, value, high = np.quantile(draws, ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2), method="nearest")
        return cls(float(value), float(low), float(high))

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class Budget(NamedTuple):
    """A range of cost up to ``cost``, and the candidates of one family in it."""

    cost: float
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Curve:
    """Draws of level + gain · f, an array of one number per draw each."""

    first: float
    last: float
    """The smallest and the largest budget of the fit; the gain is the one between them."""
    level: Array
    gain: Array
    exponent: Array
    scatter: Array
    """The standard deviation of a budget's best network around the law, times a standard normal draw."""

    def at(self, budget: float) -> Array:
        return self.level + self.gain * _rise(self.exponent, budget, self.first, self.last)

    @property
    def slope(self) -> Array:
        """The exponent of a width's power law."""
        return self.gain / math.log(self.last / self.first)

    @property
    def limit(self) -> Array:
        """What the law approaches without end of the budget; infinite for a logarithmic one."""
        alpha = np.maximum(self.exponent, 1e-12)
        rise = np.where(self.exponent > 0, 1 / -np.expm1(-alpha * math.log(self.last / self.first)), np.inf)
        grows = self.gain > 0
        return self.level + np.where(grows, np.where(grows, self.gain, 1.0) * rise, 0.0)


@dataclass(frozen=True)
class Point:
    """The best network at a budget."""

    budget: float
    quality: float
    shape: dict[str, float]
    shapes: int
    """How many shapes were tried in its range of cost."""


@dataclass(frozen=True)
class Check:
    """A left-out budget: its best quality, as measured and as the law of the smaller budgets predicts it."""

    budget: float
    measured: float
    predicted: Estimate
    reached: float
    """The best quality at the budgets that the law has seen."""

    @property
    def is_inside(self) -> bool:
        return self.predicted.holds(self.measured)


class Network(NamedTuple):
    """Fields of a model, and how far the law could be followed: below 1, the whole way leaves the family."""

    fields: dict[str, int | float]
    followed: float


@dataclass(frozen=True)
class FamilyLaw:
    """What was measured of one family, its laws, and their prediction."""

    family: str
    points: tuple[Point, ...]
    exponent: Estimate
    limit: Estimate
    quality: Estimate
    """At the budget that was asked for."""
    slopes: dict[str, Estimate]
    rising: dict[str, float]
    """The chance that a slope is above 0: the part of the draws in which it is."""
    shape: dict[str, Estimate]
    """At the budget that was asked for; empty if the budgets span less than a factor of two."""
    edges: tuple[str, ...]
    """Fields whose value at the largest budget is the largest that was tried, so that their slope may be too small."""
    network: Network | None
    """The predicted shape as a network of this budget; None if there is none, or if the cost is not of parameters."""
    checks: tuple[Check, ...]
    band: tuple[tuple[float, Estimate], ...]
    """The law over the budgets, with the scatter of a single network."""
    check_band: tuple[tuple[float, Estimate], ...]
    """The same of the law without the largest budgets."""

    @property
    def is_searched(self) -> bool:
        """Whether budgets offered a choice of shapes; otherwise the slopes describe the networks that were tried."""
        return _has_choice(self.points)


@dataclass(frozen=True)
class Crossing:
    """From where on ``after`` leads instead of ``before``."""

    before: str
    after: str
    chance: float
    """The part of the draws in which the lead passes from one to the other between the smallest shared budget and the
    one asked for."""
    budget: Estimate | None
    """Of those draws; None if there are none."""
    leads: dict[str, float]
    """The chance of each to lead at the budget asked for."""


@dataclass(frozen=True)
class Scaling:
    """The laws of one problem: one source and one task."""

    source: str
    task: str
    objective: str
    maximise: bool
    split: str
    """The data of the qualities: ``test``, or ``validation`` where nothing else was recorded."""
    cost: str
    to: float
    families: tuple[FamilyLaw, ...]
    crossings: tuple[Crossing, ...]
    skipped: dict[str, str]
    """Families without a law, and why."""


def fit_laws(
    candidates: Sequence[Candidate], to: float | None = None, cost: str = "params",
    cross: tuple[str, str] | None = None, split: str = "test", seed: int = 0,
) -> list[Scaling]:  # fmt: skip
    """The laws of every source and task among the candidates, continued to the budget ``to``."""
    problems: dict[tuple[str, str], list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        problems[candidate.source, candidate.task].append(candidate)
    if not problems:
        raise UserError("there is no finished network to fit a law to; `isthmus study` trains some")
    return [_fit_problem(group, to, cost, cross, split, seed) for group in problems.values()]


def group_budgets(candidates: Sequence[Candidate], cost: str = "params") -> list[Budget]:
    """Costs within 2 % of each other are one budget; of more than eight, eight ranges of equal ratio are made."""
    ordered = sorted(candidates, key=lambda item: cost_of(item, cost))
    groups: list[list[Candidate]] = []
    for candidate in ordered:
        if groups and cost_of(candidate, cost) <= BUDGET_TOLERANCE * cost_of(groups[-1][0], cost):
            groups[-1].append(candidate)
        else:
            groups.append([candidate])
    if len(groups) > MOST_BUDGETS:
        low, high = (math.log(cost_of(item, cost)) for item in (ordered[0], ordered[-1]))
        ranges: dict[int, list[Candidate]] = defaultdict(list)
        for candidate in ordered:
            place = (math.log(cost_of(candidate, cost)) - low) / (high - low) * MOST_BUDGETS
            ranges[min(int(place), MOST_BUDGETS - 1)].append(candidate)
        groups = [ranges[place] for place in sorted(ranges)]
    return [Budget(cost_of(group[-1], cost), tuple(group)) for group in groups]


def _fit_problem(
    candidates: list[Candidate], to: float | None, cost: str, cross: tuple[str, str] | None, split: str, seed: int
) -> Scaling:
    first = candidates[0]
    groups: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.architecture].append(candidate)
    problem = f"{first.source} {first.task}"
    pairs = _pair_families(list(groups), cross, problem)
    budgets = {family: group_budgets(group, cost) for family, group in sorted(groups.items())}
    known = {family: found for family, found in budgets.items() if len(found) >= LEAST_BUDGETS}
    skipped = {
        family: f"{len(found)} budget{'s' * (len(found) > 1)}; a law needs {LEAST_BUDGETS}"
        for family, found in budgets.items()
        if family not in known
    }
    if not known:
        said = "; ".join(f"{family} has {reason}" for family, reason in skipped.items())
        raise UserError(f"{problem}: {said}. Train networks of more sizes.")
    largest = max(found[-1].cost for found in known.values())
    to = REACH * largest if to is None else to
    if not largest < to <= 1e15:
        limits = f"larger than the largest budget tried, {largest:,.0f}, and at most 1e15"
        raise UserError(f"{problem}: --to {to:g} must be {limits}")
    resampled = _Resampled(candidates, seed)
    curves = {family: resampled.fit(found) for family, found in known.items()}
    return Scaling(
        source=first.source, task=first.task, objective=first.objective, maximise=first.maximise, split=split,
        cost=cost, to=to,
        families=tuple(resampled.describe(family, found, curves[family], to, cost) for family, found in known.items()),
        crossings=tuple(_cross(pair, curves, to) for pair in pairs if set(pair) <= set(curves)),
        skipped=skipped,
    )  # fmt: skip


def _pair_families(families: list[str], cross: tuple[str, str] | None, problem: str) -> list[tuple[str, str]]:
    if cross is None:
        return list(itertools.combinations(sorted(families), 2))
    if len(families) < 2:
        raise UserError(f"{problem} has one family, {families[0]}; a crossing needs two")
    for name in cross:
        if name not in families:
            raise UserError(f"{problem} has no family {name!r}; {nearest(name, families)}")
    return [cross]


class _Resampled:
    """Draws of seeds and candidates of one problem."""

    def __init__(self, candidates: Sequence[Candidate], seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.sign = 1 if candidates[0].maximise else -1
        seeds = sorted({number for candidate in candidates for number in candidate.seeds})
        self.places = {number: place for place, number in enumerate(seeds)}
        self.counts = self.random.multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), DRAWS)

    def fit(self, budgets: Sequence[Budget]) -> Curve:
        """The law of the quality, larger being better."""
        measured, drawn = self._best(budgets)
        costs = [budget.cost for budget in budgets]
        gain = self.sign * (measured[-1].mean - measured[0].mean)
        noise = noise_of(candidate for budget in budgets for candidate in budget.candidates)
        fewest = min(len(candidate.seeds) for candidate in measured)
        prior = math.hypot(_SCATTER * gain, 0.0 if noise is None else noise.std / math.sqrt(fewest))
        values = np.stack([self.sign * self._qualities(*column) for column in drawn], axis=1)
        return _fit_curve(costs, values, prior, _EXPONENTS, self.random, grows=True)

    def describe(self, family: str, budgets: Sequence[Budget], curve: Curve, to: float, cost: str) -> FamilyLaw:
        measured, drawn = self._best(budgets)
        costs = [budget.cost for budget in budgets]
        points = tuple(
            Point(budget.cost, best.mean, read_shape(best), _count_shapes(budget.candidates))
            for budget, best in zip(budgets, measured, strict=True)
        )
        # Where budgets offer a choice, one that offers none says nothing about the best shape.
        kept = [place for place, point in enumerate(points) if point.shapes > 1 or not _has_choice(points)]
        tried = [read_shape(candidate) for budget in budgets for candidate in budget.candidates]
        slopes, rising, shape = {}, {}, {}
        for field in [name for name in tried[0] if all(name in each for each in tried)]:
            values = np.stack([_widths(field, *drawn[place]) for place in kept], axis=1)
            spread = np.ptp([math.log(points[place].shape[field]) for place in kept])
            law = _fit_curve(
                [costs[place] for place in kept], values, _SCATTER * float(spread), np.zeros(1), self.random
            )
            slopes[field] = Estimate.of(law.slope)
            rising[field] = float((law.slope > 0).mean())
            if costs[-1] >= LEAST_SPAN * costs[0]:
                shape[field] = Estimate.of(np.exp(law.at(to) + law.scatter))
        seen = budgets[:-LEFT_OUT]
        check = self.fit(seen)
        grid = np.geomspace(costs[0], to, _BAND)
        middle = {name: estimate.value for name, estimate in shape.items() if name in SHAPE_FIELDS}
        return FamilyLaw(
            family=family, points=points, slopes=slopes, rising=rising, shape=shape,
            exponent=Estimate.of(curve.exponent),
            limit=self._estimate(curve.limit, measured[0]),
            quality=self._estimate(curve.at(to) + curve.scatter, measured[0]),
            edges=tuple(
                name for name in slopes
                if points[-1].shape[name] == max(each[name] for each in tried) > min(each[name] for each in tried)
            ),
            network=fit_network(measured[-1].settings["model"], middle, to) if middle and cost == "params" else None,
            checks=tuple(
                Check(
                    point.budget, point.quality,
                    self._estimate(check.at(point.budget) + check.scatter, measured[0]), points[len(seen) - 1].quality,
                )
                for point in points[-LEFT_OUT:]
            ),
            band=self._band(curve, grid, measured[0]),
            check_band=self._band(check, grid[grid <= costs[-1]], measured[0]),
        )  # fmt: skip

    def _band(self, curve: Curve, grid: Array, like: Candidate) -> tuple[tuple[float, Estimate], ...]:
        return tuple((float(cost), self._estimate(curve.at(cost) + curve.scatter, like)) for cost in grid)

    def _estimate(self, draws: Array, like: Candidate) -> Estimate:
        """Of signed qualities, within the values that the metric can have."""
        return Estimate.of(
            np.clip(self.sign * draws, 0.0 if not like.maximise else -np.inf, upper_bound(like.objective))
        )

    def _best(self, budgets: Sequence[Budget]) -> tuple[list[Candidate], list[tuple[list[Candidate], Any]]]:
        """The best candidate up to each budget, and for every draw the place of its best among all candidates.

        The best is chosen on validation data, the cheapest among equals.
        """
        everyone = [candidate for budget in budgets for candidate in budget.candidates]
        scores = np.array([self.sign * candidate.validation for candidate in everyone])
        measured, drawn, start = list[Candidate](), list[tuple[list[Candidate], Any]](), 0
        best, leader = np.zeros(DRAWS, dtype=int), 0
        for budget in budgets:
            number = len(budget.candidates)
            places = start + self.random.integers(number, size=(DRAWS, number))
            own = np.take_along_axis(places, scores[places].argmax(axis=1)[:, None], axis=1)[:, 0]
            best = own if start == 0 else np.where(scores[own] > scores[best], own, best)
            champion = start + int(scores[start : start + number].argmax())
            leader = champion if start == 0 or scores[champion] > scores[leader] else leader
            measured.append(everyone[leader])
            drawn.append((everyone, best))
            start += number
        return measured, drawn

    def _qualities(self, everyone: Sequence[Candidate], chosen: Any) -> Array:
        """The mean quality of each draw's network over its resampled seeds."""
        table = np.empty((len(everyone), DRAWS))
        for row, candidate in enumerate(everyone):
            weights = self.counts[:, [self.places[number] for number in candidate.seeds]]
            total = weights.sum(axis=1)
            values = weights @ np.array(candidate.test) / np.maximum(total, 1)
            table[row] = np.where(total > 0, values, candidate.mean)
        return table[chosen, np.arange(DRAWS)]


def _widths(field: str, everyone: Sequence[Candidate], chosen: Any) -> Array:
    return np.log([read_shape(candidate)[field] for candidate in everyone])[chosen]


def _rise(exponent: Array, budget: float, first: float, last: float) -> Array:
    """f: 0 at the first and 1 at the last budget of the fit."""
    alpha, here, whole = np.maximum(exponent, 1e-12), math.log(budget / first), math.log(last / first)
    curved = -np.expm1(-alpha * here) / -np.expm1(-alpha * whole)
    return np.where(exponent > 1e-9, curved, here / whole)


def _fit_curve(
    costs: Sequence[float], values: Array, prior: float, exponents: Array, random: np.random.Generator,
    grows: bool = False,
) -> Curve:  # fmt: skip
    """One curve per row of ``values``, drawn from its posterior; ``prior`` is the expected scatter around the law."""
    draws, number = values.shape
    freedom = number - 2 + _SCATTER_WEIGHT
    designs = [
        np.stack([np.ones(number), [float(_rise(alpha, cost, costs[0], costs[-1])) for cost in costs]], axis=1)
        for alpha in exponents
    ]
    inverses = [np.linalg.inv(design.T @ design) for design in designs]
    estimates = np.stack([values @ design @ inverse for design, inverse in zip(designs, inverses, strict=True)])
    squares = np.stack(
        [np.square(values - each @ design.T).sum(axis=1) for each, design in zip(estimates, designs, strict=True)]
    )
    rounding = _RESOLUTION * float(np.abs(values).max())  # relative, so that units do not matter
    squares += max(_SCATTER_WEIGHT * prior**2, rounding**2, sys.float_info.min)
    volumes = 0.5 * np.log([np.linalg.det(inverse) for inverse in inverses])
    chances = volumes[:, None] - freedom / 2 * np.log(squares)
    chosen = (chances + random.gumbel(size=chances.shape)).argmax(axis=0)
    every = np.arange(draws)
    sigma = np.sqrt(squares[chosen, every] / random.chisquare(freedom, draws))
    roots = np.linalg.cholesky(np.stack(inverses))[chosen]
    steps = np.einsum("dij,dj->di", roots, random.standard_normal((draws, 2)))
    level, gain = (estimates[chosen, every] + sigma[:, None] * steps).T
    scatter = sigma * random.standard_normal(draws)
    return Curve(costs[0], costs[-1], level, np.maximum(gain, 0.0) if grows else gain, exponents[chosen], scatter)


def _cross(pair: tuple[str, str], curves: Mapping[str, Curve], to: float) -> Crossing:
    first, second = (curves[name] for name in pair)
    grid = np.geomspace(max(first.first, second.first), to, _GRID)
    leads = np.stack([first.at(budget) - second.at(budget) for budget in grid], axis=1)
    ahead = leads > 0
    found = []
    for before, after, start in ((*pair, True), (*pair[::-1], False)):
        passes = (ahead[:, 0] == start) & (ahead[:, -1] != start)
        # The last change of the lead is the one that lasts.
        changes = ahead[passes, 1:] != ahead[passes, :-1]
        places = changes.shape[1] - changes[:, ::-1].argmax(axis=1)
        budget = Estimate.of(grid[places]) if passes.any() else None
        found.append((float(passes.mean()), before, after, budget))
    chance, before, after, budget = max(found, key=lambda item: item[0])
    share = float(ahead[:, -1].mean())
    return Crossing(before, after, chance, budget, {pair[0]: share, pair[1]: 1 - share})


def read_shape(candidate: Candidate) -> dict[str, float]:
    """The positive numbers among the fields that describe its shape, and the ratio of computation to stream."""
    model = candidate.settings["model"]
    found = {name: model.get(name) for name in SHAPE_FIELDS}
    shape = {name: value for name, value in found.items() if isinstance(value, int | float) and value > 0}
    return shape | ({RATIO: shape["d_h"] / shape["d_z"]} if "d_h" in shape and "d_z" in shape else {})


def _count_shapes(candidates: Sequence[Candidate]) -> int:
    return len({tuple(read_shape(candidate).items()) for candidate in candidates})


def _has_choice(points: Sequence[Point]) -> bool:
    return sum(point.shapes > 1 for point in points) >= LEAST_BUDGETS


def fit_network(model: Mapping[str, Any], shape: Mapping[str, float], budget: float) -> Network | None:
    """The network of a shape, its widths scaled together to the largest within a budget of parameters.

    Where the family has no such network, such as a conventional MLP whose stream outgrows its hidden layers, the shape
    is moved towards that of ``model``.
    """
    for tenths in range(10, -1, -1):
        part = tenths / 10
        between = {name: model[name] ** (1 - part) * value**part for name, value in shape.items()}
        if fields := _widen(model, between, budget):
            return Network(fields, part)
    return None


def _widen(model: Mapping[str, Any], shape: Mapping[str, float], budget: float) -> dict[str, int | float] | None:
    from isthmus.training.counting import count_params

    step = int(model.get("num_heads") or 1)
    kept = {name: max(1, round(value)) if name == "depth" else float(f"{value:.3g}") for name, value in shape.items()}

    def scale(factor: float) -> dict[str, int | float]:
        return {
            name: max(1, round(factor * shape[name] / step)) * step if name in _WIDTHS else value
            for name, value in kept.items()
        }

    def count(factor: float) -> int:
        try:
            return count_params(component("models", {**model, **scale(factor)}))
        except UserError:  # there is no such network, or it is too small: a stream may be narrower than the input
            return 0

    low, high = 1 / _WIDEST, _WIDEST
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if count(middle) <= budget else (low, middle)
    return scale(low) if 0 < count(low) <= budget < count(high) else None
