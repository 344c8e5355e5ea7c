"""The widest network that fits a budget of parameters, and what the architectures declare to be searched."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, cast

from isthmus.core.errors import UserError
from isthmus.core.protocols import ModelConfig, Signature
from isthmus.core.registry import catalogue, component, find
from isthmus.core.space import FittedSpace
from isthmus.training.counting import count_params

_GUESSES = 6
"""Guesses from a parabola before the rest is bisected."""


def widest_mlp(budget: int, d_in: int, d_out: int, ratio: float, depth: int) -> tuple[int, int] | None:
    """The largest ``d_z``, with its ``d_h`` = ``ratio`` · ``d_z`` rounded; None if not even ``d_z`` = 1 fits.

    A residual MLP without biases has d_z (d_in + d_out) + 2 depth d_z d_h parameters, which grow with d_z.
    """

    def inner(d_z: int) -> int:
        return max(1, round(ratio * d_z))

    def params(d_z: int) -> int:
        return d_z * (d_in + d_out + 2 * depth * inner(d_z))

    d_z = bisect_right(range(1, budget + 1), budget, key=params)
    return (d_z, inner(d_z)) if d_z else None


def declared_spaces(signature: Signature, budget: int) -> Iterator[FittedSpace]:
    """What the files of all models, also of other packages, declare to be searched for such a task."""
    modules = dict[str, None]()
    for name, place in catalogue("models").items():
        with suppress(UserError):  # a package that cannot be imported takes no part
            find("models", name)
            modules[place.partition(":")[0]] = None
    for module in modules:
        declare = getattr(sys.modules[module], "search_space", None)
        if declare is not None:
            yield from declare(signature, budget)


class Fitted(NamedTuple):
    """Model settings, and how many parameters they have."""

    model: dict[str, Any]
    params: int


def fit_widths(
    space: FittedSpace, shape: Mapping[str, Any], signature: Signature, budgets: Sequence[int]
) -> list[Fitted | None]:
    """A shape with the largest width within each budget; None if not even the lowest fits."""
    first = -(-space.low // space.step)

    def widen(number: int) -> dict[str, Any]:
        return space.widen(shape, (first + number - 1) * space.step)

    @cache
    def count(number: int) -> float:
        try:
            settings = component("models", widen(number))
            return count_params(cast("ModelConfig", settings).complete(signature, 0))
        except UserError:  # there is no such network
            return math.inf

    numbers = [find_largest(count, budget) for budget in budgets]
    return [Fitted(widen(number), int(count(number))) if number else None for number in numbers]


def find_largest(count: Callable[[int], float], budget: float) -> int:
    """The largest number from 1 on whose count, which grows with it, is within the budget; 0 if there is none.

    Most counts are polynomials of second degree, so a parabola through three of them guesses the number; guesses that
    remain wrong are followed by bisection.
    """
    low, high, known = 0, 1, list[tuple[int, float]]()
    while (value := count(high)) <= budget:
        known.append((high, value))
        low, high = high, 4 * high
    known.append((high, value))
    for attempt in range(high.bit_length() + _GUESSES):
        if high - low <= 1:
            break
        guess = _cross(known[-3:], budget) if attempt < _GUESSES else (low + high) // 2
        guess = min(max(guess, low + 1), high - 1)
        known.append((guess, count(guess)))
        low, high = (guess, high) if known[-1][1] <= budget else (low, guess)
    return low


def _cross(points: Sequence[tuple[int, float]], budget: float) -> int:
    """Where the parabola through three points reaches the budget; the middle of the last two if it does not."""
    (x, y), (x2, y2), (x3, y3) = points if len(points) == 3 else ((0, 0.0),) * 3
    middle = (points[-1][0] + points[-2][0]) // 2
    if not math.isfinite(y + y2 + y3) or len({x, x2, x3}) < 3:
        return middle
    slope, slope2 = (y2 - y) / (x2 - x), (y3 - y2) / (x3 - x2)
    curve = (slope2 - slope) / (x3 - x)
    linear = slope - curve * (x + x2)
    root = linear**2 - 4 * curve * (y - slope * x + curve * x * x2 - budget)
    if root < 0 or linear + math.sqrt(root) <= 0:
        return middle
    return math.floor(2 * (budget - (y - slope * x + curve * x * x2)) / (linear + math.sqrt(root)) + 1e-9)
