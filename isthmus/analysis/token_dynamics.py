"""How tokens move over the iterations of a model with recurrent depth: energies, ranks and angles by head.

Paper: Hyperspherical Energy Transformer with Recurrent Depth, Figures 1, 4, 5 and 9 to 12. On test rows, at X_0 and
after every iteration, with tokens projected into the subspace of each head:

    attention_energy      E_ATTN of each head, with normalised projections, eq. 2 and 3
    feed_forward_energy   E_FF, likewise, eq. 4
    effective_rank        exp of the entropy of the normalised singular values, eq. 13
    full_rank             singular values above the usual tolerance
    angle                 arccos of the mean cosine of two tokens, in degrees, eq. 14
    mean_of_angles        the mean of the arccos, as in the authors' code
    sphere                the tokens of one row in the first head, in the three directions in which they vary most

A model of one layer makes twice the trained number of iterations. With several layers, each makes as many as in
training and is measured with its own weights; the state between two layers is measured with both, because energies and
subspaces of different weights are not comparable. Other models than Hyper-SET have no energies; the subspaces are those
of CRATE's U and of a Transformer's values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from isthmus.analysis.pictures import DASHED, finish, page, save, style
from isthmus.analysis.trained_run import Answer, TrainedRun, measure_once, round_values
from isthmus.core.record import find_run, read_record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = "isthmus.analysis.token_dynamics/1"
SCHEMA_OF_LAYERS = "isthmus.analysis.token_dynamics/2"
"""For several layers: with ``starts``."""
ROWS = 64
TITLES = {
    "attention_energy": "E_ATTN, sum of heads",
    "feed_forward_energy": "E_FF",
    "effective_rank": "effective rank",
    "full_rank": "full rank",
    "angle": "average angle (degrees)",
    "mean_of_angles": "mean of the angles (degrees)",
}
Projected = Float[Tensor, "batch H N p"]


def applies(model: Any, task: str) -> str | None:
    layer = next(iter(getattr(model, "layers", ())), None)
    return None if hasattr(layer, "project") and hasattr(model, "states") else "it does not iterate on tokens"


def of_run(run: str | Path, data_dir: Path | None = None) -> Answer:
    """Curves over iterations."""

    def measure_run(trained: TrainedRun) -> Answer:
        inputs = next(trained.test_inputs(ROWS, ROWS))
        return {"rows": len(inputs), **measure(trained.model, inputs)}

    one = read_record(find_run(run)).config["model"].get("layers", 1) == 1
    schema = SCHEMA if one else SCHEMA_OF_LAYERS
    return measure_once(run, "token_dynamics", schema, measure_run, applies, data_dir)


@torch.no_grad()
def measure(model: Any, x: Tensor) -> Answer:
    """``curves[name][iteration]``, a number or one for each head, as means over rows; and the tokens on a sphere.

    For several layers also ``starts[name][layer]``: the initial state of a layer, measured with its own weights.
    """
    layers, trained = len(model.layers), model.config.iterations
    iterations = 2 * trained if layers == 1 else trained
    shown = [0, *dict.fromkeys(max(1, share) for share in (trained * layers // 2, trained * layers))]
    shown += [iterations] if layers == 1 else []
    states = model.states(x, iterations)
    tokens = next(states)
    measured, starts = [], []
    sphere: dict[str, Any] = {}
    for place, layer in enumerate(model.layers):
        starts.append(_numbers(layer, tokens))
        points = _points(layer, tokens)
        directions = torch.linalg.svd(points, full_matrices=False).Vh[:3]
        if place == 0:
            measured.append(starts[0])
            sphere["0"] = _on_sphere(points, directions)
        for number, tokens in enumerate(islice(states, iterations), start=place * iterations + 1):
            measured.append(_numbers(layer, tokens))
            if number in shown:
                sphere[str(number)] = _on_sphere(_points(layer, tokens), directions)
    found = {"trained_iterations": trained, "layers": layers, "curves": _by_name(measured), "sphere": sphere}
    return found if layers == 1 else found | {"starts": _by_name(starts)}


def _numbers(layer: Any, tokens: Tensor) -> dict[str, Any]:
    energies: dict[str, Any] = {}
    if hasattr(layer, "energies"):
        energies["attention_energy"] = layer.attention.energy(tokens).double().mean(dim=0).tolist()
        energies["feed_forward_energy"] = float(layer.feed_forward.energy(tokens).double().mean())
    z = layer.project(tokens).double()
    return energies | ranks(z) | angles(z)


def _by_name(measured: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [numbers[name] for numbers in measured] for name in measured[0]}


def _points(layer: Any, tokens: Tensor) -> Float[Tensor, "N p"]:
    """The first row's tokens in the first head, on the unit sphere."""
    return torch.nn.functional.normalize(layer.project(tokens)[0, 0].double(), dim=-1)


