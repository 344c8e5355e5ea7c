"""What needs no training: the costs of pathways (E0), networks at their start, and identities of papers (E1)."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.analysis.contributions import measure_lengths
from isthmus.analysis.expansion import compute_scaled, expand
from isthmus.analysis.places import differentiate_forward, unroll, walk
from isthmus.core.registry import create_model, find
from isthmus.layers.residual import Layout, Stack
from isthmus.papers.engine.exhibit import AnalysisInput, Quantity, Scale
from isthmus.papers.pathways.laws import extra_macs, extra_params, mlp
from isthmus.pathways.pathway import hold_gates
from isthmus.training.counting import cost, count_kept
from isthmus.training.devices import arithmetic

COUNTED = (
    "plain", "scaled/sqrt", "gained/layer-scale", "delayed/ladder", "delayed/groups-4", "reversible",
    "reversible/recomputed", "delta/value", "delta/erase-and-add", "weighted", "attended/blocks-8", "attended/full",
    "streams/static-2", "streams/hyper-4", "streams/mhc-4",
)  # fmt: skip
WIDTHS: Mapping[str, tuple[int, int]] = {
    "conventional 64/256": (64, 256), "hourglass 256/64": (256, 64), "narrow 256/16": (256, 16),
    "narrow 256/8": (256, 8),
}  # fmt: skip
"""d_z and d_h."""
DEPTHS: Mapping[Scale, Sequence[int]] = {"smoke": (4, 16), "cpu": (4, 16, 64, 256), "paper": (4, 16, 64, 256)}
TIMED: Mapping[Scale, tuple[int, int]] = {"smoke": (4, 1), "cpu": (64, 5), "paper": (256, 15)}
"""Depth of the timed networks (narrow 256/16), and rounds."""
LOOSE = 0.1
"""How far a count may be from a law that only says "about"."""

STARTED = (
    "plain", "none", "scaled/sqrt", "scaled/depth", "delayed/ladder", "delayed/parallel", "reversible", "delta/value",
    "delta/erase-and-add", "attended/blocks-8", "streams/static-2", "post_norm/deepnorm",
)  # fmt: skip
BOUNDED = ("plain", "scaled/sqrt", "scaled/depth")
"""Whose growth is a claim."""
START_DEPTHS: Mapping[Scale, Sequence[int]] = {"smoke": (8, 16), "cpu": (16, 64, 256), "paper": (16, 64, 256)}
DRAWS: Mapping[Scale, int] = {"smoke": 2, "cpu": 5, "paper": 20}
ENDS = 32
D_Z, D_H = 80, 8
"""Of the networks that are only started."""


# E0


def count_costs(given: AnalysisInput) -> dict[str, Any]:
    """``costs[shape][depth][pathway]``: ratios to plain, and c where the multiply–adds differ; ``seconds[pathway]``."""
    found: dict[str, Any] = {}
    quantities = []
    for shape, (d_z, d_h) in list(WIDTHS.items())[: 2 if given.scale == "smoke" else None]:
        found[shape] = {}
        for depth in DEPTHS[given.scale]:
            line = _count_line(d_z, d_h, depth)
            found[shape][str(depth)] = line
            quantities += [_quantity(shape, depth, name, line[name]) for name in line if name != "plain"]
    depth, rounds = TIMED[given.scale]
    models = {name: _make(name, *WIDTHS["narrow 256/16"], depth) for name in COUNTED}
    seconds = compare_steps(models, torch.randn(128, D_IN), rounds)
    quantities += [
        Quantity(f"{name}, time", f"CPU time of forward and backward over plain's, 256/16, {depth} blocks", None, ratio)
        for name, ratio in seconds.items()
        if name != "plain"
    ]
    return {
        "costs": found, "seconds": seconds, "quantities": quantities,
        "differences": [
            "no paper prints such a table: the counts are of the networks that this library builds",
            "times are the CPU time of one process of one thread; its rounds take turns with plain's",
        ],
    }  # fmt: skip


D_IN = 256


def _make(pathway: str, d_z: int, d_h: int, depth: int) -> nn.Module:
    return create_model(**mlp(pathway, d_z, d_h, depth, d_in=D_IN, d_out=D_IN, init="depth_scaled_w2"))


def _count_line(d_z: int, d_h: int, depth: int) -> dict[str, dict[str, float]]:
    line: dict[str, dict[str, float]] = {}
    counts: dict[str, Any] = {}
    for name in COUNTED:
        if name == "delayed/groups-4" and depth < 4:
            continue
        settings = mlp(name, d_z, d_h, depth, d_in=D_IN, d_out=D_IN, init="depth_scaled_w2")
        counts[name] = cost(settings), count_kept(settings)
        (ours, kept), (plain, before) = counts[name], counts["plain"]
        line[name] = {
            "params": ours.params / plain.params, "macs": ours.macs / plain.macs,
            "stream_values": kept.stream_values / before.stream_values,
            "saved_values": kept.saved_values / before.saved_values, "saved": float(kept.saved_values),
            "c": (ours.macs - plain.macs) / (d_z * depth), "law": extra_macs(name, depth) / depth,
            "extra_params": float(ours.params - plain.params), "law_of_params": float(extra_params(name, d_z, depth)),
        }  # fmt: skip
    return line


def _quantity(shape: str, depth: int, name: str, values: Mapping[str, float]) -> Quantity:
    note = f"parameters {values['params']:.3f}, kept between branches {values['stream_values']:.2f}, kept for the "
    note += f"gradient {values['saved_values']:.2f} of plain's; c {values['c']:.4g}"
    what = f"multiply–adds over plain's, {shape}, {depth} blocks"
    return Quantity(f"{name}, {shape}, {depth}", what, None, values["macs"], note=note)


def compare_steps(models: Mapping[str, nn.Module], x: Tensor, rounds: int, first: str = "plain") -> dict[str, float]:
    """CPU time of a forward and backward pass over that of ``first``: the median of rounds that take turns."""
    ratios: dict[str, list[float]] = {name: [] for name in models}
    with arithmetic(1):
        for model in models.values():
            _time(model, x)  # the first call pays for memory and kernels
        for _ in range(rounds):
            for name, model in models.items():
                before = _time(models[first], x)
                ratios[name].append(_time(model, x) / before if name != first else 1.0)
    return {name: statistics.median(values) for name, values in ratios.items()}


def _time(model: nn.Module, x: Tensor) -> float:
    """Process time, because other processes may share the core."""
    began = time.process_time()
    model.zero_grad()
    model(x).square().mean().backward()
    return max(time.process_time() - began, 1e-6)


# E1


@contextmanager
def drawn(seed: int) -> Iterator[None]:
    """Weights and rows of a seed, which leave torch's own draws alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def start_networks(given: AnalysisInput) -> dict[str, Any]:
    """``starts[norm][pathway][depth]``: means over draws of what can be said of a network before training.

    ``growth[pathway][depth]`` holds every draw of ‖x_L‖ / ‖x_0‖ without norms; ``identities`` those of papers.
    """
    starts: dict[str, Any] = {"layer": {}, "none": {}}
    growth: dict[str, dict[str, list[float]]] = {}
    for norm, name, depth in ((n, p, d) for n in starts for p in STARTED for d in START_DEPTHS[given.scale]):
        draws = []
        for seed in range(DRAWS[given.scale]):
            with drawn(seed):
                fields = {"d_in": ENDS, "d_out": ENDS, "norm": norm, "init": "pytorch"}
                draws.append(
                    _describe_start(create_model(**mlp(name, D_Z, D_H, depth, **fields)), torch.randn(64, ENDS))
                )
        starts[norm].setdefault(name, {})[str(depth)] = {key: _mean([draw[key] for draw in draws]) for key in draws[0]}
        if norm == "none" and name in BOUNDED:
            growth.setdefault(name, {})[str(depth)] = [draw["growth"] for draw in draws]
    identities = [_check_identities(seed) for seed in range(DRAWS[given.scale])]
    return {
        "starts": starts, "growth": growth, "identities": identities,
        "quantities": [*_start_quantities(starts), *_identity_quantities(identities)],
        "differences": ["no paper has this set-up: residual MLPs with d_z 80 and d_h 8, and PyTorch's initial weights"],
    }  # fmt: skip


