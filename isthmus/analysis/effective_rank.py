"""Effective rank: the number of directions over which the singular values of a matrix are spread.

    erank(A) = exp(−Σ pᵢ log pᵢ),  pᵢ = σᵢ / Σ σⱼ            (Roy and Vetterli 2007)

It is 1 for one direction and n for n equal ones. The Hourglass paper prints it for one network of each shape (Table 1)
and does not name the matrix. These are the likely ones:

    z_L              the last residual state of every test row
    z_L_centred      z_L minus its mean over the rows
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
from isthmus.analysis.trained_run import Answer, TrainedRun, store_results

SCHEMA = "isthmus.analysis.effective_rank/1"
READINGS = {
    "z_L": "z_L over the test rows",
    "z_L_centred": "z_L over the test rows, centred",
    "W_out": "W_out",
    "W2W1_mean": "W_2 W_1, mean of the blocks",
    "W2W1_last": "W_2 W_1 of the last block",
}


def effective_rank(matrix: Float[Tensor, "rows columns"]) -> float:
    """exp of the entropy of the normalised singular values, in float64; 0 for a matrix of zeros."""
    matrix = matrix.detach().to("cpu", torch.float64)
    if matrix.shape[0] > matrix.shape[1]:
        matrix = torch.linalg.qr(matrix, mode="r").R  # has the same singular values and fewer rows
    values = torch.linalg.svdvals(matrix)
    if not values.sum() > 0:
        return 0.0
    return float(torch.special.entr(values / values.sum()).sum().exp())


def applies(model: Any, task: str) -> str | None:
    parts = all(hasattr(model, name) for name in ("embed", "blocks", "W_out"))
    if not parts or not all(hasattr(block, "W1") and hasattr(block, "W2") for block in model.blocks):
        return "it has no W_out, W_1 and W_2"
    return None


@store_results(SCHEMA, applies)
@torch.no_grad()
def of_run(trained: TrainedRun) -> Answer:
    """All effective ranks of a finished run."""
    model = trained.model
    products = [effective_rank(block.W2.weight.double() @ block.W1.weight.double()) for block in model.blocks]
    z = torch.cat([model.blocks(model.embed(batch.input)) for batch in trained.test_batches()]).double()
    ranks = {
        "W_out": effective_rank(model.W_out.weight),
        "W2W1_mean": statistics.fmean(products),
        "W2W1_last": products[-1],
        "z_L": effective_rank(z),
        "z_L_centred": effective_rank(z - z.mean(dim=0)),
    }
    return {"rows": len(z), "width": model.W_out.weight.shape[1], "ranks": ranks}


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    return {f"{title} (of {found['width']})": found["ranks"][name] for name, title in READINGS.items()}


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """All ranks as shares of the width."""
    figure, ((axis,),) = page(1, 1, width=6.4, height=2.8)
    shares = [found["ranks"][name] / found["width"] for name in READINGS]
    axis.barh(range(len(shares)), shares, 0.6, color=style(0)["color"])
    axis.set_yticks(range(len(shares)), list(READINGS.values()))
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    finish(axis, f"run {found['run']}, width {found['width']}", "effective rank / width", "")
    return [save(figure, folder / "effective_rank.png")]
