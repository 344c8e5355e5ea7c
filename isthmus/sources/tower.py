"""Rows of a random residual network, whose dependence on composition is known.

    y = T_K(x) − x,    T_K: z ← z + λ W_2k tanh(W_1k z) for k = 1 … K,    x ~ N(0, I_d)

W_1k has h × d numbers of N(0, 1/d), W_2k d × h numbers of N(0, 1/h). Branches that all read x give the first order
y_1 = λ Σ_k W_2k tanh(W_1k x). The share beyond first order, Σ‖y − y_1‖² / Σ‖y‖² over all rows, says how much the
branches depend on each other. It is a sentence in the record of every run (``data.findings``):

    λ                            1/16     ½        2
    share beyond first order     0.012    0.512    1.221     (the other fields at their defaults)

It exceeds 1 where y_1 is further from y than 0 is. On residual network depth (Dherin, Munn 2025) has the expansion;
Make Deep Networks Shallow Again (Bermeitinger et al. 2023) claims that the first order is enough.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from isthmus.core.draws import numpy_generator
from isthmus.core.protocols import Component, Data, Source, Split
from isthmus.sources.splits import HeldOutRows, Rows, check_splits

NAMES = {"tower": "Tower"}
MEANINGS = {"tower": "Rows of a random residual network whose order is known, drawn from a seed: no download."}

Size = Annotated[int, Field(ge=1, le=10_000)]


class TowerConfig(Component):
    scale: Annotated[float, Field(gt=0, le=100)] = 0.5
    """λ, the factor of every update of the tower: 1/16 is nearly first order, 2 is far beyond it."""
    depth: Size = 16
    """K, the number of the tower's branches."""
    d: Size = 32
    """Width of the tower's stream: the number of inputs and of targets."""
    h: Size = 8
    """Width of the tower's branches."""
    train: Rows = 4_000
    """Rows for training."""
    validation: HeldOutRows = 500
    """Rows for validation."""
    test: Rows = 1_000
    """Rows for the test."""
    seed: int = 0
    """Draws the tower and its rows; the run's seed does not change them."""


class Tower(Source):
    """float32 (rows, d) with float32 targets (rows, d); 4,000 / 500 / 1,000."""

    Config = TowerConfig

    def load(self, data_dir: Path) -> Data:
        config = self.config
        held_out = [config.train, config.validation, config.test]
        x = numpy_generator(config.seed, "rows of the tower").standard_normal((sum(held_out), config.d))
        y, first = climb(config, x)
        bounds = np.cumsum(held_out)[:-1]
        inputs, targets = (np.split(each.astype(np.float32), bounds) for each in (x, y))
        data = check_splits(config.name, [Split(*both) for both in zip(inputs, targets, strict=True)])
        return replace(data, findings=(describe_order(y, first),))


def draw_branch(config: TowerConfig, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights W_1k (h, d) and W_2k (d, h) of branch k, drawn when needed, because all of them may be large."""
    generator = numpy_generator(config.seed, "tower", number)
    W_1 = generator.standard_normal((config.h, config.d)) / config.d**0.5
    return W_1, generator.standard_normal((config.d, config.h)) / config.h**0.5


def climb(config: TowerConfig, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The output y of the tower, and its first-order part y_1."""
    z, first = x, np.zeros_like(x)
    for number in range(1, config.depth + 1):
        W_1, W_2 = draw_branch(config, number)
        first = first + config.scale * np.tanh(x @ W_1.T) @ W_2.T
        z = z + config.scale * np.tanh(z @ W_1.T) @ W_2.T
    return z - x, first


def share_beyond_first_order(y: np.ndarray, first: np.ndarray) -> float:
    return float(np.square(y - first).sum() / np.square(y).sum())


def describe_order(y: np.ndarray, first: np.ndarray) -> str:
    share = share_beyond_first_order(y, first)
    return f"the share of the targets beyond first order is {share:.4f}: Σ‖y − y_1‖² / Σ‖y‖²"
