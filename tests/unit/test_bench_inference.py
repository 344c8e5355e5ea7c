"""The bench of inference: which rows it measures, what it says of them, and a tiny run of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import inference, projections
from benchmarks.inference import Case, Ratio, cases, measure, summary
from isthmus.cli.main import app
from isthmus.core.errors import UserError

TINY = Case("T7.13", "super_resolution", 24, 48, 600, 8, 2, "trainable")
RATIO = Ratio("T7.13", "super_resolution", 3075, 270, 4, "trainable", 256, "narrow", 2.0, None, 1e-7, 0.5)


def test_every_hourglass_row_is_measured_and_denoising_twice() -> None:
    found = cases()
    by_table = {table: {case.row for case in found if case.row.startswith(table)} for table in inference.TABLES}
    assert {table: len(rows) for table, rows in by_table.items()} == {"T6": 19, "T7": 19, "T8": 21, "T9": 21}
    assert {(case.task, case.w_in) for case in found} == {
        ("denoising", "trainable"),
        ("denoising", "orthogonal"),
        ("super_resolution", "trainable"),
    }
    assert cases(["T7.13"]) == [Case("T7.13", "super_resolution", 768, 3072, 3075, 270, 4, "trainable")]
    with pytest.raises(UserError, match=r"'T7.1' is no Hourglass row of Tables 6–9; did you mean 'T7\."):
        cases(["T7.1"])


@pytest.mark.parametrize("w_in", ["trainable", "orthogonal"])
def test_a_tiny_case_is_measured(w_in: str) -> None:
    said: list[str] = []
    ratios = measure([TINY._replace(w_in=w_in)], (1, 4), 3, 1, False, said.append)
    assert [ratio.batch for ratio in ratios] == [1, 4]
    assert all(ratio.eager > 0 and ratio.error < 1e-5 and ratio.compiled is None for ratio in ratios)
    assert len(said) == 1


def test_a_network_whose_narrow_form_does_not_pay_is_its_own_rival() -> None:
    (ratio,) = measure([TINY._replace(d_h=500, depth=6)], (4,), 3, 1, False, lambda line: None)
    assert (ratio.form, ratio.eager, ratio.error) == ("wide", 1.0, 0.0)


COMPILED = """
from benchmarks.inference import Case, measure
from isthmus.export import narrow_form

narrow_form._speed = lambda *_: 2.0
(ratio,) = measure([Case(*{case!r})], (4,), 1, 1, True, lambda line: None)
print(ratio.form, (ratio.compiled or 0) > 0)
"""


@pytest.mark.slow
@pytest.mark.skipif(inference.compiler() is None, reason="no C++ compiler")
def test_a_tiny_case_is_compiled() -> None:
    """In a process of its own, because compiled code and the tests' shape checks do not mix."""
    command = [sys.executable, "-c", COMPILED.format(case=tuple(TINY))]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == ["narrow", "True"]


def test_groups_have_geometric_means_and_their_bars() -> None:
    two = [RATIO, replace(RATIO, row="T7.7", d_h=16, eager=8.0, compiled=3.0)]
    others = [replace(RATIO, d_h=1146, eager=0.97), replace(RATIO, batch=1, eager=1.5)]
    denoising = replace(RATIO, task="denoising", w_in="orthogonal", eager=1.25)
    first, second, third, last = summary([*two, *others, denoising, replace(denoising, w_in="trainable", eager=1.0)])
    assert (first["batch"], first["rows"], first["eager"], first["bar"]) == (1, 1, 1.5, "")
    assert (second["batch"], second["rows"], second["eager"], second["compiled"]) == (256, 2, 4.0, 3.0)
    assert second["bar"] == "≥ 1.5"
    assert (third["eager"], third["rows"], third["compiled"], third["bar"]) == (1.25, 1, None, "≥ 1.3")
    assert (last["eager"], last["compiled"]) == (0.97, 3.0)


def test_the_command_prints_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "cases", lambda rows: [TINY])
    monkeypatch.setattr(inference, "compiler", lambda: None)
    command = ["bench", "inference", "--repeats", "1", "--threads", "1", "--out", str(tmp_path / "inference.json")]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    assert "no C++ compiler" in result.stderr
    assert [line["batch"] for line in json.loads(result.stdout)["rows"]] == [1, 32, 256]
    assert json.loads((tmp_path / "inference.json").read_text())["threads"] == 1
    assert "super-resolution" in CliRunner().invoke(app, command).stdout


def test_projections_are_measured_forward_and_backward() -> None:
    rows = projections.measure(1, 1, width=64, batch=4)
    assert [row["measured"].partition(",")[0] for row in rows] == ["forward", "forward and backward"]
    assert all(row["ours"] > 0 and row["bar"] == 0.083 for row in rows)
