"""Learning rates against values worked out by hand, optimisers against their textbook updates in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from isthmus.core.train_config import TrainConfig
from isthmus.training.schedules import learning_rate, optimizer

# Ten steps, five to an epoch, and a warm-up of 0.4 epochs: two steps up, eight down.
BY_HAND = {
    "linear": [0.5, 1.0, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3],
    "constant": [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    "cosine": [0.5, 1.0, *(0.2 + 0.4 * (1 + math.cos(math.pi * k / 8)) for k in range(8))],
}


@pytest.mark.parametrize("schedule", BY_HAND)
def test_rates_of_a_run(schedule):
    config = TrainConfig(epochs=2, learning_rate=1.0, final_learning_rate=0.2, warmup_epochs=0.4, schedule=schedule)
    assert [learning_rate(step, 10, 5, config) for step in range(10)] == pytest.approx(BY_HAND[schedule])


def test_a_schedule_that_starts_with_the_warm_up_is_timms():
    """timm counts the warm-up as part of the cosine: after it, t/T of the way is done. Two epochs cool down."""
    config = TrainConfig(
        epochs=12, learning_rate=1.0, final_learning_rate=0.1, warmup_epochs=4, warmup_learning_rate=0.0,
        cooldown_epochs=2, schedule="cosine", schedule_start="with_warmup",
    )  # fmt: skip
    rates = [learning_rate(step, 12, 1, config) for step in range(12)]
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    expected = [0.1 + 0.45 * (1 + math.cos(math.pi * t / 10)) for t in range(4, 10)]
    assert rates[4:10] == pytest.approx(expected)
    assert rates[4] < 0.7, "below the peak that the warm-up reaches"
    assert rates[10:] == pytest.approx([0.1, 0.1])


def test_a_rate_that_changes_by_epoch_is_timms():
    """Four steps an epoch: 0, 1/4, … of the way to the peak, then the cosine of whole epochs, warm-up included."""
    config = TrainConfig(
        epochs=8, learning_rate=1.0, warmup_epochs=4, warmup_learning_rate=0.2, schedule="cosine",
        schedule_start="with_warmup", rate_changes="epoch",
    )  # fmt: skip
    rates = [learning_rate(step, 32, 4, config) for step in range(32)]
    by_epoch = [0.2, 0.4, 0.6, 0.8, *(0.5 * (1 + math.cos(math.pi * t / 8)) for t in range(4, 8))]
    assert rates == pytest.approx([rate for rate in by_epoch for _ in range(4)])


def test_the_default_falls_in_a_line_from_its_peak_to_one_step_above_zero():
    rates = [learning_rate(step, 4, 4, TrainConfig(learning_rate=0.1)) for step in range(4)]
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])


def adamw(w, gradients, rate, decay, betas):
    first, second = np.zeros_like(w), np.zeros_like(w)
    for t, gradient in enumerate(gradients, start=1):
        w = w - rate * decay * w
        first = betas[0] * first + (1 - betas[0]) * gradient
        second = betas[1] * second + (1 - betas[1]) * gradient**2
        unbiased = first / (1 - betas[0] ** t), second / (1 - betas[1] ** t)
        w = w - rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
    return w


def sgd(w, gradients, rate, decay, momentum, nesterov):
    velocity = np.zeros_like(w)
    for gradient in gradients:
        gradient = gradient + decay * w
        velocity = momentum * velocity + gradient
        w = w - rate * (gradient + momentum * velocity if nesterov else velocity)
    return w


def stepped(config, w, gradients):
    parameter = torch.nn.Parameter(torch.from_numpy(w.copy()))
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    built = optimizer([("weight", parameter), ("frozen", frozen)], config)
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient.copy())
        built.step()
    assert torch.equal(frozen, torch.ones(2))
    return parameter.detach().numpy()


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.95)])
def test_adamw(decay, betas):
    w, *gradients = np.random.default_rng(0).normal(size=(6, 4, 3))
    config = TrainConfig(learning_rate=0.02, weight_decay=decay, betas=betas)
    np.testing.assert_allclose(stepped(config, w, gradients), adamw(w, gradients, 0.02, decay, betas), rtol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd(decay, momentum, nesterov):
    w, *gradients = np.random.default_rng(0).normal(size=(6, 4, 3))
    config = TrainConfig(optimizer="sgd", learning_rate=0.02, weight_decay=decay, momentum=momentum, nesterov=nesterov)
    expected = sgd(w, gradients, 0.02, decay, momentum, nesterov)
    np.testing.assert_allclose(stepped(config, w, gradients), expected, rtol=1e-12)


def test_a_warm_up_begins_where_it_is_told_and_a_cool_down_ends_at_the_final_rate():
    """Twelve steps, three to an epoch: three up from 0.1, then cosine over three, and six at the final rate."""
    settings = {"epochs": 4, "learning_rate": 1.0, "final_learning_rate": 0.2, "schedule": "cosine"}
    edges = {"warmup_epochs": 1, "warmup_learning_rate": 0.1, "cooldown_epochs": 2}
    config = TrainConfig.model_validate(settings | edges)
    falling = [0.2 + 0.4 * (1 + math.cos(math.pi * k / 3)) for k in range(3)]
    expected = [0.4, 0.7, 1.0, *falling, *[0.2] * 6]
    assert [learning_rate(step, 12, 3, config) for step in range(12)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 10, "warmup_epochs": 5, "cooldown_epochs": 5}, "must be less than epochs=10"),
        ({"warmup_learning_rate": 0.1, "learning_rate": 0.01}, "warmup_learning_rate=0.1 is above learning_rate=0.01"),
        ({"optimizer": "beta_lasso"}, "needs a lasso_lambda above 0"),
        ({"lasso_lambda": 0.1}, "lasso_lambda=0.1 belongs to optimizer=beta_lasso"),
        ({"optimizer": "beta_lasso", "lasso_lambda": 0.1, "weight_decay": 0.1}, "no weight_decay=0.1"),
        ({"epsilon": 0}, "greater than 0"),
    ],
)
def test_settings_that_do_not_fit_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig.model_validate(fields)
