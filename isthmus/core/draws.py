"""Random generators keyed by (seed, stream, step), so that a resumed run needs no stored generator state."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch


def key(seed: int, stream: str, step: int = 0) -> int:
    """A 63-bit hash of the key."""
    address = f"{seed}/{stream}/{step}".encode()
    return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest(), "little") >> 1


def torch_generator(seed: int, stream: str, step: int = 0, device: torch.device | str = "cpu") -> torch.Generator:
    import torch

    return torch.Generator(device).manual_seed(key(seed, stream, step))


def numpy_generator(seed: int, stream: str, step: int = 0) -> np.random.Generator:
    import numpy as np

    return np.random.default_rng(key(seed, stream, step))
