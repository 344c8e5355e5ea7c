"""A space of a dozen small networks, and the task that they are judged for."""

from __future__ import annotations

from typing import Any

from isthmus.core.protocols import Signature

BASE: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "train": {"epochs": 4}, "threads": 1}
SIGNATURE = Signature((1, 8, 8), (1, 8, 8))
HOURGLASS: dict[str, Any] = {
    "model": {"name": "hourglass_mlp"},
    "vary": {"d_z": [65, 96], "d_h": [8, 64, 80], "depth": {"low": 1, "high": 2}},
}
