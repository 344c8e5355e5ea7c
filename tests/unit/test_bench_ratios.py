"""A row of a bench: one form for all, and a ratio that is ours over the rival's."""

from __future__ import annotations

import json
from functools import partial

import pytest

from benchmarks import mixers, sparse
from benchmarks.command import answer
from isthmus.analysis import ratios
from isthmus.analysis.ratios import compare_times, row

FORM = ["measured", "unit", "ours", "rival's", "ratio", "bar", "load before", "load after"]


class Clock:
    """A clock that only work moves, so that no other process does."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def test_a_ratio_is_ours_over_the_rival_s(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(ratios, "time", clock)
    quick, slow = partial(clock.pass_by, 0.001), partial(clock.pass_by, 0.05)
    found = compare_times("work", quick, slow, 2, 0.5)
    assert (found["ours"], found["rival's"], found["ratio"]) == (1.0, 50.0, 0.02)
    assert compare_times("work", slow, quick, 2, 0.5)["ratio"] == 50


def test_a_ratio_is_the_median_over_rounds_and_not_that_of_medians() -> None:
    """A machine that was ten times slower in one round was so for both."""
    found = row("work", "ms", [(1.0, 2.0), (30.0, 40.0), (4.0, 4.5)], 0.9, 0.1)
    assert list(found) == FORM
    assert (found["ours"], found["rival's"], found["ratio"]) == (4.0, 4.5, 0.75)
    assert (found["bar"], found["load before"]) == (0.9, 0.1)


def test_every_row_of_the_mixers_has_the_form() -> None:
    step, memory = sparse.measure_layer(1, 1, m=64, p=0.05, batch=2)
    rows = [mixers.permuted_step(1, batch=2), mixers.plain_pass(1, batch=1, size=32), step, memory]
    for found in rows:
        assert list(found) == FORM
        # Of one round, so that the median ratio is that of the medians, which have four digits.
        assert found["ratio"] == pytest.approx(found["ours"] / found["rival's"], abs=1e-3, rel=2e-3)
    assert [found["unit"] for found in rows] == ["ms", "ms", "ms", "MB"]
    assert [found["bar"] for found in rows] == [1.25, 1.0, 0.143, 0.067]
    assert memory["ratio"] < 0.6, "it holds the connections' weights and not the dense layer's"


def test_a_bench_answers_programs_and_persons_alike(capsys: pytest.CaptureFixture[str]) -> None:
    rows, table = [row("work", "ms", [(1.0, 2.0)], 0.9, 0.1)], [{"model": "sw_mlp", "bytes": 1234}]
    answer({"ratios": rows, "table_s3": table}, True)
    assert json.loads(capsys.readouterr().out) == {"ratios": rows, "table_s3": table}
    answer({"ratios": rows, "table_s3": table}, False, table_s3="Table S.3")
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("rival's", "0.5", "Table S.3", "sw_mlp", "1,234"))
    answer(table, False)
    assert capsys.readouterr().out.split() == ["model", "bytes", "sw_mlp", "1,234"]
