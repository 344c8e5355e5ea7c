"""Largest singular values of mixing and masked weights, compared with random-matrix theory for their initial values.

Paper: Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), section 4.3, Figure 4 (right), Figure S.1.

    of_run           every weight of a trained mixer or SW-MLP: trained, initial, and the theory's edge
    of_widths        random weights of several widths at equal Ω: SW-MLP, Mixer, and both edges (Figure 4, right)
    of_exponents     random square masked weights of m = Ω^((1+a)/2), p = Ω^−a, scaled to a mean diagonal of 1 in Z Zᵀ
                     (Figure S.1, centre and right)

The edge of an initial weight with r rows, c columns and variance v is √(v c) (1 + √(r/c)) for every initialisation,
where v c is ‖W‖²/r; the corrected eq. (17) adds the effect of a mask. J2 (I ⊗ W) J1 has the singular values of W, so W
of a mixer is measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.sparse.linalg import eigsh
from torch import Tensor

import isthmus.analysis.shape_theory as theory
from isthmus.analysis.pictures import finish, page, save, style
from isthmus.analysis.steps import Layer, entries, steps_of
from isthmus.analysis.trained_run import CPU, Answer, TrainedRun, store_results
from isthmus.core.draws import key, numpy_generator
from isthmus.layers.sparse_linear import SparseLinear, positions

SCHEMA = "isthmus.analysis.singular_values/1"
_DENSE = 512
"""Up to this side, computing the whole spectrum is faster than iterating."""


def largest_singular_value(matrix: sparse.csr_array | Float[Tensor, "rows columns"]) -> float:
    """In float64, by iteration on the smaller Gram matrix, which is never formed; 0 for a matrix without entries."""
    if isinstance(matrix, Tensor):
        matrix = sparse.csr_array(matrix.detach().double().cpu().numpy())
    matrix = _without_empty_lines(matrix.astype(np.float64))
    if matrix.nnz == 0:
        return 0.0
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T.tocsr()
    if tall.shape[1] <= _DENSE:
        return math.sqrt(max(0.0, float(np.linalg.eigvalsh((tall.T @ tall).toarray())[-1])))
    gram = sparse.linalg.LinearOperator((tall.shape[1],) * 2, matvec=lambda v: tall.T @ (tall @ v), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(tall.shape[1])
    (largest,) = eigsh(gram, k=1, which="LA", v0=start, tol=1e-7, return_eigenvectors=False)
    return math.sqrt(float(largest))


def singular_values(matrix: sparse.csr_array) -> np.ndarray:
    """All singular values but those of empty rows and columns, descending."""
    compact = _without_empty_lines(matrix).toarray()
    return np.linalg.svd(compact, compute_uv=False) if compact.size else np.zeros(0)


def _without_empty_lines(matrix: sparse.csr_array) -> sparse.csr_array:
    """Most rows and columns of a very sparse matrix are empty and add only zero singular values."""
    rows = np.flatnonzero(np.diff(matrix.indptr))
    columns = np.unique(matrix.indices)
    return matrix[rows][:, columns]


def masked_weight(rows: int, columns: int, p: float, seed: int) -> sparse.csr_array:
    """M ⊙ A of section 4.3: entries N(0, 1/columns), times a Bernoulli(p) mask with the value 1/√p."""
    flat = positions(rows, columns, p, seed, "drawn").numpy()
    values = numpy_generator(seed, "masked weight").standard_normal(len(flat)) / math.sqrt(p * columns)
    return sparse.csr_array((values, (flat // columns, flat % columns)), shape=(rows, columns))


def applies(model: Any, task: str) -> str | None:
    return None if steps_of(model) else "it has no mixing and no masked weights"


@store_results(SCHEMA, applies, CPU)  # reads weights one by one
def of_run(trained: TrainedRun) -> Answer:
    """Every weight of a finished run; needs no data."""
    start = _layers(trained.load_initial().model)
    lines = [_line(name, layer, start[name]) for name, layer in _layers(trained.model).items()]
    return {"model": trained.record.config["model"]["name"], "layers": lines}


def _layers(model: Any) -> dict[str, Layer]:
    """By names such as ``token_1.fc1``."""
    named = ((step.name, name, layer) for step in steps_of(model) for name, layer in step.layers.items())
    return {f"{step}.{name}".removesuffix("."): layer for step, name, layer in named}


def _line(name: str, layer: Layer, start: Layer) -> dict[str, Any]:
    drawn = _matrix(start)
    rows, columns = drawn.shape
    p = start.density if isinstance(start, SparseLinear) else 1.0
    scale = math.sqrt(float((drawn.data**2).sum()) / rows)
    return {
        "layer": name,
        "rows": rows,
        "columns": columns,
        "p": p,
        "trained": largest_singular_value(_matrix(layer)),
        "start": largest_singular_value(drawn),
        "edge": scale * theory.sparse_edge(columns, p, rows / columns),
        "dense_edge": scale * theory.dense_edge(rows / columns),
    }


def _matrix(layer: Layer) -> sparse.csr_array:
    """W of a mixing layer; M ⊙ W with the scale of the mask, without zeros, of a masked one."""
    if not isinstance(layer, SparseLinear):
        return sparse.csr_array(layer.weight.detach().double().numpy())
    (part,) = entries(layer)
    places = (part.rows.numpy(), part.columns.numpy())
    return sparse.csr_array((part.values.double().numpy(), places), shape=(layer.rows, layer.columns))


def of_widths(pairs: Iterable[tuple[int, int]], omega: float, gamma: float, trials: int) -> Answer:
    """For (S, C) pairs of Ω connections: the first matrix of an SW-MLP of width S C, and those of the Mixer."""
    lines = []
    for S, C in pairs:
        m, p = S * C, min(1.0, theory.density(S * C, omega, gamma))
        masked = [
            largest_singular_value(masked_weight(round(gamma * m), m, p, key(0, f"{S}×{C}", trial)))
            for trial in range(trials)
        ]
        mixing = [
            largest_singular_value(masked_weight(round(gamma * side), side, 1.0, key(0, f"{S}×{C}/{side}", trial)))
            for trial in range(trials)
            for side in (S, C)
        ]
        lines.append(
            {
                "S": S, "C": C, "m": m, "width": round(gamma * m), "p": p,
                "sw_mlp": _summary(masked),
                "mixer": _summary(mixing),
                "edge": theory.sparse_edge(m, p, gamma),
                "printed_edge": math.sqrt(theory.printed_squared_edge(m, p, gamma)),
            }
        )  # fmt: skip
    return {"omega": omega, "gamma": gamma, "trials": trials, "dense_edge": theory.dense_edge(gamma), "widths": lines}


def of_exponents(exponents: Iterable[float], omega: float, trials: int) -> Answer:
    """For the scalings a of appendix D.1: the largest singular value, and all values of the last trial."""
    lines = []
    for a in exponents:
        m, p = theory.scaled_sparse_shape(omega, a)
        size = round(m)
        weights = [masked_weight(size, size, p, key(0, f"exponent {a}", trial)) for trial in range(trials)]
        scales = [math.sqrt(float((weight.data**2).sum()) / size) or 1.0 for weight in weights]
        largest = [largest_singular_value(weight) / scale for weight, scale in zip(weights, scales, strict=True)]
        values = (singular_values(weights[-1]) / scales[-1]).round(4).tolist()
        lines.append({"a": a, "m": size, "p": p, "largest": _summary(largest), "values": values})
    return {"omega": omega, "trials": trials, "exponents": lines}


def _summary(values: list[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    lines = found["layers"]
    start = [line["start"] / line["edge"] for line in lines]
    trained = [line["trained"] / line["edge"] for line in lines]
    return {
        "at the start, over the edge": statistics.fmean(start),
        "trained, over the edge": statistics.fmean(trained),
        "largest of all": max(line["trained"] for line in lines),
    }


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """The largest singular value of each layer before and after training, with the theory's edge."""
    lines = found["layers"]
    figure, ((axis,),) = page(1, 1, width=max(4.6, 2.4 + 0.3 * len(lines)))
    places = range(len(lines))
    for place, (name, title) in enumerate((("trained", "trained"), ("start", "at the start"))):
        axis.plot(places, [line[name] for line in lines], linestyle="none", label=title, **style(place))
    masked = any(line["p"] < 1 for line in lines)  # only a mask makes the two edges different
    edges = {"edge": ("edge (eq. 17)", "-"), "dense_edge": ("dense edge", ":")} if masked else {"edge": ("edge", "-")}
    for name, (title, look) in edges.items():
        values = [line[name] for line in lines]
        axis.step(places, values, where="mid", color=style(4)["color"], linestyle=look, linewidth=1.2, label=title)
    axis.set_xticks(places, [line["layer"] for line in lines], rotation=90, fontsize=7)
    axis.set_ylim(bottom=0)
    finish(axis, f"{found['model']} {found['run']}", "", "largest singular value")
    return [save(figure, folder / "singular_values.png")]
