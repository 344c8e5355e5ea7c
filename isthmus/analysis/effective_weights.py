"""Effective weights: the positions of a mixing step's connections in the weight matrix of the equivalent wide MLP.

Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), Figure S.9: I ⊗ W of a normal mixer lies in blocks,
J2 (I ⊗ W) J1 of a random-permuted one everywhere, and so does M ⊙ A of an SW-MLP. In numbers, for every layer:

    density     connections that are not zero, as a share of the matrix; 1/copies for a PK layer, p for a mask
    aligned     connections whose two ends belong to the same channel (mixing tokens) or token (mixing channels), as a
                share of all: 1 for a normal mixer, about 1/copies where the permutation is random

W_eff has (SC)² entries and is never formed: a pixel of the picture is the largest |w| of its cell.
``isthmus.effective_weight(layer)`` returns the matrix of a small layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from isthmus.analysis.pictures import matrix, page, save
from isthmus.analysis.steps import Layer, Step, steps_of
from isthmus.analysis.trained_run import Answer, TrainedRun, measure_once, round_values
from isthmus.layers.permuted_kronecker import PermutedKronecker

SCHEMA = "isthmus.analysis.effective_weights/1"
CELLS = 128
"""Side of the picture of a whole matrix."""
CORNER = 64
"""Side of the picture of its corner, as in Figure S.9."""


def applies(model: Any, task: str) -> str | None:
    return None if steps_of(model) else "it has no permuted-Kronecker or masked layers"


class Entries(NamedTuple):
    """Connections of a layer with their rows and columns in W_eff."""

    rows: Int[Tensor, " connections"]
    columns: Int[Tensor, " connections"]
    values: Float[Tensor, " connections"]


@torch.no_grad()
def entries(layer: Layer) -> Iterator[Entries]:
    """Every connection once, a copy at a time."""
    if isinstance(layer, PermutedKronecker):
        to = layer.after.sigma().argsort().view(layer.copies, -1)
        of = layer.before.sigma().view(layer.copies, -1)
        for rows, columns in zip(to, of, strict=True):
            shape = layer.weight.shape
            yield Entries(
                rows[:, None].expand(shape).flatten(), columns.expand(shape).flatten(), layer.weight.detach().flatten()
            )
        return
    flat = layer.flat_indices()
    flat = torch.arange(layer.rows * layer.columns) if flat is None else flat
    yield Entries(flat // layer.columns, flat % layer.columns, layer.values.detach() * layer.scale)


def shape_of(layer: Layer) -> tuple[int, int]:
    return layer.effective_shape if isinstance(layer, PermutedKronecker) else (layer.rows, layer.columns)


def whole(layer: Layer, cells: int = CELLS) -> Float[Tensor, "rows columns"]:
    """|W_eff| in at most ``cells`` cells along each side; each shows its largest entry."""
    rows, columns = shape_of(layer)
    down, across = min(rows, cells), min(columns, cells)
    picture = torch.zeros(down * across)
    for part in entries(layer):
        cell = (part.rows * down // rows) * across + part.columns * across // columns
        picture.scatter_reduce_(0, cell, part.values.abs(), "amax")
    return picture.view(down, across)


def corner(layer: Layer, size: int = CORNER) -> Float[Tensor, "rows columns"]:
    """|W_eff|'s first rows and columns, entry by entry."""
    down, across = (min(length, size) for length in shape_of(layer))
    picture = torch.zeros(down, across)
    for part in entries(layer):
        inside = (part.rows < down) & (part.columns < across)
        picture[part.rows[inside], part.columns[inside]] = part.values[inside].abs()
    return picture


def density(layer: Layer) -> float:
    rows, columns = shape_of(layer)
    weights = layer.weight if isinstance(layer, PermutedKronecker) else layer.values
    copies = layer.copies if isinstance(layer, PermutedKronecker) else 1
    return int(weights.count_nonzero()) * copies / (rows * columns)


def aligned_share(step: Step, name: str, tokens_in: int, tokens_out: int) -> float | None:
    """The share of connections between units of the same channel or token; None for a layer without either."""
    layer = step.layers[name]
    if not isinstance(layer, PermutedKronecker):
        return None
    place = list(step.layers).index(name)
    to = layer.after.sigma().argsort().view(layer.copies, -1)
    of = layer.before.sigma().view(layer.copies, -1)
    # Hidden units are not permuted: they belong to the copies in order.
    starts = _owner(of, tokens_in, step.name) if place == 0 else of // of.shape[1]
    ends = _owner(to, tokens_out, step.name) if place == len(step.layers) - 1 else to // to.shape[1]
    same = sum(int((a[:, None] == b).sum()) for a, b in zip(ends, starts, strict=True))
    return same / (to.shape[1] * of.numel())


def _owner(unit: Int[Tensor, "copies width"], tokens: int, step: str) -> Int[Tensor, "copies width"]:
    """The channel of a unit of vec(X) in token mixing, its token in channel mixing; vec is column-major."""
    return unit // tokens if step.startswith("token") else unit % tokens


def of_run(run: str | Path, data_dir: Path | None = None) -> Answer:
    """Numbers of every layer of a finished run, and pictures of the first block, and of the first of the other kind."""

    def measure(trained: TrainedRun) -> Answer:
        return {"model": trained.record.config["model"]["name"], "layers": measure_layers(trained.model)}

    return measure_once(run, "effective_weights", SCHEMA, measure, applies, data_dir)


def measure_layers(model: Any) -> list[dict[str, Any]]:
    """Every layer by its step and its name in it."""
    lines: list[dict[str, Any]] = []
    pictured: dict[str, set[bool]] = {}
    tokens = getattr(model.config, "tokens", 0)
    for step in steps_of(model):
        kind, _, number = step.name.partition("_")
        random = bool(getattr(model.blocks[int(number) - 1], "random", False))
        tokens_out = getattr(model.config, "inner_tokens", tokens)
        shown = random not in pictured.setdefault(kind, set())
        pictured[kind].add(random)
        for name, layer in step.layers.items():
            line: dict[str, Any] = {"layer": f"{step.name}.{name}", "random": random, "shape": list(shape_of(layer))}
            line |= {"density": density(layer), "aligned": aligned_share(step, name, tokens, tokens_out)}
            line |= {"whole": round_values(whole(layer), 3), "corner": round_values(corner(layer), 3)} if shown else {}
            lines.append(line)
        tokens = tokens_out
    return lines


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    """Density and alignment of the layers that are drawn."""
    shown: dict[str, float | str] = {}
    for line in _lines_with_pictures(found):
        rows, columns = line["shape"]
        aligned = "" if line["aligned"] is None else f", aligned {line['aligned']:.4g}"
        shown[f"{line['layer']}, {rows:,}×{columns:,}"] = f"density {line['density']:.4g}{aligned}"
    return shown


def _lines_with_pictures(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [line for line in found["layers"] if "whole" in line]


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """A column for each layer: the whole matrix above, its corner below."""
    lines = _lines_with_pictures(found)
    figure, axes = page(2, len(lines), width=3.2, height=3.3)
    for line, above, below in zip(lines, *axes, strict=True):
        rows, columns = line["shape"]
        kind = ", random" if line["random"] else ""
        matrix(above, line["whole"], f"{line['layer']}{kind}: {rows}×{columns}", vmin=0, cmap="Greys")
        matrix(below, line["corner"], f"its first {len(line['corner'])}×{len(line['corner'][0])}", vmin=0, cmap="Greys")
        for axis in (above, below):
            axis.set_xticks([])
            axis.set_yticks([])
    return [save(figure, folder / "effective_weights.png")]
