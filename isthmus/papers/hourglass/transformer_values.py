"""What the exhibits about Transformers measure beyond accuracies: the costs of Table 2, and curves of training."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from isthmus.core.record import read_metrics
from isthmus.papers import load_paper
from isthmus.papers.engine.drawing import finish, page, style
from isthmus.papers.engine.protocol import Findings, Given, Quantity
from isthmus.reports.text import architecture_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = {"tiny": 8, "small": 4, "large": 1}
ROUNDS = 7


def costs(given: Given) -> dict[str, Any]:
    """Table 2: parameters and training FLOPs counted, time for an image measured, the two shapes in turns."""
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


def curves(given: Given) -> dict[str, Any]:
    """The validation accuracy of every run, in percent, epoch by epoch."""
    lines: list[dict[str, Any]] = []
    for item in given.parts:
        folders = {folder.name: folder for folder in item.folders}
        for network, candidate in zip(item.networks, item.candidates, strict=True):
            found = [
                [
                    (line["epoch"], 100 * line["accuracy"])
                    for line in read_metrics(folders[run], sealed=True)
                    if line["split"] == "validation"
                ]
                for run in candidate.run_ids
            ]
            lines.append(
                {
                    "part": item.part.title, "source": item.part.study.base.source.name, "row": network.id,
                    "shape": network.shape, "params": network.params, "curves": found,
                }
            )  # fmt: skip
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
    for axis, source in zip(axes, sources, strict=True):
        for place, line in enumerate(line for line in lines if line["source"] == source):
            epochs = [epoch for epoch, _ in line["curves"][0]]
            values = list(zip(*([value for _, value in curve] for curve in line["curves"]), strict=True))
            look = {"color": style(place)["color"]}
            name = architecture_title(line["shape"])
            label = name if len({other["part"] for other in lines}) == 1 else f"{name}, {line['part'].split(',')[0]}"
            axis.plot(epochs, [statistics.fmean(several) for several in values], label=label, **look)
            axis.fill_between(epochs, [min(v) for v in values], [max(v) for v in values], alpha=0.15, **look)
        finish(axis, next(line["part"] for line in lines if line["source"] == source).split(", ")[-1], "epoch",
               "Validation accuracy (%)")  # fmt: skip
    return figure
