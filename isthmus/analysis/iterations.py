"""Quality against the number of iterations, up to twice the trained number.

Paper: Hyperspherical Energy Transformer with Recurrent Depth, Figure 3. The task's metrics on the test split after each
iteration of a model with recurrent depth and one layer, all from one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from isthmus.analysis.pictures import finish, page, save, style
from isthmus.analysis.trained_run import TrainedRun, measure_once
from isthmus.training.loop import EVALUATION_BLOCK, Rows

SCHEMA = "isthmus.analysis.iterations/1"


def applies(model: Any, task: str) -> str | None:
    if not hasattr(model, "states") or not hasattr(model, "readout"):
        return "it has no iterations"
    return None if len(model.layers) == 1 else "its iterations are those of several layers"


def of_run(run: str | Path, data_dir: Path | None = None) -> dict[str, Any]:
    """The curve, measured once: then ``analysis/iterations.json``."""

    def measure_run(trained: TrainedRun) -> dict[str, Any]:
        iterations = trained.model.config.iterations
        return {
            "objective": trained.record.objective,
            "maximise": trained.record.maximise,
            "trained_iterations": iterations,
            "curve": measure(trained, 2 * iterations),
        }

    return measure_once(run, "iterations", SCHEMA, measure_run, applies, data_dir)


@torch.no_grad()
def measure(trained: TrainedRun, iterations: int) -> list[dict[str, float]]:
    """The task's metrics after iteration 0 (what is read off the embedding), 1, 2, …"""
    device, task = torch.device("cpu"), trained.task
    rows = Rows.of(trained.data.test, device)
    metrics = [task.metrics("test") for _ in range(iterations + 1)]
    for block, start in enumerate(range(0, len(rows), EVALUATION_BLOCK)):
        batch = task.evaluation_batch(*rows.block(start, device), "test", block)
        for collection, tokens in zip(metrics, trained.model.states(batch.input, iterations), strict=True):
            task.measure(collection, trained.model.readout(tokens), batch.target)
    return [{name: float(value) for name, value in collection.compute().items()} for collection in metrics]


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    values = [point[found["objective"]] for point in found["curve"]]
    best = (max if found["maximise"] else min)(range(len(values)), key=values.__getitem__)
    trained, name = found["trained_iterations"], found["objective"].replace("_", " ")
    return {
        f"{name} at {trained} iterations, as trained": values[trained],
        f"{name} at {2 * trained}": values[-1],
        f"best {name}, at {best}": values[best],
    }


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    figure, ((axis,),) = page(1, 1, width=6)
    for place, name in enumerate(found["curve"][0]):
        values = [point[name] for point in found["curve"]]
        axis.plot(values, **style(place), markersize=3, label=name.replace("_", " "))
    axis.axvline(found["trained_iterations"], color="#5b5b5b", linewidth=0.9, linestyle=(0, (3, 3)))
    axis.locator_params(axis="x", integer=True)
    finish(axis, f"run {found['run']}", "iterations at test time; dashed: as trained", "on the test rows")
    return [save(figure, folder / "iterations.png")]
