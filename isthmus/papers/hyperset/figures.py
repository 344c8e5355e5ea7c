"""Figures of this paper that show more than accuracy over one quantity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.analysis.pictures import finish, style
from isthmus.papers.engine.exhibit import Findings, MeasuredPart
from isthmus.papers.engine.figures import by_shape, draw_accuracy, draw_band, draw_grid, page, scatter
from isthmus.papers.engine.networks import Network, find_network
from isthmus.papers.hyperset.claims import CHOSEN, by_cells
from isthmus.papers.hyperset.measurements import line
from isthmus.papers.hyperset.studies import ABLATIONS
from isthmus.reports.plots import COLOURS
from isthmus.reports.text import architecture_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ITERATION = "iteration; dashed: the last in training"
TITLES = {
    "attention_energy": "E_ATTN", "feed_forward_energy": "E_FF", "effective_rank": "effective rank",
    "full_rank": "full rank", "angle": "average angle (degrees)",
}  # fmt: skip
TOLD = ("positions", "step_sizes", "time_mlp", "step_init")


def one_layer(findings: Findings) -> Figure:
    """Table 1: accuracy over the parameters, and over the iterations at test time; a row for each data set."""
    figure, rows = page(len(findings.parts), 2)
    for item, (left, right) in zip(findings.parts, rows, strict=True):
        draw_accuracy(left, by_shape(item.networks), lambda network: network.params, item.part.title, "parameters")
        _over_iterations(right, item, findings, "Test accuracy (%)")
    return figure


def extrapolation(findings: Findings) -> Figure:
    """Figure 3: solved boards over the iterations at test time, the mean of the seeds and their range."""
    figure, ((axis,),) = page(1, 1, width=7)
    (item,) = findings.parts
    _over_iterations(axis, item, findings, "solved boards (%)")
    return figure


def _over_iterations(axis: Axes, item: MeasuredPart, findings: Findings, quality: str) -> None:
    """A line for each network, named by its architecture, its width, and the other fields in which they differ."""
    values = {name: {network.model[name] for network in item.networks if name in network.model} for name in TOLD}
    for place, network in enumerate(item.networks):
        telling = [f"{name} {network.model[name]}" for name in TOLD if len(values[name]) > 1 and name in network.model]
        label = ", ".join([f"{architecture_title(network.shape)}, d {network.model['d']}", *telling])
        found = findings.analysis["extrapolation"][network.id]
        _band(axis, found["runs"], label, place)
    _mark_trained(axis, found["trained"])
    finish(axis, item.part.title, ITERATION, quality)


def _band(axis: Axes, runs: Sequence[Sequence[float]], label: str, place: int) -> None:
    """A band whose line is dashed once the colours repeat."""
    draw_band(axis, runs, label, place, line="--" if place >= len(COLOURS) else "-")


def _mark_trained(axis: Axes, trained: int) -> None:
    axis.axvline(trained, color="#5b5b5b", linewidth=0.9, linestyle=(0, (3, 3)))


def over_seeds(names: Sequence[str], findings: Findings, first_head: bool = False) -> Figure:
    """Figures 4 and 5: a row for each data set, for all heads or for the first."""
    found = findings.analysis["tokens"]
    figure, axes = page(len(found), len(names))
    for (title, entry), row in zip(found.items(), axes, strict=True):
        for place, (axis, name) in enumerate(zip(row, names, strict=True)):
            runs = [[heads[0] for heads in run[name]] if first_head else line(run, name) for run in entry["runs"]]
            _band(axis, runs, f"{len(runs)} seeds", place)
            _mark_trained(axis, entry["trained"])
            finish(axis, title, ITERATION, TITLES[name] + (", head 1" if first_head else ""))
    return figure


def over_heads(name: str, findings: Findings) -> Figure:
    """Figures 9 to 12: a panel for each head, with the mean of the seeds and their range."""
    ((title, entry),) = findings.analysis["tokens"].items()

    def draw(axis: Axes, head: int) -> None:
        runs = [[values[head] for values in run[name]] for run in entry["runs"]]
        _band(axis, runs, f"{len(runs)} seeds", 0)
        _mark_trained(axis, entry["trained"])
        finish(axis, f"head {head + 1}, {title}", "iteration", TITLES[name])

    return draw_grid(len(entry["runs"][0][name][0]), draw, width=3.6, height=2.8)


def sphere(findings: Findings) -> Figure:
    """Figure 1: the tokens of one board in the first head, on the three directions in which they vary most at first."""
    from isthmus.analysis.token_dynamics import on_spheres

    ((title, entry),) = findings.analysis["tokens"].items()
    figure = on_spheres(entry["sphere"])
    figure.suptitle(title, fontsize=10)
    return figure


def layers(findings: Findings) -> Figure:
    """Figure 6: accuracy and parameters over the number of distinct layers."""
    figure, ((left, right),) = page(1, 2)
    (item,) = findings.parts
    groups: dict[str, list[Network]] = {}
    for network in item.networks:
        groups.setdefault(f"{network.shape} d {network.model['d']}", []).append(network)
    draw_accuracy(left, groups, lambda network: float(network.model["layers"]), item.part.title, "distinct layers")
    for place, (name, members) in enumerate(groups.items()):
        points = sorted((network.model["layers"], network.params) for network in members)
        right.plot(*zip(*points, strict=True), label=name, **style(place))
    finish(right, item.part.title, "distinct layers", "parameters")
    return figure


def ablations(findings: Findings) -> Figure:
    """The ablations: right cells as trained, and solved boards over the iterations at test time."""
    figure, ((left, right),) = page(1, 2, width=6.4)
    (item,) = findings.parts
    networks = by_cells(item)
    for place, (name, fields) in enumerate(ABLATIONS.items()):
        if (network := find_network(networks, "hyper_set", **{**CHOSEN, **fields})) is not None:
            scatter(left, [(place, network)], "", place)
            _band(right, findings.analysis["extrapolation"][network.id]["runs"], name, place)
    left.set_xticks(range(len(ABLATIONS)), list(ABLATIONS))
    finish(left, item.part.title, "", "right cells (%), mean ± 1 σ")
    _mark_trained(right, findings.analysis["extrapolation"][item.networks[0].id]["trained"])
    finish(right, item.part.title, ITERATION, "solved boards (%)")
    return figure
