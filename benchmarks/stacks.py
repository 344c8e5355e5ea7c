"""Small networks that train together, against the same networks one after the other: a step, and a whole study.

The steps say up to which size a stack pays, which ``training.stacks.choose_stack`` has as constants. The trainings are
of a table of 10 columns and 500 rows.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies import empty_home
from isthmus.analysis.ratios import compare_times, load, row
from isthmus.core.config import StudyConfig, run_config, study_config
from isthmus.core.files import home
from isthmus.search.race import Network, Race
from isthmus.studies.database import default_url
from isthmus.studies.executors import LocalWorkers
from isthmus.studies.plan import Plan
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.devices import OneDevice
from isthmus.training.listener import Listener
from isthmus.training.loop import NoJournal, Stopped, Training
from isthmus.training.run import (
    Options,
    arithmetic,
    learn_task,
    load_data,
    load_rows,
    make_training,
    prepare,
    starting_model,
)
from isthmus.training.stacks import NetworkStack

SHAPES = ((32, 8, 1), (64, 16, 2), (64, 16, 4), (96, 48, 3), (256, 64, 4))
"""d_z, d_h and depth."""
BATCHES, SIZES = (32, 400), (2, 4, 8)
STUDIED = ((32, 8, 1), (64, 16, 2), (32, 8, 4), (64, 16, 4))
BAR = 0.25
"""Of the trainings: four times as fast."""
_STEPS = 5


def measure_steps(repeats: int) -> list[dict[str, Any]]:
    """A step of a stack against a step of each of its networks alone, in one thread."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, arithmetic(1):
        path = write_table(Path(folder) / "table.csv")
        for shape, batch, size in ((shape, batch, size) for batch in BATCHES for shape in SHAPES for size in SIZES):
            alone = _train(_make(path, shape, batch, None, 1)[0], size)
            flops, together = _stack(path, shape, batch, size)
            name = f"{size} of {'/'.join(map(str, shape))}, batches of {batch}, {flops / 1e6:.1f} M operations each"
            rows.append(compare_times(name, together, alone, repeats, 1.0))
    return rows


def _make(path: Path, shape: tuple[int, int, int], batch: int, size: int | None, number: int) -> list[Training]:
    settings = _settings(path, batch, 10**6, size)
    settings["train"] |= {"evaluate_every": 10**6}  # no validation among the steps
    fields = dict(zip(("d_z", "d_h", "depth"), shape, strict=True))
    made = []
    for seed in range(number):
        run = prepare(run_config(settings | {"model": {"name": "hourglass_mlp", **fields}, "seed": seed}))
        devices = OneDevice(run.config.train)
        made.append(
            make_training(run, starting_model(run.config, Options()).model, load_rows(run, devices.device), devices)
        )
    return made


def _train(training: Training, networks: int) -> Callable[[], None]:
    """Steps of one network, as many as ``networks`` take."""

    class Enough(Listener):
        steps = 0

        def step(self, step: int, steps: int) -> None:
            self.steps += 1

        def should_stop(self) -> bool:
            return self.steps + 1 >= networks * _STEPS

    def work() -> None:
        with suppress(Stopped):
            training.run(NoJournal(), Enough())

    return work


def _stack(path: Path, shape: tuple[int, int, int], batch: int, size: int) -> tuple[float, Callable[[], None]]:
    from isthmus.training.counting import cost

    members = _make(path, shape, batch, size, size)
    stack = NetworkStack(members)

    def work() -> None:
        for _ in range(_STEPS):
            stack.step(range(size))
            for training in members:
                training.end_step(0.0, NoJournal(), Listener(), dict)

    return float(cost(members[0].model).training_flops * min(batch, len(members[0].train))), work


def measure_trainings(rounds: int, workers: int, epochs: int) -> list[dict[str, Any]]:
    """Seconds of all trainings, once the workers have started: as a search carries them out, and as studies."""
    return [
        _compare(f"a search: 2 networks × 2 rates × 15 looks (5 folds, 3 seeds), {epochs} epochs, {workers} workers",
                 lambda size: _search(size, workers, epochs), 8, rounds),
        _compare(f"a study of a fold: 4 networks × 2 rates × 3 seeds, {epochs} epochs, {workers} workers",
                 lambda size: _carry_out(size, workers, epochs), 6, rounds),
    ]  # fmt: skip


