"""Runs the blocks of code on a page of the documentation."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from isthmus.cli.main import app
from isthmus.core.config import run_config, study_config
from isthmus.core.record import RECORD, run_folders
from isthmus.studies.plan import Plan
from isthmus.training.prepare import Options

DOCS = Path(__file__).parents[2] / "docs"
IN_TIMM = DOCS / "in-timm.md"


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def run_command(line: str) -> None:
    ended = [folder for folder in run_folders() if (folder / RECORD).exists()]
    last = max(ended, key=lambda folder: (folder / RECORD).stat().st_mtime, default=Path())
    words = [re.sub(r"(^|=)RUN$", rf"\g<1>{last.name}", word) for word in shlex.split(line, comments=True)]
    if words[0] in ("python3", ".", "pip"):  # how the environment of these tests was made
        return
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (DOCS.parent / "Makefile").read_text(), flags=re.MULTILINE), line
        return
    assert words[0] == "isthmus", line
    here = ["--workers", "1"] if words[1] in ("study", "find") else []  # each worker would import torch again
    if words[1] == "find":
        here += ["--within", "20s"]  # of two, the last counts
    if words[1] == "find" and not any(word.startswith("train.epochs=") for word in words):
        here.append("train.epochs=2")
    result = CliRunner().invoke(app, [*words[1:], *here])
    assert result.exit_code == 0, f"{line}: {result.output}{result.exception}"


def run_blocks(page: Path) -> None:
    """In order, as a reader would type them; what is printed is what the comment behind it says."""
    namespace: dict[str, Any] = {}
    for language, text in blocks(page):
        if language == "sh":
            for line in text.splitlines():
                run_command(line)
        elif language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(text, page.name, "exec"), namespace)
            assert printed.getvalue().splitlines() == re.findall(r"^print\(.*\)  # (.*)$", text, flags=re.MULTILINE)
        elif language == "yaml":
            settings = yaml.safe_load(text)
            assert Plan.of(study_config(settings), Options()).preview if "spaces" in settings else run_config(settings)
        else:
            assert language in ("text", "json", "toml"), f"{page.name}: nothing checks a block of {language}"
