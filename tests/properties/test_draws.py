"""Keyed draws: stable for ever, and different wherever any part of the address is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.draws import key, numpy_generator, torch_generator

ADDRESSES = st.tuples(st.integers(0, 2**63 - 1), st.text("ab/01", max_size=6), st.integers(0, 10**6))


@pytest.mark.parametrize(
    ("address", "value"),
    [
        ((0, "noise", 0), 9144587515262914129),
        ((0, "noise", 1), 6545564728581758268),
        ((1, "noise", 0), 209214033652848756),
        ((0, "order", 0), 3471081512423777433),
        ((2**63 - 1, "noise/test", 7), 1256540596075323530),
    ],
)
def test_keys_are_what_they_were(address, value):
    assert key(*address) == value


def test_draws_are_what_they_were():
    normal = torch.randn(3, generator=torch_generator(0, "noise"))
    assert normal.tolist() == pytest.approx([-0.42957696, 1.05318153, 0.55017847], abs=1e-6)
    assert torch.randperm(8, generator=torch_generator(0, "order", 3)).tolist() == [6, 0, 7, 3, 5, 2, 1, 4]
    assert numpy_generator(0, "prototypes").integers(0, 1000, 4).tolist() == [173, 72, 138, 699]


@given(one=ADDRESSES, other=ADDRESSES)
def test_two_addresses_have_two_keys(one, other):
    assert 0 <= key(*one) < 2**63
    assert (key(*one) == key(*other)) == (one == other)


@given(address=ADDRESSES)
def test_every_part_of_the_address_counts(address):
    seed, stream, step = address
    neighbours = {key(seed, stream, step), key(seed + 1, stream, step), key(seed, stream + "x", step)}
    assert len(neighbours | {key(seed, stream, step + 1)}) == 4


@given(address=ADDRESSES)
def test_an_address_draws_the_same_numbers_every_time(address):
    one, same = (torch.rand(4, generator=torch_generator(*address)) for _ in range(2))
    assert torch.equal(one, same)
    assert numpy_generator(*address).random() == numpy_generator(*address).random()
