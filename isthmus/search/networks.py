"""The networks that a search tries, with their recipes: from a linear model to one that spends the whole budget.

Every architecture declares what a search varies (``search_space`` in its file). The list takes turns between them, so
that a search that ends early has seen the most promising networks of each.

On rows of features the recipe is that of the estimators: Adam with an L2 penalty, all rows in one batch while they are
few, no norm. The penalty matters more than the shape on small tables, so it varies too, and residual MLPs come first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from isthmus.core.errors import UserError
from isthmus.core.files import digest
from isthmus.core.protocols import ModelConfig, Signature
from isthmus.core.registry import component
from isthmus.core.space import FittedSpace
from isthmus.studies.budget import declared_spaces, fit_widths

Settings = dict[str, Any]

STACKABLE = ("hourglass_mlp", "conventional_mlp")
"""Networks that can train together in a stack, with the plain pathway."""
_ONE_BATCH = 4096
"""Up to so many rows are one batch."""
_PENALTY = {"regression": 1.0, "classification": 10.0}
"""L2 penalties of the estimators, for the sum of the rows' losses."""
_SHARES = (1.0, 1 / 4, 1 / 16)
_STEPS = 250
"""Of the first trainings, where the rows are more than one batch."""
_SHAPES = 4
"""The shapes of an architecture that are tried, in three sizes each."""
_FIRST = ("hourglass_mlp", "conventional_mlp")
"""The best on tables (EXPERIMENTS.md)."""


def list_networks(signature: Signature, task: str, rows: int, budget: int, epochs: int | None = None) -> list[Settings]:
    """``model`` and ``train`` settings of every network within the budget, in the order in which they are tried.

    Their trainings are short, because the better ones are trained for longer later.
    """
    is_table = len(signature.input_shape) == 1 and not signature.vocabulary
    recipe = _row_recipe(task, rows) if is_table else _recipe(rows)
    proposed = _for_tables(signature, rows, budget, recipe) if is_table else _for_others(signature, budget)
    found = {digest(each): each for each in ({**each, "train": recipe | each["train"]} for each in proposed)}
    if epochs is not None:
        changed = {"epochs": epochs, "evaluate_every": max(1, epochs // 20), "warmup_epochs": epochs / 20}
        found = {key: each | {"train": each["train"] | changed} for key, each in found.items()}
    if not found:
        least = 2 * (math.prod(signature.input_shape) + math.prod(signature.output_shape))
        raise UserError(f"a budget of {budget:,} parameters is too small for these data; give at least {least}")
    return list(found.values())


def _for_tables(signature: Signature, rows: int, budget: int, recipe: Settings) -> Iterator[Settings]:
    """Residual MLPs, then all others; few shapes on few rows, which cannot distinguish them."""
    are_few = rows <= _ONE_BATCH
    yield from _start(signature, recipe, budget, are_few)
    spaces = list(declared_spaces(signature, budget))
    mlps = [space for space in spaces if space.model["name"] in _FIRST]
    yield from _take_turns(_fit(space, signature, budget, 2 if are_few else _SHAPES) for space in mlps)
    others = [space for space in spaces if space not in mlps]
    yield from _take_turns(_fit(space, signature, budget, 1 if are_few else _SHAPES) for space in others)


def _for_others(signature: Signature, budget: int) -> Iterator[Settings]:
    """Images and tokens."""
    yield from _take_turns(_fit(space, signature, budget, _SHAPES) for space in declared_spaces(signature, budget))


class _Candidate(NamedTuple):
    settings: Settings
    work: int
    """About the multiply-adds of one row: each weight is used for every token in every iteration."""


def _fit(space: FittedSpace, signature: Signature, budget: int, most: int) -> Iterator[_Candidate]:
    """The first shapes of an architecture in three sizes, the most promising first."""
    shapes = space.shapes()[:most]
    budgets = [int(budget * share) for share in _SHARES]
    fitted = [fit_widths(space, shape, signature, budgets) for shape in shapes]
    places = itertools.product(range(len(shapes)), range(len(_SHARES)))
    for place, size in sorted(places, key=sum):
        if (fit := fitted[place][size]) is not None:
            model = cast("ModelConfig", component("models", fit.model)).complete(signature, 0)
            work = fit.params * getattr(model, "tokens", 1) * getattr(model, "iterations", 1)
            yield _Candidate({"model": fit.model, "train": space.recipe(shapes[place])}, work)


def _take_turns(families: Iterable[Iterator[_Candidate]]) -> Iterator[Settings]:
    """The first network of every family, then the second ones, …; in each turn those that are quick to train first."""
    for turn in itertools.zip_longest(*families):
        for each in sorted(filter(None, turn), key=lambda candidate: candidate.work):
            yield each.settings


def _start(signature: Signature, recipe: Settings, budget: int, are_few: bool) -> Iterator[Settings]:
    """Residual MLPs for tables; on few rows with various penalties, which hardly matter on many."""
    d_in, d_out = math.prod(signature.input_shape), math.prod(signature.output_shape)
    linear = max(2, min(d_in, d_out))
    for d_z, d_h, depth, penalty, rate in (
        (32, 8, 1, 1, 1e-2), (linear, 1, 0, 1, 1e-2), (32, 8, 1, 3, 1e-2), (64, 16, 2, 3, 1e-2), (16, 64, 1, 1, 1e-2),
        (linear, 1, 0, 10, 1e-2), (32, 8, 1, 0.3, 1e-2), (64, 16, 2, 1, 1e-2), (32, 8, 1, 10, 1e-2),
        (64, 16, 2, 0.3, 1e-2), (16, 64, 1, 5, 1e-2), (8, 2, 1, 1, 1e-2), (linear, 1, 0, 100, 1e-2),
        (64, 16, 2, 10, 1e-2), (96, 48, 3, 1, 3e-3), (16, 64, 1, 0.1, 1e-2),
    ):  # fmt: skip
        if d_z * (d_in + d_out + 2 * depth * d_h) <= budget and (are_few or penalty == 1):
            name = "hourglass_mlp" if d_h < d_z else "conventional_mlp"
            model = {"name": name, "d_z": d_z, "d_h": d_h, "depth": depth, "norm": "none"}
            decay = min(penalty * recipe["weight_decay"], 10.0)  # the largest that a config accepts
            yield {"model": model, "train": {"learning_rate": rate, "weight_decay": decay}}


def _row_recipe(task: str, rows: int) -> Settings:
    """200 steps of all rows, or more steps of some; validated twenty times."""
    batch = _ONE_BATCH if rows <= _ONE_BATCH else 512 if rows < 100_000 else 1024
    epochs = 200 if rows <= _ONE_BATCH else min(200, max(1, round(_STEPS * batch / rows)))
    return {
        "epochs": epochs, "batch_size": batch, "optimizer": "adam", "schedule": "cosine",
        "weight_decay": min(_PENALTY.get(task, 1.0) / rows, 10.0),
        "warmup_epochs": epochs / 20, "evaluate_every": max(1, epochs // 20),
    }  # fmt: skip


def _recipe(rows: int) -> Settings:
    """Of images and of tokens."""
    batch = 128 if rows >= 2_000 else 32
    epochs = min(100, max(1, round(_STEPS * batch / rows)))
    return {"epochs": epochs, "batch_size": batch, "betas": (0.9, 0.99), "evaluate_every": max(1, epochs // 20)}
