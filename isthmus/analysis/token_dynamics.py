"""How tokens move over the iterations of Hyper-SET: energies, ranks and angles, by head, and tokens on the sphere.

Paper: Hyperspherical Energy Transformer with Recurrent Depth, Figures 1, 4, 5 and 9 to 12. Of the test rows, at every
iteration up to twice the trained number, and for every head, with tokens projected into its subspace:

    energy           E_ATTN of the head and E_FF, under the constraint (the projections are normalised first), eq. 2–4
    effective_rank   exp of the entropy of the normalised singular values, eq. 13
    full_rank        singular values above the usual tolerance
    angle            arccos of the mean cosine of two tokens, in degrees: eq. 14
    mean_of_angles   the mean of the arccos instead, which is what the authors' code takes
    sphere           the tokens of one row in the first head, on the three directions in which they vary most
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from isthmus.errors import UserError
from isthmus.files import read_sealed, write_sealed, write_with
from isthmus.loading import load, load_task
from isthmus.record import find_run, read_record
from isthmus.registry import component
from isthmus.run import load_data
from isthmus.training.loop import Rows

SCHEMA = "isthmus.analysis.token_dynamics/1"
ROWS = 64
Projected = Float[Tensor, "batch H N p"]


def applies(model: Any) -> str | None:
    """Why a model has none of this, or None."""
    layer = next(iter(getattr(model, "layers", ())), None)
    return None if hasattr(layer, "energies") else "it descends no energy"


def of_run(run: str | Path, data_dir: Path | None = None) -> dict[str, Any]:
    """Measured once: later calls answer from ``analysis/token_dynamics.json``."""
    folder = find_run(run)
    record = read_record(folder)
    path = folder / "analysis" / "token_dynamics.json"
    if path.is_file() and (known := read_sealed(path)).get("schema") == SCHEMA and known.get("run") == record.id:
        return known
    model: Any = load(folder)
    if reason := applies(model):
        raise UserError(f"run {record.id} is a {record.config['model']['name']}: {reason}")
    data = load_data(component("sources", record.config["source"]), data_dir)
    if data.fingerprint != record.fingerprint:
        raise UserError(f"run {record.id} was trained on other data than {record.config['source']['name']} is here")
    rows = Rows.of(data.test, torch.device("cpu"))
    index = torch.linspace(0, len(rows) - 1, min(ROWS, len(rows))).long()
    batch = load_task(folder).evaluation_batch(*rows.take(index, torch.device("cpu")), "test", 0)
    found = {"schema": SCHEMA, "run": record.id, "rows": len(index), **measured(model, batch.input)}
    write_sealed(path, found)
    return found


@torch.no_grad()
def measured(model: Any, x: Tensor) -> dict[str, Any]:
    """Every number at X_0 and after each iteration, up to twice the trained number, as means over rows."""
    trained = model.config.iterations
    iterations = 2 * trained
    curves: dict[str, list[Any]] = {}
    spheres: list[Any] = []
    directions = None
    for number, tokens in enumerate(model.states(x, iterations)):
        layer = model.layers[max(0, number - 1) // iterations]
        z = layer.attention.projected(tokens).double()
        now = {
            "attention_energy": layer.attention.energy(tokens).double().mean(dim=0).tolist(),
            "feed_forward_energy": float(layer.feed_forward.energy(tokens).double().mean()),
            **ranks(z),
            **angles(z),
        }
        for name, value in now.items():
            curves.setdefault(name, []).append(value)
        points = torch.nn.functional.normalize(z[0, 0], dim=-1)
        if directions is None:
            directions = torch.linalg.svd(points, full_matrices=False).Vh[:3]
        spheres.append(torch.nn.functional.normalize(points @ directions.mT, dim=-1).tolist())
    kept = [0, *(n for n in (trained // 2, trained, iterations) if n > 0)]
    return {
        "trained_iterations": trained,
        "layers": len(model.layers),
        "curves": curves,
        "sphere": {str(n): spheres[n] for n in dict.fromkeys(kept)},
    }


def ranks(z: Projected) -> dict[str, list[float]]:
    """Effective and full rank of the tokens of each head, means over rows."""
    values = torch.linalg.svdvals(z)
    shares = values / values.sum(dim=-1, keepdim=True).clamp(min=1e-300)
    effective = torch.special.entr(shares).sum(dim=-1).exp()
    tolerance = values[..., :1] * max(z.shape[-2:]) * torch.finfo(torch.float32).eps
    full = (values > tolerance).sum(dim=-1).double()
    return {"effective_rank": effective.mean(dim=0).tolist(), "full_rank": full.mean(dim=0).tolist()}


def angles(z: Projected) -> dict[str, list[float]]:
    """Both averages of the angle between two tokens of each head, in degrees, means over rows."""
    tokens = z.shape[-2]
    points = torch.nn.functional.normalize(z, dim=-1)
    pairs = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    cosines = (points @ points.mT)[..., pairs].clamp(-1, 1)
    found = {"angle": cosines.mean(dim=-1).arccos(), "mean_of_angles": cosines.arccos().mean(dim=-1)}
    return {name: value.rad2deg().mean(dim=0).tolist() for name, value in found.items()}


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    """From X_0 to the last trained iteration, means over heads."""
    end = found["trained_iterations"] * found["layers"] if found["layers"] == 1 else -1
    numbers: dict[str, float | str] = {}
    for name, curve in found["curves"].items():
        first, last = (
            value if isinstance(value, float) else sum(value) / len(value) for value in (curve[0], curve[end])
        )
        numbers[name.replace("_", " ")] = f"{first:.4g} → {last:.4g}"
    return numbers


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Curves over iterations, one line per head, and the tokens on their sphere."""
    return [_curves(found, folder / "token_dynamics.png"), _sphere(found, folder / "token_sphere.png")]


def _curves(found: Mapping[str, Any], path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7), layout="constrained")
    titles = {"attention_energy": "E_ATTN", "feed_forward_energy": "E_FF", "effective_rank": "effective rank",
              "full_rank": "full rank", "angle": "average angle (eq. 14), degrees",
              "mean_of_angles": "mean of the angles, degrees"}  # fmt: skip
    for axis, (name, title) in zip(figure.subplots(2, 3).flat, titles.items(), strict=True):
        axis.plot(found["curves"][name], linewidth=1.2)
        axis.axvline(found["trained_iterations"], color="#8a9099", linewidth=0.8, linestyle="--")
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("iteration")
        axis.spines[["top", "right"]].set_visible(False)
    write_with(path, lambda temporary: figure.savefig(temporary, format="png", dpi=150))
    return path


def _sphere(found: Mapping[str, Any], path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(found["sphere"]), 4), layout="constrained")
    for number, (iteration, points) in enumerate(found["sphere"].items(), start=1):
        axis: Any = figure.add_subplot(1, len(found["sphere"]), number, projection="3d")
        axis.scatter(*zip(*points, strict=True), s=12)
        axis.set_title(f"iteration {iteration}", fontsize=10)
        axis.set_box_aspect((1, 1, 1))
        for limits in (axis.set_xlim, axis.set_ylim, axis.set_zlim):
            limits(-1, 1)
    write_with(path, lambda temporary: figure.savefig(temporary, format="png", dpi=150))
    return path
