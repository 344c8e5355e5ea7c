"""Quality against the number of iterations, up to twice the trained number.

Paper: Hyperspherical Energy Transformer with Recurrent Depth, Figure 3. One pass gives the task's metrics on the test
split after each iteration of a model with recurrent depth and one layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from isthmus.analysis.pictures import DASHED, finish, page, save, style
from isthmus.analysis.trained_run import Answer, TrainedRun, store_results

SCHEMA = "isthmus.analysis.iterations/1"


def applies(model: Any, task: str) -> str | None:
    if not hasattr(model, "states") or not hasattr(model, "readout"):
        return "it has no iterations"
    return None if len(model.layers) == 1 else "its iterations are those of several layers"


@store_results(SCHEMA, applies)
@torch.no_grad()
def of_run(trained: TrainedRun) -> Answer:
    """The metrics after iteration 0 (the embedding), 1, 2, …"""
    model, task = trained.model, trained.task
    iterations = 2 * model.config.iterations
    metrics = [task.metrics("test").to(trained.device) for _ in range(iterations + 1)]
    for batch in trained.test_batches():
        for collection, tokens in zip(metrics, model.states(batch.input, iterations), strict=True):
            task.measure(collection, model.readout(tokens), batch.target)
    return {
        "objective": trained.record.objective,
        "maximise": trained.record.maximise,
        "trained_iterations": model.config.iterations,
        "curve": [{name: float(value) for name, value in each.compute().items()} for each in metrics],
    }


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
    axis.axvline(found["trained_iterations"], **DASHED)
    axis.locator_params(axis="x", integer=True)
    finish(axis, f"run {found['run']}", "iterations at test time; dashed: as trained", "on the test rows")
    return [save(figure, folder / "iterations.png")]
