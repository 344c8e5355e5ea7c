"""What the README says works: its commands run, its code prints what it promises, its tree is the tree."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus.cli.main import app
from isthmus.search.question import ask
from isthmus.training.prepare import Options

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    return [text for name, text in fences if name == language]


def test_every_block_is_of_a_kind_that_a_test_runs() -> None:
    fences = re.findall(r"^```(.*)$", README, flags=re.MULTILINE)
    assert set(fences[::2]) <= {"", "sh", "python"}
    assert set(fences[1::2]) == {""}, "a block is not closed"


SMALLER = {
    "study": [
        "base.train.epochs=1", "sampling.candidates=2", "seeds=[0]", "learning_rates=[]", "pruning=null",
        "--workers", "1",
    ],
    "find": ["--workers", "1", "train.epochs=2"],
    "reproduce": ["--workers", "1"],
    "train": ["threads=1"],  # two threads wait for each other where other tests run beside
}  # fmt: skip
"""The same commands in seconds. Workers, which each import torch again, are in tests/studies/test_workers.py."""

COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("isthmus ")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a reader who has data and trained a run, so that each command works on its own and in any order."""
    home = tmp_path_factory.mktemp("reader")
    rows = [f"{i % 7}.5,{i % 5},{i % 7 + i % 5}.25" for i in range(60)]
    (home / "my.csv").write_text("\n".join(["a,b,price", *rows]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(home / "isthmus"))
        run_command("train digits-mixer train.epochs=1 train.warmup_epochs=0 threads=1")
    return home


def run_command(line: str) -> str:
    result = CliRunner().invoke(app, shlex.split(line, comments=True))
    assert result.exit_code == 0, f"{line}: {result.output}{result.exception}"
    return result.output


def test_the_commands_are_found() -> None:
    assert len(COMMANDS) >= 5


def mark(command: str) -> Any:
    """The reproduction takes longer than all others together; a search is tried on a smaller table too."""
    is_slow = "reproduce" in command or "bikes" in command
    return pytest.param(command, marks=pytest.mark.slow if is_slow else [])


@pytest.mark.parametrize(
    "command", [mark(command) for command in COMMANDS], ids=lambda line: "-".join(shlex.split(line, comments=True)[1:4])
)
def test_a_command_runs(command: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("ISTHMUS_HOME", str(home / "isthmus"))
    words = shlex.split(command, comments=True)[1:]
    run_command(shlex.join([*words, *SMALLER.get(words[0], [])]))


def test_the_code_prints_what_it_promises() -> None:
    for block in blocks("python"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "README.md", "exec"), {})
        assert printed.getvalue().split() == re.findall(r"print\(.*\)  # (.*)", block)


def test_what_find_says_about_the_table_is_what_it_says() -> None:
    said = next(block for block in blocks("") if block.startswith("predicting `rentals`"))
    findings = ask("bikes", None, None, None, (), Options()).findings
    assert {line for line in said.splitlines() if line.startswith(("`", "predicting "))} <= set(findings)


def test_the_finding_is_that_of_the_demo() -> None:
    said = re.findall(r"with (\d\.\d\d) M.*? to (\d\d\.\d\d) dB", " ".join(README.split()))
    with (ROOT / "results" / "demo" / "candidates.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    reached = {(f"{int(row['params']) / 1e6:.2f}", f"{float(row['test_mean']):.2f}") for row in rows}
    assert len(said) == 2
    assert set(said) <= reached


def test_make_knows_the_two_commands() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {line.split()[1] for block in blocks("sh") for line in block.splitlines() if line.startswith("make ")} <= {
        *targets
    }


def test_the_tree_is_the_tree() -> None:
    tree = next(block for block in blocks("") if block.startswith("isthmus/"))
    inside = set(re.findall(r"^  ([a-z]+)/", tree, re.MULTILINE))
    assert inside == {path.parent.name for path in (ROOT / "isthmus").glob("*/__init__.py")}
    beside = set(re.findall(r"^([a-z]+)/", tree, re.MULTILINE))
    assert all((ROOT / name).is_dir() for name in beside)
    assert len(tree.splitlines()) <= 25


def test_local_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target
