"""Every pathway against plain: time of forward and backward, saved and kept numbers, parameters and multiply–adds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.analysis.ratios import compare_times
from isthmus.core.registry import create_model
from isthmus.training.counting import cost, count_kept
from isthmus.training.devices import arithmetic

D_Z, BATCH = 256, 128
WIDTHS = {16: 1, 64: 2, 4 * D_Z: 8}
"""Of the computation: a narrow hourglass, an hourglass, and a conventional block. Wide blocks take longer, so their
stacks are so many times shallower."""
BARS = {
    "delayed/ladder": 1.05, "delayed/groups-4": 1.05, "reversible": 1.05, "scaled": 1.05, "gained/rezero": 1.3,
    "gained/layer-scale": 1.3, "injected": 1.3, "delta": 2.0, "streams/static-2": 2.0, "attended/blocks-8": 2.0,
    "streams/mhc-4": 6.0,
}  # fmt: skip
"""At most so long may forward and backward take, of plain's, at d_h = 16 and depth 256."""
OTHERS = (
    "none", "reversible/recomputed", "highway", "post_norm/deepnorm", "peri_norm", "spherical", "mobius",
    "delta/erase-and-add", "weighted", "attended/full", "streams/hyper-4", "streams/mhc-lite-4",
)  # fmt: skip


def measure(
    rounds: int, threads: int, depth: int, names: tuple[str, ...] = (), known: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Rows with all ratios to plain, for the given pathways or all of them, without those whose titles are known."""
    x = torch.randn(BATCH, D_Z, generator=torch.Generator().manual_seed(0))
    with arithmetic(threads):
        for d_h, shallower in WIDTHS.items():
            fields: dict[str, Any] = {"d_in": D_Z, "d_out": D_Z, "d_z": D_Z, "d_h": d_h, "allow_any_shape": True}
            fields |= {"depth": max(1, depth // shallower), "init": "depth_scaled_w2"}
            plain = create_model("hourglass_mlp", **fields)
            for name in names or (*BARS, *OTHERS):
                if (title := f"{name}, d_h {d_h}") not in known:
                    other = create_model("hourglass_mlp", **fields, pathway=name)
                    bar = BARS.get(name) if d_h == min(WIDTHS) else None
                    yield {"pathway": title, "depth": fields["depth"], **_compare(other, plain, x, rounds, bar)}


def _compare(model: nn.Module, plain: nn.Module, x: Tensor, rounds: int, bar: float | None) -> dict[str, Any]:
    timed = compare_times("pass", _pass(model, x), _pass(plain, x), rounds, bar or float("inf"))
    ours, rivals = cost(model), cost(plain)
    kept, before = count_kept(model), count_kept(plain)
    return {
        "time": timed["ratio"],
        "bar": bar,
        "saved values": round(kept.saved_values / before.saved_values, 3),
        "stream values": round(kept.stream_values / before.stream_values, 3),
        "params": round(ours.params / rivals.params, 3),
        "macs": round(ours.macs / rivals.macs, 3),
        "load": timed["load after"],
    }


def _pass(model: nn.Module, x: Tensor) -> Callable[[], None]:
    def forward_and_backward() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    return forward_and_backward
