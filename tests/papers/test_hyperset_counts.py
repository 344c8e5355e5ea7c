"""The published sizes of Hyper-SET and its baselines, each from a named variant, counted on the meta device."""

from __future__ import annotations

import pytest

from isthmus import cost
from isthmus.core.protocols import Signature
from isthmus.core.registry import catalogue, find
from isthmus.models import crate, hyper_set, recurrent_transformer

PUBLISHED = [
    (hyper_set, "small", "1.24", None),
    (hyper_set, "small-scale-up", "1.98", None),
    (hyper_set, "sudoku", "5.20", 5_195_584),
    (hyper_set, "masked-images", "3.94", 3_937_856),
    (hyper_set, "masked-images-8d", "8.07", 8_072_000),
    (recurrent_transformer, "small", "2.07", 2_070_154),
    (recurrent_transformer, "masked-images", "8.85", 8_851_456),
    (crate, "small", "0.75", 746_890),
    (crate, "small-t", "0.60", 599_050),
]


@pytest.mark.parametrize(("module", "variant", "printed", "exact"), PUBLISHED)
def test_a_variant_has_its_printed_size(module, variant, printed, exact):
    counted = cost(module.VARIANTS[variant])
    assert f"{counted.params / 1e6:.2f}" == printed
    assert exact is None or counted.params == exact
    assert counted.params == counted.trainable_params == counted.stored_params


def test_sizes_that_are_not_printed_follow_from_the_same_inventory():
    assert cost(recurrent_transformer.VARIANTS["sudoku"]).params == 7_156_992
    assert cost(recurrent_transformer.VARIANTS["base"]).params == 7_679_242


def test_iterations_cost_arithmetic_and_no_parameters():
    small = hyper_set.VARIANTS["small"]
    once, twice = (cost({**small, "iterations": number}) for number in (12, 24))
    assert once.params == twice.params
    assert 1.9 < twice.macs / once.macs < 2
    shared, separate = (
        cost({**recurrent_transformer.VARIANTS["small"], "qkv": kind}) for kind in ("shared", "separate")
    )
    assert separate.params - shared.params == 2 * 384**2


def test_the_saving_that_the_paper_states():
    """Claim C6: around 40 % fewer parameters than the Transformer of the same width."""
    saved = 1 - cost(hyper_set.VARIANTS["small"]).params / cost(recurrent_transformer.VARIANTS["small"]).params
    assert round(saved, 2) == 0.40


NATIVE = {"cifar10": (3, 32, 32), "cifar100": (3, 32, 32), "imagenet100": (3, 256, 256), "digits": (1, 8, 8),
          "mnist5k": (1, 28, 28)}  # fmt: skip
CLASSIFIERS = {
    "hyperset-cifar10": "1.24", "hyperset-cifar10-scale-up": "1.98", "hyperset-cifar10-base": "3.95",
    "hyperset-cifar10-transformer": "2.07", "hyperset-cifar10-crate": "0.75", "hyperset-cifar10-crate-t": "0.60",
    "hyperset-cifar100": None, "hyperset-imagenet100": None, "hyperset-imagenet100-hub": None,
    "hyperset-cifar10-native": None, "hyperset-cifar100-native": None, "hyperset-imagenet100-native": None,
    "hyperset-imagenet100-hub-native": None, "hyperset-digits": None, "hyperset-mnist5k": None,
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classification_recipe_builds_its_model_on_its_data(name):
    config = find("recipes", name)()
    resize = config.task.model_dump()["resize"]
    channels, height, width = NATIVE[config.source.name]
    classes = 100 if config.source.name.endswith("100") else 10
    shape = (channels, resize, resize) if resize else (channels, height, width)
    counted = cost(config.model.complete(Signature(shape, (classes,)), 0))
    assert (resize is None) == (name.endswith(("native", "digits", "mnist5k")))
    assert CLASSIFIERS[name] in (None, f"{counted.params / 1e6:.2f}")


def test_every_classification_recipe_of_the_paper_is_listed_here():
    ours = {name for name in catalogue("recipes") if name.startswith("hyperset-")}
    assert {name for name in ours if find("recipes", name)().task.name == "classification"} == set(CLASSIFIERS)
