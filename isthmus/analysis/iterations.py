"""Quality against the number of iterations, up to twice the trained one: what more computation at test time brings.

Paper: Hyperspherical Energy Transformer with Recurrent Depth, Figure 3. The task's metrics on the test split after each
iteration of a run with recurrent depth. One pass gives every number for a model of one layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from isthmus.errors import UserError
from isthmus.files import read_sealed, write_sealed, write_with
from isthmus.loading import load, load_task
from isthmus.record import find_run, read_record
from isthmus.registry import component
from isthmus.run import load_data
from isthmus.training.loop import EVALUATION_BLOCK, Rows

SCHEMA = "isthmus.analysis.iterations/1"


def applies(model: Any) -> str | None:
    """Why a model has no such curve, or None."""
    if not hasattr(model, "states") or not hasattr(model, "readout"):
        return "it has no iterations"
    return None if len(model.layers) == 1 else "its iterations are those of several layers"


def of_run(run: str | Path, data_dir: Path | None = None) -> dict[str, Any]:
    """Measured once: later calls answer from ``analysis/iterations.json``."""
    folder = find_run(run)
    record = read_record(folder)
    path = folder / "analysis" / "iterations.json"
    if path.is_file() and (known := read_sealed(path)).get("schema") == SCHEMA and known.get("run") == record.id:
        return known
    model: Any = load(folder)
    if reason := applies(model):
        raise UserError(f"run {record.id} is a {record.config['model']['name']}: {reason}")
    data = load_data(component("sources", record.config["source"]), data_dir)
    if data.fingerprint != record.fingerprint:
        raise UserError(f"run {record.id} was trained on other data than {record.config['source']['name']} is here")
    task = load_task(folder)
    trained = model.config.iterations
    curve = measured(model, task, Rows.of(data.test, torch.device("cpu")), 2 * trained)
    found = {
        "schema": SCHEMA,
        "run": record.id,
        "objective": task.objective,
        "trained_iterations": trained,
        "curve": curve,
    }
    write_sealed(path, found)
    return found


@torch.no_grad()
def measured(model: Any, task: Any, rows: Rows, iterations: int) -> list[dict[str, float]]:
    """The task's metrics after iteration 0 (what is read off the embedding), 1, 2, …"""
    device = torch.device("cpu")
    metrics = [task.metrics("test") for _ in range(iterations + 1)]
    for block, start in enumerate(range(0, len(rows), EVALUATION_BLOCK)):
        batch = task.evaluation_batch(*rows.block(start, device), "test", block)
        for collection, tokens in zip(metrics, model.states(batch.input, iterations), strict=True):
            task.measure(collection, model.readout(tokens), batch.target)
    return [{name: float(value) for name, value in collection.compute().items()} for collection in metrics]


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    values = [point[found["objective"]] for point in found["curve"]]
    best = max(range(len(values)), key=values.__getitem__)
    trained = found["trained_iterations"]
    return {
        f"{found['objective']} at {trained} iterations": values[trained],
        f"at {2 * trained}": values[-1],
        f"highest, at {best}": values[best],
    }


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    for name in found["curve"][0]:
        axis.plot([point[name] for point in found["curve"]], label=name.replace("_", " "), linewidth=1.4)
    axis.axvline(found["trained_iterations"], color="#8a9099", linewidth=0.8, linestyle="--")
    axis.set_xlabel("iterations at test time")
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    path = folder / "iterations.png"
    write_with(path, lambda temporary: figure.savefig(temporary, format="png", dpi=150))
    return [path]
