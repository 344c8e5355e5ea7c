"""What a refactoring must leave as it is: names and shapes of weights, the operators of a training step, run ids.

``unchanged.json`` was written before the residual stack existed. The operators are aten's, in the order in which one
forward and backward pass calls them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus.core import registry
from isthmus.core.config import RunConfig
from isthmus.core.files import digest
from tests.conformance.small_models import SMALL, build, inputs

GOLDEN = Path(__file__).with_name("unchanged.json")
CASES = {f"{name}-{n}": (name, fields) for name in SMALL for n, fields in enumerate(SMALL[name])}


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def weights(case: str) -> str:
    state = build(*CASES[case]).state_dict()
    return digest({name: [*tensor.shape, str(tensor.dtype)] for name, tensor in state.items()}, 16)


def operators(case: str) -> list[str]:
    model = build(*CASES[case])
    x = inputs(model)
    torch.manual_seed(0)
    with Operators() as seen:
        y = model(x)
        y = y[0] if isinstance(y, tuple) else y
        y.square().mean().backward()
    return seen.names


def run_ids() -> dict[str, str]:
    found = {}
    for name in registry.catalogue("recipes"):
        recipe = registry.find("recipes", name)()
        if isinstance(recipe, RunConfig):
            found[name] = recipe.run_id("0" * 64)
        else:
            found[name] = digest(recipe.model_dump(mode="json", exclude_defaults=True), 16)
    return found


def snapshot() -> dict[str, Any]:
    return {
        "weights": {case: weights(case) for case in CASES},
        "operators": {case: [len(names := operators(case)), digest(names, 16)] for case in CASES},
        "run_ids": run_ids(),
    }


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return dict(json.loads(GOLDEN.read_text()))


@pytest.mark.parametrize("case", CASES)
def test_weights_have_the_names_and_shapes_they_had(golden: dict[str, Any], case: str) -> None:
    assert weights(case) == golden["weights"][case]


@pytest.mark.parametrize("case", CASES)
def test_a_training_step_calls_the_operators_it_called(golden: dict[str, Any], case: str) -> None:
    names = operators(case)
    assert [len(names), digest(names, 16)] == golden["operators"][case]


def test_recipes_mean_the_runs_they_meant(golden: dict[str, Any]) -> None:
    found = run_ids()
    assert {name: found.get(name) for name in golden["run_ids"]} == golden["run_ids"]


if __name__ == "__main__":  # writes them anew: python -m tests.golden.test_unchanged
    GOLDEN.write_text(json.dumps(snapshot(), indent=1) + "\n")
