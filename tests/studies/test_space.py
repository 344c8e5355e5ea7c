"""A space says which networks may be tried; what it refuses is never trained, and why is said."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.core.space import Budget, Range, Space, condition
from isthmus.core.units import amount
from isthmus.studies.proposals import Judge
from isthmus.studies.sampling import list_candidates, thin
from tests.studies.spaces import BASE, HOURGLASS, SIGNATURE


def config(*spaces: dict[str, Any], **more: Any) -> Any:
    return study_config({"name": "test", "base": BASE, "spaces": list(spaces)} | more)


def proposals(study: Any) -> list[Any]:
    return list_candidates(study, Judge(study, SIGNATURE))


@pytest.mark.parametrize(
    ("text", "number"), [("200k", 200_000), ("1.5M", 1_500_000), ("2e6", 2_000_000), ("3g", 3 * 10**9), ("17", 17)]
)
def test_amounts_are_written_as_people_write_them(text: str, number: int) -> None:
    assert amount(text) == number


def test_a_range_on_a_grid() -> None:
    assert tuple(Range(low=2, high=6).values()) == (2, 3, 4, 5, 6)
    assert tuple(Range(low=2, high=9, step=3).values()) == (2, 5, 8)
    assert tuple(Range(low=4, high=256, log=True, points=4).values()) == (4, 16, 64, 256)
    assert tuple(Range(low=0.0, high=1.0, points=3).values()) == (0.0, 0.5, 1.0)
    assert tuple(Range(low=5, high=5, points=1).values()) == (5,)


@given(st.integers(1, 500), st.integers(0, 500), st.booleans(), st.integers(2, 30))
def test_a_range_stays_within_its_ends_and_rises(low: int, more: int, log: bool, points: int) -> None:
    values = Range(low=low, high=low + more, log=log, points=points).values()
    assert values[0] == low
    assert values[-1] == low + more
    assert list(values) == sorted(set(values))
    assert len(values) <= points


def test_conditions_are_read_and_never_executed() -> None:
    names = {"d_z": 96, "d_h": 16, "depth": 2, "params": 15_000, "norm": "layer"}
    for text in ("d_h < d_z", "d_h * 4 <= d_z", "8 < d_h < d_z", "params <= 15k", "norm == 'layer'", "d_z % 8 == 0"):
        assert condition(text)(names), text
    assert not condition("params < 15k")(names)
    for text in ("__import__('os')", "d_h", "d_h < (lambda: 1)()", "d_h < d_z and 1", "d_h <", "a.b < 1", "[1] < 2"):
        with pytest.raises(ValueError, match=r"comparison|may hold"):
            condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "'%q' % d_z == d_z", "'x' * 10**11 < 3", "'x' * 100000000000 == 'y'", "'a' + 'b' == 'ab'", "norm + 'x' == 'y'",
        "norm < 'm'", "norm * 3 == 9", "'layer' < 3", "d_h + norm > 1", "1e999 > d_z", "d_z < 1j", "d_z == None",
        "d_z % 0 == 1", "d_z % (d_h - d_h) < 1", "1e308 * 1e308 > d_z", "1e308 * 10 - 1e308 * 10 < d_z",
        "d_h < " + " + ".join(["1"] * 980), "d_h < " + "(" * 150 + "1" + ")" * 150, "d_h < " + "9" * 5_000,
        "d_h < " + "+".join("1" * 60), " < ".join("d" * 51), "9" * 400 + "k > d_z", "d_h < 1" + "0" * 480 + " / 3",
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_condition_computes_with_numbers_of_a_bounded_size(text: str) -> None:
    with pytest.raises(UserError) as caught:
        proposals(config(HOURGLASS | {"where": [text]}))
    assert "\n" not in str(caught.value)


def test_text_is_compared_and_never_computed_with() -> None:
    names = {"d_z": 96, "norm": "layer", "w_in": "trainable", "rank": None}
    for text in ("norm == 'layer'", "'none' != norm", "norm != w_in", "d_z != 'layer'", "rank != 3", "d_z == 96"):
        assert condition(text)(names), text
    with pytest.raises(TypeError, match="norm"):
        condition("norm < w_in")(names)
    with pytest.raises(KeyError):
        condition("1 > 2 < unknown")(names)


NAMES: dict[str, Any] = {"d_z": 96, "d_h": 0, "params": 10**18, "p": 0.5, "norm": "layer", "rank": None}
SIDES = st.recursive(
    st.sampled_from([*NAMES, "3", "0", "1e300", "7k", "'x'", "True", "x"]),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda parts: f"({' '.join(parts)})"),
    max_leaves=60,
)


@settings(deadline=None)
@given(st.lists(SIDES, min_size=2, max_size=3), st.sampled_from(["<", ">=", "==", "!="]))
def test_any_condition_is_answered_or_refused(sides: list[str], test: str) -> None:
    try:
        holds = condition(f" {test} ".join(sides))
    except ValueError:
        return
    with contextlib.suppress(KeyError, TypeError, ZeroDivisionError, OverflowError):  # each is one line of the judge
        assert isinstance(holds(NAMES), bool)


@given(st.text(max_size=600))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        condition(text)


@pytest.mark.parametrize("text", ["1e999", "9" * 5_000, "1e999999", "1" + " " * 100_000 + "x", "1e400k"])
def test_an_amount_that_is_no_finite_number_is_refused(text: str) -> None:
    assert amount(text) is text
    with pytest.raises(UserError, match=r"budget\.params"):
        config(HOURGLASS, budget={"params": text})


WIDE = {"low": 1, "high": 10**8}


@pytest.mark.parametrize(
    ("vary", "more", "words"),
    [
        ({"d_z": WIDE, "d_h": WIDE, "depth": WIDE}, {}, "sampling.name=tpe"),
        ({"d_z": list(range(100)), "d_h": list(range(100)), "depth": [1, 2]}, {}, "more than 10,000 networks"),
        ({f"d_{i}": WIDE for i in range(600)}, {}, "more than 10,000 networks"),
        ({"d_z": [65]}, {"seeds": list(range(200_000))}, "seeds"),
        ({"d_z": [65]}, {"learning_rates": [1e-3 + i * 1e-6 for i in range(2_000)]}, "learning_rates"),
        ({"d_z": WIDE}, {"sampling": {"name": "tpe", "candidates": 10_000}, "seeds": list(range(101))}, "runs"),
        ({"d_z": {"low": 1, "high": 10**400}}, {}, "high"),
        ({"d_z": {"low": -1e300, "high": 1.0}}, {"sampling": {"name": "tpe"}}, "low"),
        ({"train.weight_decoy": [0.1]}, {}, "did you mean 'train.weight_decay'"),
        ({"train.epochs": [1, 2]}, {}, r"cannot vary train\.epochs"),
        ({"train.learning_rate": [1e-3]}, {"learning_rates": [1e-3]}, "not both"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_could_never_be_tried_is_refused_before_it_is_listed(
    vary: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        config({"model": {"name": "hourglass_mlp"}, "vary": vary}, **more)
    assert "\n" not in str(caught.value)


def test_a_wide_range_is_for_samplers() -> None:
    space = {"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": WIDE, "d_h": WIDE}}
    assert config(space, sampling={"name": "tpe"}).spaces[0].grid_size() == 10**16


def test_the_grid_is_the_product_without_what_cannot_be_trained() -> None:
    found = proposals(config(HOURGLASS))
    shapes = [(item.model.d_z, item.model.d_h, item.model.depth) for item in found]
    assert shapes == [(z, h, depth) for z in (65, 96) for h in (8, 64, 80) for depth in (1, 2) if h < z]
    assert found[0].cost["params"] == 2 * 64 * 65 + 2 * 65 * 8
    assert found[0].varied == {"d_z": 65, "d_h": 8, "depth": 1}


def test_a_recipe_varies_with_the_network() -> None:
    recipe = {"train.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True, "points": 2}, "train.batch_size": [0, 32]}
    space = {"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": [65], "d_h": [8], **recipe}}
    found = proposals(study := config(space))
    assert [item.recipe for item in found] == [{"learning_rate": rate, "batch_size": 32} for rate in (1e-4, 1e-2)]
    assert len({item.key for item in found}) == 2, "one network, two recipes"
    train = study.run(found[1].model, 1e-3, 0, found[1].recipe).train
    assert (train.learning_rate, train.batch_size, train.epochs) == (1e-2, 32, 4)


def test_conditions_and_budgets_refuse_before_training() -> None:
    small = config(HOURGLASS | {"where": ["d_h < d_z / 2", "d_z > d_in"]}, budget={"params": "15k"})
    assert {(item.model.d_z, item.model.d_h) for item in proposals(small)} == {(65, 8), (96, 8)}
    budget = Budget.model_validate({"macs": "10k"})
    assert budget.exceeded_limit({"params": 1, "trainable_params": 1, "macs": 10_001}) == "macs above 10000"
    assert budget.exceeded_limit({"params": 1, "trainable_params": 1, "macs": 10_000}) == ""


def test_a_network_is_tried_once_however_it_is_written() -> None:
    model = {"name": "hourglass_mlp", "d_in": 64, "norm": "layer", "depth": 1}
    again = {"model": model, "vary": {"d_z": [65], "d_h": [8]}}
    study = config(HOURGLASS, again, candidates=[{"name": "hourglass_mlp", "d_z": 65, "d_h": 8, "depth": 1}])
    judge = Judge(study, SIGNATURE)
    assert len(list_candidates(study, judge)) == len(proposals(config(HOURGLASS)))
    assert judge.refused["proposed twice"] == 2


@pytest.mark.parametrize(
    ("space", "more", "words"),
    [
        (HOURGLASS | {"where": ["d_h > d_z"]}, {}, "10 × d_h > d_z"),
        (HOURGLASS, {"budget": {"params": 100}}, "above 100"),
        (HOURGLASS | {"where": ["d_x < 3"]}, {}, "no field 'd_x'"),
        (HOURGLASS | {"where": ["norm < 3"]}, {}, "where 'norm < 3'"),
        (HOURGLASS | {"vary": {"d_zz": [1], "d_h": [2]}}, {}, "d_z"),
        (HOURGLASS | {"vary": HOURGLASS["vary"] | {"d_h": {"low": 1.0, "high": 2.0}}}, {}, "needs points"),
    ],
)
def test_a_space_without_a_candidate_says_why(space: dict[str, Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        proposals(config(space, **more))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"spaces": []}, "needs candidates or spaces"),
        ({"spaces": [{"model": {"name": "hourglass_mlp"}, "vary": {"d_z": []}}]}, "d_z"),
        ({"spaces": [{"model": {"name": "hourglass_mlp"}, "vary": {"d_z": {"low": 9, "high": 3}}}]}, "empty"),
        ({"spaces": [{"model": {"name": "hourglass_mlp", "d_z": 3}, "vary": {"d_z": [4]}}]}, "both fixed"),
        ({"spaces": [{"model": {}, "vary": {"d_z": [4]}}]}, "with a name"),
        ({"spaces": [HOURGLASS | {"where": ["import os"]}]}, "comparison"),
        ({"budget": {"params": "many"}}, "many"),
        ({"budget": {"params": 0}}, "params"),
        ({"seeds": [1, 1]}, "twice"),
        ({"pruning": {"rungs": [2, 1]}}, "increase"),
        ({"pruning": {"rungs": [4]}}, "rung 4"),
        ({"sampling": {"name": "tpee"}}, "sampling"),
        ({"cost": "price"}, "cost"),
        ({"learning_rates": [1e-3, 0]}, "learning_rates"),
    ],
)
def test_a_study_that_cannot_be_is_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        study_config({"name": "test", "base": BASE, "spaces": [HOURGLASS]} | changes)
    assert "\n" not in str(caught.value)


def test_a_grid_is_thinned_evenly_and_keeps_both_architectures() -> None:
    everything = _ALL
    few = thin(everything, 5)
    assert len(few) == 5
    assert {item.architecture for item in few} == {"hourglass_mlp", "conventional_mlp"}
    costs = sorted(item.cost["params"] for item in everything if item.architecture == "hourglass_mlp")
    kept = sorted(item.cost["params"] for item in few if item.architecture == "hourglass_mlp")
    assert (kept[0], kept[-1]) == (costs[0], costs[-1])
    assert thin(everything, None) == thin(everything, 1_000) == everything


@given(st.integers(1, 40))
def test_thinning_never_gives_more_than_asked_for(number: int) -> None:
    assert 1 <= len(thin(_ALL, number)) <= max(number, 1)


CONVENTIONAL = {"model": {"name": "conventional_mlp", "depth": 1}, "vary": {"d_z": [8, 16, 32], "d_h": [64, 128]}}
_ALL = proposals(config(HOURGLASS, CONVENTIONAL))


def test_a_space_reads_its_own_grid_size() -> None:
    assert Space.model_validate(HOURGLASS).grid_size() == 12
