"""SIGKILL and SIGTERM at random moments of a training and of a study with one and with two workers.

Wrong: after it was started again, another record, log, weight or outcome than without kills, or a file left behind.
The moments are those of the clock: the same seed draws the same delays, and not the same instructions.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from isthmus.core.record import read_metrics, read_record
from tests.fuzz.cases import Answer, Failure, ended, judge, start
from tests.fuzz.files import RUNGS, timeless, without_drawings

COUNT, AT_ONCE, SECONDS = 12, 1, 1500.0
KILLS = 5
"""In a case."""
_PATIENCE = 300.0
_KEPT = {"config.json", "metrics.jsonl", "task.safetensors", "model.safetensors", "record.json", "samples.png", ".lock"}
BASE: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1}
TRAIN = {"train": {"epochs": 8, "batch_size": 200}, "model": {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1}}
SPACE = {"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": [65, 70, 80], "d_h": [4, 8]}}
STUDY = {"base": BASE | {"train": {"epochs": 4, "batch_size": 200}}, "spaces": [SPACE]} | RUNGS


class Work(NamedTuple):
    """What is killed, and how it is started."""

    name: str
    words: tuple[str, ...]


WORKS = [Work("training", ("train", "killed.yaml", "--save-every", "0", "--json"))] * 7
WORKS += [Work("study", ("study", "killed.yaml", "--workers", "1", "--json"))] * 3
WORKS += [Work("study with workers", ("study", "killed.yaml", "--workers", "2", "--json"))] * 2


def prepare(store: Path) -> None:
    pass


def attack(number: int, draw: random.Random, store: Path) -> str:
    with without_drawings():  # which the forks inherit
        return disturb(WORKS[number % len(WORKS)], draw)


def disturb(work: Work, draw: random.Random) -> str:
    is_training = work.words[0] == "train"
    landed, seeds = 0, iter(range(1_000))
    while landed < KILLS:
        seed = next(seeds)
        change = {"seed": seed} if is_training else {"seeds": [seed]}
        name = {} if is_training else {"name": f"killed-{seed}"}
        Path("killed.yaml").write_text(yaml.safe_dump((BASE | TRAIN if is_training else STUDY) | change | name))
        began = time.monotonic()
        expected = finish(work, f"whole-{seed}")
        landed += kill(draw, work, f"home-{seed}", KILLS - landed, time.monotonic() - began)
        found = finish(work, f"home-{seed}")
        for what in expected:
            if found[what] != expected[what]:
                raise Failure("wrong", f"{work.name} of seed {seed}, {what}: {expected[what]} → {found[what]}"[:1500])
        finish(work, f"home-{seed}")  # the next look, after which nothing is left behind
        check_leftovers(Path(f"home-{seed}"))
    return f"{work.name} resumed"


def kill(draw: random.Random, work: Work, home: str, most: int, seconds: float) -> int:
    """Kill the command again and again until it ends by itself; returns how often it was killed."""
    os.environ["ISTHMUS_HOME"] = str(Path(home).resolve())
    for number in range(most):
        process = start(work.words)
        code = ended(process, draw.uniform(0, seconds))
        if code is not None:
            if code != 0:
                raise Failure("traceback", f"{work.name} after {number} kills: exit {code}, {texts()}")
            return number
        sent = draw.choice([signal.SIGKILL, signal.SIGTERM])
        os.kill(process, sent)
        code = ended(process, _PATIENCE)
        if code is None:
            raise Failure("endless", f"{work.name} goes on after {sent.name}")
        if sent is signal.SIGTERM and code not in (0, 143, 130, -signal.SIGTERM):
            raise Failure("traceback", f"{work.name} after SIGTERM: exit {code}, {texts()}")
    return most


def finish(work: Work, home: str) -> dict[str, Any]:
    """Let the command come to its end; what it answers, and what it left."""
    os.environ["ISTHMUS_HOME"] = str(Path(home).resolve())
    code = ended(start(work.words), _PATIENCE)
    if code is None:
        raise Failure("endless", f"{work.name} in {home} is not done after {_PATIENCE:.0f} s")
    judge(Answer(code, *texts()))
    if code != 0:
        raise Failure("wrong", f"{work.name} in {home} is not finished: exit {code}, {texts()}")
    return {"answer": timeless(json.loads(texts()[0])), "runs": dict(results(Path(home)))}


def results(home: Path) -> Iterator[tuple[str, Any]]:
    """Metrics, weights and log of every run, without times; of one that was pruned, its log."""
    for folder in sorted((home / "runs").iterdir()):
        lines = [timeless(line) for line in read_metrics(folder)]
        record = read_record(folder) if (folder / "record.json").exists() else None
        weights = record.files.get("model.safetensors") if record else None
        yield folder.name, [weights, record.metrics if record else None, lines]


def check_leftovers(home: Path) -> None:
    for record in home.glob("runs/*/record.json"):
        if left := {file.name for file in record.parent.iterdir()} - _KEPT:
            raise Failure("wrong", f"left behind in a finished run: {sorted(left)}")


def texts() -> tuple[str, str]:
    return Path("out.txt").read_text(errors="replace"), Path("err.txt").read_text(errors="replace")
