"""Hiding tokens and filling them in: the schedule, and the steps against a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isthmus.tasks.masks import arccos_shares, exact_mask, fill, random_mask

CODES = 7


def table_model(positions, seed=0):
    """Scores that depend on all tokens of a row, so that the order of filling matters."""
    table = torch.randn(positions, CODES + 1, positions, CODES, generator=torch.Generator().manual_seed(seed))

    def model(tokens):
        return sum(table[place, tokens[:, place]] for place in range(positions))

    return model


def slowly_filled(model, tokens, steps, planned_for_all=False):
    """The likeliest tokens, row by row, counted by hand."""
    weights = [math.acos(1 - k / (steps - 1)) if steps > 1 else 1.0 for k in range(steps)]
    rows = []
    for row in tokens.tolist():
        gaps = row.count(CODES)
        for step in range(steps):
            left = [place for place, token in enumerate(row) if token == CODES]
            if not left:
                break
            done = (len(row) if planned_for_all else gaps) * sum(weights[: step + 1]) / sum(weights)
            done = gaps if step == steps - 1 else min(gaps, max(step + 1, round(done)))
            scores = torch.softmax(model(torch.tensor([row]))[0], dim=-1)
            surest = sorted(left, key=lambda place: -float(scores[place].max()))
            for place in surest[: done - (gaps - len(left))]:
                row[place] = int(scores[place].argmax())
        rows.append(row)
    return torch.tensor(rows)


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 24])
def test_filling_is_that_of_a_plain_loop(steps):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(CODES, (9, 12), generator=generator)
    tokens = tokens.masked_fill(torch.rand(9, 12, generator=generator) < torch.linspace(0, 1, 9)[:, None], CODES)
    model = table_model(12)
    assert torch.equal(fill(model, tokens, CODES, steps, 0.0, generator), slowly_filled(model, tokens, steps))
    assert torch.equal(
        fill(model, tokens, CODES, steps, 0.0, generator, planned_for_all=True),
        slowly_filled(model, tokens, steps, planned_for_all=True),
    )


@pytest.mark.parametrize(("share", "passes"), [(0.1, 6), (0.2, 9), (0.3, 12), (0.4, 14), (1.0, 24)])
def test_steps_that_are_planned_for_all_256_tokens_end_when_none_is_masked(share, passes):
    """The numbers of the authors' plan, whose 24 steps fill 1, 3, 5, 6, 6, 7, … tokens."""
    counted = []

    def model(tokens):
        counted.append(tokens)
        return torch.zeros(*tokens.shape, CODES)

    mask = exact_mask(1, 256, share, torch.Generator().manual_seed(0))
    fill(model, torch.where(mask, CODES, 0), CODES, 24, 0.0, torch.Generator(), planned_for_all=True)
    assert len(counted) == passes


@given(st.integers(1, 30), st.floats(0.0, 3.0), st.integers(0, 2**20))
def test_known_tokens_stay_and_none_is_left_open(steps, temperature, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(CODES, (4, 10), generator=generator)
    hidden = tokens.masked_fill(random_mask(torch.rand(4, generator=generator), 10, generator), CODES)
    asked = []

    def model(given):
        asked.append(int((given == CODES).sum(dim=1).max()))
        return table_model(10)(given)

    filled = fill(model, hidden, CODES, steps, temperature, torch.Generator().manual_seed(seed))
    assert filled.max() < CODES
    assert torch.equal(filled[hidden < CODES], hidden[hidden < CODES])
    assert len(asked) <= steps
    assert asked == sorted(asked, reverse=True)
    again = fill(table_model(10), hidden, CODES, steps, temperature, torch.Generator().manual_seed(seed))
    assert torch.equal(filled, again)


def test_the_temperature_is_that_of_the_draws():
    scores = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5, 0.0, 0.0])
    hidden = torch.full((20_000, 1), CODES)
    for temperature in (0.5, 1.0, 2.0):
        drawn = fill(
            lambda tokens: scores.expand(len(tokens), 1, -1),
            hidden, CODES, 24, temperature, torch.Generator().manual_seed(0),
        )  # fmt: skip
        shares = np.bincount(drawn[:, 0].numpy(), minlength=CODES) / len(hidden)
        np.testing.assert_allclose(shares, (scores / temperature).softmax(0), atol=0.012)


@given(st.integers(1, 400))
def test_the_schedule_rises_to_one_and_faster_towards_the_end(steps):
    shares = arccos_shares(steps)
    assert len(shares) == steps
    assert shares[-1] == pytest.approx(1)
    gained = np.diff([0.0, *shares])
    assert (gained >= 0).all()
    assert (np.diff(gained) > -1e-12).all()


def test_24_steps_fill_256_places_as_their_formula_says():
    weights = np.arccos(np.linspace(1, 0, 24))
    np.testing.assert_allclose(arccos_shares(24), np.cumsum(weights) / weights.sum(), rtol=1e-12)


@given(st.integers(1, 70), st.floats(0.01, 1.0))
def test_an_exact_mask_hides_the_same_number_everywhere(positions, share):
    mask = exact_mask(5, positions, share, torch.Generator().manual_seed(0))
    assert (mask.sum(dim=1) == max(1, round(share * positions))).all()


def test_a_random_mask_follows_its_shares_and_hides_at_least_one():
    shares = torch.tensor([0.0, 0.1, 0.4, 1.0])
    mask = random_mask(shares.repeat_interleave(500), 64, torch.Generator().manual_seed(0))
    assert mask.any(dim=1).all()
    found = mask.view(4, 500, 64).double().mean(dim=(1, 2))
    torch.testing.assert_close(found, torch.tensor([1 / 64, 0.1, 0.4, 1.0]).double(), rtol=0, atol=0.01)
