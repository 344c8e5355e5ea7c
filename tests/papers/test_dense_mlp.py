"""S-FC, the network of β-LASSO: its published connections, its formula, and a run that makes it sparse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import isthmus
from isthmus.core.config import run_config
from isthmus.models.dense_mlp import VARIANTS
from isthmus.papers import load_paper
from isthmus.training.loading import load_model
from isthmus.training.prepare import prepare
from isthmus.training.run import run


def test_it_has_the_connections_of_table_1() -> None:
    fields = VARIANTS["s-fc-cifar10"]
    weights = 3072 * 150 * 32 * 32 // 4 + 38_400 * 3_600 + 3_600 * 10
    assert isthmus.cost(fields).params == weights + 2 * (38_400 + 3_600) + 10
    printed = load_paper("widesparse").tables["T1a"].rows["T1a.1"]
    assert (printed["model"], printed["connections_M"]) == ("beta_lasso", round(weights / 1e6))


@torch.no_grad()
def test_the_net_is_its_formula() -> None:
    torch.manual_seed(0)
    model: Any = isthmus.create_model("dense_mlp", d_in=6, d_out=3, hidden=(5, 4)).double().train()
    x = h = torch.randn(8, 6, dtype=torch.float64)
    for layer, norm in zip(model.layers, model.norms, strict=True):
        norm.weight += torch.randn_like(norm.weight)
        norm.bias += torch.randn_like(norm.bias)
        y = h @ layer.weight.T
        y = (y - y.mean(0)) / (y.var(0, correction=0) + norm.eps).sqrt()
        h = (y * norm.weight + norm.bias).clamp_min(0)
    torch.testing.assert_close(model(x), h @ model.head.weight.T + model.head.bias)


@pytest.mark.parametrize(("penalty", "least", "most"), [(1e-3, 0.3, 1.0), (1e-9, 0.0, 0.01)])
def test_beta_lasso_makes_it_sparse(penalty: float, least: float, most: float) -> None:
    config = run_config(
        {
            "source": {"name": "digits"}, "task": {"name": "classification"}, "threads": 1,
            "model": {"name": "dense_mlp", "hidden": (32, 16)},
            "train": {"epochs": 2, "batch_size": 64, "optimizer": "beta_lasso", "learning_rate": 0.1,
                      "lasso_lambda": penalty, "schedule": "cosine"},
        }
    )  # fmt: skip
    record = run(config)
    model: Any = load_model(prepare(config).folder)
    zero = sum(int((layer.weight == 0).sum()) for layer in model.layers) / (64 * 32 + 32 * 16)
    assert least <= zero <= most
    assert record.metrics["test"]["accuracy"] > 0.5
