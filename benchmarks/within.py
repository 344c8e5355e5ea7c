"""Whether `isthmus find` keeps its time: from the start of the program to its end, by the clock.

Also of a search that was stopped after a quarter of its time and is then resumed with the whole of it. A search cannot
end before the data are read, so its limit is the wish or, if that is longer, what it takes to import the package, read
the data, compute their fingerprint and fit one reference. Measured cases are kept, so that a measurement can be
interrupted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from sklearn import datasets

from isthmus.analysis.ratios import load
from isthmus.core.files import read_json_lines
from isthmus.core.units import parse_seconds
from isthmus.search.answer import ANSWER, Answer

ROWS = (150, 10_000, 1_000_000)
WISHES = ("15s", "1m", "2m", "10m")
BAR = 1.1
_LEAST = """
import sys
from isthmus.search.question import ask
from isthmus.search.references import features, list_references
from isthmus.training.prepare import Options
question = ask(sys.argv[1], None, None, None, (), Options())
split = question.data.train
list_references(question.task.name)[1].make().fit(features(split), split.targets)
"""
"""What no search can do without: the linear reference is the fastest one that learns."""


def measure(
    rows: Sequence[int], wishes: Sequence[str], resumed: bool, path: Path, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A row for each size of the data and each wish; those in the file at ``path`` are not measured again."""
    found = read_json_lines(path, ("rows", "wish", "resumed"))
    known = {(row["rows"], row["wish"], row["resumed"]) for row in found}
    for count in rows:
        cases = [(wish, again) for wish in wishes for again in ((False, True) if resumed else (False,))]
        cases = [(wish, again) for wish, again in cases if (count, wish, again) not in known]
        if not cases:
            continue
        with tempfile.TemporaryDirectory() as folder:
            table = write_table(count, Path(folder))
            began = time.monotonic()
            subprocess.run([sys.executable, "-c", _LEAST, str(table)], check=True, capture_output=True)
            least = time.monotonic() - began
            for wish, again in cases:
                found.append({"rows": count, "wish": wish, "resumed": again, **_measure(table, wish, again, least)})
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found[-1]) + "\n")
                tell(", ".join(f"{name} {value}" for name, value in found[-1].items()))
    return found


def write_table(rows: int, folder: Path) -> Path:
    """Iris for 150 rows; otherwise the first function of Friedman, ten columns and the target."""
    path = folder / "table.csv"
    if rows == 150:
        datasets.load_iris(as_frame=True).frame.to_csv(path, index=False)
    else:
        X, y = datasets.make_friedman1(rows, noise=1.0, random_state=0)
        names = [*(f"x{number}" for number in range(X.shape[1])), "y"]
        pandas.DataFrame(np.column_stack([X, y]), columns=names).to_csv(path, index=False, float_format="%.6f")
    return path


def _measure(table: Path, wish: str, again: bool, least: float) -> dict[str, Any]:
    limit, before = BAR * max(parse_seconds(wish), least), load()
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "isthmus", "find", str(table), "--within", wish]
        environment = os.environ | {"ISTHMUS_HOME": home}
        if again:
            silent = subprocess.DEVNULL
            with subprocess.Popen(command, env=environment, stdout=silent, stderr=silent) as first:
                time.sleep(parse_seconds(wish) / 4)
                first.send_signal(signal.SIGTERM)
        began = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        seconds = time.monotonic() - began
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
        (folder,) = {path.parent for path in Path(home, "finds").glob(f"*/{ANSWER}")}
        answer = Answer.read(folder).content
    return {
        "seconds": round(seconds, 1), "limit": round(limit, 1), "holds": seconds <= limit, "least": round(least, 1),
        "whole": answer["is_whole"], "networks": len(answer["networks"]), "refits": len(answer["refits"]),
        "test": [round(value, 4) for value in answer["test"]["values"]], "load before": before,
    }  # fmt: skip
