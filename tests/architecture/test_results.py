"""Every file of results/ has a command that generates it: results/README.md names it."""

from __future__ import annotations

import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import pytest
import typer

from isthmus.cli.main import app
from isthmus.papers import import_exhibits

RESULTS = Path(__file__).parents[2] / "results"
LINES = [line.split("|")[1:3] for line in (RESULTS / "README.md").read_text().splitlines() if line.startswith("| `")]
COMMANDS = {pattern: command for files, command in LINES for pattern in re.findall(r"`([^`]+)`", files)}
FILES = sorted(str(path.relative_to(RESULTS)) for path in RESULTS.rglob("*") if path.is_file())
STORED = sorted(RESULTS.glob("reproductions/*/result.json"))


def test_every_file_has_one_command_and_every_line_has_files():
    matches = {name: [each for each in COMMANDS if fnmatch(name, each)] for name in FILES if name != "README.md"}
    assert {name: found for name, found in matches.items() if len(found) != 1} == {}
    assert set(COMMANDS) == {each for found in matches.values() for each in found}


@pytest.mark.parametrize(
    "command", sorted({each for text in COMMANDS.values() for each in re.findall(r"`(isthmus [^`]+)`", text)})
)
def test_the_commands_exist_with_their_options(command):
    group = typer.main.get_command(app)
    words = shlex.split(command)[1:]
    while hasattr(group, "commands"):
        group = group.commands[words.pop(0)]
    options = {option for parameter in group.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.parent.name)
def test_a_stored_reproduction_names_its_command(path):
    result = json.loads(path.read_text())
    name, verb, paper, table, flag, scale, *_ = shlex.split(result["command"])
    assert (name, verb, flag, scale) == ("isthmus", "reproduce", "--scale", result["scale"])
    assert path.parent.name == f"{paper}-{table}-{scale}"
    assert table in import_exhibits(paper)
