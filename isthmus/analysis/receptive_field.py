"""Receptive field: the part of the image that a unit of the stream depends on, after every mixing step.

Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), appendix D.4: with random permutations a unit
depends on 1/√m of the m = S·C units in each step (S = C). Each step draws others, so the field grows with depth, which
may be why shallow permuted mixers are worse than normal ones. Two measurements:

    connections   the share of the units of the embedded image, and of the patches, that one unit of the stream is
                  connected to by weights (of any value) and skips; mean over units that are drawn once. Norms are left
                  out, because they join all channels of a token and the paper counts weights.
    influence     the root mean square of ∂(a token)/∂(pixel) over test images in the trained network, as a map; and
                  its spread, (Σa)²/(n Σa²) of the squared derivatives a, which is 1 if all n pixels count alike and
                  1/n if only one counts. For the token in the middle; for the unit in the middle of an SW-MLP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from isthmus.analysis.pictures import finish, matrix, page, save, style
from isthmus.analysis.steps import Layer, Step, steps_of
from isthmus.analysis.trained_run import CPU, Answer, TrainedRun, round_values, store_results
from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.layers.permuted_kronecker import PermutedKronecker
from isthmus.layers.residual import ResidualModel

SCHEMA = "isthmus.analysis.receptive_field/1"
LINES = {
    "connections": {"units": "units reached", "patches": "patches reached"},
    "influence": {"spread": "spread of the influence"},
}
UNITS = 64
IMAGES = 16
_AT_ONCE = 4  # images; the graph of a deep network on more would not fit into memory
_PIXELS = 64
"""Side of a map; finer ones would not be visible in a figure with several maps."""
_MAPS = 8
"""Maps in a row; those of deeper steps look like the last."""


def applies(model: Any, task: str) -> str | None:
    if len(getattr(model, "input_shape", ())) != 3:
        return "it does not work on images"
    if not isinstance(model, ResidualModel) or getattr(model, "class_token", None) is not None:
        return "its stream is not one token for each patch"
    return None


def find_inputs(layer: Layer, reached: Bool[Tensor, "units outputs"]) -> Bool[Tensor, "units inputs"]:
    """The inputs of a layer that are connected to any of the given outputs; a mixer's are numbered as in vec(X)."""
    if isinstance(layer, PermutedKronecker):
        to, of = layer.ends()
        inputs = torch.zeros(len(reached), of.numel(), dtype=torch.bool)
        inputs[:, of] = reached[:, to].any(dim=-1, keepdim=True).expand(-1, -1, of.shape[1])
        return inputs
    inputs = torch.zeros(len(reached), layer.columns, dtype=torch.bool)
    flat = layer.flat_indices()
    for unit, outputs in enumerate(reached):
        if flat is None:
            inputs[unit] = outputs.any()
        else:
            inputs[unit, (flat % layer.columns)[outputs[flat // layer.columns]]] = True
    return inputs


@torch.no_grad()
def fields(path: Sequence[Step], size: int, units: Sequence[int]) -> Iterator[Bool[Tensor, "units inputs"]]:
    """The units of the embedded image that reach the given ``units`` of the stream (of ``size``), after every step."""
    found: Tensor | None = None
    for depth in range(1, len(path) + 1):
        # A skip keeps all units that were reached, so a full field stays full.
        if found is None or not bool(found.all()):
            found = functional.one_hot(torch.as_tensor(units), size).bool()
            for step in reversed(path[:depth]):
                found = _through(list(step.layers.values()), found) | _through(step.skip, found)
        yield found


def _through(layers: Sequence[Layer], reached: Bool[Tensor, "units outputs"]) -> Bool[Tensor, "units inputs"]:
    for layer in reversed(layers):
        reached = find_inputs(layer, reached)
    return reached


def connections(model: Any) -> dict[str, Any] | None:
    """The share of units reached after every step; of mixers also that of patches, and a map of one unit's patches."""
    path = steps_of(model)
    if not path:
        return None
    config = model.config
    mixes = hasattr(config, "inner_tokens")
    size = config.inner_tokens * config.C if mixes else config.m
    drawn = torch.randperm(size, generator=torch_generator(0, "receptive field"))[:UNITS].tolist()
    middle = (config.C // 2) * config.inner_tokens + _middle(config.inner_tokens, config) if mixes else size // 2
    shares: dict[str, Any] = {"steps": [step.name for step in path], "units": [], "patches": [], "maps": []}
    for reached in fields(path, size, [middle, *drawn]):
        shares["units"].append(float(reached[1:].float().mean()))
        if mixes:
            tokens = reached.unflatten(1, (config.C, -1))  # units, C, S0, because vec(X) is column-major
            shares["patches"].append(float(tokens[1:].any(dim=1).float().mean()))
            shares["maps"].append(round_values(tokens[0].float().mean(dim=0).view(config.grid)))
    return shares


def _middle(tokens: int, config: Any) -> int:
    rows, columns = config.grid
    return (rows // 2) * columns + columns // 2 if tokens == rows * columns else tokens // 2


def influence(model: Any, images: Iterator[Tensor]) -> dict[str, Any]:
    """Spread and map of the squared derivatives of every stream in the trajectory."""
    found = squared_derivatives(model, images)
    if not all(bool(squares.isfinite().all()) for squares in found.values()):
        raise UserError("the receptive field needs finite derivatives; this network overflows on the test rows")
    return {
        "steps": list(found),
        "spread": [spread(squares) for squares in found.values()],
        "maps": [round_values(_shrink(squares).sqrt()) for squares in found.values()],
    }


def squared_derivatives(model: Any, images: Iterator[Tensor]) -> dict[str, Float[Tensor, "height width"]]:
    """Of the middle token by every pixel, summed over channels, mean over images; for each stream."""
    model.requires_grad_(False)
    sums: dict[str, Tensor] = {}
    count = 0
    for number, x in enumerate(images):
        x.requires_grad_()
        probe = torch_generator(0, "receptive field", number)
        for name, value in model.trajectory(x):
            if not name.startswith(f"{model.symbol}_"):  # not the stream
                continue
            token = value[:, _middle(value.shape[1], model.config)]  # one unit of a flat stream
            # Along a random direction: its expected square is the sum of all channels' squares.
            along = torch.randn(token.shape, generator=probe)
            (slope,) = torch.autograd.grad((token * along).sum(), x, retain_graph=True)
            sums[name] = sums.get(name, 0) + slope.double().square().sum(dim=(0, 1))
        count += len(x)
    return {name: total / count for name, total in sums.items()}


def spread(squares: Float[Tensor, "height width"]) -> float:
    """(Σa)²/(n Σa²): 1 if all numbers are equal, 1/n if all but one are 0, and 0 if all are 0."""
    largest = float(squares.max())
    if not largest > 0:
        return 0.0
    shares = squares.double() / largest  # the square of a tiny number would be 0
    return float(shares.sum().square() / (shares.numel() * shares.square().sum()))


def _shrink(squares: Float[Tensor, "height width"]) -> Float[Tensor, "height width"]:
    height, width = (min(size, _PIXELS) for size in squares.shape)
    return functional.adaptive_avg_pool2d(squares[None], (height, width))[0]


@store_results(SCHEMA, applies, CPU)  # reads weights one by one
def of_run(trained: TrainedRun) -> Answer:
    """Both measurements of a finished run; connections only for models with sparse wide layers."""
    return {
        "model": trained.record.config["model"]["name"],
        "image": list(trained.model.input_shape),
        "connections": connections(trained.model),
        "influence": influence(trained.model, trained.test_inputs(IMAGES, _AT_ONCE)),
    }


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    """The values after the first two steps and the last."""
    shown: dict[str, float | str] = {}
    for name, titles in LINES.items():
        for line, title in titles.items() if found[name] else ():
            pairs = list(zip(found[name]["steps"], found[name][line], strict=False))
            shown |= {f"{title}, {step}": value for step, value in [*pairs[:2], *pairs[2:][-1:]]}
    return shown


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """The shares over depth, and a row of maps for each measurement."""
    readings = {name: found[name] for name in LINES if found[name]}
    figure, (axes,) = page(1, len(readings))
    for axis, (name, reading) in zip(axes, readings.items(), strict=True):
        for place, (line, title) in enumerate(LINES[name].items()):
            if reading[line]:
                axis.plot(reading["steps"], reading[line], **style(place), markersize=4, label=title)
        axis.set_ylim(0, 1.03)
        axis.tick_params(axis="x", rotation=90, labelsize=7)
        finish(axis, f"{found['model']} {found['run']}, {name}", "", "share of the image")
    files = [save(figure, folder / "receptive_field.png")]
    for name, reading in readings.items():
        shown = list(zip(reading["steps"], reading["maps"], strict=False))[:_MAPS]
        if not shown:
            continue
        figure, (axes,) = page(1, len(shown), width=1.9, height=2.1)
        for axis, (step, values) in zip(axes, shown, strict=True):
            matrix(axis, values, step, vmin=0, vmax=1 if name == "connections" else None)
        files.append(save(figure, folder / f"receptive_field-{name}.png"))
    return files
