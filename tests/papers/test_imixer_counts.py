"""The parameters of iMixer-S, -B and -L, which follow from the paper and the Mixer's sizes to the last digit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from isthmus import cost
from isthmus.models.imixer import VARIANTS, IMixer, IMixerConfig

TEN_CLASSES = {"output_shape": (10,)}


def params(settings: dict[str, Any]) -> int:
    """Without what ``cost`` counts besides."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in IMixer(IMixerConfig(**settings)).parameters())


@pytest.mark.parametrize(
    ("size", "ten", "thousand"),
    [("s", 20_123_690, 20_631_560), ("b", 66_210_874, 66_972_184), ("l", 232_384_106, 233_398_856)],
)
def test_every_size(size: str, ten: int, thousand: int) -> None:
    assert params(VARIANTS[size] | TEN_CLASSES) == ten
    assert params(VARIANTS[size]) == thousand


@pytest.mark.parametrize(
    ("h_r", "published"), [(0.25, 18_285_098), (0.5, 18_547_754), (1, 19_073_066), (2, 20_123_690)]
)
def test_every_hidden_ratio_of_table_2(h_r: float, published: int) -> None:
    assert params(VARIANTS["s"] | TEN_CLASSES | {"h_r": h_r}) == published
    # Each of the eight blocks has 2 h_r D_S² + h_r D_S + D_S more than the Mixer's.
    assert published - 18_020_394 == 8 * (2 * h_r * 256**2 + h_r * 256 + 256)


@pytest.mark.parametrize(("size", "published"), [("s", 18_020_394), ("b", 59_119_162), ("l", 207_181_418)])
def test_one_hidden_layer_is_the_mixer(size: str, published: int) -> None:
    assert params(VARIANTS[size] | TEN_CLASSES | {"hierarchy": 1}) == published


def test_iterations_cost_time_and_no_parameters() -> None:
    once, twice, four = (cost(VARIANTS["s"] | {"iterations": n}) for n in (1, 2, 4))
    assert once.params == twice.params == four.params == once.trainable_params == 20_631_560
    assert twice.macs - once.macs == 8 * 512 * 2 * 256 * 512  # blocks, channels, two maps between 256 and 512 neurons
    assert four.macs - twice.macs == 2 * (twice.macs - once.macs)
    # A checkpoint also holds the singular vectors: 256 + 512 numbers for each of two maps.
    assert once.stored_params - once.params == 8 * 2 * (256 + 512)
