"""Figures other than fronts: frozen and trained W_in, sweeps, ranks, training curves, and norm, activation and init."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from isthmus.analysis.pictures import finish, style
from isthmus.papers.engine.exhibit import Findings
from isthmus.papers.engine.figures import draw_band, page, scatter
from isthmus.papers.engine.networks import Network, best, rival
from isthmus.reports.text import architecture_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PSNR = "Test PSNR (dB), mean ± 1 σ"
SHAPES = ("hourglass_mlp", "conventional_mlp")


def fixed_input(findings: Findings) -> Figure:
    """Over all parameters, as the paper counts, and over the trained ones, which is where a frozen W_in saves."""
    from matplotlib.ticker import EngFormatter

    rows = [(item, shape) for item in findings.parts for shape in SHAPES]
    figure, axes = page(len(rows), 2)
    for (item, shape), row in zip(rows, axes, strict=True):
        kinds = list(dict.fromkeys(network.model["w_in"] for network in item.of(shape)))
        for axis, cost, title in zip(row, ("params", "trainable"), ("All", "Trained"), strict=True):
            for place, kind in enumerate(sorted(kinds, key=lambda kind: (kind != "trainable", kind))):
                group = [network for network in item.of(shape) if network.model["w_in"] == kind]
                points = sorted((getattr(network, cost), network.id, network) for network in group)
                label = "trained W_in" if kind == "trainable" else f"frozen, {kind}"
                scatter(axis, [(x, network) for x, _, network in points], label, place, line=True)
            finish(axis, f"{architecture_title(shape)}: {item.part.title}", f"{title} parameters", PSNR)
            axis.xaxis.set_major_formatter(EngFormatter())
    return figure


def sweeps(findings: Findings) -> Figure:
    """(a) d_h at L = 5 and (b) L at one d_h: measured above, rows of Table 8 below."""
    (item,) = findings.parts
    printed = list(item.part.printed.values())
    figure, axes = page(2, 2)
    for row, networks, word in ((axes[0], item.networks, "measured"), (axes[1], printed, "published in Table 8")):
        d_z, widths = networks[0].model["d_z"], [network.model["d_h"] for network in networks]
        d_h = max(sorted(set(widths)), key=widths.count)  # the one with the most depths
        by_width = [network for network in networks if network.model["depth"] == 5]
        by_depth = [network for network in networks if network.model["d_h"] == d_h]
        scatter(row[0], _sort_by(by_width, "d_h"), f"d_z = {d_z}, L = 5", 0, line=True)
        row[0].set_xscale("log", base=2)
        row[0].xaxis.set_major_formatter(lambda value, place: f"{value:g}")
        finish(row[0], f"(a) {word}", "d_h", PSNR)
        scatter(row[1], _sort_by(by_depth, "depth"), f"d_z = {d_z}, d_h = {d_h}", 1, line=True)
        finish(row[1], f"(b) {word}", "L", PSNR)
    return figure


def _sort_by(networks: Iterable[Network], field: str) -> list[tuple[float, Network]]:
    return sorted(((network.model[field], network) for network in networks), key=lambda pair: pair[0])


def ranks(findings: Findings) -> Figure:
    """Each reading as a share of d_z, with the printed shares as lines; and the ratio of the two shapes."""
    figure, ((left, right),) = page(1, 2, width=6)
    analysis = findings.analysis
    titles = analysis["readings"]
    for place, shape in enumerate(SHAPES):
        colour, title = style(place)["color"], architecture_title(shape)
        y = [row + 0.2 * (2 * place - 1) for row in range(len(titles))]
        left.barh(y, [analysis["shares"][shape][name] for name in titles], 0.38, color=colour, label=title)
        printed = analysis["printed_shares"][shape]
        left.axvline(printed, color=colour, linestyle="--", linewidth=1, label=f"printed, {title}")
    left.set_yticks(range(len(titles)), list(titles.values()))
    left.invert_yaxis()
    finish(left, f"measured: {findings.parts[0].part.title}", "effective rank / d_z", "")
    ranks = {n.shape: analysis["rows"][n.id]["effective_rank"] for n in findings.parts[0].networks}
    means = {shape: [statistics.fmean(ranks[shape][name]) for name in titles] for shape in SHAPES}
    ratios = [wide / max(square, 1e-12) for wide, square in zip(*means.values(), strict=True)]
    right.barh(range(len(ratios)), ratios, 0.5, color=style(2)["color"])
    right.axvline(1501.27 / 1180.63, color="#22262b", linestyle="--", linewidth=1, label="printed, 1.27")
    right.axvline(1, color="#22262b", linewidth=0.8)
    right.set_yticks(range(len(titles)), [""] * len(titles))
    right.invert_yaxis()
    finish(right, "Hourglass / conventional", "ratio of effective ranks", "")
    return figure


def settings(findings: Findings) -> Figure:
    """Both shapes and their difference, for every norm and initialisation (rows) and activation (columns)."""
    (item,) = findings.parts
    tried = [candidate.model_dump() for candidate in item.part.study.candidates]  # in the order of the study
    rows = list(dict.fromkeys((model["norm"], model["init"]) for model in tried))
    columns = list(dict.fromkeys(model["activation"] for model in tried))
    figure, (axes,) = page(1, 3, width=4.6, height=1.6 + 0.32 * len(rows))

    def cells(value: Callable[[dict[str, str]], float | None]) -> list[list[float | None]]:
        return [
            [value({"norm": norm, "init": init, "activation": column}) for column in columns] for norm, init in rows
        ]

    def quality(shape: str, cell: dict[str, str]) -> float | None:
        found = [network for network in item.of(shape) if network.has(cell)]
        return best(found).quality.mean if found else None

    def lead(cell: dict[str, str]) -> float | None:
        for network in item.of("hourglass_mlp"):
            if network.has(cell) and (other := rival(network, item.networks, item.part.rival_agrees_in)):
                return network.quality.mean - other.quality.mean
        return None

    leads = cells(lead)
    names = [f"{norm}, {init}" for norm, init in rows]
    for axis, shape in zip(axes, SHAPES, strict=False):
        _heatmap(axis, cells(partial(quality, shape)), "{:.2f}", {"cmap": "viridis"})
        axis.set_title(f"{architecture_title(shape)} (dB)", loc="left", fontsize=10)
    span = max((abs(lead) for line in leads for lead in line if lead is not None), default=0.0) or 1.0
    _heatmap(axes[2], leads, "{:+.2f}", {"cmap": "RdBu", "vmin": -span, "vmax": span})
    axes[2].set_title("Hourglass − conventional (dB)", loc="left", fontsize=10)
    for axis in axes:
        axis.set_xticks(range(len(columns)), columns)
        axis.set_yticks(range(len(rows)), names if axis is axes[0] else [""] * len(rows))
    return figure


def _heatmap(axis: Axes, values: Sequence[Sequence[float | None]], text: str, colours: dict[str, Any]) -> None:
    axis.imshow([[float("nan") if value is None else value for value in line] for line in values], **colours)
    axis.set_aspect("auto")
    ground = {"color": "white", "alpha": 0.6, "pad": 1}
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            label = "–" if value is None else text.format(value)
            axis.text(x, y, label, ha="center", va="center", fontsize=8, bbox=ground)


def curves(findings: Findings) -> Figure:
    """Accuracy over epochs, a panel for each data set: the mean of the seeds and their range."""
    lines = findings.analysis["curves"]
    sources = list(dict.fromkeys(line["source"] for line in lines))
    figure, (axes,) = page(1, len(sources))
    one_part = len({line["part"] for line in lines}) == 1
    for axis, source in zip(axes, sources, strict=True):
        group = [line for line in lines if line["source"] == source]
        for place, line in enumerate(group):
            name = architecture_title(line["shape"])
            label = name if one_part else f"{name}, {line['part'].split(',')[0]}"
            runs = [[value for _, value in curve] for curve in line["curves"]]
            draw_band(axis, runs, label, place, [epoch for epoch, _ in line["curves"][0]])
        finish(axis, group[0]["part"].split(", ")[-1], "epoch", "Validation accuracy (%)")
    return figure
