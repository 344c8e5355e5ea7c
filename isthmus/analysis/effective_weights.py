"""Effective weights: the positions of a mixing step's connections in the weight matrix of the equivalent wide MLP.

Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), Figure S.9: I ⊗ W of a normal mixer consists of
blocks; J2 (I ⊗ W) J1 of a random-permuted mixer and M ⊙ A of an SW-MLP are scattered. For every layer:

    density     the share of entries of the matrix that are not zero; 1/copies for a PK layer, p for a mask
    aligned     the share of connections within one channel (mixing tokens) or one token (mixing channels): 1 for a
                normal mixer, about 1/copies if the permutation is random

W_eff has (SC)² entries and is never formed: a pixel of the picture is the largest |w| of its cell.
``isthmus.effective_weight(layer)`` returns the matrix of a small layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from isthmus.analysis.pictures import matrix, page, save
from isthmus.analysis.steps import Layer, Step, entries, steps_of
from isthmus.analysis.trained_run import CPU, Answer, TrainedRun, round_values, store_results
from isthmus.layers.permuted_kronecker import PermutedKronecker

SCHEMA = "isthmus.analysis.effective_weights/1"
CELLS = 128
"""Side of the picture of a whole matrix."""
CORNER = 64
"""Side of the picture of its corner, as in Figure S.9."""


def applies(model: Any, task: str) -> str | None:
    return None if steps_of(model) else "it has no permuted-Kronecker or masked layers"


def whole(layer: Layer, cells: int = CELLS) -> Float[Tensor, "rows columns"]:
    """The largest entry of |W_eff| in each cell, with at most ``cells`` cells along each side."""
    rows, columns = layer.effective_shape
    down, across = min(rows, cells), min(columns, cells)
    picture = torch.zeros(down * across)
    for part in entries(layer):
        cell = (part.rows * down // rows) * across + part.columns * across // columns
        picture.scatter_reduce_(0, cell, part.values.abs(), "amax")
    return picture.view(down, across)


def corner(layer: Layer, size: int = CORNER) -> Float[Tensor, "rows columns"]:
    """The first rows and columns of |W_eff|."""
    down, across = (min(length, size) for length in layer.effective_shape)
    picture = torch.zeros(down, across)
    for part in entries(layer):
        inside = (part.rows < down) & (part.columns < across)
        picture[part.rows[inside], part.columns[inside]] = part.values[inside].abs()
    return picture


def density(layer: Layer) -> float:
    copies, weights = (layer.copies, layer.weight) if isinstance(layer, PermutedKronecker) else (1, layer.values)
    return copies * int(weights.count_nonzero()) / math.prod(layer.effective_shape)


def aligned_share(step: Step, name: str, tokens_in: int, tokens_out: int) -> float | None:
    """The share of connections between units of the same channel or token; None for an SW-MLP, which has neither."""
    layer = step.layers[name]
    if not isinstance(layer, PermutedKronecker):
        return None
    place = list(step.layers).index(name)
    to, of = layer.ends()
    # Hidden units are not permuted: they belong to the copies in order.
    starts = _owner(of, tokens_in, step.name) if place == 0 else of // of.shape[1]
    ends = _owner(to, tokens_out, step.name) if place == len(step.layers) - 1 else to // to.shape[1]
    same = sum(int((a[:, None] == b).sum()) for a, b in zip(ends, starts, strict=True))
    return same / (to.shape[1] * of.numel())


def _owner(unit: Int[Tensor, "copies width"], tokens: int, step: str) -> Int[Tensor, "copies width"]:
    """The channel (in token mixing) or the token (in channel mixing) of a unit of vec(X), which is column-major."""
    return unit // tokens if step.startswith("token") else unit % tokens


@store_results(SCHEMA, applies, CPU)  # reads weights one by one
def of_run(trained: TrainedRun) -> Answer:
    """Numbers of every layer of a finished run, with pictures of the first normal and the first random block."""
    return {"model": trained.record.config["model"]["name"], "layers": measure_layers(trained.model)}


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
            line: dict[str, Any] = {
                "layer": f"{step.name}.{name}",
                "random": random,
                "shape": list(layer.effective_shape),
            }
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
    """A column for each layer: the whole matrix and its corner."""
    lines = _lines_with_pictures(found)
    figure, axes = page(2, len(lines), width=3.2, height=3.3)
    for line, above, below in zip(lines, *axes, strict=True):
        rows, columns = line["shape"]
        kind = ", random" if line["random"] else ""
        matrix(above, line["whole"], f"{line['layer']}{kind}: {rows}×{columns}", vmin=0, cmap="Greys")
        matrix(below, line["corner"], f"its first {len(line['corner'])}×{len(line['corner'][0])}", vmin=0, cmap="Greys")
    return [save(figure, folder / "effective_weights.png")]
