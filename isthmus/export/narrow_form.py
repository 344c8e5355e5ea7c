"""A trained residual MLP without its residual stream: the same function, in ``models/narrow.py``'s form.

All products are computed in float64 and then cast. Whether the narrow form is faster depends on the shape, so the
multiply–adds are counted first, and if they promise a gain, both forms are timed.

Pathways whose weights depend on the row are refused, except for delta with one channel. Attended and dynamic streams
have scalar weights too, so a narrow form exists: hidden vectors are multiplied by weights that follow from inner
products of narrow vectors. It is not built; that of their fixed relatives bounds the gain (``docs/pathways.md``).
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.layers.residual import Plain
from isthmus.models.hourglass import MLPConfig, ResidualMLP
from isthmus.models.narrow import NarrowConfig, NarrowMLP, Plan, make_plan, refuse
from isthmus.pathways.delta import Delta
from isthmus.pathways.pathway import replay, replay_sources
from isthmus.training.counting import cost

_WORTH_TRYING = 0.97
"""Above this fraction of the multiply–adds, small products, which are less efficient, use up the gain."""
_WORTH_TAKING = 1.05
"""The smallest speed-up that counts: less is within the noise of a short measurement."""
_ROUNDS = 5
_SECONDS = 2.0


@dataclass(frozen=True)
class Gain:
    """The cost of the narrow form of a model compared with the wide one.

    ``speed`` is the smallest speed-up for 1, ``batch`` / 8 and ``batch`` rows; None if it was not measured.
    """

    wide_macs: int
    narrow_macs: int
    batch: int
    speed: float | None = None

    @property
    def pays(self) -> bool:
        """Whether the narrow form has fewer multiply–adds and, if measured, is faster."""
        fewer = self.narrow_macs <= _WORTH_TRYING * self.wide_macs
        return fewer and (self.speed is None or self.speed >= _WORTH_TAKING)

    def __str__(self) -> str:
        measured = (
            "" if self.speed is None else f", at least {self.speed:.2f} times as fast for up to {self.batch} rows"
        )
        verdict = "pays" if self.pays else "does not pay"
        return f"narrow {verdict}: {self.narrow_macs / self.wide_macs:.2f} of the multiply-adds{measured}"


def narrow(model: nn.Module, *, force: bool = False, measure: bool = True, batch: int = 256) -> nn.Module:
    """The same function without the residual stream if that is faster, otherwise ``model`` itself.

    ``force`` always converts; ``measure=False`` decides by multiply–adds alone; ``batch`` is the largest batch that is
    timed: the narrow form may be faster for many rows and slower for few.
    """
    return choose_form(model, force, measure, batch)[0]


def narrow_gain(model: nn.Module, *, measure: bool = True, batch: int = 256) -> Gain:
    """Whether :func:`narrow` pays: counted and, if the count promises a gain, measured."""
    return choose_form(model, False, measure, batch)[1]


def choose_form(
    model: nn.Module, force: bool = False, measure: bool = True, batch: int = 256
) -> tuple[nn.Module, Gain]:
    """:func:`narrow` with the gain that decided it, because a second measurement may differ."""
    if not isinstance(model, ResidualMLP):
        name = getattr(getattr(model, "config", None), "name", type(model).__name__)
        raise UserError(f"{name} has no narrow form; hourglass_mlp and conventional_mlp have one")
    if reason := refuse(model.config.pathway):
        raise UserError(f"{reason}; `--to onnx` and `--to torch` take it")
    w_in = _dense(model)
    config = _config(model, w_in)
    gain = Gain(cost(model.config).macs, cost(config).macs, batch)
    if not force and not gain.pays:
        return model, gain
    with torch.device("meta"):
        converted = NarrowMLP(config)
    converted.load_state_dict(_weights(model, config, w_in), assign=True)
    converted.to(model.W_out.weight.device).train(model.training)
    if measure and not force:
        gain = replace(gain, speed=min(_speed(model, converted, rows) for rows in {1, max(1, batch // 8), batch}))
    return converted if force or gain.pays else model, gain


@torch.no_grad()
def _dense(model: ResidualMLP) -> Tensor:
    """W_in as a matrix in float64."""
    if hasattr(model.W_in, "weight"):
        assert isinstance(model.W_in.weight, Tensor)
        return model.W_in.weight.detach().to("cpu", torch.float64)
    fast = copy.deepcopy(model.W_in).to("cpu", torch.float64)
    dense: Tensor = fast(torch.eye(model.input_shape[0], dtype=torch.float64)).T
    return dense


def _config(model: ResidualMLP, w_in: Tensor) -> NarrowConfig:
    kept: MLPConfig = model.config
    shared = ("d_in", "d_out", "d_z", "d_h", "depth", "norm", "activation")
    plain = NarrowConfig(name="narrow_mlp", **{field: getattr(kept, field) for field in shared})
    config = plain.replace(pathway=kept.pathway)
    if kept.pathway.entries == "sums" and make_plan(config) == make_plan(plain):
        config = plain  # the matrices hold its factors
    # Factors of the later streams hold that of the first one.
    starts = make_plan(config).lengths not in ("none", "factors")
    if starts and kept.w_in in ("orthogonal", "hadamard") and len(w_in) >= w_in.shape[1]:
        distance = (w_in.T @ w_in - torch.eye(w_in.shape[1], dtype=torch.float64)).abs().max()
        if distance < 4 * torch.finfo(model.W_out.weight.dtype).eps:  # W_in preserves lengths
            config = config.replace(start="isometric")
    return config


Products = dict[str, dict[int, Tensor]]
"""What a part of the network takes from each source, by the names of ``NarrowMLP.parts``."""


@torch.no_grad()
def _weights(model: ResidualMLP, config: NarrowConfig, w_in: Tensor) -> dict[str, Tensor]:
    plan, sources = make_plan(config), [w_in, *(_double(block.W2.weight) for block in model.blocks)]
    weights = dict[str, Tensor]()
    products: Products = {"start": {}}
    for place, stream in enumerate(_streams(model, sources)):
        if place == config.depth:
            products["output"] = {source: _double(model.W_out.weight) @ stream[source] for source in plan.reads[-1]}
            break
        whole = stream
        if config.norm == "layer":  # the norm subtracts the mean of the stream, W_out does not
            stream = {source: _center(columns) for source, columns in stream.items()}
        w_1 = _double(model.blocks[place].W1.weight)
        products[f"read {place}"] = {source: w_1 @ stream[source] for source in plan.reads[place]}
        if plan.lengths == "sums":
            weights |= _measure_new(plan, place, stream, products)
        elif plan.lengths == "factors":
            _measure_all(place, stream, products)
        elif plan.lengths == "delta":
            weights |= _measure_along(model, place, stream, whole, products)
    if config.norm == "layer":
        mean, sources = w_in.mean(dim=0), list(map(_center, sources))
        if config.start == "isometric":
            weights["axis"] = _axis(mean * config.d_z**0.5, sources[0])
    if plan.lengths not in ("none", "factors") and config.start == "triangular":
        products["start"] = {0: torch.linalg.qr(sources[0], mode="r").R}
    if plan.lengths == "pairs":
        weights |= _measure_pairs(model, sources, products)
    weights |= _join(plan, products)
    dtype = model.W_out.weight.dtype
    return {name: weight.to(dtype).contiguous() for name, weight in weights.items()}


def _streams(model: ResidualMLP, sources: list[Tensor]) -> Iterator[dict[int, Tensor]]:
    """The columns that every source contributes to what a place reads, and to the output."""
    pathway, scale = copy.deepcopy(model.blocks.pathway).to("cpu", torch.float64), model.config.residual_scale
    if isinstance(pathway, Delta):  # its numbers multiply the hidden vectors
        pathway = Plain()
    if model.config.pathway.entries != "maps":
        for place, row in enumerate(replay_sources(pathway, len(sources) - 1, scale)):
            yield {source: row[source].unsqueeze(-1) * sources[source] for source in range(place + 1)}
        return
    sizes = [columns.shape[1] for columns in sources]
    x, *updates = (
        torch.cat(
            [columns.T if one == other else columns.new_zeros(size, len(columns)) for other, size in enumerate(sizes)]
        )
        for one, columns in enumerate(sources)
    )
    for place, read in enumerate(replay(pathway, x, updates, scale)):
        yield {source: rows.T for source, rows in enumerate(read.split(sizes)[: place + 1])}


def _measure_new(plan: Plan, place: int, stream: dict[int, Tensor], products: Products) -> dict[str, Tensor]:
    """The matrices for the lengths of updates that this place is the first to read."""
    weights = {}
    for update in range(1, place + 1):
        base = plan.bases[update - 1]
        if base is None or update not in plan.reads[place] or any(update in read for read in plan.reads[update:place]):
            continue
        own = stream[update]
        weights[f"gram.{update - 1}.weight"] = own.T @ own
        products[f"base {update - 1}"] = {source: 2 * own.T @ stream[source] for source in base}
    return weights


def _measure_all(place: int, stream: dict[int, Tensor], products: Products) -> None:
    """The factor by which the length of the whole stream is found."""
    factor = torch.linalg.qr(torch.cat(list(stream.values()), dim=1), mode="r").R
    of_sources = factor.split([columns.shape[1] for columns in stream.values()], dim=1)
    for source, columns in enumerate(of_sources):
        products[f"read {place}"][source] = torch.cat([products[f"read {place}"][source], columns])


def _measure_along(
    model: ResidualMLP, place: int, stream: dict[int, Tensor], whole: dict[int, Tensor], products: Products
) -> dict[str, Tensor]:
    """What delta needs of an update and of the stream that it joins: inner products, gates and, if centred, means."""
    pathway, update = model.blocks.pathway, model.config.residual_scale * _double(model.blocks[place].W2.weight)
    assert isinstance(pathway, Delta)
    centred, mean = model.config.norm == "layer", update.new_full((1, len(update)), len(update) ** -0.5)
    own = _center(update) if centred else update
    of_whole = torch.cat([_double(pathway.gate[place]), mean[:centred]])
    for source, read in products[f"read {place}"].items():
        products[f"read {place}"][source] = torch.cat([read, own.T @ stream[source], of_whole @ whole[source]])
    factor = torch.cat([torch.linalg.qr(own, mode="r").R, mean[:centred] @ update])
    return {f"factors.{place}.weight": factor, f"bias.{place}": pathway.bias[place].detach()}


def _measure_pairs(model: ResidualMLP, sources: list[Tensor], products: Products) -> dict[str, Tensor]:
    """The matrices for inner products of updates, and the shares of those in the squares of later places."""
    pathway = copy.deepcopy(model.blocks.pathway).to("cpu", torch.float64)
    depth = len(sources) - 1
    A = torch.cat(list(replay_sources(pathway, depth, model.config.residual_scale)), dim=1).T
    weights = {}
    for source in range(depth):
        counts = torch.full((source + 1,), 2.0, dtype=torch.float64)
        counts[source] = 1
        weights[f"shares.{source}.weight"] = A[source:depth, source, None] * A[source:depth, : source + 1] * counts
        if source:
            products[f"base {source - 1}"] = {0: sources[source].T @ sources[0]}
            weights[f"pairs.{source - 1}.weight"] = torch.cat(sources[1 : source + 1], dim=1).T @ sources[source]
    return weights


def _join(plan: Plan, products: Products) -> dict[str, Tensor]:
    """W_x, W_h, bases and W_out: what each part takes from x, and what it takes from the hidden vectors."""
    weights, of_x = {}, []
    for place in range(len(plan.reads) - 1):
        read, base = products[f"read {place}"], products.get(f"base {place}", {})
        if plan.joins_base(place):
            read, base = {source: torch.cat([taken, base[source]]) for source, taken in read.items()}, {}
        products[f"read {place}"], products[f"base {place}"] = read, base
    order = [
        "start",
        *(f"{kind} {place}" for place in range(len(plan.reads) - 1) for kind in ("read", "base")),
        "output",
    ]
    for name in order:
        taken = dict(sorted(products[name].items()))
        if 0 in taken:
            of_x.append(taken.pop(0))
        if taken:
            kind, _, number = name.partition(" ")
            module = {"read": f"W_h.{number}", "base": f"bases.{number}", "output": "W_out"}[kind]
            weights[f"{module}.weight"] = torch.cat(list(taken.values()), dim=1)
    return weights | {"W_x.weight": torch.cat(of_x)}


def _double(weight: Tensor) -> Tensor:
    return weight.detach().to("cpu", torch.float64)


def _center(columns: Tensor) -> Tensor:
    """The columns minus their means; a constant column becomes exactly zero.

    LayerNorm multiplies a rounding error by up to 1/√ε in every block. The mean of equal numbers may be rounded; the
    mean of their differences from the first one is exact.
    """
    rest = columns - columns[:1]
    return rest - rest.mean(dim=0)


def _axis(v: Tensor, centred: Tensor) -> Tensor:
    """w with (I − w wᵀ)² = I − v vᵀ: the length of a centred W_in x, without the difference of two large squares.

    w = v / √(1 + r) with r = √(1 − ‖v‖²), which is what centring leaves of the direction v; the root of the difference
    itself would lose half of its digits where r is small.
    """
    remainder = (centred @ (v / v.norm().clamp_min(1e-300))).norm()
    return v / (1 + remainder).sqrt()


def _speed(wide: nn.Module, narrow: NarrowMLP, batch: int) -> float:
    """The speed-up of the narrow form: the median over interleaved rounds."""
    weight = narrow.W_out.weight
    x = torch.randn(batch, *narrow.input_shape, dtype=weight.dtype, device=weight.device)
    ratios: list[float] = []
    with torch.inference_mode():
        wide(x), narrow(x)
        began = time.perf_counter()
        while len(ratios) < _ROUNDS and (not ratios or time.perf_counter() - began < _SECONDS):
            ratios.append(_seconds(wide, x) / _seconds(narrow, x))
    return statistics.median(ratios)


def _seconds(model: Callable[[Tensor], Tensor], x: Tensor) -> float:
    began = time.perf_counter()
    y = model(x)
    if y.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began
