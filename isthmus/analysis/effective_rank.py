"""Effective rank: in how many directions the singular values of a matrix are spread.

    erank(A) = exp(−Σ pᵢ log pᵢ),  pᵢ = σᵢ / Σ σⱼ            (Roy and Vetterli 2007)

It is 1 for one direction and n for n equal ones. The Hourglass paper prints it for one network of each shape (Table 1)
and does not say of which matrix. The readings here are the ones that a person would try:

    z_L              the last residual state of every test row, as it is
    z_L_centred      the same, less its mean over the rows
    W_out            the output projection
    W2W1_mean        the product W_i2 W_i1 of a block, mean over the blocks
    W2W1_last        of the last block
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from isthmus.analysis.pictures import finish, page, save, style
from isthmus.analysis.trained_run import TrainedRun, measure_once
from isthmus.core.protocols import Data, Task
from isthmus.training.loop import EVALUATION_BLOCK, Rows

SCHEMA = "isthmus.analysis.effective_rank/1"
READINGS = {
    "z_L": "z_L over the test rows",
    "z_L_centred": "z_L over the test rows, centred",
    "W_out": "W_out",
    "W2W1_mean": "W_2 W_1, mean of the blocks",
    "W2W1_last": "W_2 W_1 of the last block",
}


def effective_rank(matrix: Float[Tensor, "rows columns"]) -> float:
    """exp of the entropy of the normalised singular values, in float64. A matrix of zeros has none: 0."""
    matrix = matrix.detach().to("cpu", torch.float64)
    if matrix.shape[0] > matrix.shape[1]:
        matrix = torch.linalg.qr(matrix, mode="r").R  # the same singular values, and far fewer rows
    values = torch.linalg.svdvals(matrix)
    if not values.sum() > 0:
        return 0.0
    return float(torch.special.entr(values / values.sum()).sum().exp())


def applies(model: Any, task: str) -> str | None:
    parts = all(hasattr(model, name) for name in ("embed", "blocks", "W_out"))
    if not parts or not all(hasattr(block, "W1") and hasattr(block, "W2") for block in model.blocks):
        return "it has no W_out, W_1 and W_2"
    return None


def of_run(run: str | Path, data_dir: Path | None = None) -> dict[str, Any]:
    """Every reading of a finished run, measured once: later calls answer from ``analysis/effective_rank.json``."""
    return measure_once(run, "effective_rank", SCHEMA, _measure, applies, data_dir)


def _measure(trained: TrainedRun) -> dict[str, Any]:
    model, data = trained.model, trained.data
    return {
        "rows": len(data.test),
        "width": model.W_out.weight.shape[1],
        "ranks": ranks_of_weights(model) | ranks_of_features(last_states(model, trained.task, data)),
    }


def ranks_of_weights(model: Any) -> dict[str, float]:
    """Of a residual MLP: ``W_out``, and W2 W1 of its ``blocks``."""
    products = [effective_rank(block.W2.weight.double() @ block.W1.weight.double()) for block in model.blocks]
    return {
        "W_out": effective_rank(model.W_out.weight),
        "W2W1_mean": statistics.fmean(products),
        "W2W1_last": products[-1],
    }


def ranks_of_features(z: Float[Tensor, "rows d_z"]) -> dict[str, float]:
    z = z.double()
    return {"z_L": effective_rank(z), "z_L_centred": effective_rank(z - z.mean(dim=0))}


@torch.no_grad()
def last_states(model: Any, task: Task, data: Data) -> Float[Tensor, "rows d_z"]:
    """z_L of every test row, on the inputs that the run was tested with."""
    device = torch.device("cpu")
    rows = Rows.of(data.test, device)
    states = []
    for block, start in enumerate(range(0, len(rows), EVALUATION_BLOCK)):
        batch = task.evaluation_batch(*rows.block(start, device), "test", block)
        states.append(model.blocks(model.embed(batch.input)))
    return torch.cat(states)


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    return {f"{title} (of {found['width']})": found["ranks"][name] for name, title in READINGS.items()}


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Every reading as a share of the width."""
    figure, ((axis,),) = page(1, 1, width=6.4, height=2.8)
    shares = [found["ranks"][name] / found["width"] for name in READINGS]
    axis.barh(range(len(shares)), shares, 0.6, color=style(0)["color"])
    axis.set_yticks(range(len(shares)), list(READINGS.values()))
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    finish(axis, f"run {found['run']}, width {found['width']}", "effective rank / width", "")
    return [save(figure, folder / "effective_rank.png")]