def _mean(values: Sequence[float]) -> float | None:
    """None where a value is not finite, as the dilution of a stream that is zero."""
    return statistics.fmean(values) if all(map(math.isfinite, values)) else None


def _describe_start(model: Any, x: Tensor) -> dict[str, float]:
    """Growth, dilution at both ends, the gradient at the first place over the last, and the largest singular value."""
    with torch.no_grad():
        stream = model.embed(x)
        growth = walk(unroll(model.blocks), stream).output.norm(dim=-1) / stream.norm(dim=-1)
    lengths = measure_lengths(unroll(model.blocks), stream, lambda output: model.read_out(output).square().mean())
    gradients = [float(value) for value in lengths["gradient"]]
    dilution = [float(value) for value in lengths["dilution"]]
    return {
        "growth": float(growth.mean()),
        "first dilution": dilution[0],
        "last dilution": dilution[-1],
        "gradient, first / last": gradients[0] / max(gradients[-1], 1e-30),
        "largest singular value": _stretch(model.blocks, stream[:1]),
    }


def _stretch(stack: Stack, row: Tensor) -> float:
    """The largest singular value of the derivative of the last stream by the first, at one row."""
    rows = row.repeat(row.shape[-1], 1).requires_grad_()
    with torch.enable_grad():
        output = walk(unroll(stack), rows).output
    (jacobian,) = torch.autograd.grad(output, rows, torch.eye(row.shape[-1]))
    return float(torch.linalg.matrix_norm(jacobian.double(), 2))


