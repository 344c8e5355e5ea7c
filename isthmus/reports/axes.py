"""Ranges, ticks, labels and style of the figures' axes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.studies.fronts import upper_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, RULE = "#22262b", "#dfe3e8"
"""Colours of text and grid in pictures."""

_QUARTILES = 8
"""With fewer values, none is an outlier."""
_LABEL_SPACE = 0.045
"""The least distance of two labels beside an axis, as a fraction of its height."""


def fit_axis(values: Sequence[float], needed: Sequence[float], metric: str) -> tuple[float, float]:
    """A range that shows the needed values and all others but outliers, and no value that the metric cannot have."""
    low, high = min([*values, *needed]), max([*values, *needed])
    if len(values) >= _QUARTILES:
        first, _, third = statistics.quantiles(values, n=4)
        reach = 3 * (third - first)
        low = min([max(low, first - reach), *needed])
        high = max([min(high, third + reach), *needed])
    room = 0.06 * (high - low) or 0.05 * abs(high) or 0.05
    return low - room, min(high + room, upper_bound(metric))


def style_axis(axis: Axes) -> None:
    """A grid behind the curves, and no frame at the top and right."""
    axis.grid(color=RULE, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def fit_costs(costs: Sequence[float]) -> tuple[float, float]:
    """A little more than the costs; one cost alone gets less than a decade."""
    low, high = min(costs), max(costs)
    room = max((high / low) ** 0.05, 1.15 if high > low else 1.6)
    return low / room, high * room


def labelled_digits(values: Sequence[float]) -> tuple[int, ...]:
    """Which digits of a logarithmic axis get labels; none if the range is short enough for linear ticks."""
    ratio = max(values) / min(values)
    if ratio < 3:
        return ()
    return tuple(range(1, 10)) if ratio < 6 else (1, 2, 5) if ratio < 3000 else (1,)


def label_lines(lines: Sequence[tuple[str, float]], low: float, high: float) -> list[tuple[str, float]]:
    """A label for each line, and its height as a fraction of the axis, so that no two labels overlap."""
    ordered = sorted(lines, key=lambda line: line[1])
    places: list[float] = []
    for _, y in ordered:
        places.append(max([0.0, min((y - low) / (high - low), 1.0), *(last + _LABEL_SPACE for last in places[-1:])]))
    limit, labels = 1.0, list[tuple[str, float]]()
    for (title, y), wanted in reversed(list(zip(ordered, places, strict=True))):
        beyond = " ↓" if y < low else " ↑" if y > high else ""
        place = min(wanted, limit)
        labels.append((f"{title.removeprefix('the ')} {y:.3g}{beyond}".replace("-", "−"), place))
        limit = place - _LABEL_SPACE
    return labels
