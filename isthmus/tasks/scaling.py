"""Standardisation by the training rows, saved with the run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

_MOST_ROWS_READ = 100_000


class Scaling:
    """x ↦ (x − mean) / std, per feature of a table or per channel of images, whatever the units of x.

    A feature that is constant over the training rows has no scale of its own, and any that we chose would depend on its
    units. Its ``std`` is 0: it is scaled to 0, also where other rows differ, and back to its mean.
    """

    def __init__(self) -> None:
        self.mean = torch.zeros(1)
        self.std = torch.ones(1)

    def learn(self, rows: np.ndarray) -> None:
        stride = -(-len(rows) // _MOST_ROWS_READ)  # evenly over all rows, which may be sorted
        mean, std = _moments(rows[::stride])
        if rows.ndim == 2 and stride > 1 and (constant := std == 0).any():  # unread rows may vary
            mean[constant], std[constant] = _moments(rows[:, constant])
        shape = (1, -1, 1, 1) if rows.ndim == 4 else (1, -1)
        self.mean = torch.from_numpy(mean.reshape(shape)).float()
        self.std = torch.from_numpy(std.reshape(shape)).float()

    @property
    def constant(self) -> Tensor:
        """Which features have the same value in every training row."""
        return (self.std == 0).flatten()

    def apply(self, rows: Tensor) -> Tensor:
        divisor = self.std.masked_fill(self.std == 0, torch.inf)
        return (rows.float() - self.mean.to(rows.device)) / divisor.to(rows.device)

    def undo(self, scaled: Tensor) -> Tensor:
        return scaled * self.std.to(scaled.device) + self.mean.to(scaled.device)

    def memory(self, prefix: str) -> dict[str, Tensor]:
        return {f"{prefix}.mean": self.mean, f"{prefix}.std": self.std}

    def recall(self, memory: Mapping[str, Tensor], prefix: str) -> None:
        self.mean, self.std = memory[f"{prefix}.mean"], memory[f"{prefix}.std"]


def append_ones(rows: Tensor) -> Tensor:
    return torch.cat([rows, rows.new_ones(rows.shape[0], 1)], dim=1)


def with_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a row of features with that column."""
    return (*shape[:-1], shape[-1] + 1)


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation, in float64 so that no square overflows; 0 for constant features."""
    values = np.asarray(rows, dtype=np.float64)
    axes = (0, 2, 3) if values.ndim == 4 else 0
    mean, std = values.mean(axes), values.std(axes)
    std[std <= 1e-12 * np.abs(mean)] = 0.0  # below the resolution of float32: rounding, not variation
    return mean, std
