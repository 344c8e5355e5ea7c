"""One softmax, and blocks of rows, against the two softmaxes of the formula."""

from __future__ import annotations

import pytest
import torch

from isthmus.layers import symmetric_attention as symmetric

SHAPES = [(2, 3, 10, 4), (1, 1, 1, 4), (5, 7, 8), (30, 6)]


def two_softmaxes(z):
    scores = z @ z.mT / z.shape[-1] ** 0.5
    return (scores.softmax(dim=-1) + scores.softmax(dim=-2)) @ z


def numbers(shape, seed=0, scale=1.0):
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=[1, 40, 2**20])
def _blocks(request, monkeypatch):
    monkeypatch.setattr(symmetric, "_SCORES_AT_ONCE", request.param)
    monkeypatch.setattr(symmetric, "_SCORES_IN_CACHE", request.param)


@pytest.mark.usefixtures("_blocks")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("attention", [symmetric.explicit_attention, symmetric.streamed_attention])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_the_output_and_its_gradient_are_those_of_the_formula(attention, shape, scale):
    z, direction = numbers(shape, scale=scale).requires_grad_(), numbers(shape, 1)
    output, expected = attention(z), two_softmaxes(z)
    torch.testing.assert_close(output, expected)
    gradients = [torch.autograd.grad(each, z, direction)[0] for each in (output, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)


def test_many_tokens_are_streamed_and_few_are_not(monkeypatch):
    monkeypatch.setattr(symmetric, "STREAMED_FROM", 9)
    monkeypatch.setattr(symmetric, "streamed_attention", lambda z: torch.full_like(z, 7))
    streamed = [bool((symmetric.symmetric_attention(numbers((2, n, 4))) == 7).all()) for n in (8, 9)]
    assert streamed == [False, True]


@pytest.mark.usefixtures("_blocks")
def test_the_log_partition_is_streamed_exactly(monkeypatch):
    z = numbers((2, 3, 10, 4))
    whole = symmetric.log_partition(z)
    monkeypatch.setattr(symmetric, "STREAMED_FROM", 1)
    torch.testing.assert_close(symmetric.log_partition(z), whole)
    torch.testing.assert_close(whole, (z @ z.mT / 2).logsumexp(dim=-1))


def test_streaming_is_exact_in_single_precision_too():
    z = torch.randn(2, 200, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(symmetric.streamed_attention(z), two_softmaxes(z.double()).float(), rtol=1e-4, atol=1e-5)


def error_and_slope_error(attention, z, direction, dtype, autocast):
    """Relative errors of the output and of the gradient, against the formula in float64 of the same rounded numbers."""
    exact = z.to(dtype).double().requires_grad_()
    expected = two_softmaxes(exact)
    (expected_slope,) = torch.autograd.grad(expected, exact, direction)
    given = z.to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = attention(given)
        (slope,) = torch.autograd.grad(output, given, direction.to(output.dtype))  # within autocast, the harder case
    pairs = ((output.detach(), expected.detach()), (slope, expected_slope))
    return [((one.double() - other).norm() / other.norm()).item() for one, other in pairs]


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize(
    ("dtype", "autocast"), [(torch.bfloat16, False), (torch.bfloat16, True), (torch.float32, True)]
)
def test_streaming_loses_no_more_than_the_explicit_one_in_half_precision(monkeypatch, dtype, autocast, scale):
    monkeypatch.setattr(symmetric, "_SCORES_AT_ONCE", 2**12)  # several blocks
    z, direction = numbers((2, 300, 16), scale=scale), numbers((2, 300, 16), 1)
    streamed = error_and_slope_error(symmetric.streamed_attention, z, direction, dtype, autocast)
    explicit = error_and_slope_error(symmetric.explicit_attention, z, direction, dtype, autocast)
    for one, other in zip(streamed, explicit, strict=True):
        assert one <= 1.05 * other
    # What is left is the rounding of what goes in and out: half of bfloat16's epsilon, or float32's.
    assert max(streamed) < (2**-8 if dtype == torch.bfloat16 else 1e-5)


def test_the_dtype_stays():
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        assert symmetric.streamed_attention(numbers((2, 9, 4)).to(dtype)).dtype == dtype


def test_streaming_says_that_it_is_differentiable_once():
    z = numbers((6, 4)).requires_grad_()
    (slope,) = torch.autograd.grad(symmetric.streamed_attention(z).square().sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.sum().backward()
