"""Minibatch CKA: how similar the features of two networks are, layer by layer.

    CKA(X, Y) = Σ_b HSIC(K_b, L_b) / √(Σ_b HSIC(K_b, K_b) · Σ_b HSIC(L_b, L_b)),   K_b = X_b X_bᵀ,  L_b = Y_b Y_bᵀ

over batches b of test rows, with the unbiased estimate of HSIC (Song et al. 2007; Nguyen et al. 2021, section 3.1).
Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida) compares a Mixer with sparse MLPs in this way
(Figure 2a–c). The features are the updates of the branches, flattened to one row per image: token and channel mixing
of a Mixer are two branches; a residual MLP's update is W2 h.

The unbiased estimate is an inner product of U-centred Gram matrices (Székely and Rizzo 2014), so each layer's matrix is
centred once per batch, all pairs of layers are one matrix product, and |CKA| ≤ 1 by Cauchy–Schwarz. An estimate below
zero (unrelated features) is not changed. Features that do not vary within any batch, or whose rows are all equally far
apart up to rounding, have a CKA of 0, even with themselves.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from isthmus.analysis.pictures import matrix, page, save
from isthmus.analysis.trained_run import Answer, TrainedRun, measure_once
from isthmus.core.errors import UserError
from isthmus.core.record import find_run, read_record
from isthmus.training.counting import example_input

Layers = Iterable[Tensor]
"""Features of one batch, layer by layer, each of (rows, …)."""

SCHEMA = "isthmus.analysis.cka/1"
UNTRAINED = "untrained"
"""Given for another run, this compares with the initial weights of the same run."""
BATCH = 128
ROWS = 10_000
LEAST = 4
"""Rows of a batch: the unbiased estimate divides by n − 3."""
_ROUNDING = 8
"""Features that vary by less than this many units in the last place are constant."""


def u_centred_gram(features: Float[Tensor, "rows ..."]) -> Float[Tensor, "rows rows"]:
    """X Xᵀ without its diagonal, minus the means of rows and columns, so that all rows sum to zero.

    In float64, because the result can be far smaller than X Xᵀ.
    """
    n = len(features)
    if n < LEAST:
        raise UserError(f"CKA needs batches of at least {LEAST} rows, not of {n}")
    x = features.detach().flatten(1)
    # At float32's precision or finer, because a few rows of bfloat16 would always count as equidistant.
    rounding = _ROUNDING * min(torch.finfo(x.dtype).eps, torch.finfo(torch.float32).eps)
    x = x.double()
    if not bool(x.isfinite().all()):
        raise UserError("CKA needs finite features; this network overflows on the test rows")
    centred = x - x.mean(dim=0)  # avoids cancellation under a large mean, and does not change the result
    if float(centred.norm()) <= rounding * float(x.norm()):
        return x.new_zeros(n, n)
    gram = centred @ centred.mT
    size = float(gram.norm())
    sums = gram.fill_diagonal_(0).sum(dim=0) / (n - 2)
    gram -= sums[:, None] + sums[None, :] - sums.sum() / (n - 1)
    gram.fill_diagonal_(0)
    return gram if float(gram.norm()) > rounding * size else torch.zeros_like(gram)


def cka(first: Iterable[Layers], second: Iterable[Layers] | None = None) -> Float[Tensor, "first second"]:
    """CKA of all layers of one network with all of another, or of itself; both are given batch by batch."""
    sums: list[Tensor] | None = None
    pairs = ((some, None) for some in first) if second is None else zip(first, second, strict=True)
    for some, others in pairs:
        x = _centred_grams(some)
        y = x if others is None else _centred_grams(others)
        if x.shape[1] != y.shape[1]:
            raise UserError("CKA compares features of the same rows; these batches have different numbers of rows")
        n = round(x.shape[1] ** 0.5)
        hsic = [product / (n * (n - 3)) for product in (x @ y.mT, x.square().sum(1), y.square().sum(1))]
        sums = hsic if sums is None else [total + part for total, part in zip(sums, hsic, strict=True)]
    if sums is None:
        raise UserError(f"CKA needs at least one batch of {LEAST} rows")
    between, of_first, of_second = sums
    scale = of_first.sqrt()[:, None] * of_second.sqrt()[None, :]
    return torch.where(scale > 0, between / scale.where(scale > 0, 1.0), 0.0).clamp(-1, 1)


def _centred_grams(layers: Layers) -> Float[Tensor, "layers entries"]:
    """Layer by layer, so that only Gram matrices are kept in memory."""
    return torch.stack([u_centred_gram(features).flatten() for features in layers])


def applies(model: Any, task: str) -> str | None:
    return None if hasattr(model, "steps") else "it has no residual branches"


@torch.no_grad()
def _names(model: Any) -> list[str]:
    return [step.name for step in model.steps(example_input(model))]


def of_run(run: str | Path, data_dir: Path | None = None, against: str | Path | None = None) -> Answer:
    """CKA of a run's layers with each other, with those of another run on the same data, or with its initial ones."""
    own = read_record(find_run(run)).id
    name = own if against is None else UNTRAINED if against == UNTRAINED else read_record(find_run(against)).id

    def measure(one: TrainedRun) -> Answer:
        other = None if name == own else one.load_initial() if name == UNTRAINED else TrainedRun(str(against), data_dir)
        return {"against": name, **_compare(one, other)}

    return measure_once(run, "cka" if name == own else f"cka-{name}", SCHEMA, measure, applies, data_dir)


