"""Figures of this paper that show more than accuracy over one quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.analysis.pictures import finish, style
from isthmus.papers.engine.exhibit import Findings
from isthmus.papers.engine.figures import ACCURACY, by_shape, draw_accuracy, draw_band, logarithmic, page, scatter
from isthmus.papers.widesparse.claims import series, width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def similarity(findings: Findings) -> Figure:
    """(a) mean CKA over 1/p, (b) and (c) block by block at its peak and with the dense MLP, (d) shallow nets
    during training."""
    figure, (axes,) = page(1, 4, width=4.2)
    found = findings.analysis["cka"]
    for place, (name, lines) in enumerate(found.items()):
        spread = [max(line["values"]) - min(line["values"]) for line in lines]
        axes[0].errorbar(
            [1 / line["p"] for line in lines], [line["mean"] for line in lines], yerr=[half / 2 for half in spread],
            capsize=2.5, label=name, **style(place),
        )  # fmt: skip
    logarithmic(axes[0])
    finish(axes[0], "(a) mean CKA, and the range of seeds", "1/p", "CKA of corresponding blocks")
    lines = next(iter(found.values()))
    peak, dense = max(lines, key=lambda line: line["mean"]), max(lines, key=lambda line: line["p"])
    for axis, line, letter in ((axes[1], peak, "b"), (axes[2], dense, "c")):
        matrix = list(zip(*line["matrix"], strict=True))
        axis.imshow(matrix, origin="lower", vmin=0, vmax=1, cmap="magma")
        axis.set_xticks(range(len(matrix[0])), [str(block + 1) for block in range(len(matrix[0]))])
        axis.set_yticks(range(len(matrix)), [str(block + 1) for block in range(len(matrix))])
        finish(axis, f"({letter}) 1/p = {1 / line['p']:g}", "block of the Mixer", "block of the MLP")
        axis.grid(visible=False)
    for place, (name, runs) in enumerate(findings.analysis["errors"].items()):
        epochs = [epoch for epoch, _ in runs[0]]
        draw_band(axes[3], [[error for _, error in run] for run in runs], name, place, epochs)
    finish(axes[3], f"(d) {findings.parts[-1].part.title}", "epoch", "validation error (%)")
    return figure


def widths(findings: Findings) -> Figure:
    """Left: accuracy over γm; right: largest singular values of random weights."""
    figure, ((left, right),) = page(1, 2)
    (item,) = findings.parts
    draw_accuracy(
        left, by_shape(item.networks), lambda network: width(network) * network.model["gamma"], item.part.title,
        "width γm", log=10,
    )  # fmt: skip
    found = findings.analysis["singular_values"]
    lines = sorted(found["widths"], key=lambda line: line["width"])
    x = [line["width"] for line in lines]
    for place, (name, title) in enumerate({"mixer": "Mixer", "sw_mlp": "SW-MLP"}.items()):
        spread = [line[name]["std"] for line in lines]
        right.errorbar(x, [line[name]["mean"] for line in lines], yerr=spread, capsize=2.5, label=title, **style(place))
    for name, look, title in (("edge", "--", "eq. (17), corrected"), ("printed_edge", ":", "eq. (17), as printed")):
        right.plot(x, [line[name] for line in lines], look, color="#22262b", linewidth=1, label=title)
    right.axhline(found["dense_edge"], color="#8a929b", linewidth=1, label="1 + √γ")
    finish(right, f"Ω {found['omega']:,}, {found['trials']} trials", "width γm", "largest singular value")
    return figure


def shape_curves(findings: Findings) -> Figure:
    figure, ((left, right),) = page(1, 2)
    lines = findings.analysis["curve"]
    for axis, name, title in ((left, "m", "effective width m"), (right, "p", "density p")):
        axis.plot([line["C"] for line in lines], [line[name] for line in lines], color=style(0)["color"])
        axis.axvline(findings.analysis["peak"]["C_theory"], color="#22262b", linestyle="--", linewidth=1, label="C = S")
        logarithmic(axis)
        axis.set_yscale("log")
        finish(axis, "Ω = 10^8, γ = 1", "C", title)
    return figure


def densities(findings: Findings) -> Figure:
    """Figure S.1: accuracy over p, the spectrum of the largest exponent, and the largest value over the exponent."""
    figure, (axes,) = page(1, 3)
    (item,) = findings.parts
    groups = by_shape(item.networks)
    draw_accuracy(axes[0], groups, lambda network: float(network.model["p"]), item.part.title, "p", log=10)
    lines = findings.analysis["scaling"]["exponents"]
    axes[1].hist(lines[-1]["values"], bins=60, density=True, color=style(0)["color"])
    finish(axes[1], f"one draw, a = {lines[-1]['a']:g}", "singular value", "density")
    axes[2].errorbar(
        [line["a"] for line in lines], [line["largest"]["mean"] for line in lines],
        yerr=[line["largest"]["std"] for line in lines], capsize=2.5, **style(1),
    )  # fmt: skip
    finish(axes[2], "mean ± 1 σ", "a", "largest singular value")
    return figure


def expansions(findings: Findings) -> Figure:
    """Figure S.3: accuracy over γ at C = S, and over S/C."""
    figure, ((left, right),) = page(1, 2)
    (item,) = findings.parts
    square = [network for network in item.networks if network.model["C"] == network.model["S"]]
    title = item.part.title
    draw_accuracy(left, by_shape(square), lambda network: float(network.model["gamma"]), f"C = S, {title}", "γ")
    groups = {name: members for name, members in series(item.networks).items() if len(members) > 2}
    draw_accuracy(right, groups, lambda network: network.model["S"] / network.model["C"], title, "S/C", log=10)
    return figure


def random_blocks(findings: Findings) -> Figure:
    """Figure S.4: the normal network as a line, and one random block at a time."""
    figure, (axes,) = page(1, len(findings.parts))
    for item, axis in zip(findings.parts, axes, strict=True):
        normal = [network for network in item.networks if not network.model.get("random_blocks")]
        single = [network for network in item.networks if network.model.get("random_blocks")]
        scatter(axis, [(network.model["random_blocks"][0], network) for network in single], "one random block", 1)
        for network in normal:
            axis.axhline(network.quality.mean, color=style(0)["color"], linestyle="--", label="normal")
        axis.set_xticks([network.model["random_blocks"][0] for network in single])
        finish(axis, item.part.title, "index of the random block", ACCURACY)
    return figure


def losses(findings: Findings) -> Figure:
    """Validation losses during training: the mean of the seeds and their range."""
    figure, (axes,) = page(1, len(findings.parts), width=6)
    for item, axis in zip(findings.parts, axes, strict=True):
        lines = [line for line in findings.analysis["curves"] if line["part"] == item.part.title]
        for place, line in enumerate(sorted(lines, key=lambda line: (line["random"], line["C"]))):
            runs = [[loss for _, loss in run] for run in line["losses"]]
            label = f"{'random' if line['random'] else 'normal'}, C {line['C']}"
            colour, epochs = place // 2 if len(lines) > 2 else place, [epoch for epoch, _ in line["losses"][0]]
            draw_band(axis, runs, label, colour, epochs, "--" if line["random"] else "-")
        finish(axis, item.part.title, "epoch", "validation loss")
    return figure


def pictures(findings: Findings) -> Figure:
    found = findings.analysis["pictures"]
    figure, (axes,) = page(1, len(found), width=3.6, height=3.8)
    for axis, (name, picture) in zip(axes, found.items(), strict=True):
        axis.imshow(picture, cmap="Greys", interpolation="nearest")
        finish(axis, name, "", "")
        axis.grid(visible=False)
    return figure


def table(findings: Findings) -> Figure:
    """The entries of a table without numbers, and whether each agrees."""
    lines = findings.analysis["quantities"]
    figure, ((axis,),) = page(1, 1, width=8, height=1 + 0.22 * len(lines))
    axis.axis("off")
    for place, line in enumerate(lines):
        colour = {"agrees": "#1b7f3b", "differs": "#b3261e"}.get(line.word, "#5b6470")
        text = f"{line.what}: {line.measured} ({line.word or 'not printed'})"
        axis.text(0, 1 - (place + 0.5) / len(lines), text, color=colour, fontsize=7, transform=axis.transAxes)
    return figure
