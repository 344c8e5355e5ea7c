"""Contributions: what every branch adds to the stream, how the loss depends on it, and what breaks without it.

On test rows, by place l, with r_l what the branch reads and u_l its update:

    update, read     mean lengths ‖u_l‖ and ‖r_l‖, of tokens where there are any
    dilution         mean of ‖u_l‖ / ‖r_l‖: small where an update is lost in the stream
    cosine           mean cosine of u_l and r_l: negative where an update erases
    gradient         mean of ‖∂loss/∂u_l‖, through all later branches, of the loss of one row
    lesion           the loss without the update (u_l = 0) minus the loss
    swap             the loss with branches l and l + 1 exchanged minus the loss; the pathway's own weights stay

An update of zero has no direction, so its cosine is null. The variation over depth (standard deviation / mean) of
‖u_l‖ and of the gradient says how evenly a pathway uses its depth; Attention Residuals (2026) claims to lower both.
Lesions and swaps are those of Residual Networks Behave Like Ensembles of Relatively Shallow Networks (Veit et al.,
2016).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isthmus.analysis.pictures import finish, page, save, style
from isthmus.analysis.places import Unrolled, Update, embed, read_out, refuse, unroll_model, walk
from isthmus.analysis.trained_run import Answer, TrainedRun, finite_values, store_results

SCHEMA = "isthmus.analysis.contributions/1"
ROWS = 64
Loss = Callable[[Tensor], Tensor]
"""The mean loss of the rows, given the stream after the last place."""


def applies(model: Any, task: str) -> str | None:
    return refuse(model)


@store_results(SCHEMA, applies)
def of_run(trained: TrainedRun) -> Answer:
    """Lengths, gradients, lesions and swaps by place."""
    model, task = trained.model, trained.task
    batch = next(trained.drawn_batches(ROWS, ROWS))

    def loss(stream: Tensor) -> Tensor:
        return task.loss(read_out(model, stream), batch.target)

    with torch.no_grad():
        x = embed(model, batch.input)
        unrolled = unroll_model(model, x)
        intact = float(loss(walk(unrolled, x).output))
        without = [value - intact for value in measure_lesions(unrolled, x, loss)]
        exchanged = [value - intact for value in measure_swaps(unrolled, x, loss)]
    return {
        "rows": len(batch.input),
        "model": trained.record.config["model"]["name"],
        "pathway": model.config.pathway.name,
        "places": [place.name for place in unrolled.places],
        "loss": finite_values(torch.tensor(intact)),
        **{name: finite_values(torch.stack(values)) for name, values in measure_lengths(unrolled, x, loss).items()},
        "lesion": finite_values(torch.tensor(without)),
        "swap": finite_values(torch.tensor(exchanged)),
    }


@torch.enable_grad()  # type: ignore[no-untyped-call,untyped-decorator]
def measure_lengths(unrolled: Unrolled, x: Tensor, loss: Loss) -> dict[str, list[Tensor]]:
    """Means over rows of lengths, angles and gradients, by place; they need one pass."""
    # Without a gradient in x, an update that depends on no trained weight would have none either.
    done = walk(unrolled, x.detach().requires_grad_())
    gradients = torch.autograd.grad(loss(done.output), done.updates, allow_unused=True, materialize_grads=True)
    found: dict[str, list[Tensor]] = {name: [] for name in ("update", "read", "dilution", "cosine", "gradient")}
    for read, update, gradient in zip(done.reads, done.updates, gradients, strict=True):
        r, u = read.detach().double(), update.detach().double()
        long, short = r.norm(dim=-1), u.norm(dim=-1)
        found["update"].append(short.mean())
        found["read"].append(long.mean())
        found["dilution"].append((short / long).mean())
        found["cosine"].append(((r * u).sum(-1) / (long * short)).nanmean())
        found["gradient"].append(len(x) * gradient.detach().double().norm(dim=-1).mean())
    return found


@torch.no_grad()
def measure_lesions(unrolled: Unrolled, x: Tensor, loss: Loss) -> list[float]:
    """The loss without the update of each place in turn."""
    branches = [place.branch for place in unrolled.places]

    def without(removed: int) -> Update:
        return lambda place, read: torch.zeros_like(read) if place == removed else branches[place].update(read)

    return [float(loss(walk(unrolled, x, without(place)).output)) for place in range(len(branches))]


@torch.no_grad()
def measure_swaps(unrolled: Unrolled, x: Tensor, loss: Loss) -> list[float]:
    """The loss with the branches of each two neighbours exchanged."""
    branches = [place.branch for place in unrolled.places]

    def exchange(first: int) -> Update:
        order = list(range(len(branches)))
        order[first : first + 2] = first + 1, first
        return lambda place, read: branches[order[place]].update(read)

    return [float(loss(walk(unrolled, x, exchange(place)).output)) for place in range(len(branches) - 1)]


def variation(values: Sequence[float | None]) -> float:
    """Standard deviation / mean, over depth."""
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else 0.0
    return statistics.pstdev(known) / mean if mean else float("nan")


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    def most(name: str, places: Sequence[str]) -> str:
        known = {place: value for place, value in zip(places, found[name], strict=False) if value is not None}
        if not known:
            return "–"
        worst = max(known, key=lambda place: known[place])
        return f"{known[worst]:.4g} ({worst}; mean {statistics.fmean(known.values()):.4g})"

    places = found["places"]
    pairs = [f"{first} and {second}" for first, second in pairwise(places)]
    return {
        "loss": "–" if found["loss"] is None else found["loss"],
        "largest rise of the loss by a lesion": most("lesion", places),
        "largest rise of the loss by a swap": most("swap", pairs),
        "variation of update lengths over depth": variation(found["update"]),
        "variation of gradients over depth": variation(found["gradient"]),
    }


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Lengths and dilution, direction, gradients, lesions and swaps, over depth."""
    figure, ((lengths_axis, dilution_axis), (gradient_axis, damage_axis)) = page(2, 2, width=5.0, height=3.6)
    x = "place"
    y = f"mean of {found['rows']} test rows"
    for look, (name, label) in enumerate({"read": "‖r‖, what is read", "update": "‖u‖, the update"}.items()):
        _curve(lengths_axis, found[name], look, label)
    lengths_axis.set_ylim(bottom=0)
    finish(lengths_axis, f"lengths: {found['model']}, {found['pathway']}", x, y)
    _curve(dilution_axis, found["dilution"], 2, "dilution ‖u‖ / ‖r‖")
    _curve(dilution_axis, found["cosine"], 3, "cosine of u and r")
    dilution_axis.axhline(0, color="#5b5b5b", linewidth=0.7)
    finish(dilution_axis, "dilution and direction", x, y)
    _curve(gradient_axis, found["gradient"], 4, None)
    gradient_axis.set_ylim(bottom=0)
    finish(gradient_axis, "‖∂loss/∂u‖", x, y)
    _curve(damage_axis, found["lesion"], 0, "without the update")
    _curve(damage_axis, found["swap"], 1, "exchanged with the next", shift=0.5)
    damage_axis.axhline(0, color="#5b5b5b", linewidth=0.7)
    finish(damage_axis, "rise of the loss", x, "change of the loss")
    return [save(figure, folder / "contributions.png")]


def _curve(axis: Any, values: Sequence[float | None], look: int, label: str | None, shift: float = 0.0) -> None:
    numbers = [float("nan") if value is None else value for value in values]
    axis.plot([1 + shift + i for i in range(len(numbers))], numbers, label=label, markersize=4, **style(look))
