"""Measurements beyond test quality: the effective ranks of Table 1, the costs of Table 2, and training curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from isthmus.core.errors import UserError
from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import AnalysisInput, Quantity
from isthmus.reports.text import architecture_title

BATCHES = {"tiny": 8, "small": 4, "large": 1}
PRINTED_WIDTHS = {"hourglass_mlp": 3075, "conventional_mlp": 3072}
NEAR = 0.1
"""A reading comes near if it is within 10 % of both printed ranks, each as a share of d_z."""


def effective_ranks(given: AnalysisInput) -> dict[str, Any]:
    """The ranks of every run at the selected learning rate, by row, and the reading that fits the paper best."""
    from isthmus.analysis.effective_rank import READINGS, of_run

    (item,) = given.parts
    if {network.shape for network in item.networks} != PRINTED_WIDTHS.keys():
        raise UserError(
            "ranks are compared between two networks, and one of them did not finish; see `isthmus runs list`"
        )
    rows: dict[str, Any] = {}
    shares: dict[str, dict[str, float]] = {}
    for network, folders in item.runs():
        found = [of_run(folder, given.data_dir) for folder in folders]
        ranks, width = {name: [entry["ranks"][name] for entry in found] for name in READINGS}, found[0]["width"]
        rows[network.id] = {"effective_rank": ranks, "width": width}
        shares[network.shape] = {name: statistics.fmean(values) / width for name, values in ranks.items()}
    rows_of_paper = item.part.printed.values()
    printed = {row.shape: row.columns["effective_rank"] / row.model["d_z"] for row in rows_of_paper}
    widths = {network.shape: rows[network.id]["width"] for network in item.networks}
    return {
        "rows": rows,
        "readings": READINGS,
        "shares": shares,
        "printed_shares": printed,
        "summary": _name_nearest(READINGS, shares, printed, widths),
    }


def _name_nearest(
    readings: Mapping[str, str], shares: Mapping[str, Mapping[str, float]], printed: Mapping[str, float],
    widths: Mapping[str, int],
) -> list[str]:  # fmt: skip
    """Which reading is nearest, and how near. Shares of d_z are compared, because widths differ between scales."""

    def describe(shares: Mapping[str, float], widths: Mapping[str, int]) -> str:
        wide, square = (shares[shape] * widths[shape] for shape in PRINTED_WIDTHS)
        parts = [
            f"{architecture_title(s)} {shares[s] * widths[s]:.1f} of {widths[s]} ({shares[s]:.3f})"
            for s in PRINTED_WIDTHS
        ]
        return f"{', '.join(parts)}, ratio {wide / max(square, 1e-12):.2f}"

    lines = [f"effective rank as printed: {describe(printed, PRINTED_WIDTHS)}"]
    off: dict[str, float] = {}
    for name, title in readings.items():
        values = {shape: shares[shape][name] for shape in printed}
        off[name] = max(abs(math.log(max(values[shape], 1e-12) / printed[shape])) for shape in printed)
        lines.append(f"{title}: {describe(values, widths)}; off by a factor of up to {math.exp(off[name]):.2f}")
    nearest = min(off, key=lambda name: off[name])
    verdict = "comes near both printed ranks" if off[nearest] <= math.log1p(NEAR) else "is not within 10 % of both"
    return [
        *lines,
        f"as shares of d_z, {readings[nearest]} is the nearest reading, and {verdict}",
        "the W_2 W_1 of one block of the printed Hourglass has at most the rank d_h = 1146, so no such product can be "
        "what is printed as 1501.27",
    ]


def costs(given: AnalysisInput) -> dict[str, Any]:
    """Table 2: parameters and training FLOPs are counted; time per image is measured, alternating the two shapes."""
    from isthmus.models.vit import VARIANTS
    from isthmus.training.counting import cost

    threads = 1 if given.scale == "smoke" else 2
    found: dict[str, dict[str, Any]] = {}
    quantities = []
    for identity, row in load_paper("hourglass").tables["T2"].rows.items():
        size, shape = row["model"].removeprefix("ViT-").lower(), row["architecture"]
        counted = cost(VARIANTS[f"{size}-{shape}"])
        here = {"params": counted.params / 1e6, "gflops": counted.training_flops / 1e9}
        there = {"params": row["params_M"], "gflops": row["training_gflops"], "ms": row["latency_ms_per_image"]}
        found.setdefault(size, {})[shape] = {"measured": here, "published": there}
        title = f"{row['model']}, {shape}"
        for what, words in (("params", "million parameters"), ("gflops", "training GFLOPs of an image")):
            word = "agrees" if round(here[what], 2) == there[what] else "differs"
            note = f"{counted.params:,}" if what == "params" else ""
            quantities.append(
                Quantity(f"{identity} {what}", f"{title}: {words}", there[what], here[what], word, note, 2)
            )
    for size, both in found.items():
        times = [both[shape]["published"]["ms"] for shape in ("hourglass", "conventional")]
        both["latency_ratio"] = {"measured": None, "published": times[0] / times[1]}
        if given.scale != "smoke" or size == "tiny":
            quantities += _latency(size, both, threads, 7 if given.scale != "smoke" else 1)
    return {
        "costs": found,
        "quantities": quantities,
        "differences": [
            "the paper names neither device nor batch of its latencies; here: the CPU of this machine, "
            f"{threads} thread{'s' * (threads > 1)}, batches of "
            + ", ".join(f"{n} (ViT-{size.capitalize()})" for size, n in BATCHES.items()),
            "the paper names the PyTorch profiler for its FLOPs; its numbers are those of torch's FLOP counter with "
            "attention in two products",
        ],
    }


def _latency(size: str, both: dict[str, Any], threads: int, rounds: int) -> list[Quantity]:
    import torch

    from isthmus.analysis.ratios import load, row, time_rounds
    from isthmus.core.registry import create_model
    from isthmus.models.vit import VARIANTS
    from isthmus.training.devices import arithmetic

    images = torch.randn(BATCHES[size], 3, 224, 224, generator=torch.Generator().manual_seed(0))
    models = [create_model(**VARIANTS[f"{size}-{shape}"]).eval() for shape in ("hourglass", "conventional")]
    with arithmetic(threads), torch.no_grad():
        before = load()
        pairs = time_rounds(lambda: models[0](images), lambda: models[1](images), rounds)
        line = row(size, "ms", pairs, 1.0, before)
    both["latency_ratio"] |= {"measured": line["ratio"], "rounds": [round(own / other, 5) for own, other in pairs]}
    title, loads = f"ViT-{size.capitalize()}", f"load {line['load before']} to {line['load after']}"
    found = []
    for shape, milliseconds in (("hourglass", line["ours"]), ("conventional", line["rival's"])):
        both[shape]["measured"]["ms"] = ours = milliseconds / len(images)
        name, what = f"T2 {size} {shape} ms", f"{title}, {shape}: milliseconds for an image"
        found.append(Quantity(name, what, both[shape]["published"]["ms"], ours, "", loads, 4))
    what = f"{title}: time of the Hourglass over the conventional one's"
    return [*found, Quantity(f"T2 {size} ratio", what, both["latency_ratio"]["published"], line["ratio"])]


def curves(given: AnalysisInput) -> dict[str, Any]:
    """The validation accuracy of every run, in percent, epoch by epoch."""
    lines: list[dict[str, Any]] = [
        {
            "part": item.part.title, "source": item.part.source, "row": network.id, "shape": network.shape,
            "params": network.params,
            "curves": [[(epoch, 100 * share) for epoch, share in run] for run in curves],
        }
        for item in given.parts
        for network, curves in item.curves("accuracy")
    ]  # fmt: skip
    quantities = []
    for line in lines:
        what = f"{line['part']}, {architecture_title(line['shape'])}: validation accuracy halfway, percent"
        halfway = statistics.fmean(curve[max(0, len(curve) // 2 - 1)][1] for curve in line["curves"])
        quantities.append(Quantity(f"{line['row']} halfway", what, None, halfway))
    return {"curves": lines, "quantities": quantities}
