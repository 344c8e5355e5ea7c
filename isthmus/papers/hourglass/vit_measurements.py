"""Measurements of Transformers beyond test accuracy: the costs of Table 2, and training curves."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import AnalysisInput, Findings, Quantity
from isthmus.papers.engine.figures import draw_band, finish, page
from isthmus.reports.text import architecture_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = {"tiny": 8, "small": 4, "large": 1}
ROUNDS = 7


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
            quantities.append(Quantity(f"{identity} {what}", f"{title}: {words}", there[what], here[what], word, note))
    for size, both in found.items():
        times = [both[shape]["published"]["ms"] for shape in ("hourglass", "conventional")]
        both["latency_ratio"] = {"measured": None, "published": times[0] / times[1]}
        if given.scale != "smoke" or size == "tiny":
            quantities += _latency(size, both, threads, ROUNDS if given.scale != "smoke" else 1)
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

    from isthmus.analysis.ratios import compare_times
    from isthmus.core.registry import create_model
    from isthmus.models.vit import VARIANTS
    from isthmus.training.run import arithmetic

    images = torch.randn(BATCHES[size], 3, 224, 224, generator=torch.Generator().manual_seed(0))
    models = [create_model(**VARIANTS[f"{size}-{shape}"]).eval() for shape in ("hourglass", "conventional")]
    with arithmetic(threads), torch.no_grad():
        line = compare_times(size, lambda: models[0](images), lambda: models[1](images), rounds, 1.0)
    both["latency_ratio"]["measured"] = line["ratio"]
    lines = []
    for shape, milliseconds in (("hourglass", line["ours"]), ("conventional", line["rival's"])):
        both[shape]["measured"]["ms"] = milliseconds / len(images)
        lines.append(
            Quantity(
                f"T2 {size} {shape} ms", f"ViT-{size.capitalize()}, {shape}: milliseconds for an image",
                both[shape]["published"]["ms"], milliseconds / len(images), "",
                f"load {line['load before']} to {line['load after']}",
            )
        )  # fmt: skip
    printed = both["latency_ratio"]["published"]
    ratio = Quantity(
        f"T2 {size} ratio", f"ViT-{size.capitalize()}: time of the Hourglass over the conventional one's", printed,
        line["ratio"],
    )  # fmt: skip
    return [*lines, ratio]


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
    quantities = [
        Quantity(f"{line['row']} halfway", f"{line['part']}, {architecture_title(line['shape'])}: validation accuracy "
                 "halfway, percent", None, statistics.fmean(curve[max(0, len(curve) // 2 - 1)][1]
                                                           for curve in line["curves"]))
        for line in lines
    ]  # fmt: skip
    return {"curves": lines, "quantities": quantities}


def draw_curves(findings: Findings) -> Figure:
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
