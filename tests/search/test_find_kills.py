"""Twenty SIGKILLs of a search that ends by itself, because its networks train for few steps: the answer is the same."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.core.files import home
from isthmus.search.answer import ANSWER, Answer
from tests.studies.drivers import Command, RecordWatch, disturb, eventually, is_running, models, progress

KILLS = 20
TIMED = {"seconds", "latency", "command", "references", "late"}
"""What may differ: the references are fitted to as many rows as there is time for."""


def write_table(path: Path) -> Path:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 3))
    rows = np.column_stack([x, np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * draw.normal(size=200)])
    np.savetxt(path, rows, delimiter=",", header="a,b,c,target", comments="")
    return path


def result() -> dict[str, Any]:
    """The answer without what depends on time, and the bits of every model."""
    (path,) = (home() / "finds").glob(f"*/{ANSWER}")
    content = Answer.read(path.parent).content
    kept = {name: value for name, value in content.items() if name not in TIMED}
    return {"answer": json.loads(json.dumps(kept)), "models": models()}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_kills_change_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [
        "find",
        str(write_table(tmp_path / "table.csv")),
        "--target",
        "target",
        "--budget",
        "600",
        "--within",
        "1h",
    ]
    words += ["--workers", "2", "train.epochs=30", "train.evaluate_every=1"]
    with monkeypatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(tmp_path / "undisturbed"))
        whole = Command(words, tmp_path / "undisturbed.log")
        assert whole.process.wait() == 0, whole.said()
        expected, size = result(), progress()
    assert expected["answer"]["is_whole"]

    watch, command = RecordWatch(), Command(words, tmp_path / "log")
    try:
        disturb(command, KILLS, size, watch.look, watch.look)
        while command.is_running():
            watch.look()
            time.sleep(0.05)
    finally:
        command.kill()
    assert command.process.returncode == 0, command.said()
    watch.look()
    eventually(lambda: not any(map(is_running, command.orphans)))
    found = result()
    assert found["models"].keys() == watch.records.keys()
    assert found == expected
