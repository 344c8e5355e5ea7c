"""Hyper-SET's arithmetic against its rivals, in one interleaved run: each line is a ratio with the bar it must meet.

- One softmax and a transpose instead of the formula's two softmaxes, per forward call of the attention.
- Attention that is streamed over rows instead of formed whole: peak memory of forward and backward in processes of
  their own, less what each had before.
- One iteration of Hyper-SET with M = d against one of a Transformer of the same width, forward and in training.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isthmus.layers.symmetric_attention import explicit_attention, streamed_attention

BATCH, TOKENS, HEADS, WIDTH = 16, 197, 6, 64
MANY_TOKENS = 4096


def two_softmaxes(z: Tensor) -> Tensor:
    """The formula as it is printed."""
    scores = z @ z.mT * z.shape[-1] ** -0.5
    return (scores.softmax(dim=-1) + scores.softmax(dim=-2)) @ z


def measure(repeats: int, threads: int) -> list[dict[str, Any]]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return [_softmaxes(repeats), _memory(), _iterations(repeats, False), _iterations(repeats, True)]
    finally:
        torch.set_num_threads(before)


def _line(measured: str, ours: float, rival: float, unit: str, ratio: float, bar: str) -> dict[str, Any]:
    load = round(os.getloadavg()[0], 2)
    return {
        "measured": measured,
        unit: f"{ours:.4g} against {rival:.4g}",
        "ratio": round(ratio, 3),
        "bar": bar,
        "load": load,
    }


def interleaved(ours: Callable[[], Any], rival: Callable[[], Any], repeats: int) -> tuple[float, float, float]:
    """Median seconds of each, and the median of the rounds' ratios rival / ours; which one is first alternates."""
    ours(), rival()  # the first calls allocate
    rounds = []
    for number in range(repeats):
        seconds = {}
        for call in (ours, rival) if number % 2 else (rival, ours):
            began = time.perf_counter()
            call()
            seconds[call] = time.perf_counter() - began
        rounds.append((seconds[ours], seconds[rival]))
    ratio = statistics.median(rival_seconds / our_seconds for our_seconds, rival_seconds in rounds)
    return statistics.median(r[0] for r in rounds), statistics.median(r[1] for r in rounds), ratio


@torch.no_grad()
def _softmaxes(repeats: int) -> dict[str, Any]:
    z = torch.nn.functional.rms_norm(torch.randn(BATCH, HEADS, TOKENS, WIDTH), (WIDTH,))
    ours, rival, ratio = interleaved(lambda: explicit_attention(z), lambda: two_softmaxes(z), repeats)
    name = f"one softmax, times faster than two, N {TOKENS}, H {HEADS}, p {WIDTH}, batch {BATCH}"
    return _line(name, 1e3 * ours, 1e3 * rival, "amounts", ratio, "≥ 1.25")


def _memory() -> dict[str, Any]:
    streamed, explicit = (peak_memory(kind) for kind in ("streamed", "explicit"))
    name = f"streamed attention, memory against explicit, N {MANY_TOKENS}, forward and backward"
    return _line(name, streamed / 2**20, explicit / 2**20, "amounts", streamed / explicit, "≤ 0.25")


def _iterations(repeats: int, training: bool) -> dict[str, Any]:
    from isthmus.models.hyper_set import VARIANTS as OURS
    from isthmus.models.recurrent_transformer import VARIANTS as RIVALS
    from isthmus.registry import create_model

    tokens = torch.randn(BATCH, TOKENS, HEADS * WIDTH)
    layers: list[Any] = [create_model(**variants["small"]).layers for variants in (OURS, RIVALS)]  # type: ignore[misc]

    def call(layer: Any) -> Callable[[], Any]:
        def one_iteration() -> None:
            with torch.set_grad_enabled(training):
                x = tokens.clone().requires_grad_(training)
                after = layer(x, x, 1)
                if training:
                    after.sum().backward()

        return one_iteration

    ours, rival, ratio = interleaved(call(layers[0][0]), call(layers[1][0]), repeats)
    kind = "training" if training else "forward"
    name = f"Hyper-SET iteration, M = d, against a Transformer's, {kind}, d 384, N {TOKENS}, batch {BATCH}"
    return _line(name, 1e3 * ours, 1e3 * rival, "amounts", 1 / ratio, "≤ 0.75" if not training else "–")


def peak_memory(kind: str) -> int:
    """Bytes that one forward and backward adds to a fresh process."""
    request = json.dumps({"kind": kind, "threads": torch.get_num_threads()})
    finished = subprocess.run(
        [sys.executable, "-m", "isthmus.bench.hyperset", request], capture_output=True, text=True, check=True
    )
    return int(finished.stdout)


def _status(field: str) -> int:
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0]) * 1024


def _alone(request: str) -> None:
    """The process of :func:`peak_memory`."""
    asked = json.loads(request)
    torch.set_num_threads(asked["threads"])
    attention = streamed_attention if asked["kind"] == "streamed" else explicit_attention
    attention(torch.randn(1, 64, WIDTH, requires_grad=True)).sum().backward()  # what is loaded once
    z = torch.randn(1, MANY_TOKENS, WIDTH, requires_grad=True)
    before = _status("VmRSS")
    attention(z).square().sum().backward()
    print(max(1, _status("VmHWM") - before))


if __name__ == "__main__":
    _alone(sys.argv[1])