def _compare(measured: str, work: Callable[[int | None], float], size: int, rounds: int) -> dict[str, Any]:
    before, pairs = load(), []
    for number in range(rounds):
        order = (size, None) if number % 2 else (None, size)
        seconds = {each: work(each) for each in order}
        pairs.append((seconds[size], seconds[None]))
    return row(f"{measured}, in stacks of {size}", "s", pairs, BAR, before)


class _Kept(LocalWorkers):
    """Workers that outlive a study."""

    def __exit__(self, *error: object) -> None:
        pass


@contextmanager
def _workers(number: int, path: Path) -> Iterator[LocalWorkers]:
    """Workers that have imported what they need."""
    executor = _Kept(number, early=True)
    try:
        _carry_out_study(_study(path, None, 1, seeds=(3, 4, 5)), executor)
        yield executor
    finally:
        LocalWorkers.__exit__(executor)


def _search(size: int | None, workers: int, epochs: int) -> float:
    with empty_home() as folder, _workers(workers, write_table(folder / "table.csv")) as executor:
        networks = []
        for shape, rate in itertools.product(STUDIED[:2], (3e-3, 1e-2)):
            settings = _settings(folder / "table.csv", 32, epochs, size)
            model = {"name": "hourglass_mlp"} | dict(zip(("d_z", "d_h", "depth"), shape, strict=True))
            train = settings["train"] | {"learning_rate": rate}
            networks.append(Network(len(networks), run_config(settings | {"model": model, "train": train})))
        began = time.perf_counter()
        task = learn_task(networks[0].config.task, load_data(networks[0].config.source))
        race = Race(networks, task, Options(), executor, time.monotonic() + 1e6, lambda *news: None)
        race.carry_out([(network, look) for look in range(15) for network in networks])
        assert all(race.has_ended(network, look) for network in networks for look in range(15))
        return time.perf_counter() - began


def _carry_out(size: int | None, workers: int, epochs: int) -> float:
    with empty_home() as folder, _workers(workers, write_table(folder / "table.csv")) as executor:
        began = time.perf_counter()
        _carry_out_study(_study(folder / "table.csv", size, epochs), executor)
        return time.perf_counter() - began


def _carry_out_study(config: StudyConfig, executor: LocalWorkers) -> None:
    plan = Plan.of(config, Options())
    study = Study(plan, Storage(default_url(home() / "studies" / config.name), config.name, plan.maximise))
    study.carry_out(executor, lambda trial, run, event: None)
    assert len(study.records()) == 6 * len(STUDIED)


def _study(path: Path, size: int | None, epochs: int, seeds: tuple[int, ...] = (0, 1, 2)) -> StudyConfig:
    models = [dict(zip(("d_z", "d_h", "depth"), shape, strict=True)) for shape in STUDIED]
    return study_config(
        {
            "name": f"seeds-from-{seeds[0]}",
            "base": _settings(path, 32, epochs, size),
            "candidates": [{"name": "hourglass_mlp", **model} for model in models],
            "learning_rates": [3e-3, 1e-2],
            "seeds": seeds,
        }
    )


def _settings(path: Path, batch: int, epochs: int, size: int | None) -> dict[str, Any]:
    return {
        "source": {"name": "table", "path": str(path), "targets": ["y"], "folds": 5},
        "task": {"name": "regression"},
        "train": {"epochs": epochs, "batch_size": batch} | ({"stack": size} if size else {}),
        "threads": 1,
    }


def write_table(path: Path) -> Path:
    """500 rows of 10 columns, and what is to be predicted from them."""
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(500, 10))
    target = np.sin(inputs[:, 0]) + inputs[:, 1] * inputs[:, 2] + 0.1 * draw.normal(size=500)
    names = ",".join([*(f"x{number}" for number in range(10)), "y"])
    np.savetxt(path, np.column_stack([inputs, target]), delimiter=",", header=names, comments="", fmt="%.5f")
    return path
