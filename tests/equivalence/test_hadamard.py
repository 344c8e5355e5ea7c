"""The fast Hadamard projection against the explicit matrix √(n/d_out) P H D."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from isthmus.layers import projections
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


@pytest.mark.parametrize(("d_in", "d_out"), [(16, 16), (13, 16), (16, 11), (13, 11)])
@pytest.mark.parametrize("rows", [0, 1, 4, 9])
def test_many_rows_are_the_same_as_one_after_the_other(d_in, d_out, rows, monkeypatch):
    layer = HadamardProjection(d_in, d_out, seed=3).double()
    monkeypatch.setattr(projections, "_CACHED", 4 * 16)
    x = torch.randn(rows, d_in, dtype=torch.float64, requires_grad=True)
    whole = layer(x)
    assert whole.shape == (rows, d_out)
    for one, row in zip(whole, x, strict=True):
        torch.testing.assert_close(one, layer(row))
    assert layer(x.reshape(1, rows, d_in)).shape == (1, rows, d_out)
    if rows:
        assert torch.autograd.gradcheck(layer, x)
        assert torch.autograd.gradgradcheck(layer, x)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own forward mode uses it
@pytest.mark.parametrize(("d_in", "d_out"), [(16, 16), (13, 11)])
def test_transforms_of_functions_see_a_linear_map(d_in, d_out):
    layer = HadamardProjection(d_in, d_out, seed=3).double()
    x, tangent = torch.randn(2, 5, d_in, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(layer)(x), layer(x))
    torch.testing.assert_close(torch.func.vmap(layer, in_dims=1)(x.T), layer(x))
    torch.testing.assert_close(torch.func.jvp(layer, (x,), (tangent,))[1], layer(tangent))
    torch.testing.assert_close(torch.func.jacrev(layer)(x[0]) @ x[1], layer(x[1]))


def test_the_pieces_are_the_formula_that_a_compiler_sees():
    layer = HadamardProjection(768, 3075, seed=0)
    x = torch.randn(70, 768)
    exported = torch.export.export(layer, (x,)).module()
    torch.testing.assert_close(layer(x), exported(x))
