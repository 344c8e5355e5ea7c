"""What the loop does with gradients and with evaluation noise, against the obvious way to do it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

import isthmus
from isthmus.core.protocols import Data, Split
from isthmus.core.registry import component, find
from isthmus.core.train_config import TrainConfig
from isthmus.training.devices import OneDevice
from isthmus.training.listener import Listener
from isthmus.training.loop import EVALUATION_BLOCK, NoJournal, Rows, Training, evaluate

CPU = torch.device("cpu")
IMAGES = np.random.default_rng(0).integers(0, 256, (48, 1, 6, 6), np.uint8)


@dataclass
class Watched:
    """Weights before the first step and after every step, and the inputs of every validation."""

    weights: list[torch.Tensor] = field(default_factory=list)
    averaged: list[torch.Tensor] = field(default_factory=list)
    validated: list[torch.Tensor] = field(default_factory=list)


def flatten(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).clone()


def trained(seed=0, init="pytorch", **settings):
    """A small denoiser trained on 48 images."""
    defaults = {"epochs": 2, "batch_size": 16, "learning_rate": 1e-2, "select": "last"}
    config = TrainConfig.model_validate(defaults | settings)
    split = Split(IMAGES)
    task = find("tasks", "denoise")(component("tasks", {"name": "denoise"}))
    task.learn(Data(split, split, split, "f" * 64))
    torch.manual_seed(7)
    model = isthmus.create_model("hourglass_mlp", d_in=36, d_out=36, d_z=40, d_h=8, depth=2, init=init)
    watched = Watched()
    make = task.evaluation_batch

    def noted(*arguments):
        batch = make(*arguments)
        watched.validated.append(batch.input)
        return batch

    task.evaluation_batch = noted
    training = Training(model, task, Rows.of(split, CPU), Rows.of(split, CPU), config, seed, OneDevice(config))
    watched.weights.append(flatten(model))

    class Watch(Listener):
        def step(self, step, steps):
            watched.weights.append(flatten(training.model))
            if training.averaged is not None:
                watched.averaged.append(flatten(training.averaged))

    training.run(NoJournal(), Watch())
    return watched


@pytest.mark.parametrize("batch_size", [16, 13, 15])  # of 48 images: the last batch has 16, 9 or, fewer than parts, 3
def test_accumulated_parts_are_one_batch(batch_size):
    # SGD: Adam divides a gradient by its own size, so it would show the rounding of gradients near zero.
    settings = {"optimizer": "sgd", "batch_size": batch_size, "learning_rate": 0.1}
    whole = trained(**settings, accumulate=1).weights[-1]
    parts = trained(**settings, accumulate=4).weights[-1]
    assert not torch.allclose(whole, trained(**settings, seed=1).weights[-1], atol=1e-4)
    assert torch.allclose(whole, parts, atol=1e-6, rtol=0)


def test_a_step_moves_by_the_rate_times_the_clipped_gradient():
    plain = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 1.0, "schedule": "constant", "epochs": 1}
    free, clipped = trained(**plain).weights, trained(**plain, clip_norm=1e-2).weights
    moved_freely, moved = free[1] - free[0], clipped[1] - clipped[0]
    assert moved_freely.norm() > 2e-2
    assert moved.norm() == pytest.approx(1e-2, rel=1e-3)
    assert torch.allclose(moved / moved.norm(), moved_freely / moved_freely.norm(), atol=1e-4)
    assert torch.equal(trained(**plain, clip_norm=1e6).weights[-1], free[-1]), "a smaller gradient is left alone"


def test_the_average_is_exponential_and_begins_at_the_first_weights():
    decay = 0.8
    watched = trained(average=decay)
    average = watched.weights[0].double()
    for weights, averaged in zip(watched.weights[1:], watched.averaged, strict=True):
        average = decay * average + (1 - decay) * weights.double()
        assert torch.allclose(averaged.double(), average, atol=1e-6, rtol=0)
    assert not torch.allclose(watched.averaged[-1], watched.weights[-1], atol=1e-4)


def test_the_average_does_not_change_the_training():
    assert torch.equal(trained(average=0.8).weights[-1], trained().weights[-1])


def test_every_run_is_validated_on_the_same_noise():
    runs = [trained(), trained(seed=1), trained(batch_size=8, epochs=1)]
    noises = [torch.cat(run.validated) for run in runs]
    assert torch.equal(noises[0], noises[1])
    assert torch.equal(noises[0][:48], noises[2]), "the epochs and the batch size do not matter either"
    assert torch.equal(noises[0][:48], noises[0][48:]), "and every epoch sees the same"


@pytest.fixture
def denoise():
    task = find("tasks", "denoise")(component("tasks", {"name": "denoise"}))
    split = Split(IMAGES)
    task.learn(Data(split, split, split, "f" * 64))
    return task


def test_validation_and_test_see_different_noise_in_every_block(denoise):
    rows = torch.from_numpy(IMAGES)
    noises = [
        denoise.evaluation_batch(rows, None, split, block).input - rows / 255
        for split in ("validation", "test")
        for block in (0, 1)
    ]
    for number, noise in enumerate(noises):
        assert noise.std() == pytest.approx(0.25, rel=0.1)
        assert not any(torch.allclose(noise, other, atol=1e-3) for other in noises[:number])


def test_evaluation_in_blocks_is_evaluation_of_all_rows(denoise):
    rows = np.random.default_rng(1).integers(0, 256, (EVALUATION_BLOCK + 7, 1, 6, 6), np.uint8)
    split = Rows.of(Split(rows), CPU)
    found = evaluate(torch.nn.Flatten(), denoise, split, "validation", CPU)
    starts = (0, EVALUATION_BLOCK)
    batches = [denoise.evaluation_batch(*split.block(at, CPU), "validation", n) for n, at in enumerate(starts)]
    squared = torch.cat([(batch.input - batch.target).double() ** 2 for batch in batches])
    assert len(squared) == len(rows)
    assert found["loss"] == pytest.approx(float(squared.mean()), rel=1e-5)
    assert found["mse"] == pytest.approx(float(squared.mean()), rel=1e-5)
    each = squared.mean(dim=(1, 2, 3))
    assert found["psnr"] == pytest.approx(float((-10 * each.log10()).mean()), abs=1e-4)
