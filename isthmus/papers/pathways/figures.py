"""Figures of the experiments: quality by pathway, costs, starts, depth mixing and curves over iterations."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from statistics import median
from typing import TYPE_CHECKING, Any

from isthmus.analysis.pictures import DASHED, finish, matrix, style
from isthmus.papers.engine.exhibit import Findings, MeasuredPart
from isthmus.papers.engine.figures import draw_band, logarithmic, page
from isthmus.papers.engine.networks import Network
from isthmus.papers.pathways.studies import label, of_pathway, plains_by_steps
from isthmus.reports.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUALITY = {"": "Test R²", "dB": "Test PSNR (dB)", "points": "Test accuracy (%)"}
COLUMNS = 3
FAR = 40
"""How many median deviations below the median a network may be and still be drawn to scale."""
TINY = 1e-6
"""What is smaller is not drawn: a network without skip connections and norms ends at nothing."""


def by_pathway(findings: Findings) -> Figure:
    """A panel for each part: the mean of every network with one standard deviation, and how many seeds it has."""
    count = len(findings.parts)
    columns = min(COLUMNS, count)
    figure, axes = page(-(-count // columns), columns, width=6.2, height=4.2)
    for place, axis in enumerate(axis for row in axes for axis in row):
        if place < count:
            draw_part(axis, findings.parts[place])
        else:
            axis.axis("off")
    return figure


def equal_seconds(findings: Findings) -> Figure:
    """E7: the same of the parts with several pathways, and plain for more steps as lines."""
    several = [item for item in findings.parts if len(item.part.study.candidates) > 1] or findings.parts
    figure = by_pathway(Findings(several))
    for axis, item in zip(figure.axes, several, strict=False):
        for place, (times, plain) in enumerate(plains_by_steps(item, findings.parts).items()):
            if times > 1 and plain is not None:
                colour = style(place + 1)["color"]
                axis.axvline(plain.quality.mean, label=f"plain, {times:g} times the steps", color=colour, linewidth=1)
                axis.legend(frameon=False, fontsize=7)
    return figure


def draw_part(axis: Axes, item: MeasuredPart) -> None:
    networks = list(item.networks)
    least = _least_shown([network.quality.mean for network in networks])
    for place, network in enumerate(networks):
        quality, look = network.quality, style(0 if label(network.model) == "plain" else 1)
        if quality.mean < least:
            axis.text(least, place, f"← {quality.mean:.3g}", va="center", fontsize=8, color=look["color"])
            continue
        axis.errorbar(
            quality.mean, place, xerr=quality.std or 0.0, fmt=look["marker"], color=look["color"], capsize=2.5
        )
    if (plain := of_pathway(networks, "plain")) is not None:
        axis.axvline(plain.quality.mean, **DASHED)
    axis.set_yticks(range(len(networks)), [_name(network, networks) for network in networks], fontsize=7)
    axis.invert_yaxis()
    finish(axis, item.part.title, f"{QUALITY[networks[0].unit]}, mean ± 1 σ; dashed: plain", "")


def _least_shown(values: Sequence[float]) -> float:
    """Networks that learn next to nothing would squeeze all others together; they are named at the edge."""
    middle = median(values)
    usual = median(abs(value - middle) for value in values)
    return min(value for value in values if value >= middle - FAR * usual)


def _name(network: Network, others: Sequence[Network]) -> str:
    """The pathway, what sets networks of one pathway apart, and the number of seeds."""
    same = [other for other in others if label(other.model) == label(network.model)]
    fields = [name for name in ("d_z", "norm", "init") if len({str(other.model.get(name)) for other in same}) > 1]
    words = [label(network.model), *(f"{name} {network.model.get(name)}" for name in fields)]
    return f"{', '.join(words)} (n = {network.quality.runs})"


def costs(findings: Findings) -> Figure:
    """E0: multiply–adds and kept numbers over plain's at the largest depth, and the time of a step."""
    found = findings.analysis["costs"]
    deepest = max(next(iter(found.values())), key=int)
    titles = {"macs": "multiply–adds", "saved_values": "kept for the gradient", "params": "parameters"}
    figure, (axes,) = page(1, len(titles) + 1, width=4.6, height=5.2)
    for axis, (key, title) in zip(axes, titles.items(), strict=False):
        for place, (shape, by_depth) in enumerate(found.items()):
            line = by_depth[deepest]
            axis.plot(
                [line[name][key] for name in line], range(len(line)), label=shape, linestyle="none", **style(place)
            )
        _name_rows(axis, list(line), f"{title}, {deepest} blocks")
    seconds = findings.analysis["seconds"]
    axes[-1].plot(list(seconds.values()), range(len(seconds)), linestyle="none", **style(0))
    _name_rows(axes[-1], list(seconds), "CPU time of a step, narrow 256/16")
    return figure


