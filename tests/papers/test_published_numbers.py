"""The published numbers: equal to the facts that were read off the paper, and consistent where the paper is."""

from __future__ import annotations

import os
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest
import yaml

from isthmus.errors import UserError
from isthmus.papers import list_papers, load_paper

FRONT_TABLES = ("T6", "T7", "T8", "T9")
REPOSITORY = Path(__file__).parents[2]


def facts():
    folders = [REPOSITORY.parent / "shared" / "facts"]
    if os.environ.get("ISTHMUS_DATA"):
        folders.insert(0, Path(os.environ["ISTHMUS_DATA"]).parent / "facts")
    for folder in folders:
        if (folder / "hourglass.yaml").is_file():
            return yaml.safe_load((folder / "hourglass.yaml").read_text(encoding="utf-8"))
    pytest.skip("the facts read off the paper are not on this machine (facts/hourglass.yaml beside ISTHMUS_DATA)")


def test_tables_equal_the_facts():
    expected = {table["id"]: table for table in facts()["tables"]}
    for name, table in load_paper("hourglass").tables.items():
        assert list(table.columns) == expected[name]["columns"]
        assert [list(row.values()) for row in table.rows.values()] == expected[name]["rows"], name
        assert table.task == expected[name].get("task", {})
        assert table.printed_as == expected[name]["printed_as"]


def test_figures_claims_and_discrepancies_equal_the_facts():
    paper, expected = load_paper("hourglass"), facts()
    for figure in expected["figures"]:
        keys = ("value", "at_params_M", "approximate")
        assert [[item.get(key) for key in keys] for item in paper.figures[figure["id"]].stated] == [
            [item.get(key) for key in keys] for item in figure["stated_values"]
        ]
    assert list(paper.claims) == [claim["id"] for claim in expected["claims"]]
    for claim in expected["claims"]:
        assert paper.claims[claim["id"]].numbers == claim.get("numbers", {}), claim["id"]
        assert list(paper.claims[claim["id"]].tables) == claim["tables"]
    ours = [(item.where, item.printed, item.computed) for item in paper.discrepancies.values()]
    assert ours == [(item["where"], item["printed"], item["computed"]) for item in expected["discrepancies"]]


def test_parameter_formula_gives_every_front_row_but_the_two_that_were_rounded_twice():
    paper = load_paper("hourglass")
    missed = []
    for table in (paper.tables[name] for name in FRONT_TABLES):
        for name, row in table.rows.items():
            d_z, d_h, depth = row["d_z"], row["d_h"], row["L"]
            count = table.task["d_x"] * d_z + 2 * depth * d_z * d_h + d_z * table.task["d_out"]
            digit = Decimal(1).scaleb(-table.decimals["params_M"])
            rounded = (Decimal(count) / 1_000_000).quantize(digit, ROUND_HALF_UP)
            if rounded != Decimal(str(row["params_M"])).quantize(digit):
                missed.append(name)
    assert sum(len(paper.tables[name].rows) for name in FRONT_TABLES) == 104
    rounded_twice = {item.row for item in paper.discrepancies.values() if item.row.startswith("T9.")}
    assert set(missed) == rounded_twice == {"T9.5", "T9.10"}


def test_no_number_has_more_digits_than_were_printed():
    for table in load_paper("hourglass").tables.values():
        for name, row in table.rows.items():
            for column, digits in table.decimals.items():
                assert round(row[column], digits) == row[column], (name, column)


def test_rows_and_papers_are_found_by_name_and_a_wrong_one_is_named():
    paper = load_paper("hourglass")
    assert "hourglass" in list_papers()
    assert paper.row("T8.12") == paper.tables["T8"].rows["T8.12"]
    assert (paper.row("T8.12")["d_h"], paper.row("T8.12")["psnr_dB"]) == (765, 21.960)
    with pytest.raises(UserError, match=r"no row 'T8\.99'"):
        paper.row("T8.99")
    with pytest.raises(UserError, match="did you mean 'hourglass'"):
        load_paper("hourglas")
