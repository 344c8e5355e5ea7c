"""What a study adds to its trainings: two workers against one of two threads, and the driver's share of the time."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from benchmarks.processes import empty_home
from isthmus.core.config import StudyConfig, study_config
from isthmus.studies.database import default_url
from isthmus.studies.executors import LocalWorkers, ThisProcess
from isthmus.studies.plan import Plan
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.prepare import Options

TRIAL_SECONDS = 10.0
"""The length of a trial to which the driver's overhead is compared."""


def measure(trials: int) -> list[dict[str, Any]]:
    """The same trainings in both ways of using two cores, and a study that finds all its runs on record."""
    seconds: dict[int, float] = {}
    for workers, threads in ((1, 2), (2, 1), (2, 1), (1, 2)):  # interleaved: the machine's mood changes
        with empty_home():
            seconds[workers] = seconds.get(workers, 0.0) + _carry_out(_long(threads), workers)
    per_trial = _driver_seconds(trials)
    return [
        {
            "measured": "2 workers of 1 thread, against 1 worker of 2 threads",
            "seconds": f"{seconds[2] / 2:.1f} against {seconds[1] / 2:.1f}",
            "ratio": round(seconds[2] / seconds[1], 3),
        },
        {
            "measured": f"driver, per trial of {TRIAL_SECONDS:.0f} s, over {trials} trials",
            "seconds": f"{per_trial:.3f}",
            "ratio": round(per_trial / TRIAL_SECONDS, 4),
        },
    ]


def _long(threads: int) -> StudyConfig:
    """Ten trainings of some seconds, of the demo's kind."""
    return study_config(
        {
            "name": "bench",
            "base": {
                "source": {"name": "mnist5k"},
                "task": {"name": "denoise"},
                "train": {"epochs": 10},
                "threads": threads,
            },
            "spaces": [
                {"model": {"name": "hourglass_mlp", "d_z": 1000, "depth": 4}, "vary": {"d_h": [64, 128, 192, 256]}}
            ],
            "seeds": [0, 1],
        }
    )


def _short(trials: int) -> StudyConfig:
    return study_config(
        {
            "name": "bench-driver",
            "base": {"source": {"name": "digits"}, "task": {"name": "denoise"}, "train": {"epochs": 1}, "threads": 1},
            "spaces": [
                {"model": {"name": "hourglass_mlp", "depth": 1, "d_h": 4}, "vary": {"d_z": list(range(8, 8 + trials))}}
            ],
        }
    )


def _carry_out(config: StudyConfig, workers: int) -> float:
    plan = Plan.of(config, Options())
    with tempfile.TemporaryDirectory() as folder:
        study = Study(plan, Storage(f"sqlite:///{folder}/study.db", config.name, plan.maximise))
        began = time.perf_counter()
        study.carry_out(LocalWorkers(workers), lambda trial, run, event: None)
        return time.perf_counter() - began


def _driver_seconds(trials: int) -> float:
    """All but the training: trials are proposed, claimed, read from their records and stored, in a real database."""
    with empty_home() as folder:
        config = _short(trials)
        plan = Plan.of(config, Options())
        first = Study(plan, Storage(default_url(folder), "first", plan.maximise))
        first.carry_out(ThisProcess(), lambda trial, run, event: None)
        began = time.perf_counter()
        second = Study(plan, Storage(default_url(folder), "second", plan.maximise))
        second.carry_out(ThisProcess(), lambda trial, run, event: None)
        assert len(second.records()) == trials
        return (time.perf_counter() - began) / trials
