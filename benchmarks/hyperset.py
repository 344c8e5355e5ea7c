"""Hyper-SET's arithmetic against its rivals, in one interleaved run: each line is a ratio with the bar it must meet.

- One softmax and a transpose instead of the formula's two softmaxes, per forward call of the attention.
- Attention that is streamed over rows instead of formed whole: peak memory of forward and backward in processes of
  their own, less what each had before.
- One iteration of Hyper-SET with M = d against one of a Transformer of the same width, forward and in training.
- Sudoku puzzles with 17 givens, solved with proof that there is no other solution, against 200 in a second.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.processes import ask_new_process, read_memory
from isthmus.analysis.ratios import compare_times, load, row
from isthmus.core.files import data_dir
from isthmus.layers.residual import Plain
from isthmus.layers.symmetric_attention import explicit_attention, streamed_attention
from isthmus.training.devices import arithmetic

BATCH, TOKENS, HEADS, WIDTH = 16, 197, 6, 64
MANY_TOKENS = 4096
SEVENTEENS = "sudoku/sudoku17_royle.csv.gz"


def two_softmaxes(z: Tensor) -> Tensor:
    """The formula as it is printed."""
    scores = z @ z.mT * z.shape[-1] ** -0.5
    return (scores.softmax(dim=-1) + scores.softmax(dim=-2)) @ z


def measure(repeats: int, threads: int) -> list[dict[str, Any]]:
    with arithmetic(threads):
        return [_softmaxes(repeats), _memory(), _iterations(repeats, False), _iterations(repeats, True), *_solver()]


@torch.no_grad()
def _softmaxes(repeats: int) -> dict[str, Any]:
    z = torch.nn.functional.rms_norm(torch.randn(BATCH, HEADS, TOKENS, WIDTH), (WIDTH,))
    name = f"one softmax against two, N {TOKENS}, H {HEADS}, p {WIDTH}, batch {BATCH}"
    return compare_times(name, lambda: explicit_attention(z), lambda: two_softmaxes(z), repeats, bar=1 / 1.25)


def _memory() -> dict[str, Any]:
    before = load()
    streamed, explicit = (peak_memory(kind) / 2**20 for kind in ("streamed", "explicit"))
    name = f"streamed attention against explicit, N {MANY_TOKENS}, forward and backward"
    return row(name, "MiB", [(streamed, explicit)], 0.25, before)


def _iterations(repeats: int, training: bool) -> dict[str, Any]:
    from isthmus.core.registry import create_model
    from isthmus.models.hyper_set import VARIANTS as OURS
    from isthmus.models.recurrent_transformer import VARIANTS as RIVALS

    tokens = torch.randn(BATCH, TOKENS, HEADS * WIDTH)
    layers: list[Any] = [create_model(**variants["small"]).layers for variants in (OURS, RIVALS)]  # type: ignore[misc]

    def call(layer: Any) -> Callable[[], Any]:
        def one_iteration() -> None:
            with torch.set_grad_enabled(training):
                x = tokens.clone().requires_grad_(training)
                after = layer(x, Plain(), 0, (x, 1))
                if training:
                    after.sum().backward()

        return one_iteration

    kind = "training" if training else "forward"
    name = f"Hyper-SET iteration, M = d, against a Transformer's, {kind}, d 384, N {TOKENS}, batch {BATCH}"
    return compare_times(name, call(layers[0][0]), call(layers[1][0]), repeats, bar=1.0 if training else 0.75)


def _solver() -> list[dict[str, Any]]:
    """Milliseconds for a puzzle with 17 givens, proof included, against the 5 ms of 200 in a second; none without the
    file of known ones."""
    from isthmus.sources.puzzles.solver import solve
    from isthmus.sources.sudoku import read_puzzles

    file = data_dir() / SEVENTEENS
    if not file.is_file():
        return []
    before, puzzles = load(), read_puzzles(file)[0][:2000]
    began = time.perf_counter()
    solved = solve(puzzles)
    took = 1e3 * (time.perf_counter() - began) / len(puzzles)
    assert (solved.counts == 1).all()
    return [
        row("a Sudoku with 17 givens, solved and proved, against 200 in a second", "ms", [(took, 5.0)], 1.0, before)
    ]


def peak_memory(kind: str) -> int:
    """Bytes that one forward and backward adds to a fresh process."""
    return ask_new_process("benchmarks.hyperset", kind=kind, threads=torch.get_num_threads())


def _answer(request: str) -> None:
    """The process of :func:`peak_memory`."""
    wish = json.loads(request)
    torch.set_num_threads(wish["threads"])
    attention = streamed_attention if wish["kind"] == "streamed" else explicit_attention
    attention(torch.randn(1, 64, WIDTH, requires_grad=True)).sum().backward()  # what is loaded once
    z = torch.randn(1, MANY_TOKENS, WIDTH, requires_grad=True)
    before = read_memory("VmRSS")
    attention(z).square().sum().backward()
    print(max(1, read_memory("VmHWM") - before))


if __name__ == "__main__":
    _answer(sys.argv[1])
