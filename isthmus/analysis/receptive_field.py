"""Receptive field: which part of the image a unit of the stream depends on, after every mixing step.

Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), appendix D.4: a random permutation chooses which
units flow into one, at a rate of 1/√m of the m = S·C units for each step (S = C), and as every step chooses anew, the
field grows with depth. That may be why shallow permuted mixers trail the normal ones. Two readings:

    connections   counted through the weights (and skips), whatever their values: of what share of the units of the
                  embedded image, and of the patches, one unit of the stream has any part. Norms are left out: they
                  join all channels of a token, and the paper counts weights. Mean over units that are drawn once.
    influence     what the trained network makes of it: the root mean square of ∂(a token)/∂(pixel) over test images,
                  norms included, as a map; and its spread, (Σa)²/(n Σa²) of the squared derivatives a, which is 1 where
                  all n pixels count alike and 1/n where only one does. Of the token in the middle (of an SW-MLP,
                  which has none, of the unit in the middle).
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
from isthmus.analysis.trained_run import Answer, TrainedRun, measure_once, round_values
from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.layers.permuted_kronecker import PermutedKronecker
from isthmus.layers.residual import ResidualModel

SCHEMA = "isthmus.analysis.receptive_field/1"
UNITS = 64
IMAGES = 16
_AT_ONCE = 4  # images, because the graph of a deep network on more would not fit into memory
_PIXELS = 64
"""Side of a map: finer ones would not be visible in a figure of several."""
_MAPS = 8
"""Maps in a row: deeper ones look like the last."""


def applies(model: Any, task: str) -> str | None:
    if len(getattr(model, "input_shape", ())) != 3:
        return "it does not work on images"
    if not isinstance(model, ResidualModel) or getattr(model, "class_token", None) is not None:
        return "its stream is not one token for each patch"
    return None


def backwards(layer: Layer, reached: Bool[Tensor, "units outputs"]) -> Bool[Tensor, "units inputs"]:
    """The inputs of a layer that are connected to any of the given outputs; a mixer's are numbered as in vec(X)."""
    if isinstance(layer, PermutedKronecker):
        to = layer.after.sigma().argsort().view(layer.copies, -1)
        of = layer.before.sigma().view(layer.copies, -1)
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
    """After every step: which units of the embedded image reach the given ones of the stream, which has ``size``."""
    found: Tensor | None = None
    for depth in range(1, len(path) + 1):
        # A skip keeps every unit that was reached, so a full field stays full.
        if found is None or not bool(found.all()):
            found = functional.one_hot(torch.as_tensor(units), size).bool()
            for step in reversed(path[:depth]):
                found = _through(list(step.layers.values()), found) | _through(step.skip, found)
        yield found


def _through(layers: Sequence[Layer], reached: Bool[Tensor, "units outputs"]) -> Bool[Tensor, "units inputs"]:
    for layer in reversed(layers):
        reached = backwards(layer, reached)
    return reached


def connections(model: Any) -> dict[str, Any] | None:
    """Shares reached, after every step; of mixers also the share of patches, and of every patch for one unit."""
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
            tokens = reached.unflatten(1, (config.C, -1))  # units, C, S0: vec(X) has the columns one below the other
            shares["patches"].append(float(tokens[1:].any(dim=1).float().mean()))
            shares["maps"].append(round_values(tokens[0].float().mean(dim=0).view(_grid(config))))
    return shares


def _grid(config: Any) -> tuple[int, int]:
    return config.image[1] // config.patch, config.image[2] // config.patch


def _middle(tokens: int, config: Any) -> int:
    rows, columns = _grid(config)
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
    """Of the token in the middle by every pixel, summed over channels, the mean over images; by stream."""
    model.requires_grad_(False)
    sums: dict[str, Tensor] = {}
    count = 0
    for number, x in enumerate(images):
        x.requires_grad_()
        probe = torch_generator(0, "receptive field", number)
        for name, value in model.streams(x):
            token = value[:, _middle(value.shape[1], model.config)]  # of a flat stream: one unit
            # Along a random direction: the mean of its square is the sum of all channels' squares.
            along = torch.randn(token.shape, generator=probe)
            (slope,) = torch.autograd.grad((token * along).sum(), x, retain_graph=True)
            sums[name] = sums.get(name, 0) + slope.double().square().sum(dim=(0, 1))
        count += len(x)
    return {name: total / count for name, total in sums.items()}


def spread(squares: Float[Tensor, "height width"]) -> float:
    """(Σa)²/(n Σa²): 1 where all numbers are equal, 1/n where all but one are 0, and 0 where all are."""
    largest = float(squares.max())
    if not largest > 0:
        return 0.0
    shares = squares.double() / largest  # the square of a tiny number would be 0
    return float(shares.sum().square() / (shares.numel() * shares.square().sum()))


def _shrink(squares: Float[Tensor, "height width"]) -> Float[Tensor, "height width"]:
    height, width = (min(size, _PIXELS) for size in squares.shape)
    return functional.adaptive_avg_pool2d(squares[None], (height, width))[0]


def of_run(run: str | Path, data_dir: Path | None = None) -> Answer:
    """Both readings of a finished run; the first only of models whose wide layers are sparse."""

    def measure(trained: TrainedRun) -> Answer:
        model = trained.model
        return {
            "model": trained.record.config["model"]["name"],
            "image": list(model.input_shape),
            "connections": connections(model),
            "influence": influence(model, trained.test_inputs(IMAGES, _AT_ONCE)),
        }

    return measure_once(run, "receptive_field", SCHEMA, measure, applies, data_dir)


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    """After the first two steps and the last."""
    shown: dict[str, float | str] = {}
    counted = found["connections"]
    for name in ("units", "patches") if counted else ():
        if counted[name]:
            shown |= {f"{name} reached, {step}": value for step, value in _some(counted["steps"], counted[name])}
    felt = found["influence"]
    return shown | {f"spread of the influence, {step}": value for step, value in _some(felt["steps"], felt["spread"])}


def _some(names: Sequence[str], values: Sequence[float]) -> list[tuple[str, float]]:
    pairs = list(zip(names, values, strict=True))
    return pairs if len(pairs) <= 3 else [*pairs[:2], pairs[-1]]


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """The shares over depth, and a row of maps for each reading."""
    lines = {
        "connections": {"units": "units reached", "patches": "patches reached"},
        "influence": {"spread": "spread of the influence"},
    }
    readings = {name: found[name] for name in lines if found[name]}
    figure, (axes,) = page(1, len(readings))
    for axis, (name, reading) in zip(axes, readings.items(), strict=True):
        for place, (line, title) in enumerate(lines[name].items()):
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
            matrix(axis, values, step, **{"vmin": 0, "vmax": 1} if name == "connections" else {"vmin": 0})
            axis.set_axis_off()
        files.append(save(figure, folder / f"receptive_field-{name}.png"))
    return files
