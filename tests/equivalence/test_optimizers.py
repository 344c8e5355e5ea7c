"""β-LASSO against its definition, who is spared of decay, and averages of models that keep statistics."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from isthmus.core.protocols import Data, Split
from isthmus.core.registry import component, create_model, find
from isthmus.core.train_config import TrainConfig
from isthmus.training.devices import OneDevice
from isthmus.training.listener import Listener
from isthmus.training.loop import NoJournal, Rows, Stopped, Training
from isthmus.training.schedules import optimizer
from tests.listeners import stop_after

CPU = torch.device("cpu")


def beta_lasso(w, gradients, rate, penalty, beta):
    """θ ← θ − η (∇f + λ sign θ), one weight at a time; below β λ it is 0."""
    w = w.copy()
    for gradient in gradients:
        for place in np.ndindex(w.shape):
            moved = w[place] - rate * (gradient[place] + penalty * np.sign(w[place]))
            w[place] = 0.0 if abs(moved) < beta * penalty else moved
    return w


@pytest.mark.parametrize("beta", [0.0, 1.0, 50.0])
def test_beta_lasso(beta):
    generator = np.random.default_rng(0)
    w, *gradients = generator.normal(size=(8, 6, 5)) * 0.05
    penalty, rate = 4e-4, 0.1
    parameter = nn.Parameter(torch.from_numpy(w.copy()))
    settings = {"optimizer": "beta_lasso", "lasso_lambda": penalty, "lasso_beta": beta, "learning_rate": rate}
    built = optimizer([("weight", parameter)], TrainConfig.model_validate(settings))
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient.copy())
        built.step()
    expected = beta_lasso(w, gradients, rate, penalty, beta)
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-12, atol=1e-15)
    zeros = (expected == 0).sum()
    assert zeros > 5 if beta == 50 else zeros == 0
    assert not built.state_dict()["state"], "nothing to remember"


def test_a_weight_at_the_threshold_stays_and_below_it_goes():
    settings = {"optimizer": "beta_lasso", "lasso_lambda": 0.5, "lasso_beta": 2.0, "learning_rate": 0.5}
    parameter = nn.Parameter(torch.tensor([[1.25, 1.2499, -1.25, -1.2, 0.0]]))
    parameter.grad = torch.zeros_like(parameter)
    optimizer([("weight", parameter)], TrainConfig.model_validate(settings)).step()
    assert parameter.tolist() == [[1.0, 0.0, -1.0, 0.0, 0.0]]


class Net(nn.Module):
    """A matrix, a bias, a bias of three dimensions, a norm, and statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.token_bias = nn.Parameter(torch.ones(1, 2, 1))
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("fixed", torch.ones(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x.flatten(1))) + self.token_bias.sum()


@pytest.mark.parametrize("name", ["adamw", "sgd", "beta_lasso"])
def test_only_matrices_decay_where_that_is_asked_for(name):
    rate, decay = 0.1, 0.5
    own = {"lasso_lambda": decay, "lasso_beta": 0.0} if name == "beta_lasso" else {"weight_decay": decay}
    for decayed in ("all", "matrices"):
        model = Net()
        before = {key: value.detach().clone() for key, value in model.named_parameters()}
        settings = {"optimizer": name, "learning_rate": rate, "decayed": decayed, **own}
        built = optimizer(model.named_parameters(), TrainConfig.model_validate(settings))
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        built.step()
        for key, value in model.named_parameters():
            shrunk = before[key] - rate * decay * (before[key].sign() if name == "beta_lasso" else before[key])
            expected = shrunk if decayed == "all" or key == "linear.weight" else before[key]
            torch.testing.assert_close(value.detach(), expected)


def training(settings, model):
    rows = np.random.default_rng(0).integers(0, 256, (48, 1, 2, 2), np.uint8)
    split = Split(rows, np.arange(48) % 3)
    task = find("tasks", "classification")(component("tasks", {"name": "classification"}))
    task.learn(Data(split, split, split, "f" * 64))
    config = TrainConfig.model_validate({"epochs": 3, "batch_size": 16, "select": "last", **settings})
    return Training(model, task, Rows.of(split, CPU), Rows.of(split, CPU), config, 0, OneDevice(config))


def test_an_average_takes_the_statistics_of_the_latest_weights():
    torch.manual_seed(0)
    trained = training({"average": 0.9}, Net())
    trained.run(NoJournal(), Listener())
    assert trained.averaged is not None
    latest, averaged = dict(trained.model.named_buffers()), dict(trained.averaged.named_buffers())
    assert averaged["norm.num_batches_tracked"] == 9
    assert latest["norm.running_mean"].abs().max() > 0
    for name, buffer in latest.items():
        assert torch.equal(averaged[name], buffer), name
    assert not torch.equal(trained.averaged.linear.weight, trained.model.linear.weight)


class Kept(NoJournal):
    """A journal in memory."""

    saved = None

    def resume(self):
        return self.saved

    def save(self, tensors, values):
        self.saved = {name: tensor.clone() for name, tensor in tensors.items()}, dict(values)


@pytest.mark.parametrize(
    "settings",
    [
        {"average": 0.9},
        {"optimizer": "beta_lasso", "lasso_lambda": 1e-3, "learning_rate": 0.1, "average": 0.5},
        {"optimizer": "sgd", "nesterov": True, "decayed": "matrices", "weight_decay": 0.1, "cooldown_epochs": 1},
        {"decayed": "matrices", "weight_decay": 0.1, "epsilon": 1e-4, "warmup_epochs": 1, "warmup_learning_rate": 1e-5},
    ],
    ids=["average", "beta_lasso", "sgd", "adamw"],
)
def test_a_stopped_training_goes_on_to_the_same_bits(settings):
    torch.manual_seed(0)
    model = Net()
    whole = training(settings, copy.deepcopy(model)).run(NoJournal(), Listener())
    diary = Kept()
    with pytest.raises(Stopped):
        training(settings, copy.deepcopy(model)).run(diary, stop_after(3))
    other = Net()  # its own weights do not matter
    parts = training(settings, other).run(diary, Listener())
    assert whole.weights.keys() == parts.weights.keys()
    assert "norm.running_var" in whole.weights
    for name, tensor in whole.weights.items():
        assert torch.equal(tensor, parts.weights[name]), name


def test_what_a_model_marks_does_not_decay():
    model = create_model("vit", input_shape=(3, 8, 8), output_shape=(5,), patch=4, d_z=12, d_h=6, depth=1, num_heads=2)
    config = TrainConfig.model_validate({"optimizer": "sgd", "weight_decay": 0.1, "decayed": "matrices"})
    decayed, spared = optimizer(model.named_parameters(), config).param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert spared["weight_decay"] == 0
    assert {"positions", "class_token"} <= {names[id(parameter)] for parameter in spared["params"]}
    assert all(names[id(parameter)].endswith("weight") for parameter in decayed["params"])
