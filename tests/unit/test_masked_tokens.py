"""What a masked image's task hides in training and what its loss counts, against the formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from isthmus.core.registry import component, find
from isthmus.tasks.token_scores import IGNORED

CODES = 6


def task(positions: int, **fields: Any) -> Any:
    built = find("tasks", "masked_tokens")(component("tasks", {"name": "masked_tokens", **fields}))
    built.recall({"positions": torch.tensor(positions), "codes": torch.tensor(CODES), "commonest": torch.tensor(0)})
    return built


def hidden_shares(**fields: Any) -> np.ndarray:
    """Of many images, each of so many tokens that the part hidden is close to the probability that was drawn."""
    images, positions = 2000, 1024
    rows = torch.zeros(images, positions, dtype=torch.int16)
    batch = task(positions, **fields).training_batch(rows, None, torch.arange(images), torch.zeros(images), 0, 0)
    return (batch.target != IGNORED).double().mean(dim=1).numpy()


@pytest.mark.parametrize("most", [0.4, 0.8, 1.0])
@pytest.mark.parametrize(
    ("schedule", "below"),
    [("uniform", lambda x: x), ("arccos", lambda x: 1 - np.cos(math.pi / 2 * x))],  # x = 2/π arccos(u) of an even u
)
def test_the_hidden_part_is_drawn_from_nothing_to_most_masked_by_the_schedule(schedule, below, most):
    shares = hidden_shares(schedule=schedule, most_masked=most)
    assert most - 0.1 < shares.max() < most + 0.1
    for x in np.linspace(0.1, 0.9, 9):
        assert (shares <= x * most).mean() == pytest.approx(below(x), abs=0.04)


def test_by_default_it_is_even_up_to_two_fifths():
    np.testing.assert_array_equal(hidden_shares(), hidden_shares(schedule="uniform", most_masked=0.4))


@pytest.mark.parametrize("fields", [{}, {"label_smoothing": 0.0}, {"label_smoothing": 0.3}])
def test_the_loss_is_the_smoothed_cross_entropy_of_hidden_tokens(fields):
    smoothing = fields.get("label_smoothing", 0.1)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 5, CODES, dtype=torch.float64, generator=generator)
    target = torch.tensor([[1, IGNORED, 5, 0, IGNORED], [IGNORED, IGNORED, IGNORED, 2, IGNORED], [3, 3, 4, 0, 1]])
    images = []
    for i in range(3):
        losses = []
        for place in range(5):
            if target[i, place] != IGNORED:
                total = sum(math.exp(score) for score in scores[i, place])
                surprises = [math.log(total) - float(score) for score in scores[i, place]]
                asked = surprises[int(target[i, place])]
                losses.append((1 - smoothing) * asked + smoothing * sum(surprises) / CODES)
        images.append(sum(losses) / len(losses))
    found = float(task(5, **fields).loss(scores, target))
    assert found == pytest.approx(sum(images) / 3, rel=1e-12)
