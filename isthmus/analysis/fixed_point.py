"""How fast the fixed-point iterations of an iMixer converge in each layer, and what they change.

    norm      ‖x^{a+1} − x^a‖ / √(S C) of successive iterates            (Figures 3 and 5 of Ota and Taki)
    cosine    cos(x^{a+1}, x^a)                                          (Figures 3 and 6)
    maps      ξ^(v,x) e(x^a) of the last layer, as pictures of tokens    (Figure 7)

Sixteen test rows are drawn once for all runs on the same data. Each layer gets its input in the trained model and is
iterated beyond the n of the training by the plain solver, so that runs with different n and solvers are comparable.
S C is the size of the stream, as in the paper, although x has D_S C entries. The paper does not define the output of an
iteration in Figure 7, and x has no positions in the image. So the maps show the update of the block if it stopped at
this iteration, for one row, in the channels where the first and the last iterate differ most.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isthmus.analysis.pictures import DASHED, finish, matrix, page, save, style
from isthmus.analysis.trained_run import Answer, TrainedRun, finite_values, round_values, store_results
from isthmus.layers.dynamics import Solver

SCHEMA = "isthmus.analysis.fixed_point/1"
ROWS = 16
ITERATIONS = 8
MOST_ITERATIONS = 64
CHANNELS = 6


def applies(model: Any, task: str) -> str | None:
    iterated = hasattr(model, "mixers") and model.config.hierarchy > 1
    return None if iterated else "its token mixing iterates to no fixed point"


@store_results(SCHEMA, applies)
def of_run(trained: TrainedRun) -> Answer:
    """Norms and cosines of every layer, and the maps of the last."""
    return measure(trained.model, next(trained.test_inputs(ROWS, ROWS)))


@torch.no_grad()
def measure(model: Any, x: Tensor) -> Answer:
    """``norms[layer][iteration][row]`` and ``cosines`` of an iMixer on the rows of ``x``."""
    config = model.config
    solver = Solver(min(max(ITERATIONS, model.iterations), MOST_ITERATIONS))
    found: dict[str, Any] = {"rows": len(x), "trained_iterations": model.iterations, "norms": [], "cosines": []}
    for step in (step for step in model.steps(x) if step.branch == "token"):
        block = model.blocks[step.block - 1]
        solution = block.solve(step.read, keep=True, solver=solver)
        measured = solution.statistics(config.tokens * config.C)
        found["norms"].append(finite_values(measured.steps))
        found["cosines"].append(finite_values(measured.cosines))
    shown = solution.trajectory[: ITERATIONS + 1]
    maps = torch.stack([block.token.visible(iterate[:1])[0] for iterate in shown])  # iterates, C, S
    maps = maps.nan_to_num(0.0, 0.0, 0.0)  # an iteration that is no contraction may overflow
    channels = (maps[-1] - maps[0]).norm(dim=1).topk(min(CHANNELS, config.C)).indices.sort().values
    return found | {"channels": channels.tolist(), "maps": round_values(maps[:, channels].unflatten(2, config.grid))}


def typical(rows: Sequence[float | None]) -> float:
    """The mean over the rows; NaN if any value is missing."""
    return statistics.fmean(math.nan if value is None else value for value in rows)


def summary(found: dict[str, Any]) -> dict[str, float | str]:
    """The size of the step after the n-th iteration, in the first layer and the worst."""
    place = min(found["trained_iterations"], len(found["norms"][0]) - 1)
    left = [typical(layer[place]) for layer in found["norms"]]
    turned = [typical(layer[place]) for layer in found["cosines"]]
    worst = max(range(len(left)), key=lambda layer: (math.isnan(left[layer]), left[layer]))
    return {
        "n": float(found["trained_iterations"]),
        "next step, first layer": left[0],
        "next step, worst layer": left[worst],
        "worst layer": float(worst + 1),
        "least cosine": min(turned),
    }


def draw(found: dict[str, Any], folder: Path) -> list[Path]:
    return [_convergence(found, folder / "fixed_point.png"), _maps(found, folder / "fixed_point-maps.png")]


def _convergence(found: dict[str, Any], path: Path) -> Path:
    """For each layer: faint curves of all test rows, their mean, and a line at the n of the training."""
    layers = len(found["norms"])
    figure, axes = page(layers, 2, height=2.6)
    for layer in range(layers):
        titles = (("norms", "‖x(a+1) − x(a)‖ / √(SC)"), ("cosines", "cos(x(a+1), x(a))"))
        for place, (axis, (name, label)) in enumerate(zip(axes[layer], titles, strict=True)):
            curves = found[name][layer]
            look, iterations = style(place), range(len(curves))
            for values in zip(*curves, strict=True):
                axis.plot(iterations, values, color=look["color"], linewidth=0.6, alpha=0.3)
            means = [typical(step) for step in curves]
            axis.plot(iterations, means, **look, linewidth=1.6, markersize=4, label=f"mean of {found['rows']} rows")
            axis.axvline(found["trained_iterations"] - 0.5, **DASHED)
            if name == "norms" and any(value for step in curves for value in step):
                axis.set_yscale("log")
            finish(axis, f"layer {layer + 1}", "iteration a; dashed: where the training stopped", label)
    return save(figure, path)


def _maps(found: dict[str, Any], path: Path) -> Path:
    """A row for each channel, with its own scale of colours, and a column for each iterate."""
    iterates, channels = len(found["maps"]), found["channels"]
    figure, axes = page(len(channels), iterates, width=1.4, height=1.5)
    for row, channel in enumerate(channels):
        pictures = [found["maps"][a][row] for a in range(iterates)]
        largest = max(abs(value) for picture in pictures for line in picture for value in line) or 1.0
        for a, picture in enumerate(pictures):
            trained = ", n" if a == found["trained_iterations"] else ""
            title = f"a = {a}{trained}" if row == 0 else ""
            matrix(axes[row][a], picture, title, cmap="RdBu_r", vmin=-largest, vmax=largest)
        axes[row][0].set_ylabel(f"channel {channel}", fontsize=8)
    return save(figure, path)