def _start_quantities(starts: Mapping[str, Any]) -> Iterator[Quantity]:
    for norm, by_name in starts.items():
        words = "with LayerNorm" if norm == "layer" else "without norms"
        for name, by_depth in by_name.items():
            for depth, values in by_depth.items():
                known = {key: value for key, value in values.items() if key != "growth" and value is not None}
                note = ", ".join(f"{key} {value:.3g}" for key, value in known.items())
                what = f"‖x_L‖ / ‖x_0‖ before training, {words}, {depth} blocks"
                yield Quantity(f"{name}, {norm}, {depth}", what, None, values["growth"], note=note)


def _check_identities(seed: int) -> dict[str, float]:
    """Relative errors in float64 (reversible: also float32) of what papers derive."""
    with drawn(seed):
        return {**_expansion_errors(), **_delta_errors(), **_reversible_errors()}


def _expansion_errors() -> dict[str, float]:
    """The derivatives by λ at 0, by automatic differentiation of the whole network, beside the theorem's terms."""
    model: Any = create_model(**mlp("plain", 24, 6, 9, d_in=8, d_out=8, init="pytorch")).double()
    with torch.no_grad():
        x = model.embed(torch.randn(4, 8, dtype=torch.float64))
    orders = expand(unroll(model.blocks), x)
    direction = torch.randn_like(x)
    by = torch.zeros((), dtype=torch.float64, requires_grad=True)
    value = (compute_scaled(unroll(model.blocks), x, by) * direction).sum()  # type: ignore[arg-type]
    (first,) = torch.autograd.grad(value, by, create_graph=True)
    (second,) = torch.autograd.grad(first, by)
    first = first.detach()
    terms = [(order * direction).sum() for order in orders[1:]]
    return {
        "expansion, order 1": float((first - terms[0]).abs() / terms[0].abs()),
        "expansion, order 2": float((second / 2 - terms[1]).abs() / terms[1].abs()),
    }


def _delta_errors() -> dict[str, float]:
    """The eigenvalues of x ↦ the new stream, its direction and gates held, and the length after a reflection."""
    d = 16
    kind = find("pathways", "delta")
    config = kind.Config(name="delta", value="linear")
    pathway = kind(config, Layout(d, (1,))).double()
    x, u = torch.randn(2, 1, d, dtype=torch.float64).unbind()
    with torch.no_grad():
        pathway.gate[0].normal_(std=0.3)
        beta = float(pathway.gates(x, 0)[0])
        with hold_gates(), differentiate_forward():
            apply: Callable[[Tensor], Tensor] = lambda state: pathway.write(state, 0, x, u, 1.0)  # noqa: E731
            columns = [torch.func.jvp(apply, (x,), (axis[None],))[1][0] for axis in torch.eye(d, dtype=torch.float64)]
        found = torch.linalg.eigvalsh(torch.stack(columns))
        wanted = torch.tensor([*[1.0] * (d - 1), 1 - beta], dtype=torch.float64).sort().values
        pathway.gate[0].zero_()
        pathway.bias[0].copy_(torch.tensor([1e3, 0.0]))  # β = 2 and v = 0
        turned = pathway.write(x, 0, x, u, 1.0)
    return {
        "delta, eigenvalues": float((found - wanted).abs().max()),
        "delta, length after a reflection": float((turned.norm() / x.norm() - 1).abs()),
    }


def _reversible_errors() -> dict[str, float]:
    """The input of 256 reversible blocks, rebuilt from their output."""
    found = {}
    for dtype in (torch.float64, torch.float32):
        model: Any = create_model(**mlp("reversible", D_Z, D_H, 256, d_in=ENDS, d_out=ENDS, init="pytorch")).to(dtype)
        with torch.no_grad():
            x = model.embed(torch.randn(8, ENDS, dtype=dtype))
            state, pathway = model.blocks.pathway.start(x), model.blocks.pathway
            branches = [place.branch for place in unroll(model.blocks).places]
            for number, branch in enumerate(branches):
                state = pathway.write(state, number, None, branch.update(state.b), branch.scale)
            a, b = state.a, state.b
            for branch in reversed(branches):
                a, b = b - branch.scale * branch.update(a), a
        found[f"reversible, input rebuilt in {str(dtype).removeprefix('torch.')}"] = float((b - x).norm() / x.norm())
    return found


def _identity_quantities(identities: Sequence[Mapping[str, float]]) -> Iterator[Quantity]:
    for name in identities[0]:
        values = [each[name] for each in identities]
        yield Quantity(name, "relative error, the largest of all draws", None, max(values))