@torch.no_grad()
def _compare(one: TrainedRun, other: TrainedRun | None) -> Answer:
    both = (one, other or one)
    both[1].need(applies, "cka")
    if one.data.fingerprint != both[1].data.fingerprint:
        raise UserError(
            f"CKA compares networks on the same rows; runs {one.record.id} and {both[1].record.id} were trained on "
            f"different data: {one.record.config['source']['name']} and {both[1].record.config['source']['name']}"
        )
    values = cka(_features(one), None if other is None else _features(other))
    layers, layers_against = _names(one.model), _names(both[1].model)
    square = len(layers) == len(layers_against)
    return {
        "rows": min(ROWS, len(one.data.test)),
        "batch": BATCH,
        "models": [each.record.config["model"]["name"] for each in both],
        "layers": layers,
        "layers_against": layers_against,
        "cka": values.tolist(),
        "mean_diagonal": float(values.diagonal().mean()) if square else None,
    }


def _features(trained: TrainedRun) -> Iterator[Layers]:
    for x in trained.test_inputs(ROWS, BATCH, LEAST):
        yield (step.update for step in trained.model.steps(x))


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    values, mean = found["cka"], found["mean_diagonal"]
    compared = {"compared with": "itself" if found["against"] == found["run"] else found["against"]}
    if mean is None:
        diagonal = f"– ({len(values)} layers against {len(values[0])})"
        average = statistics.fmean(value for line in values for value in line)
        return compared | {"mean of the diagonal": diagonal, "mean of all pairs": average}
    others = [value for i, line in enumerate(values) for j, value in enumerate(line) if i != j]
    beside = {"mean beside the diagonal": statistics.fmean(others)} if others else {}
    return compared | {"mean of the diagonal": mean} | beside


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """The matrix of CKA, the first layers at the lower left, as in Figure 2(b)."""
    columns, rows = found["layers"], found["layers_against"]
    figure, ((axis,),) = page(1, 1, 2.6 + 0.28 * len(columns), 2.2 + 0.28 * len(rows))
    transposed = list(zip(*found["cka"], strict=True))
    image = matrix(axis, transposed, "CKA of block outputs", vmin=0, vmax=1, cmap="magma", origin="lower")
    axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
    axis.set_yticks(range(len(rows)), rows, fontsize=7)
    axis.set_xlabel(f"{found['models'][0]} {found['run']}", fontsize=8)
    axis.set_ylabel(f"{found['models'][1]} {found['against']}", fontsize=8)
    figure.colorbar(image, ax=axis)
    alone = found["against"] == found["run"]
    return [save(figure, folder / ("cka.png" if alone else f"cka-{found['against']}.png"))]
