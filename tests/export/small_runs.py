"""A run to export, and a model that has no matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.command_line import train


def train_alone(folder: Path, **changes: Any) -> Path:
    """The run of a tiny training in a home of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(folder / "home"))
        torch.set_num_threads(1)
        train(folder, **changes)
    (run,) = (folder / "home" / "runs").iterdir()
    return run


class Pointwise(nn.Module):
    input_shape = (64,)

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x
