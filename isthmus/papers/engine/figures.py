"""Figures of a reproduction: measured and published results in separate panels, because the data differ."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from isthmus.analysis import pictures
from isthmus.analysis.pictures import finish, style
from isthmus.papers.engine.exhibit import Draw, Findings
from isthmus.papers.engine.networks import Network
from isthmus.reports.text import architecture_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def page(rows: int, columns: int, width: float = 5.2, height: float = 3.9) -> tuple[Figure, list[list[Axes]]]:
    return pictures.page(rows, columns, width, height)


def logarithmic(axis: Axes, base: float = 10) -> None:
    """A logarithmic x axis with plain numbers; an axis of less than a decade also labels minor ticks."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter

    axis.set_xscale("log", base=base)
    low, high = axis.get_xlim()
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    short = base == 10 and high / low < 12
    axis.xaxis.set_minor_formatter(LogFormatter(base, minor_thresholds=(2, 0.4)) if short else NullFormatter())


def fronts(findings: Findings) -> Figure:
    """A row for each part: the measured front, and the printed one if it exists."""
    anything = any(item.part.printed for item in findings.parts)
    figure, axes = page(len(findings.parts), 2 if anything else 1)
    for item, (left, *others) in zip(findings.parts, axes, strict=True):
        draw_fronts(left, item.networks, item.part.subject)
        finish(left, f"measured: {item.part.title}", "Parameters", "Test PSNR (dB), mean ± 1 σ")
        for right in others:
            if printed := list(item.part.printed.values()):
                draw_fronts(right, printed, item.part.subject)
                finish(right, f"published: {item.part.printed_title}", "Parameters", "PSNR (dB), mean ± 1 σ")
            else:
                right.axis("off")
                right.text(0.5, 0.5, "the paper prints no numbers for this", ha="center", transform=right.transAxes)
    return figure


def draw_fronts(axis: Axes, networks: Sequence[Network], subject: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator, NullFormatter

    # The proposed shape always has the first colour.
    shapes = sorted({network.shape for network in networks}, key=lambda shape: (shape != subject, shape))
    for place, shape in enumerate(shapes):
        group = [network for network in networks if network.shape == shape]
        front: list[Network] = []  # those that would be selected as the budget grows
        for network in sorted(group, key=lambda item: (item.params, -item.chosen_by, item.id)):
            if not front or network.chosen_by > front[-1].chosen_by:
                front.append(network)
        x, y = [network.params for network in front], [network.quality.mean for network in front]
        axis.step(x, y, where="post", color=style(place)["color"], linewidth=1.4)
        scatter(axis, [(network.params, network) for network in group], architecture_title(shape), place)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.xaxis.set_major_formatter(EngFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())


def scatter(axis: Axes, points: Sequence[tuple[float, Network]], label: str, place: int, line: bool = False) -> None:
    """The quality of networks over any quantity, with the spread of their seeds."""
    look = style(place)
    axis.errorbar(
        [x for x, _ in points], [network.quality.mean for _, network in points],
        yerr=[network.quality.std or 0.0 for _, network in points], fmt=look["marker"], color=look["color"],
        linestyle="-" if line else "none", linewidth=1.4, markersize=5, elinewidth=1, capsize=2.5, label=label,
    )  # fmt: skip


def draw_band(
    axis: Axes, runs: Sequence[Sequence[float]], label: str, place: int, x: Sequence[float] = (), line: str = "-"
) -> None:
    """The mean of several runs as a line over ``x`` (default: 0, 1, …), with their range."""
    by_step = list(zip(*runs, strict=True))
    x, colour = x or range(len(by_step)), style(place)["color"]
    marker = "o" if len(by_step) == 1 else None  # a line of one point would be invisible
    axis.plot(x, [statistics.fmean(values) for values in by_step], line, label=label, color=colour, marker=marker)
    low, high = ([pick(values) for values in by_step] for pick in (min, max))
    axis.fill_between(x, low, high, alpha=0.15, color=colour)


def draw_grid(count: int, draw: Callable[[Axes, int], None], **size: float) -> Figure:
    """A page of panels, four in a row."""
    columns = min(4, count)
    figure, axes = page(-(-count // columns), columns, **size)
    for place, axis in enumerate(axis for row in axes for axis in row):
        if place < count:
            draw(axis, place)
        else:
            axis.axis("off")
    return figure


ACCURACY = "Test accuracy (%), mean ± 1 σ"
Groups = Callable[[Sequence[Network]], Mapping[str, Sequence[Network]]]


def draw_accuracy(
    axis: Axes, groups: Mapping[str, Sequence[Network]], x: Callable[[Network], float], title: str, label: str,
    log: float | None = None,
) -> None:  # fmt: skip
    """The test accuracy over one quantity, a line for each group of networks."""
    for place, (name, members) in enumerate(groups.items()):
        points = sorted(((x(network), network) for network in members), key=lambda point: (point[0], point[1].id))
        scatter(axis, points, name, place, line=len(points) > 1)
    if log is not None:
        logarithmic(axis, log)
    finish(axis, title, label, ACCURACY)


def plot_over(x: Callable[[Network], float], label: str, groups: Groups, log: float | None = None) -> Draw:
    """A figure with one panel for each part: accuracy over ``x``, a line for each group."""

    def draw(findings: Findings) -> Figure:
        figure, (axes,) = page(1, len(findings.parts))
        for item, axis in zip(findings.parts, axes, strict=True):
            draw_accuracy(axis, groups(item.networks), x, item.part.title, label, log)
        return figure

    return draw


def by_shape(networks: Sequence[Network]) -> dict[str, list[Network]]:
    names = dict.fromkeys(network.shape for network in networks)
    return {name: [network for network in networks if network.shape == name] for name in names}


def by_field(name: str) -> Groups:
    """A group for each value of a model setting."""

    def groups(networks: Sequence[Network]) -> dict[str, list[Network]]:
        values = sorted({network.model[name] for network in networks}, key=str)
        return {f"{name} {value}": [n for n in networks if n.model[name] == value] for value in values}

    return groups


over_parameters = plot_over(lambda network: network.params, "parameters", by_shape)


def ratios(findings: Findings) -> Figure:
    """The ratio of measured to published, for every number that has both."""
    lines = [
        item
        for item in findings.analysis["quantities"]
        if all(isinstance(value, int | float) and value > 0 for value in (item.published, item.measured))
    ]
    figure, ((axis,),) = page(1, 1, width=8, height=1.2 + 0.3 * max(1, len(lines)))
    found = [float(item.measured) / float(item.published) for item in lines]
    axis.barh(range(len(lines)), found, 0.6, color=style(0)["color"])
    axis.axvline(1, color="#22262b", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_yticks(range(len(lines)), [item.what for item in lines], fontsize=7)
    axis.invert_yaxis()
    finish(axis, "measured / published", "", "")
    return figure
