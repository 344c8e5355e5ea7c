"""Standardisation learned from training rows: part of the run, and saved with it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

_MOST_ROWS_READ = 100_000


class Scaling:
    """x ↦ (x − mean) / std, per feature of a table or per channel of images. A constant feature keeps its scale."""

    def __init__(self) -> None:
        self.mean = torch.zeros(1)
        self.std = torch.ones(1)

    def learn(self, rows: np.ndarray) -> None:
        stride = -(-len(rows) // _MOST_ROWS_READ)  # over all rows: a data set's own training rows may be sorted
        sample = np.asarray(rows[::stride], dtype=np.float64)
        axes = (0, 2, 3) if sample.ndim == 4 else 0
        shape = (1, -1, 1, 1) if sample.ndim == 4 else (1, -1)
        mean, std = sample.mean(axes), sample.std(axes)
        std[std <= 1e-12 * np.maximum(1, np.abs(mean))] = 1.0
        self.mean = torch.from_numpy(mean.reshape(shape)).float()
        self.std = torch.from_numpy(std.reshape(shape)).float()

    def apply(self, rows: Tensor) -> Tensor:
        return (rows.float() - self.mean.to(rows.device)) / self.std.to(rows.device)

    def undo(self, scaled: Tensor) -> Tensor:
        return scaled * self.std.to(scaled.device) + self.mean.to(scaled.device)

    def memory(self, prefix: str) -> dict[str, Tensor]:
        return {f"{prefix}.mean": self.mean, f"{prefix}.std": self.std}

    def recall(self, memory: Mapping[str, Tensor], prefix: str) -> None:
        self.mean, self.std = memory[f"{prefix}.mean"], memory[f"{prefix}.std"]
