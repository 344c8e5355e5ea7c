"""A trained residual MLP without its residual stream: the same function, in ``models/narrow.py``'s form.

All products are computed in float64 and then cast. Whether the narrow form is faster depends on the shape, so the
multiply–adds are counted first, and if they promise a gain, both forms are timed.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.layers.residual import Plain
from isthmus.models.hourglass import MLPConfig, ResidualMLP
from isthmus.models.narrow import NarrowConfig, NarrowMLP
from isthmus.pathways.additive import Gained, Scaled
from isthmus.training.counting import cost

_WORTH_TRYING = 0.97
"""Fraction of the multiply–adds above which small, less efficient products use up the gain."""
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
    if _fold(model) is None:
        name = model.config.pathway.name
        raise UserError(
            "a narrow form needs updates that are added with fixed weights, as plain, scaled and gained do, "
            f"not {name}; `--to onnx` and `--to torch` take it"
        )
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


def _fold(model: ResidualMLP) -> list[Tensor | float] | None:
    """The factor of every block's update, which its W2 can take over; None if the pathway does more than add."""
    pathway, blocks = model.blocks.pathway, list(model.blocks)
    if isinstance(pathway, Scaled):
        return [block.scale * pathway.by for block in blocks]
    if isinstance(pathway, Gained):
        return [
            block.scale * gain.detach().double().cpu()[:, None]
            for block, gain in zip(blocks, pathway.gain, strict=True)
        ]
    return [block.scale for block in blocks] if isinstance(pathway, Plain) else None


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
    start: Literal["isometric", "triangular"] = "triangular"
    if kept.norm != "none" and kept.w_in in ("orthogonal", "hadamard") and len(w_in) >= w_in.shape[1]:
        distance = (w_in.T @ w_in - torch.eye(w_in.shape[1], dtype=torch.float64)).abs().max()
        if distance < 4 * torch.finfo(model.W_out.weight.dtype).eps:  # W_in preserves lengths
            start = "isometric"
    shared = ("d_in", "d_out", "d_z", "d_h", "depth", "norm", "activation")
    return NarrowConfig(name="narrow_mlp", start=start, **{field: getattr(kept, field) for field in shared})


@torch.no_grad()
def _weights(model: ResidualMLP, config: NarrowConfig, w_in: Tensor) -> dict[str, Tensor]:
    blocks = list(model.blocks)
    w_1 = [block.W1.weight.detach().to("cpu", torch.float64) for block in blocks]
    factors = _fold(model) or []
    w_2 = [by * block.W2.weight.detach().to("cpu", torch.float64) for by, block in zip(factors, blocks, strict=True)]
    w_out = model.W_out.weight.detach().to("cpu", torch.float64)
    joined = torch.cat(w_2, dim=1)
    weights = {"W_out.weight": w_out @ joined}
    from_x = [w_out @ w_in]
    if config.norm == "layer":  # the norm subtracts the mean of the stream, W_out does not
        mean = w_in.mean(dim=0)
        w_in, joined = _center(w_in), _center(joined)
        w_2 = list(joined.split(config.d_h, dim=1))
        if config.start == "isometric":
            weights["axis"] = _axis(mean * len(w_in) ** 0.5, w_in)
    for i in reversed(range(config.depth)):
        needs_norm_after = config.norm != "none" and i + 1 < config.depth
        taker = torch.cat([w_1[i], 2 * w_2[i].T]) if needs_norm_after else w_1[i]
        from_x.append(taker @ w_in)
        if i:
            weights[f"W_h.{i}.weight"] = taker @ joined[:, : i * config.d_h]
        if needs_norm_after:
            weights[f"gram.{i}.weight"] = w_2[i].T @ w_2[i]
    if config.norm != "none" and config.start == "triangular":
        from_x.append(torch.linalg.qr(w_in, mode="r").R)
    weights["W_x.weight"] = torch.cat(from_x[::-1])
    dtype = model.W_out.weight.dtype
    return {name: weight.to(dtype).contiguous() for name, weight in weights.items()}


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
