"""Small networks that train together, against the same networks one after the other: a step, and a whole study.

The steps say up to which size a stack pays, which ``training.stacks.choose_stack`` has as constants. The trainings are
of a table of 10 columns and 500 rows.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.processes import empty_home
from isthmus.analysis.ratios import compare_times, load, row
from isthmus.core.config import run_config
from isthmus.search.race import Network, Race
from isthmus.studies.executors import LocalWorkers
from isthmus.training.devices import OneDevice, arithmetic
from isthmus.training.listener import Listener
from isthmus.training.loop import NoJournal, Stopped, Training
from isthmus.training.prepare import Options, learn_task, load_data, load_rows, prepare, starting_model
from isthmus.training.run import make_training
from isthmus.training.stacks import NetworkStack

SHAPES = ((32, 8, 1), (64, 16, 2), (64, 16, 4), (96, 48, 3), (256, 64, 4))
"""d_z, d_h and depth."""
BATCHES, SIZES = (32, 400), (2, 4, 8)
TRAINED = ((32, 8, 1), (64, 16, 2))
BAR = 0.25
"""Of the trainings: four times as fast."""
_STEPS, _SIZE = 5, 8


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
    """Seconds of all trainings, as a search carries them out, once the workers have started."""
    before, pairs = load(), []
    for number in range(rounds):
        order = (_SIZE, None) if number % 2 else (None, _SIZE)
        seconds = {size: _search(size, workers, epochs) for size in order}
        pairs.append((seconds[_SIZE], seconds[None]))
    runs = "2 networks × 2 rates × 3 seeds × 5 folds"
    return [row(f"{runs}, {epochs} epochs, {workers} workers, in stacks of {_SIZE}", "s", pairs, BAR, before)]


def _search(size: int | None, workers: int, epochs: int) -> float:
    with empty_home() as folder, LocalWorkers(workers, early=True) as executor:
        path = write_table(folder / "table.csv")
        _carry_out(_list_networks(path, size, 1), workers, executor)  # the workers have imported what they need
        began = time.perf_counter()
        _carry_out(_list_networks(path, size, epochs), 15, executor)
        return time.perf_counter() - began


def _carry_out(networks: list[Network], looks: int, executor: LocalWorkers) -> None:
    """A look has a seed and a fold of its own; after five of them the folds are drawn again."""
    task = learn_task(networks[0].config.task, load_data(networks[0].config.source))
    race = Race(networks, task, Options(), executor, time.monotonic() + 1e6, lambda *news: None)
    race.carry_out([(network, look) for look in range(looks) for network in networks])
    assert all(race.has_ended(network, look) for network in networks for look in range(looks))


def _list_networks(path: Path, size: int | None, epochs: int) -> list[Network]:
    networks: list[Network] = []
    for shape, rate in itertools.product(TRAINED, (3e-3, 1e-2)):
        settings = _settings(path, 32, epochs, size)
        model = {"name": "hourglass_mlp"} | dict(zip(("d_z", "d_h", "depth"), shape, strict=True))
        train = settings["train"] | {"learning_rate": rate}
        networks.append(Network(len(networks), run_config(settings | {"model": model, "train": train})))
    return networks


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
