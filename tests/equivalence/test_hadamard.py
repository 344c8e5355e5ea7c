"""The fast Hadamard projection against the explicit matrix √(n/d_out) P H D."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from isthmus.layers.projections import HadamardProjection

WIDTHS = [(1, 1, 1), (3, 5, 8), (8, 8, 8), (100, 37, 128), (37, 100, 128), (196, 300, 512), (129, 128, 256)]


def explicit(layer, n):
    hadamard = scipy.linalg.hadamard(n) / np.sqrt(n)
    chosen = np.eye(n)[layer.kept.numpy()]
    padded = np.eye(n, len(layer.signs))
    return np.sqrt(n / len(layer.kept)) * chosen @ hadamard @ padded @ np.diag(layer.signs.numpy())


@pytest.mark.parametrize(("d_in", "d_out", "n"), WIDTHS)
def test_forward_and_backward_are_the_explicit_matrix(d_in, d_out, n):
    layer = HadamardProjection(d_in, d_out, seed=3).double()
    matrix = explicit(layer, n)
    assert matrix.shape == (d_out, d_in)
    x = torch.randn(6, d_in, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(6, d_out, dtype=torch.float64)
    y = layer(x)
    y.backward(upstream)
    np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy() @ matrix.T, atol=1e-12)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), upstream.numpy() @ matrix, atol=1e-12)


@pytest.mark.parametrize(("d_in", "d_out", "n"), WIDTHS)
def test_signs_are_signs_and_no_row_is_kept_twice(d_in, d_out, n):
    layer = HadamardProjection(d_in, d_out, seed=3)
    assert set(layer.signs.tolist()) <= {-1.0, 1.0}
    assert len(set(layer.kept.tolist())) == d_out
    assert 0 <= min(layer.kept) <= max(layer.kept) < n


def test_single_precision_keeps_single_precision():
    layer = HadamardProjection(768, 3075, seed=0)
    x = torch.randn(4, 768)
    expected = layer.double()(x.double())
    error = (layer.float()(x) - expected).norm() / expected.norm()
    assert error < 1e-6
