"""What a network keeps of one row: between two branches, and from the forward to the backward pass."""

from __future__ import annotations

from isthmus.core.costs import CostKind
from isthmus.core.protocols import ModelConfig

NAMES = {"stream_values": "STREAM_VALUES", "saved_values": "SAVED_VALUES"}


def count_stream_values(config: ModelConfig, threads: int) -> float:
    """The most numbers that the pathway keeps between two branches; 0 without a residual stream."""
    from isthmus.training.counting import count_kept

    return count_kept(config).stream_values


def count_saved_values(config: ModelConfig, threads: int) -> float:
    """The numbers that autograd keeps for the gradient, without weights."""
    from isthmus.training.counting import count_kept

    return count_kept(config).saved_values


STREAM_VALUES = CostKind("Stream values per row", "stream values per row", count_stream_values)
SAVED_VALUES = CostKind("Saved values per row", "saved values per row", count_saved_values)