def _on_sphere(points: Float[Tensor, "N p"], directions: Float[Tensor, "k p"]) -> Any:
    """Three coordinates per point; those of a head of width 1 or 2 are on a line or circle."""
    coordinates = torch.nn.functional.normalize(points @ directions.mT, dim=-1)
    return round_values(torch.nn.functional.pad(coordinates, (0, 3 - coordinates.shape[1])))


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
    pairs = torch.ones(tokens, tokens, dtype=torch.bool, device=z.device).triu(1)
    cosines = (points @ points.mT)[..., pairs].clamp(-1, 1)
    found = {"angle": cosines.mean(dim=-1).arccos(), "mean_of_angles": cosines.arccos().mean(dim=-1)}
    return {name: value.rad2deg().mean(dim=0).tolist() for name, value in found.items()}


def line(found: Mapping[str, Any], name: str) -> list[float]:
    """One number for each iteration: the sum over heads of the attention's energy, the mean of all else."""
    return [_total(name, value) for value in found["curves"][name]]


def _total(name: str, value: Any) -> float:
    heads = value if isinstance(value, list) else [value]
    return float(sum(heads) / (1 if name == "attention_energy" else len(heads)))


def spans(found: Mapping[str, Any], name: str) -> list[tuple[range, list[Any]]]:
    """The iterations of each layer, including its initial state, and their values with the layer's own weights."""
    values, size = found["curves"][name], found["trained_iterations"]
    if found["layers"] == 1:
        return [(range(len(values)), values)]
    parts = []
    for layer, start in enumerate(found["starts"][name]):
        steps = range(layer * size, (layer + 1) * size + 1)
        parts.append((steps, [start, *values[steps.start + 1 : steps.stop]]))
    return parts


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    """From X_0 to the last iteration of the training, means over heads; and how many iterations lower an energy.

    For several layers only these iterations are counted, because energies of different layers are not comparable.
    """
    end = found["trained_iterations"] * found["layers"]
    numbers: dict[str, float | str] = {}
    for name in found["curves"]:
        values = line(found, name)[: end + 1]
        said = [f"{values[0]:.4g} → {values[-1]:.4g}"]
        if name.endswith("energy"):
            parts = [[_total(name, value) for value in part] for _, part in spans(found, name)]
            pairs = [pair for part in parts for pair in pairwise(part[: found["trained_iterations"] + 1])]
            down = sum(after < before for before, after in pairs)
            said = [*(said if found["layers"] == 1 else ()), f"{down} of {end} iterations lower it"]
        numbers[TITLES[name]] = ", ".join(said)
    return numbers


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Figure 4 if there are energies, Figures 5 and 9 to 12 with a line for each head, and Figure 1."""
    energies = [name for name in found["curves"] if name.endswith("energy")]
    others = [name for name in found["curves"] if name not in energies]
    files = [_curves(found, energies, folder / "token_dynamics-energy.png")] if energies else []
    files.append(_curves(found, others, folder / "token_dynamics-heads.png"))
    return [*files, save(on_spheres(found["sphere"]), folder / "token_dynamics-sphere.png")]


def _curves(found: Mapping[str, Any], names: Sequence[str], path: Path) -> Path:
    figure, axes = page(len(names) // 2, 2, width=5.2)
    for axis, name in zip((axis for row in axes for axis in row), names, strict=True):
        is_energy = name.endswith("energy")
        for layer, (iterations, values) in enumerate(spans(found, name)):
            heads = [[_total(name, value) for value in values]] if is_energy else zip(*values, strict=True)
            for head, curve in enumerate(heads):
                label = None if layer or is_energy else f"head {head + 1}"
                axis.plot(iterations, curve, linewidth=1.2, color=style(head)["color"], label=label)
        axis.axvline(found["trained_iterations"] * found["layers"], **DASHED)
        finish(axis, TITLES[name], "iteration; dashed: the last in training", f"mean of {found['rows']} test rows")
    return save(figure, path)


def on_spheres(shown: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """The three coordinates of the tokens, on a sphere for each iteration shown."""
    figure, (axes,) = page(1, len(shown), 3.6, 4.2, projection="3d")
    axis: Any
    for axis, (iteration, points) in zip(axes, shown.items(), strict=True):
        axis.scatter(*zip(*points, strict=True), s=12, color=style(0)["color"])
        axis.set_title(f"iteration {iteration}", fontsize=10)
        axis.set_box_aspect((1, 1, 1))
        axis.set(**{f"{name}lim": (-1, 1) for name in "xyz"}, **{f"{name}ticks": [-1, 0, 1] for name in "xyz"})
    return figure