def _name_rows(axis: Axes, names: Sequence[str], title: str) -> None:
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.invert_yaxis()
    axis.axvline(1, **DASHED)
    logarithmic(axis)
    finish(axis, title, "ratio to plain", "")


def starts(findings: Findings) -> Figure:
    """E1: growth and the largest singular value over depth, with and without norms."""
    keys = {"growth": "‖x_L‖ / ‖x_0‖", "largest singular value": "largest singular value of ∂x_L/∂x_0"}
    figure, axes = page(2, len(keys), width=6)
    for row, (norm, by_name) in zip(axes, findings.analysis["starts"].items(), strict=True):
        for axis, (key, title) in zip(row, keys.items(), strict=True):
            for place, (name, by_depth) in enumerate(by_name.items()):
                line = ("-", "--", ":")[place // len(COLOURS) % 3]
                depths = sorted(map(int, by_depth))
                values = [by_depth[str(depth)][key] for depth in depths]
                shown = [value if value is not None and value > TINY else nan for value in values]
                axis.plot(depths, shown, line, label=name, markersize=4, **style(place))
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            words = "LayerNorm" if norm == "layer" else "no norms"
            finish(axis, f"{title}, {words}", "blocks", "mean of all draws")
            if legend := axis.get_legend():
                legend.remove()
        row[-1].legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def tokens(findings: Findings) -> Figure:
    """E5: accuracy by pathway, and |A| of the ViTs of the first seed."""
    mixing: dict[str, Any] = findings.analysis["mixing"]
    columns = max(3, -(-len(mixing) // 2))
    figure, axes = page(3, columns, width=4.4, height=3.8)
    for axis, item in zip(axes[0], findings.parts, strict=False):
        draw_part(axis, item)
    for axis in axes[0][len(findings.parts) :]:
        axis.axis("off")
    panels = [axis for row in axes[1:] for axis in row]
    for axis, (name, found) in zip(panels, mixing.items(), strict=False):
        values = [[value if value is not None and i <= row else nan for i, value in enumerate(line)]
                  for row, line in enumerate(found["mixing"])]  # fmt: skip
        image = matrix(axis, values, f"|A|, ViT, {name}", vmin=0)
        figure.colorbar(image, ax=axis, shrink=0.8)
    for axis in panels[len(mixing) :]:
        axis.axis("off")
    return figure


def iterations(findings: Findings) -> Figure:
    """E6: loss, accuracy and length of a token over the iterations at test time."""
    titles = {"loss": "test loss", "accuracy": "test accuracy", "length": "mean length of a token"}
    figure, (axes,) = page(1, len(titles))
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for place, (name, entry) in enumerate(findings.analysis["curves"].items()):
            runs = [[nan if value is None else value for value in run] for run in entry[key]]
            draw_band(axis, runs, f"{name} (n = {len(runs)})", place, x=range(1, len(runs[0]) + 1))
            axis.axvline(entry["trained"], **DASHED)
        if key != "accuracy":
            axis.set_yscale("log")
        finish(axis, title, "iterations; dashed: as trained", "mean and range of the seeds")
    return figure
