"""Reduction and flips of images against Pillow and numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from isthmus.tasks.augment import orient
from isthmus.tasks.super_resolution import reduce_images


@pytest.mark.parametrize(
    ("height", "width", "factor"), [(32, 32, 2), (28, 28, 2), (12, 20, 2), (24, 30, 3), (32, 16, 4)]
)
def test_the_reduction_is_pillows_bicubic(height, width, factor):
    images = np.random.default_rng(0).random((2, 3, height, width), np.float32)
    ours = reduce_images(torch.from_numpy(images), factor).numpy()
    size = (width // factor, height // factor)
    for image, mine in zip(images.reshape(-1, height, width), ours.reshape(-1, size[1], size[0]), strict=True):
        pillows = np.asarray(Image.fromarray(image, mode="F").resize(size, Image.Resampling.BICUBIC))
        np.testing.assert_allclose(mine, pillows, atol=2e-6)


def test_the_reduction_keeps_a_constant_and_may_overshoot():
    assert torch.allclose(reduce_images(torch.full((1, 1, 8, 8), 0.7), 2), torch.tensor(0.7), atol=1e-6)
    edge = torch.zeros(1, 1, 16, 16)
    edge[..., 8:] = 1
    assert reduce_images(edge, 2).min() < 0


def test_the_reduction_commutes_with_flips():
    images, view = torch.rand(4, 3, 12, 20), torch.arange(4)
    assert torch.allclose(reduce_images(orient(images, view), 2), orient(reduce_images(images, 2), view), atol=1e-6)


def test_orientations_are_numpys_flips():
    images = torch.rand(9, 3, 5, 4)
    view = torch.tensor([0, 1, 2, 3, 3, 2, 1, 0, 2])
    flips = [lambda a: a, lambda a: a[:, :, ::-1], lambda a: a[:, ::-1], lambda a: a[:, ::-1, ::-1]]
    for image, one, result in zip(images.numpy(), view.tolist(), orient(images, view).numpy(), strict=True):
        assert np.array_equal(result, flips[one](image))
