"""The bytes of a network's weights in float32, frozen projections included: what an export stores.

`isthmus export RUN --to onnx --int8` stores about a quarter of them, and says how many; a study with
``precision: [float32, int8]`` has such networks on its front.
"""

from __future__ import annotations

from isthmus.core.costs import CostKind
from isthmus.core.protocols import ModelConfig

NAMES = {"bytes": "BYTES"}

_BYTES_OF_FLOAT32 = 4


def count_bytes(config: ModelConfig, threads: int) -> float:
    """All weights in float32: what an export stores."""
    from isthmus.training.counting import count_params

    return _BYTES_OF_FLOAT32 * count_params(config)


BYTES = CostKind("Bytes of weights", "bytes", count_bytes)
