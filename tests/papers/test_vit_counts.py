"""Table 2 of the Hourglass paper: parameters to the unit, training FLOPs to the printed digit, no weight made."""

from __future__ import annotations

import pytest

from isthmus.models.vit import VARIANTS
from isthmus.papers import load_paper
from isthmus.training.counting import cost
from tests.papers.exact_counts import EXACT

ROWS = list(load_paper("hourglass").tables["T2"].rows.values())
ROW_OF = {f"{row['model'].removeprefix('ViT-').lower()}-{row['architecture']}": row for row in ROWS}


def test_the_variants_are_the_rows_of_table_2():
    assert list(VARIANTS) == list(ROW_OF) == list(EXACT)
    for name, row in ROW_OF.items():
        fields = {"d_z": row["d_z"], "d_h": row["d_h"], "depth": row["L"], "num_heads": row["heads"]}
        assert fields.items() <= VARIANTS[name].items()


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_and_training_flops_are_the_printed_ones(name):
    counted, row = cost(VARIANTS[name]), ROW_OF[name]
    assert counted.params == counted.trainable_params == counted.stored_params == EXACT[name]
    assert round(counted.params / 1e6, 2) == row["params_M"]
    assert round(counted.training_flops / 1e9, 2) == row["training_gflops"]


@pytest.mark.parametrize("name", VARIANTS)
def test_training_flops_are_three_forwards_and_the_stem_two(name):
    """By hand: two per multiply–add, of linear layers and both products of attention; images get no gradient."""
    d_z, d_h, depth = (VARIANTS[name][field] for field in ("d_z", "d_h", "depth"))
    tokens, patch_values = 197, 3 * 16 * 16
    layer = tokens * d_z * (4 * d_z + 2 * d_h) + 2 * tokens**2 * d_z
    stem, head = 196 * patch_values * d_z, d_z * 196
    counted = cost(VARIANTS[name])
    assert counted.macs == stem + depth * layer + head
    assert counted.training_flops == 2 * (2 * stem + 3 * (depth * layer + head))
    if name.startswith("tiny"):
        assert counted == cost(VARIANTS[name] | {"fused": False}), "a counter that misses fused attention counts less"


def test_the_published_hourglasses_follow_the_design_rule():
    for size in ("tiny", "small", "large"):
        conventional, hourglass = VARIANTS[f"{size}-conventional"], VARIANTS[f"{size}-hourglass"]
        assert hourglass["d_z"] == 1.5 * conventional["d_z"]
        assert (conventional["d_h"] / conventional["d_z"], hourglass["d_h"] / hourglass["d_z"]) == (4, 0.5)


def test_latent_attention_costs_what_d_z_is_and_not_its_square():
    def attention(d_z: int) -> int:
        fields = {**VARIANTS["tiny-hourglass"], "d_z": d_z, "d_h": 8, "attention_width": 192, "latent_width": 96}
        deep, shallow = (cost(fields | {"depth": depth}).macs for depth in (2, 1))
        return deep - shallow - 2 * 197 * d_z * 8

    fixed = 197 * (96 * 192 + 96 * 2 * 192) + 2 * 197**2 * 192
    for d_z in (288, 576, 1152):
        assert attention(d_z) == fixed + 197 * d_z * (2 * 96 + 192)


def test_iterated_feed_forward_blocks_cost_time_and_only_their_own_weights():
    one, two, tied = (
        cost(VARIANTS["tiny-hourglass"] | fields)
        for fields in ({}, {"ffn_blocks": 2}, {"ffn_blocks": 2, "tied_ffn": True})
    )
    block = 2 * 288 * 144 + 144 + 288 + 2 * 288
    assert (two.params - one.params, tied.params - one.params) == (11 * block, 0)
    assert two.macs == tied.macs == one.macs + 11 * 197 * 2 * 288 * 144
