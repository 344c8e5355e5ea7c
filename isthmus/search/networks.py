"""The networks that a search tries, with their recipes: from a linear model to one that spends the whole budget.

On rows of features the recipe is that of the estimators: Adam with an L2 penalty, all rows in one batch while they are
few, no norm. The penalty matters more than the shape on small tables, so it varies too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.files import digest
from isthmus.core.protocols import Signature
from isthmus.studies.budget import widest_mlp

Settings = dict[str, Any]

STACKABLE = ("hourglass_mlp", "conventional_mlp")
"""Networks that can train together in a stack, with the plain pathway."""
_ONE_BATCH = 4096
"""Up to so many rows are one batch."""
_PENALTY = {"regression": 1.0, "classification": 10.0}
"""L2 penalties of the estimators, for the sum of the rows' losses."""
_SHARES = (1 / 16, 1 / 4, 1.0)
_STEPS = 250
"""Of the first trainings, where the rows are more than one batch."""


def list_networks(signature: Signature, task: str, rows: int, budget: int, epochs: int | None = None) -> list[Settings]:
    """``model`` and ``train`` settings of every network within the budget, in the order in which they are tried.

    Their trainings are short, because the better ones are trained for longer later.
    """
    propose = _for_features if len(signature.input_shape) == 1 else _for_images
    ends = math.prod(signature.input_shape), math.prod(signature.output_shape)
    found = {digest(each): each for each in propose(*ends, task, rows, budget)}
    if epochs is not None:
        changed = {"epochs": epochs, "evaluate_every": max(1, epochs // 20), "warmup_epochs": epochs / 20}
        found = {key: each | {"train": each["train"] | changed} for key, each in found.items()}
    if not found:
        least = 2 * sum(ends)
        raise UserError(f"a budget of {budget:,} parameters is too small for these data; give at least {least}")
    return list(found.values())


def _for_features(d_in: int, d_out: int, task: str, rows: int, budget: int) -> Iterator[Settings]:
    def network(d_z: int, d_h: int, depth: int, penalty: float = 1.0, norm: str = "none", rate: float = 1e-2) -> Any:
        if d_z * (d_in + d_out + 2 * depth * d_h) > budget:
            return None
        name = "hourglass_mlp" if d_h < d_z else "conventional_mlp"
        model = {"name": name, "d_z": d_z, "d_h": d_h, "depth": depth, "norm": norm}
        decay = min(penalty * _PENALTY.get(task, 1.0) / rows, 10.0)  # the largest that a config accepts
        return {"model": model, "train": _recipe(rows) | {"learning_rate": rate, "weight_decay": decay}}

    linear = max(2, min(d_in, d_out))
    shapes = [
        network(linear, 1, 0), network(32, 8, 1), network(32, 8, 1, 3.0), network(64, 16, 2, 3.0), network(16, 64, 1),
        network(linear, 1, 0, 10.0), network(32, 8, 1, 0.3), network(64, 16, 2), network(32, 8, 1, 10.0),
        network(64, 16, 2, 0.3), network(16, 64, 1, 5.0), network(8, 2, 1), network(linear, 1, 0, 100.0),
        network(64, 16, 2, 10.0), network(96, 48, 3, rate=3e-3), network(16, 64, 1, 0.1),
    ]  # fmt: skip
    norms = ("none",) if rows <= _ONE_BATCH else ("none", "layer")  # few rows are overfitted with a norm
    for share, (ratio, depth), norm in itertools.product(_SHARES, ((1 / 4, 2), (2.0, 1), (1 / 8, 4)), norms):
        fit = widest_mlp(int(budget * share), d_in, d_out, ratio, depth)
        if fit and fit[0] >= 2 and fit[0] != fit[1]:
            shapes.append(network(*fit, depth, norm=norm, rate=3e-3))
    yield from filter(None, shapes)


def _recipe(rows: int) -> Settings:
    """200 steps of all rows, or more steps of some; validated twenty times."""
    batch = _ONE_BATCH if rows <= _ONE_BATCH else 512 if rows < 100_000 else 1024
    epochs = 200 if rows <= _ONE_BATCH else min(200, max(1, round(_STEPS * batch / rows)))
    return {
        "epochs": epochs, "batch_size": batch, "optimizer": "adam", "schedule": "cosine",
        "warmup_epochs": epochs / 20, "evaluate_every": max(1, epochs // 20),
    }  # fmt: skip


def _for_images(d_in: int, d_out: int, task: str, rows: int, budget: int) -> Iterator[Settings]:
    batch = 128 if rows >= 2_000 else 32
    epochs = min(100, max(1, round(_STEPS * batch / rows)))
    recipe = {
        "epochs": epochs, "batch_size": batch, "betas": (0.9, 0.99), "evaluate_every": max(1, epochs // 20),
    }  # fmt: skip
    shapes = {"hourglass_mlp": ((1 / 2, 4), (1 / 4, 2), (1 / 16, 8)), "conventional_mlp": ((2.0, 2), (4.0, 1))}
    for share in (1 / 4, 1.0, 1 / 16):  # the smallest restore little, and are tried last
        for name, kinds in shapes.items():
            for ratio, depth in kinds:
                d_z, d_h = widest_mlp(int(budget * share), d_in, d_out, ratio, depth) or (0, 0)
                if d_z >= 2 and d_z != d_h:
                    for rate in (1e-3, 3e-3):
                        model = {"name": name, "d_z": d_z, "d_h": d_h, "depth": depth}
                        yield {"model": model, "train": recipe | {"learning_rate": rate}}
