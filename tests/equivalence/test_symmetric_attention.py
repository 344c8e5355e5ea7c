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
