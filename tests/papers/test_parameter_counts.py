"""The published sizes, counted on real models that are built on the meta device."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import pytest

from isthmus import cost
from isthmus.models.hourglass import VARIANTS
from isthmus.papers import load_paper

PAPER = load_paper("hourglass")
FRONTS = [PAPER.tables[key] for key in ("T6", "T7", "T8", "T9")]
FRONT_ROWS = {name: (table, row) for table in FRONTS for name, row in table.rows.items()}
ROUNDED_TWICE = {
    entry.row for entry in PAPER.discrepancies.values() if entry.note.startswith("Rounded to three digits and then")
}
SMALL = {"name": "hourglass_mlp", "d_in": 96, "d_out": 30, "d_z": 100, "d_h": 7, "depth": 3}


def millions(count: int | Decimal, digits: int) -> Decimal:
    return (Decimal(count) / 1_000_000).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def count(row, d_in=768, d_out=3072):
    """The parameters of a real model, which the closed formula must give as well."""
    d_z, d_h, depth = row["d_z"], row["d_h"], row["L"]
    name = f"{row['architecture']}_mlp"
    counted = cost({"name": name, "d_in": d_in, "d_out": d_out, "d_z": d_z, "d_h": d_h, "depth": depth})
    assert counted.params == d_in * d_z + 2 * depth * d_z * d_h + d_z * d_out
    assert counted.params == counted.trainable_params == counted.stored_params == counted.macs
    assert counted.checkpoint_bytes == 4 * counted.params
    return counted.params


def test_there_are_104_rows_of_which_two_were_rounded_twice():
    assert len(FRONT_ROWS) == 104
    assert {"T9.5", "T9.10"} == ROUNDED_TWICE


@pytest.mark.parametrize("name", FRONT_ROWS)
def test_every_row_of_the_front_tables_has_its_printed_size(name):
    table, row = FRONT_ROWS[name]
    digits = table.decimals["params_M"]
    counted = count(row, table.task["d_x"], table.task["d_out"])
    printed = Decimal(str(row["params_M"])).quantize(Decimal(1).scaleb(-digits))
    if name in ROUNDED_TWICE:
        assert millions(counted, digits) != printed
        assert millions(millions(counted, 3) * 1_000_000, digits) == printed
    else:
        assert millions(counted, digits) == printed


def test_table_1_has_its_conventional_size_and_the_known_slip_of_its_hourglass():
    conventional, hourglass = PAPER.tables["T1"].rows.values()
    assert millions(count(conventional), 2) == Decimal("55.37") == Decimal(str(conventional["params_M"]))
    assert millions(count(hourglass), 2) == Decimal("54.10")
    assert (hourglass["params_M"], PAPER.discrepancies["D1"].computed) == (55.00, 54.095)


@pytest.mark.parametrize(("name", "millions_named"), [(name, name.split("-")[-1]) for name in VARIANTS])
def test_a_variant_has_the_size_in_its_name(name, millions_named):
    assert f"{cost(VARIANTS[name]).params / 1e6:.0f}m" == millions_named  # type: ignore[arg-type]


def test_training_costs_three_passes_but_for_the_gradient_of_the_input():
    counted = cost(SMALL)
    assert counted.training_flops == 6 * counted.params - 2 * 96 * 100


@pytest.mark.parametrize("w_in", ["uniform", "gaussian", "orthogonal"])
def test_a_frozen_dense_projection_costs_a_forward_pass_and_no_storage(w_in):
    counted, trained = cost(SMALL | {"w_in": w_in}), 2 * 3 * 100 * 7 + 100 * 30
    assert counted.params == counted.macs == trained + 96 * 100
    assert counted.trainable_params == counted.stored_params == trained
    # Nothing before the first W1 is trained, so the gradient ends there.
    assert counted.training_flops == 6 * trained + 2 * 96 * 100 - 2 * 100 * 7


def test_a_hadamard_projection_has_no_parameters_and_costs_two_small_products():
    counted, trained = cost(SMALL | {"w_in": "hadamard"}), 2 * 3 * 100 * 7 + 100 * 30
    assert counted.params == counted.trainable_params == counted.stored_params == trained
    assert counted.macs == trained + 128 * (8 + 16)  # n = 128 holds 96 and 100, and H_128 = H_8 ⊗ H_16
