"""Patches are those of a convolution whose step is its kernel; tokens give back the image they were cut from."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import conv2d

from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.layers.drop_path import DropPath
from isthmus.layers.patches import Head, ImageModelConfig, PatchEmbedding, cut_patches, join_patches

small = st.integers(1, 4)


def config(shape: tuple[int, int, int], patch: int, output: tuple[int, ...] = (7,)) -> ImageModelConfig:
    return ImageModelConfig(name="any", input_shape=shape, output_shape=output, patch=patch)


@given(channels=small, rows=small, columns=small, patch=small)
def test_the_embedding_is_a_convolution(channels: int, rows: int, columns: int, patch: int) -> None:
    layer = PatchEmbedding(config((channels, rows * patch, columns * patch), patch), width=5).double()
    x = torch.randn(2, channels, rows * patch, columns * patch, dtype=torch.float64)
    kernel = layer.linear.weight.view(5, channels, patch, patch)
    expected = conv2d(x, kernel, layer.linear.bias, stride=patch).flatten(2).mT
    torch.testing.assert_close(layer(x), expected)


@given(channels=small, rows=small, columns=small, patch=small)
def test_joined_patches_are_the_image(channels: int, rows: int, columns: int, patch: int) -> None:
    x = torch.randn(3, channels, rows * patch, columns * patch)
    assert torch.equal(join_patches(cut_patches(x, patch), (channels, rows * patch, columns * patch)), x)


@pytest.mark.parametrize("scale", [1, 2])
def test_a_token_speaks_of_its_own_patch_alone(scale: int) -> None:
    settings = config((3, 8, 12), 4, (3, 8 * scale, 12 * scale))
    head = Head(settings, tokens=6, width=5)
    one = torch.randn(1, 6, 5)
    other = one.clone()
    other[0, 4] += 1
    changed = (head(one) != head(other)).any(1).squeeze(0)
    expected = torch.zeros(8 * scale, 12 * scale, dtype=torch.bool)
    expected[4 * scale :, 4 * scale : 8 * scale] = True  # the fifth patch of two rows of three
    assert torch.equal(changed, expected)


def test_other_numbers_of_tokens_are_mapped_back() -> None:
    head = Head(config((3, 8, 8), 4, (3, 8, 8)), tokens=9, width=5)
    assert head(torch.randn(2, 9, 5)).shape == (2, 3, 8, 8)


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        (Signature((64,), (10,)), r"any works on images; this task gives rows of \(64,\)"),
        (Signature((1, 28, 28), (10,)), "any: patch=8 does not divide an image of 28×28 pixels"),
        (Signature((1, 16, 16), (1, 24, 24)), "any: an output of 24 rows is not a multiple of 16 rows"),
        (Signature((1, 16, 16), (1, 16, 32)), "neither .* nor an image like 16×16"),
    ],
)
def test_what_does_not_fit_is_said_in_a_line(signature: Signature, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        ImageModelConfig(name="any", patch=8).complete(signature, seed=0)
    assert "\n" not in str(error.value)


def test_drop_path_leaves_out_whole_rows_and_keeps_the_mean() -> None:
    layer, x = DropPath(0.3), torch.ones(20_000, 2, 3)
    dropped = layer(x)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert torch.equal(dropped.amax((1, 2)), dropped.amin((1, 2)))
    assert abs(float(dropped.mean()) - 1) < 0.03
    assert torch.equal(layer.eval()(x), x)
    assert DropPath(0.0)(x) is x
