"""The command line in this process, and a config that trains in a moment."""

from __future__ import annotations

import csv
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from unittest import mock

import numpy as np
import yaml

from isthmus.cli.main import main

TINY: dict[str, Any] = {
    "source": {"name": "digits"},
    "task": {"name": "denoise"},
    "model": {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1},
    "train": {"epochs": 1, "batch_size": 400},
    "threads": 1,
}


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)


def call(*arguments: object, out: TextIO | None = None) -> Answer:
    """``isthmus ARGUMENTS`` in this process."""
    out, err = out or io.StringIO(), io.StringIO()
    argv = ["isthmus", *map(str, arguments)]
    with mock.patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
    return Answer(code, out.getvalue() if isinstance(out, io.StringIO) else "", err.getvalue())


def tiny(folder: Path, **changes: Any) -> Path:
    """A config file of a training that takes a moment."""
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(TINY | changes))
    return file


def train(folder: Path, *overrides: object, **changes: Any) -> dict[str, Any]:
    record: dict[str, Any] = call("train", tiny(folder, **changes), *overrides, "--json").json()
    return record


def write_table(path: Path, rows: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets whose units are far from 0 and 1."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows, 3)) * [1, 100, 0.01] + [0, 5000, 3]
    y = 700 * x[:, 0] - 3 * x[:, 1] + 20_000
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "c", "y"], *np.column_stack([x, y]).tolist()])
    return x, y
