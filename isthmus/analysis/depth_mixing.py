"""Depth mixing: how much of every earlier update a branch reads.

    r_l = Σ_i A_{l,i} u_i,    u_0 = x_0 the embedded input, u_{l+1} the update of the branch that reads r_l

Every pathway is such a lower-triangular matrix A (``docs/pathways.md``). On test rows, the recorded updates are
replayed through the pathway, and what is read is differentiated by a factor c_i of every update at c = 1:

    A_{l,i} = ⟨∂r_l/∂c_i, u_i⟩ / ‖u_i‖²

Gates and norms that depend on a row are held constant, so this is A itself for a pathway with scalar entries, static or
not (plain, delayed, weighted, attended, streams, …). Of a diagonal or an operator (``gained`` by channel, highway,
delta) it is the component along the update. The last row of A is the output. From |A|, as means over rows, with
p_i = |A_{l,i}| / Σ_i |A_{l,i}|:

    entropy        −Σ p_i ln p_i, at most ln(l + 1)
    reach          Σ p_i (l − i): over how many updates a branch reaches back on average
    input_share    p_0, the share of x_0

A source whose update is zero on all rows has no entries (null).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from isthmus.analysis.pictures import finish, matrix, page, save, style
from isthmus.analysis.places import Unrolled, differentiate_forward, embed, refuse, unroll_model, walk
from isthmus.analysis.trained_run import Answer, TrainedRun, finite_values, store_results
from isthmus.pathways.pathway import hold_gates

SCHEMA = "isthmus.analysis.depth_mixing/1"
ROWS = 32
CHUNK = 16
"""Sources that are differentiated together: a limit of memory."""


def applies(model: Any, task: str) -> str | None:
    return refuse(model)


@store_results(SCHEMA, applies)
def of_run(trained: TrainedRun) -> Answer:
    """|A| of test rows, and its entropy, reach and share of the input."""
    x = next(trained.test_inputs(ROWS, ROWS))
    with torch.no_grad():
        stream = embed(trained.model, x)
        unrolled = unroll_model(trained.model, stream)
        A = compute_mixing(unrolled, stream)
    size = A.abs().flatten(2).double().nanmean(-1)
    return {
        "rows": len(x),
        "model": trained.record.config["model"]["name"],
        "pathway": trained.model.config.pathway.name,
        "places": [*(place.name for place in unrolled.places), "output"],
        "mixing": finite_values(size),
        **{name: finite_values(values) for name, values in describe(size).items()},
    }


@torch.no_grad()
def compute_mixing(unrolled: Unrolled, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "reads sources *batch"]:
    """A_{l,i} of every row; NaN where an update is zero."""
    sources = torch.stack([x, *walk(unrolled, x).updates])

    def reads(factors: Tensor) -> tuple[Tensor, ...]:
        replayed = walk(unrolled, factors[0] * x, lambda place, _: factors[place + 1] * sources[place + 1])
        return (*replayed.reads, replayed.output)

    def entries(direction: Tensor, source: Tensor) -> Tensor:
        """The column of A that belongs to one source."""
        changes = torch.func.jvp(reads, (torch.ones_like(direction),), (direction,))[1]
        squared = source.square().sum(-1)
        return torch.stack([(change * source).sum(-1) for change in changes]) / squared

    with hold_gates(), differentiate_forward():
        each = torch.vmap(entries, chunk_size=CHUNK)(torch.eye(len(sources)).to(sources), sources)
    return each.transpose(0, 1)


def describe(size: Float[Tensor, "reads sources"]) -> dict[str, Tensor]:
    """Entropy, reach and share of the input of every row of |A|."""
    known = size.nan_to_num(0.0)
    shares = known / known.sum(1, keepdim=True)
    source = torch.arange(len(size), device=size.device)
    place = source[:, None]
    return {
        "entropy": torch.special.entr(shares).sum(1),
        "reach": (shares * (place - source)).sum(1),
        "input_share": shares[:, 0],
    }


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    def last_and_mean(name: str) -> str:
        values = [value for value in found[name] if value is not None]
        return f"{values[-1]:.4g} (mean of all places {sum(values) / len(values):.4g})" if values else "–"

    return {
        "pathway": found["pathway"],
        "entropy of the output's row": last_and_mean("entropy"),
        "mean reach of the output": last_and_mean("reach"),
        "share of x_0 in the output": last_and_mean("input_share"),
    }


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """|A| as a heat map, and what each row says as curves."""
    figure, ((map_axis, curve_axis),) = page(1, 2, width=5.4, height=4.6)
    values = [[float("nan") if value is None else value for value in row] for row in found["mixing"]]
    shown = [[value if i <= place else float("nan") for i, value in enumerate(row)] for place, row in enumerate(values)]
    image = matrix(map_axis, shown, f"|A| of {found['model']}, {found['pathway']}", vmin=0, cmap="viridis")
    figure.colorbar(image, ax=map_axis, shrink=0.85)
    places = found["places"]
    step = max(1, len(places) // 12)
    ticks = range(0, len(places), step)
    map_axis.set_xticks(ticks, ["x_0" if i == 0 else places[i - 1] for i in ticks], rotation=90, fontsize=7)
    map_axis.set_yticks(ticks, [places[i] for i in ticks], fontsize=7)
    map_axis.set_xlabel("update of")
    map_axis.set_ylabel("read by")
    number = range(1, len(places) + 1)
    reach = curve_axis.twinx()
    curves = {"entropy": "entropy (nats)", "input_share": "share of x_0", "reach": "mean reach (right)"}
    lines = []
    for look, (name, label) in enumerate(curves.items()):
        axis = reach if name == "reach" else curve_axis
        lines += axis.plot(number, _numbers(found[name]), label=label, markersize=3, **style(look))
        axis.set_ylim(bottom=0)
    finish(curve_axis, "rows of A", "place; the last is the output", f"mean of {found['rows']} test rows")
    curve_axis.legend(handles=lines, frameon=False, fontsize=8, loc="upper left")
    return [save(figure, folder / "depth_mixing.png")]


def _numbers(values: list[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
