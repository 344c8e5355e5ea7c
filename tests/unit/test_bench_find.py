"""The benchmark of `isthmus find`: ranks, intervals, and one small measurement that is not repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sklearn import datasets

from benchmarks import within
from benchmarks.estimators import DataSet
from benchmarks.find import RANKED, SHOWN, compare, measure, summarise


def fabricate(data: str, split: int, **scores: float) -> dict[str, Any]:
    return {"data": data, "split": split} | dict.fromkeys(SHOWN, 0.5) | scores


def test_ranks_are_means_over_splits_and_ties_share_theirs() -> None:
    rows = [fabricate("a", 0, find=0.9), fabricate("a", 1), fabricate("b", 0, find=0.1), fabricate("b", 1, linear=0.9)]
    lines = summarise(rows)
    assert [line["rank of find"] for line in lines] == [1.75, 3.5, 2.625]
    assert lines[-1]["linear"] == pytest.approx((3 + 2.5 + 2 + 1) / 4)
    assert lines[-1]["gradient boosting"] is None, "shown, not ranked"


def test_a_lead_in_ranks_has_an_interval_over_data_sets() -> None:
    rows = [fabricate(name, 0, find=0.9) for name in "abc"]
    leads = {line["find against"]: line for line in compare(rows)}
    assert set(leads) == {*RANKED[:-1]}
    assert leads["linear"]["ranks ahead"] == leads["linear"]["low"] == leads["linear"]["high"] == 2
    uneven = {line["find against"]: line for line in compare([*rows, fabricate("d", 0, linear=0.9)])}
    assert uneven["linear"]["low"] < 0 < uneven["linear"]["high"]


def test_a_measurement_that_has_not_ended_counts_data_sets_alike_and_claims_no_interval_for_one() -> None:
    rows = [fabricate("a", split, find=0.9) for split in range(3)]
    assert {(line["low"], line["high"], line["data sets"]) for line in compare(rows)} == {(None, None, 1)}
    line = summarise([*rows, fabricate("b", 0, find=0.1)])[-1]
    assert (line["rank of find"], line["splits"]) == ((1 + 4) / 2, 4)


@pytest.mark.slow
def test_a_measured_split_is_kept(tmp_path: Path) -> None:
    data = [DataSet("wine", True, lambda seed: datasets.load_wine(return_X_y=True))]
    first = measure(1, "15s", tmp_path / "rows.jsonl", print, data)
    assert 0.5 < first[0]["find"] <= 1
    assert first[0]["processor seconds"] > 0
    assert measure(1, "15s", tmp_path / "rows.jsonl", pytest.fail, data) == first


@pytest.mark.slow
def test_the_time_of_a_fresh_and_of_a_resumed_search(tmp_path: Path) -> None:
    kept = tmp_path / "rows.jsonl"
    rows = within.measure([150], ["15s"], True, kept, print)
    assert [row["resumed"] for row in rows] == [False, True]
    assert all(row["test"] and min(row["seconds"], row["least"]) > 0 for row in rows)
    assert within.measure([150], ["15s"], True, kept, print) == rows
