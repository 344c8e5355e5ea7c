"""The published sizes of the mixers, counted on real models that are built on the meta device."""

from __future__ import annotations

import pytest
import torch

import isthmus
from isthmus.core.registry import component, find
from isthmus.models import mlp_mixer, s_mixer


def planned(fields):
    with torch.device("meta"):
        return find("models", fields["name"])(component("models", fields))


def shape(image, classes, **fields):
    return {"input_shape": image, "output_shape": (classes,), **fields}


@pytest.mark.parametrize(
    ("variant", "classes", "params"),
    [
        ("s", 1000, 18_528_264),
        ("b", 1000, 59_880_472),
        ("l", 1000, 208_196_168),
        ("s", 10, 18_020_394),
        ("b", 10, 59_119_162),
        ("l", 10, 207_181_418),
    ],
)
def test_the_standard_sizes_have_their_published_parameters(variant, classes, params):
    fields = mlp_mixer.VARIANTS[variant] | {"output_shape": (classes,)}
    counted = isthmus.cost(fields)
    assert counted.params == counted.trainable_params == counted.stored_params == params


def test_a_permutation_is_an_index_and_not_a_weight():
    fields = {"name": "mlp_mixer", "input_shape": (3, 32, 32), "output_shape": (10,), "C": 24, "depth": 2}
    assert isthmus.cost(fields | {"permutation": "random"}) == isthmus.cost(fields)


@pytest.mark.parametrize(
    ("variant", "changed", "connections"),
    [("ss-8", {}, 255_949_824), ("ss-w", {}, 255_363_072), ("ss-w", {"C": 487}, 276_273_152)],
)
def test_table_1_has_its_connections_with_the_corrected_width(variant, changed, connections):
    """256M and 255M are printed; the printed C 487 of SS-W would give 276M."""
    assert planned(mlp_mixer.VARIANTS[variant] | changed).connections() == connections


@pytest.mark.parametrize(("gamma", "omega"), [(4.095, 2.6e8), (4.57, 2.9e8)])
def test_mixer_b_w_has_table_1s_omega_with_the_corrected_expansion(gamma, omega):
    fields = mlp_mixer.VARIANTS["b-w"] | {"gamma": gamma}
    model = planned(fields)
    layers, patches = 4 * fields["depth"], 256 * 588 * 588
    assert float(f"{(model.connections() - patches) / layers:.1e}") == omega
    assert (model.config.inner_tokens, model.config.patch_values) == (256, 588)


def test_mixer_b_has_table_1s_omega_with_its_real_hidden_sizes():
    model = planned(mlp_mixer.VARIANTS["b"])
    assert float(f"{(model.connections() - 196 * 768 * 768) / (4 * 12):.1e}") == 2.6e8


@pytest.mark.parametrize("permutation", ["commutation", "random"])
def test_connections_follow_eq_14_and_the_first_layer_may_change_the_tokens(permutation):
    S0, S, C, gamma, depth, C0 = 64, 24, 20, 3, 5, 48
    image = {"input_shape": (3, 32, 32), "output_shape": (10,), "C": C, "depth": depth, "permutation": permutation}
    square = planned({"name": "mlp_mixer", "gamma": gamma, **image})
    assert square.connections() == depth * 2 * gamma * (C * S0**2 + C**2 * S0) + S0 * C0 * C
    other = planned({"name": "mlp_mixer", "gamma": gamma, "S": S, **image})
    first = C * (gamma * S * S0 + S * S0)  # W1 and W̃ read S0 tokens
    rest = (2 * depth - 1) * gamma * C * S**2 + depth * 2 * gamma * C**2 * S
    assert other.connections() == first + rest + S0 * C0 * C
    single = planned({"name": "s_mixer", **image})
    assert single.connections() == depth * (C * S0**2 + C**2 * S0) + S0 * C0 * C


def test_an_s_mixer_of_figure_5_has_the_omega_in_its_name():
    for name, fields in s_mixer.VARIANTS.items():
        exponent = int(name.partition("-")[0].removeprefix("2^"))
        omega = (fields["C"] * fields["S"] ** 2 + fields["C"] ** 2 * fields["S"]) / 2
        assert omega == pytest.approx(2**exponent, rel=0.005), name
        assert planned(fields).config.tokens == 64


def test_table_s_3_counts_the_weights_of_the_mixing_layers():
    """0.393 MB where 3.93 is printed, with S = C = 64; the flops are those that the paper counts for one image."""
    fields = shape((3, 32, 32), 10, name="mlp_mixer", C=64, depth=3, gamma=2, bias=False)
    model = planned(fields)
    weights = sum(parameter.numel() for name, parameter in model.named_parameters() if "mixing" in name)
    assert 4 * weights == 393_216
    assert 2 * (model.connections() - 64 * 48 * 64) == 12_582_912
