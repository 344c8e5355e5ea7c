"""Every benchmark runs, and an installed package without them says where they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import isthmus
from benchmarks import stacks, studies, studio, training
from benchmarks.command import app
from tests.command_line import call

ONE_ROUND = ["--repeats", "1", "--threads", "1"]
SMALLEST = {
    "projections": ONE_ROUND,
    "hyperset": ONE_ROUND,
    "inference": ["T7.13", *ONE_ROUND, "--eager-only"],
    "pathways": ["ladder", "rezero", "--depth", "4", *ONE_ROUND],
    "stacks": ["--repeats", "1", "--epochs", "1", "--workers", "1"],
    "studies": ["--trials", "2"],
    "studio": ["--runs", "3", "--starts", "1", "--rounds", "1", "--epochs", "1"],
    "training": ONE_ROUND,
}
NOT_RUN = {
    "search": "tests/studies/test_bench.py",
    "estimators": "tests/unit/test_bench_estimators.py",
    "mixers": "tests/unit/test_bench_ratios.py",
    "vit": "tests/unit/test_bench_vit.py",
    "int8": "tests/export/test_int8.py",
    "find": "tests/unit/test_bench_find.py",
    "engine": "tests/unit/test_bench_engine.py",
    "within": "tests/unit/test_bench_find.py",
    "shared": "tests/unit/test_bench_shared.py",
}
"""They train or measure large networks; what is tested of them instead."""


def test_every_benchmark_is_here() -> None:
    found = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert found == {*SMALLEST, *NOT_RUN}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs_at_its_smallest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CASES", training.CASES[:1])
    monkeypatch.setattr(studies, "_long", lambda threads: studies._short(2))
    monkeypatch.setattr(stacks, "SHAPES", stacks.SHAPES[:1])
    monkeypatch.setattr(studio, "_LINES", 5)
    found = call("bench", name, *SMALLEST[name], "--json").json()
    tables = found.values() if isinstance(found, dict) else [found]
    assert all(rows and all(isinstance(row, dict) for row in rows) for rows in tables)


def test_an_installed_package_says_where_the_benchmarks_are(tmp_path: Path) -> None:
    (tmp_path / "isthmus").symlink_to(Path(isthmus.__file__).parent)
    command = [sys.executable, "-m", "isthmus", "bench", "hyperset", "--repeats", "1"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "checkout" in done.stderr


def test_a_table_too_small_for_a_search_is_refused_before_it_is_timed() -> None:
    answer = call("bench", "within", "--rows", "2", "--wish", "15s")
    assert answer.code == 2
    assert "--rows" in answer.err
    assert "greater than or equal to 20" in answer.err


@pytest.mark.parametrize("content", [b"\x93NUMPY", b"[1]\n", b'{"rows": 150, "studies": 1}\n', b"{", b"1\n" * 3])
@pytest.mark.parametrize(
    ("command", "option"),
    [("within", "--kept"), ("find", "--rows"), ("engine", "--cells"), ("studio", "--out"), ("pathways", "--out")],
)
def test_a_file_of_something_else_is_refused_and_kept(
    command: str, option: str, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    file.write_bytes(content)
    answer = call("bench", command, option, file, *["--resume"] * (command == "pathways"))
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer
    assert file.read_bytes() == content
