"""What a cost says about itself, to be registered by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isthmus.core.protocols import ModelConfig


@dataclass(frozen=True)
class CostKind:
    """What a study can weigh quality against and a budget can limit; ``isthmus/costs`` registers them by name."""

    title: str
    """Of an axis or a column: "Latency (ms per batch)"."""
    unit: str
    """After a number: "ms"."""
    compute: Callable[[ModelConfig, int], float]
    """Of a complete config, with this number of CPU threads."""
    quantity: str = ""
    """Before "in UNIT": "latency"; empty where the unit is what is counted."""
    is_measured: bool = False
    """Measured on this machine: a study keeps the first value, and no budget can limit it."""

    @property
    def meaning(self) -> str:
        """What is counted, in one line: the docstring of the function that computes it."""
        return (self.compute.__doc__ or "").strip().partition("\n")[0].rstrip()

    @property
    def noun(self) -> str:
        return self.quantity or self.unit
