"""Every pathway against plain: time of forward and backward, saved and kept numbers, parameters and multiply–adds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.analysis.ratios import compare_times
from isthmus.core.registry import create_model
from isthmus.training.counting import cost, count_kept
from isthmus.training.run import arithmetic

D_Z, BATCH = 256, 128
WIDTHS = {16: (1.0, 3), 64: (0.6, 2), 4 * D_Z: (0.2, 1)}
"""Widths of the computation: a narrow hourglass, an hourglass, and a conventional block; with each, the share of the
rounds and the calls of a round that are timed. Calls of wide blocks take long, and depend less on the pathway."""
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
        for d_h, (share, calls) in WIDTHS.items():
            fields = {"d_in": D_Z, "d_out": D_Z, "d_z": D_Z, "d_h": d_h, "depth": depth, "init": "depth_scaled_w2"}
            plain = create_model("hourglass_mlp", **fields, allow_any_shape=True)
            for name in names or (*BARS, *OTHERS):
                if (title := f"{name}, d_h {d_h}") not in known:
                    other = create_model("hourglass_mlp", **fields, allow_any_shape=True, pathway=name)
                    bar = BARS.get(name, float("inf")) if d_h == min(WIDTHS) else float("inf")
                    yield _compare(title, other, plain, x, max(1, round(share * rounds)), calls, bar)


def _compare(
    title: str, model: nn.Module, plain: nn.Module, x: Tensor, rounds: int, calls: int, bar: float
) -> dict[str, Any]:
    timed = compare_times(title, _pass(model, x), _pass(plain, x), rounds, bar, calls)
    ours, rivals = cost(model), cost(plain)
    kept, before = count_kept(model), count_kept(plain)
    return {
        "pathway": title,
        "time": timed["ratio"],
        "bar": timed["bar"] if bar < float("inf") else None,
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
