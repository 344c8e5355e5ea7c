"""The networks that a search proposes: every architecture takes part, fits the budget and can be built."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import isthmus
from isthmus.core.errors import UserError
from isthmus.core.protocols import ModelConfig, Signature
from isthmus.core.registry import catalogue, component, find
from isthmus.core.space import FittedSpace
from isthmus.layers.patches import list_patches
from isthmus.search.networks import list_networks
from isthmus.search.race import Round
from isthmus.studies.budget import declared_spaces, find_largest, fit_widths
from isthmus.training.counting import count_params
from tests.conformance.small_models import CASES, build

TASKS = {
    "few columns": Signature((3,), (1,)),
    "rows": Signature((64,), (10,)),
    "small images": Signature((1, 8, 8), (10,)),
    "images": Signature((3, 32, 32), (10,)),
    "restored images": Signature((1, 16, 16), (1, 16, 16)),
    "enlarged images": Signature((3, 8, 8), (3, 16, 16)),
    "tokens": Signature((81,), (81, 9), 10),
}
LEFT_OUT = {
    "narrow_mlp": "the form of a trained residual MLP",
    "dense_mlp": "has no skip; it is the network of β-LASSO",
    "monarch_mixer": "s_mixer without its shared weights, for comparisons with it",
    "vit": "hourglass_vit and conventional_vit are the same network",
    "vq_tokenizer": "returns its input image, and serves one task only",
}
OF_IMAGES = {
    "hourglass_mlp", "conventional_mlp", "sw_mlp", "kronecker_mlp", "monarch_mlp", "mlp_mixer", "s_mixer", "imixer",
    "hourglass_vit", "conventional_vit", "hyper_set", "recurrent_transformer", "crate", "crate_t",
}  # fmt: skip


def complete(model: dict, signature: Signature) -> ModelConfig:
    config = component("models", model)
    assert isinstance(config, ModelConfig)
    return config.complete(signature, 0)


def test_every_architecture_is_searched_or_left_out_for_a_reason() -> None:
    spaces = [space for signature in TASKS.values() for space in declared_spaces(signature, 50_000)]
    assert {space.model["name"] for space in spaces} | set(LEFT_OUT) == set(catalogue("models"))
    assert not {space.model["name"] for space in spaces} & set(LEFT_OUT)


@pytest.mark.parametrize(
    ("task", "budget"),
    [(task, 4_000) for task in TASKS] + [pytest.param(task, 50_000, marks=pytest.mark.slow) for task in TASKS],
)
def test_every_proposed_network_fits_the_budget_and_can_be_built(task: str, budget: int) -> None:
    signature = TASKS[task]
    kind = "regression" if signature.output_shape == (1,) else "classification"
    built, sizes = set[str](), list[int]()
    for each in list_networks(signature, kind, 1_000, budget):
        config = complete(each["model"], signature)
        sizes.append(count_params(config))
        if config.name not in built:
            model = find("models", config.name)(config)
            x = torch.zeros(2, *signature.input_shape, dtype=torch.int64 if signature.vocabulary else torch.float32)
            assert math.prod(model(x).shape) == 2 * math.prod(signature.output_shape)
            built.add(config.name)
    assert 0.7 * budget < max(sizes) <= budget
    assert min(sizes) < 0.4 * budget


@pytest.mark.parametrize("few", [True, False])
def test_tables_are_tried_with_residual_mlps_first_and_then_with_the_others(few: bool) -> None:
    rows = 500 if few else 9_000
    names = [each["model"]["name"] for each in list_networks(TASKS["rows"], "regression", rows, 50_000)]
    residual = [name in ("hourglass_mlp", "conventional_mlp") for name in names]
    assert residual == sorted(residual, reverse=True)
    assert set(names) == {"hourglass_mlp", "conventional_mlp", "sw_mlp", "kronecker_mlp", "monarch_mlp"}
    assert names.index("sw_mlp") > 20


def test_the_first_turn_has_one_network_of_every_architecture_of_images() -> None:
    proposed = list_networks(TASKS["small images"], "classification", 1_000, 50_000)
    first = [(each["model"]["name"], each["model"].get("permutation")) for each in proposed[:15]]
    assert len(set(first)) == 15
    assert {name for name, _ in first} == OF_IMAGES


def test_a_budget_too_small_for_any_network_is_refused() -> None:
    with pytest.raises(UserError, match="a budget of 10 parameters is too small"):
        list_networks(TASKS["images"], "classification", 1_000, 10)


def test_patches_grow_with_the_image_and_the_budget() -> None:
    def sizes(side: int, budget: int, channels: int = 1) -> tuple[int, ...]:
        return list_patches(Signature((channels, side, side), (10,)), budget)

    assert sizes(8, 50_000)[0] == 2
    assert sizes(28, 50_000)[0] == 7
    assert sizes(224, 10**7, 3)[0] > sizes(224, 50_000, 3)[0] > sizes(32, 50_000, 3)[0]
    assert max(sizes(28, 2_000)) < max(sizes(28, 50_000))
    assert sizes(31, 50_000) == ()
    assert list_patches(TASKS["rows"], 50_000) == ()


def test_shapes_differ_from_the_most_promising_one_in_few_fields_at_first() -> None:
    space = FittedSpace(model={"name": "x"}, vary={"a": (1, 2, 3), "b/w": (0.5, 2.0)}, width="w")
    assert space.shapes()[:3] == [{"a": 1, "b/w": 0.5}, {"a": 1, "b/w": 2.0}, {"a": 2, "b/w": 0.5}]
    assert len(space.shapes()) == space.grid_size() == 6
    shape = {"a": 3, "b/w": 0.5, "train.learning_rate": 0.1}
    assert space.widen(shape, 5) == {"name": "x", "w": 5, "a": 3, "b": 2}
    assert space.recipe(shape) == {"learning_rate": 0.1}


SPACES = [
    pytest.param(signature, space, id=f"{task}-{space.model['name']}-{number}")
    for task, signature in TASKS.items()
    if task in ("rows", "small images", "tokens")
    for number, space in enumerate(declared_spaces(signature, 20_000))
    if space.model["name"] != "sw_mlp"  # its connections are drawn, and need not grow with each step of the width
]


@pytest.mark.parametrize(("signature", "space"), SPACES)
@settings(max_examples=2)
@given(draw=st.data())
def test_no_wider_network_fits(signature: Signature, space: FittedSpace, draw: st.DataObject) -> None:
    shape = draw.draw(st.sampled_from(space.shapes()))
    budget = draw.draw(st.integers(300, 4_000))
    best = None
    for number in itertools.count(-(-space.low // space.step)):
        model = space.widen(shape, number * space.step)
        real = find("models", model["name"])(complete(model, signature))
        count = sum(parameter.numel() for parameter in real.parameters())
        best = (model, count) if count <= budget else best
        if count > 2 * budget:
            break
    assert fit_widths(space, shape, signature, [budget]) == [best]


def test_a_sparse_network_of_the_next_width_does_not_fit() -> None:
    (space,) = (space for space in declared_spaces(TASKS["rows"], 5_000) if space.model["name"] == "sw_mlp")
    (fitted,) = fit_widths(space, space.shapes()[0], TASKS["rows"], [5_000])
    assert fitted is not None
    wider = fitted.model | {"m": fitted.model["m"] + 1}
    assert count_params(complete(fitted.model, TASKS["rows"])) == fitted.params <= 5_000
    assert count_params(complete(wider, TASKS["rows"])) > 5_000


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(0, 2_000))
@example([1] * 60, 40)
def test_the_largest_number_is_found_for_any_growing_count(growth: list[int], budget: int) -> None:
    counts = list(itertools.accumulate(growth))
    found = find_largest(lambda number: counts[number - 1] if number <= len(counts) else math.inf, budget)
    assert found == sum(count <= budget for count in counts)


@given(st.integers(0, 9), st.integers(0, 99), st.integers(0, 999), st.integers(1, 10**7))
def test_a_parabola_needs_few_counts(a: int, b: int, c: int, budget: int) -> None:
    asked = list[int]()

    def count(number: int) -> int:
        asked.append(number)
        return a * number**2 + (b + 1) * number + c

    found = find_largest(count, budget)
    assert found == 0 or count(found) <= budget
    assert count(found + 1) > budget
    assert len(asked) - 2 <= 5 + math.log(max(found, 1), 4)


@pytest.mark.parametrize(("name", "fields"), CASES)
def test_parameters_are_counted_without_values(name: str, fields: dict) -> None:
    model = build(name, fields)
    frozen = sum(getattr(module, "fixed_params", 0) for module in model.modules())
    assert count_params(model.config) == sum(each.numel() for each in model.parameters()) + frozen


def test_the_first_round_leaves_time_for_longer_trainings(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    monkeypatch.setattr("isthmus.search.race._FIRST_SHARE", 0.0)
    monkeypatch.setattr("isthmus.search.race._ENOUGH", 3)
    monkeypatch.setattr("isthmus.search.race.ROUNDS", {True: (Round(range(1), 1),), False: (Round(range(1), 1),)})
    monkeypatch.setattr("isthmus.search.engine.SEEDS", 1)
    monkeypatch.setattr("isthmus.search.engine.list_references", lambda task: [])
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 4, 4)).astype(np.uint8)
    found = isthmus.find(
        images, np.arange(40) % 2, task="classification", budget="500", within="10m", workers=1,
        settings=["train.epochs=1"], progress=False,
    )  # fmt: skip
    assert len({str(each["model"]) for each in found.content["networks"]}) == 3
    assert not found.content["is_whole"]
