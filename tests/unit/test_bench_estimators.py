"""The summary of the comparison with scikit-learn, on rows that were made up."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.estimators import summary
from isthmus.reports.tables import markdown_table


def row(data: str, ours: float, rivals: float, seconds: float, rivals_seconds: float) -> dict[str, Any]:
    return {"data": data, "ours": ours, "rival's": rivals, "seconds": seconds, "rival's seconds": rivals_seconds}


def test_ranks_and_times_are_means_over_rows() -> None:
    rows = [row("a", 0.9, 0.8, 1.0, 2.0), row("a", 0.7, 0.7, 8.0, 1.0), row("b", 0.1, 0.2, 2.0, 1.0)]
    first, second, last = summary(rows)
    assert (first["data"], first["ours"], first["rival's"]) == ("a", 0.8, 0.75)
    assert first["rank"] == 1.25, "better once, equal once"
    assert first["time"] == 2.0, "half and eight times: the geometric mean"
    assert (second["data"], second["rank"], second["time"]) == ("b", 2.0, 2.0)
    assert (last["data"], last["ours"], last["rank"]) == ("all", None, 1.5)
    assert last["time"] == pytest.approx(2.0)


def test_the_table_beside_it_leaves_empty_what_has_no_number() -> None:
    head, rule, _, last = markdown_table(summary([row("a|b", 0.9, 0.8, 1.0, 2.0)]))
    assert head.startswith("| data | ours | rival's |")
    assert rule.count("---") == head.count("|") - 1
    assert last.startswith("| all |  |  | 1.0 |")
    assert markdown_table(summary([row("a|b", 0.9, 0.8, 1.0, 2.0)]))[2].startswith("| a\\|b | 0.9 |")
