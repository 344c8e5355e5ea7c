"""The narrow form of the published Hourglass networks against their straightforward forward pass, in one run.

Every Hourglass row of Tables 6–9 is built and given to ``isthmus.export.narrow``, which returns the network itself
where its narrow form would not pay; then the two are one and the ratio is 1. Denoising rows are measured with a trained
W_in and with an orthogonal one, because only the latter leaves something to gain there. Eager is compared with eager
and compiled with compiled. A ratio is the median over interleaved rounds.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError, nearest
from isthmus.core.registry import create_model
from isthmus.export import narrow
from isthmus.papers import load_paper
from isthmus.training.devices import arithmetic

TABLES = ("T6", "T7", "T8", "T9")
BATCHES = (1, 32, 256)
Forward = Callable[[Tensor], Tensor]
_SECONDS_AT_LEAST = 0.02
"""Of one measurement: shorter ones are repeated within it."""


class Case(NamedTuple):
    """A row of a table with one kind of W_in."""

    row: str
    task: str
    d_in: int
    d_out: int
    d_z: int
    d_h: int
    depth: int
    w_in: str

    def build(self) -> nn.Module:
        shape = {name: getattr(self, name) for name in ("d_in", "d_out", "d_z", "d_h", "depth", "w_in")}
        torch.manual_seed(0)
        return create_model("hourglass_mlp", init="pytorch", w_in_seed=0, **shape).eval()


@dataclass(frozen=True)
class Ratio:
    """How many times as fast the narrow form of one case is at one batch size."""

    row: str
    task: str
    d_z: int
    d_h: int
    depth: int
    w_in: str
    batch: int
    form: str  # "narrow", or "wide" where narrow() returned the network itself
    eager: float
    compiled: float | None
    error: float  # of the outputs, relative
    load: float  # of the machine


class Group(NamedTuple):
    name: str
    task: str
    w_in: str
    d_h: int
    bar: float

    def has(self, ratio: Ratio) -> bool:
        return (ratio.task, ratio.w_in) == (self.task, self.w_in) and ratio.d_h <= self.d_h


GROUPS = (
    Group("super-resolution, d_h ≤ 765", "super_resolution", "trainable", 765, 1.5),
    Group("denoising, d_h ≤ 270, orthogonal W_in", "denoising", "orthogonal", 270, 1.3),
)


def cases(rows: Sequence[str] = ()) -> list[Case]:
    """The cases of the rows named, of all Hourglass rows without any."""
    found = list(_cases())
    for row in rows:
        if row not in {case.row for case in found}:
            raise UserError(f"{row!r} is no Hourglass row of Tables 6–9; {nearest(row, [case.row for case in found])}")
    return [case for case in found if not rows or case.row in rows]


def _cases() -> Iterator[Case]:
    paper = load_paper("hourglass")
    for table in (paper.tables[name] for name in TABLES):
        task = table.task["name"]
        for name, row in table.rows.items():
            for w_in in ("trainable", "orthogonal") if task == "denoising" else ("trainable",):
                if row["architecture"] == "hourglass":
                    widths = (table.task["d_x"], table.task["d_out"], row["d_z"], row["d_h"], row["L"])
                    yield Case(name, task, *widths, w_in)


def compiler() -> str | None:
    """The C++ compiler that torch.compile would use on a processor."""
    return next(
        (found for name in (os.environ.get("CXX", ""), "g++", "clang++") if (found := shutil.which(name))), None
    )


def measure(
    chosen: Sequence[Case],
    batches: Sequence[int],
    rounds: int,
    threads: int,
    compiled: bool,
    tell: Callable[[str], None],
) -> list[Ratio]:
    ratios: list[Ratio] = []
    with arithmetic(threads):
        for case in chosen:
            ratios += _measure_case(case, batches, rounds, compiled)
            seen = ", ".join(f"{ratio.eager:.2f} at {ratio.batch}" for ratio in ratios[-len(batches) :])
            tell(f"{case.row} {case.w_in}, {ratios[-1].form}: {seen}")
    return ratios


def _measure_case(case: Case, batches: Sequence[int], rounds: int, compiled: bool) -> Iterator[Ratio]:
    wide = case.build()
    fast = narrow(wide)
    same = fast is wide
    rivals: dict[str, tuple[Forward, Forward]] = {} if same else {"eager": (wide, fast)}
    if compiled and not same:
        rivals["compiled"] = (torch.compile(wide, dynamic=True), torch.compile(fast, dynamic=True))
    for batch in batches:
        x = torch.rand(batch, case.d_in, generator=torch.Generator().manual_seed(1))
        found = {mode: speed(*pair, x, rounds) for mode, pair in rivals.items()}
        eager, in_code = found.get("eager", 1.0), found.get("compiled", 1.0) if compiled else None
        with torch.inference_mode():
            expected = wide(x)
            error = float((fast(x) - expected).norm() / expected.norm())
        shape = (case.d_z, case.d_h, case.depth, case.w_in)
        form = "wide" if same else "narrow"
        yield Ratio(case.row, case.task, *shape, batch, form, eager, in_code, error, os.getloadavg()[0])
    if "compiled" in rivals:
        torch.compiler.reset()


@torch.inference_mode()
def speed(slow: Forward, fast: Forward, x: Tensor, rounds: int) -> float:
    """How many times as fast ``fast`` is: the median of the ratios of interleaved rounds."""
    slow(x), fast(x)  # warm up, or compile
    repeats = max(1, math.ceil(_SECONDS_AT_LEAST / _seconds(fast, x, 1)))
    ratios = []
    for number in range(rounds):
        turn = (slow, fast) if number % 2 else (fast, slow)
        seconds = {forward: _seconds(forward, x, repeats) for forward in turn}
        ratios.append(seconds[slow] / seconds[fast])
    return statistics.median(ratios)


def _seconds(forward: Forward, x: Tensor, repeats: int) -> float:
    began = time.perf_counter()
    for _ in range(repeats):
        forward(x)
    return (time.perf_counter() - began) / repeats


def summary(ratios: Sequence[Ratio]) -> list[dict[str, Any]]:
    """The geometric mean of each group at each batch size, and the slowest row of all."""
    lines = []
    for group in GROUPS:
        for batch in sorted({ratio.batch for ratio in ratios}):
            inside = [ratio for ratio in ratios if ratio.batch == batch and group.has(ratio)]
            if inside:
                bar = f"≥ {group.bar:g}" if batch == max(BATCHES) else ""
                lines.append({"group": group.name, "batch": batch, "rows": len(inside), **_means(inside), "bar": bar})
    lowest = {mode: min((value for value in _values(ratios, mode)), default=None) for mode in ("eager", "compiled")}
    shown = {mode: None if value is None else round(value, 3) for mode, value in lowest.items()}
    return [*lines, {"group": "the slowest of all", "batch": "any", "rows": len(ratios), **shown, "bar": "≥ 0.95"}]


def _means(ratios: Sequence[Ratio]) -> dict[str, float | None]:
    values = {mode: _values(ratios, mode) for mode in ("eager", "compiled")}
    return {mode: round(statistics.geometric_mean(found), 3) if found else None for mode, found in values.items()}


def _values(ratios: Sequence[Ratio], mode: str) -> list[float]:
    return [value for ratio in ratios if (value := getattr(ratio, mode)) is not None]


def lines(ratios: Sequence[Ratio]) -> list[dict[str, Any]]:
    rounded = {"eager": 3, "compiled": 3, "load": 1}
    return [
        {
            name: round(value, rounded[name]) if name in rounded and value is not None else value
            for name, value in asdict(ratio).items()
        }
        for ratio in ratios
    ]
