"""The Residual Expansion Theorem: how much of a trained network is a sum of shallow ones.

With every update multiplied by λ, the stream after the last place is F(λ) = F_0 + λ F_1 + λ² F_2 + O(λ³). For x + f(x):

    F_0 = x_0,    F_1 = Σ_i f_i(x_0),    F_2 = Σ_{i<j} Df_j(x_0) f_i(x_0)

Paper: On residual network depth (Dherin, Munn 2025). The terms of order k are paths through k branches. For any pathway
whose weights A are fixed, with r⁰_l = A_{l,0} x_0 (``docs/pathways.md``):

    F_1 = Σ_l A_{L,l+1} u¹_l,    u¹_l = f_l(r⁰_l)
    F_2 = Σ_l A_{L,l+1} u²_l,    u²_l = Df_l(r⁰_l) r¹_l,    r¹_l = Σ_{i<l} A_{l,i+1} u¹_i

On test rows, at λ = 1 (the trained network):

    share          Σ‖F − F_0 − … − F_k‖² / Σ‖F − F_0‖², what the orders up to k do not explain; at k = 0 it is 1
    size           mean of ‖F_k‖ / ‖F_0‖
    loss           of the readout of F_0 + … + F_k, and of the network itself
    shares         the share at other λ

Pathways with gates or norms have no such expansion, because their weights change with λ. Mixers compute with functions
of their own that torch cannot differentiate forward, so they are refused too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from isthmus.analysis.pictures import DASHED, finish, page, save, style
from isthmus.analysis.places import (
    Place,
    Unrolled,
    differentiate_forward,
    embed,
    read_out,
    refuse,
    unroll_model,
    walk,
)
from isthmus.analysis.trained_run import Answer, TrainedRun, finite_values, store_results
from isthmus.core.draws import torch_generator
from isthmus.training.counting import example_input

SCHEMA = "isthmus.analysis.expansion/1"
ROWS = 64
SCALES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
"""Values of λ."""
_TOLERANCE = 1e-4
"""Of a float32 sum with fixed weights."""


def applies(model: Any, task: str) -> str | None:
    if (reason := refuse(model)) is not None:
        return reason
    with torch.no_grad():
        x = embed(model, example_input(model))
    # One row is enough, and an example of zeros would hide what a gate does.
    x = torch.randn(x.shape, generator=torch_generator(0, "probe of a pathway")).to(x)
    unrolled = unroll_model(model, x)
    if not has_fixed_weights(unrolled, x):
        return f"its pathway {model.config.pathway.name} joins updates with weights that depend on the row"
    if not bool(walk(unrolled, x, lambda _, read: torch.zeros_like(read)).output.any()):
        return f"its pathway {model.config.pathway.name} has no skip from the input to the output"
    try:
        expand(unrolled, x)
    except RuntimeError:  # torch's, for a function that has only a written-out gradient
        return "its branches compute with functions that have no forward derivative"
    return None


@torch.no_grad()
def has_fixed_weights(unrolled: Unrolled, x: Tensor) -> bool:
    """Whether what is read is linear in the updates: that of a sum is the sum."""
    generator = torch_generator(0, "updates of a probe")
    draws = [[torch.randn(x.shape, generator=generator).to(x) for _ in unrolled.places] for _ in range(2)]
    total = [first + second for first, second in zip(*draws, strict=True)]

    def replay(start: Tensor, updates: list[Tensor]) -> list[Tensor]:
        replayed = walk(unrolled, start, lambda place, _: updates[place])
        return [*replayed.reads, replayed.output]

    one, other, both = replay(x, draws[0]), replay(x.flip(-1), draws[1]), replay(x + x.flip(-1), total)
    sums = zip(one, other, both, strict=True)
    return all(float((a + b - c).norm()) <= _TOLERANCE * float(a.norm() + b.norm()) for a, b, c in sums)


@store_results(SCHEMA, applies)
def of_run(trained: TrainedRun) -> Answer:
    """What orders 0, 1 and 2 explain."""
    model, task = trained.model, trained.task
    batch = next(trained.drawn_batches(ROWS, ROWS))
    with torch.no_grad():
        x = embed(model, batch.input)
        unrolled = unroll_model(model, x)
        orders = expand(unrolled, x)
        sums = [orders[0], orders[0] + orders[1], orders[0] + orders[1] + orders[2]]
        whole = walk(unrolled, x).output
        losses = [task.loss(read_out(model, stream), batch.target) for stream in (*sums, whole)]
        shares = [shares_beyond(orders, compute_scaled(unrolled, x, by), by) for by in SCALES]
    sizes = [(order.norm(dim=-1) / orders[0].norm(dim=-1)).mean() for order in orders]
    return {
        "rows": len(batch.input),
        "model": trained.record.config["model"]["name"],
        "pathway": model.config.pathway.name,
        "share": finite_values(shares_beyond(orders, whole, 1.0)),
        "size": finite_values(torch.stack(sizes)),
        "loss": finite_values(torch.stack(losses[:-1])),
        "loss_of_network": finite_values(losses[-1]),
        "scales": list(SCALES),
        "shares": finite_values(torch.stack(shares)),
    }


@torch.no_grad()
def expand(unrolled: Unrolled, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """F_0, F_1 and F_2."""
    places, nothing = unrolled.places, torch.zeros_like(x)
    start = walk(unrolled, x, lambda _, read: torch.zeros_like(read))
    first = [place.branch.update(read) for place, read in zip(places, start.reads, strict=True)]
    through_one = walk(unrolled, nothing, lambda place, _: first[place])
    second = [_derive(*three) for three in zip(places, start.reads, through_one.reads, strict=True)]
    return start.output, through_one.output, walk(unrolled, nothing, lambda place, _: second[place]).output


def _derive(place: Place, read: Tensor, direction: Tensor) -> Tensor:
    """Df(read) · direction. Fused attention has no forward derivative."""
    with differentiate_forward(), sdpa_kernel(SDPBackend.MATH):
        change: Tensor = torch.func.jvp(place.branch.update, (read,), (direction,))[1]
    return change


def compute_scaled(unrolled: Unrolled, x: Tensor, by: float) -> Tensor:
    """F(λ)."""
    return walk(unrolled, x, lambda place, read: by * unrolled.places[place].branch.update(read)).output


def shares_beyond(orders: tuple[Tensor, Tensor, Tensor], whole: Tensor, by: float) -> Tensor:
    """What the orders up to 0, 1 and 2 do not explain at λ; NaN if the branches change nothing."""
    rest, squares = whole.double(), []
    for number, order in enumerate(orders):
        rest = rest - by**number * order.double()
        squares.append(rest.square().sum())
    return torch.stack(squares) / squares[0]


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    def show(values: Any) -> str:
        return " / ".join("–" if value is None else f"{value:.4g}" for value in values)

    return {
        "share beyond orders 0 / 1 / 2": show(found["share"]),
        "size of orders 0 / 1 / 2": show(found["size"]),
        "loss of orders 0 / 1 / 2, and of the network": show([*found["loss"], found["loss_of_network"]]),
    }


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """The share that orders leave over λ, and the loss by order."""
    figure, ((share_axis, loss_axis),) = page(1, 2, width=4.8)
    for order in (1, 2):
        shares = [float("nan") if row[order] is None else row[order] for row in found["shares"]]
        share_axis.plot(found["scales"], shares, label=f"beyond order {order}", markersize=4, **style(order - 1))
    share_axis.set_xscale("log", base=2)
    if any(row[order] for row in found["shares"] for order in (1, 2)):  # else all are 0 or unknown
        share_axis.set_yscale("log")
    share_axis.axvline(1, **DASHED)
    title = f"{found['model']}, {found['pathway']}"
    finish(share_axis, title, "λ, factor of every update; dashed: as trained", "share not explained")
    losses = [float("nan") if value is None else value for value in (*found["loss"], found["loss_of_network"])]
    loss_axis.bar(["order 0", "≤ 1", "≤ 2", "network"], losses, color=style(0)["color"])
    finish(loss_axis, "loss of the orders", "", f"loss of {found['rows']} test rows")
    return [save(figure, folder / "expansion.png")]
