"""Every benchmark runs, and an installed package without them says where they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import isthmus
from benchmarks.command import app
from tests.command_line import call

SMALLEST = {
    "training": ["--repeats", "1"],
    "studies": ["--trials", "2"],
    "mixers": ["--repeats", "1"],
    "hyperset": ["--repeats", "1"],
    "vit": ["--repeats", "1"],
    "projections": ["--repeats", "1"],
    "inference": ["T7.13", "--repeats", "1", "--eager-only"],
}
LONGER = {"search": "tests/studies/test_bench.py", "estimators": "tests/unit/test_bench_estimators.py"}
"""They train for minutes. What is tested of them instead."""


def test_every_benchmark_is_here() -> None:
    found = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert found == {*SMALLEST, *LONGER}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_a_benchmark_runs_at_its_smallest(name: str) -> None:
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
