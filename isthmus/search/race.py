"""Networks compete: all are tried once or twice, the worse ones drop out, and the rest are tried more often.

A look at a network is a run with a fold of its own (small data) or a seed of its own. Every decision is a function of
the runs' records, so that a search that was stopped or killed goes on as it would have; the time that it may take
decides how many of them are carried out, and which networks are too slow for it.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isthmus.core.config import RunConfig
from isthmus.core.errors import UserError
from isthmus.core.protocols import Component, Data, Task
from isthmus.core.record import read_metrics, read_record
from isthmus.core.registry import component
from isthmus.studies.executors import Advanced, Ended, Executor, Job, ThisProcess
from isthmus.training.run import Options, Prepared, learn_task, load_data, prepare

SMALL = 2_000
"""Data with fewer rows are cross-validated."""
FOLDS = 5
SEEDS = 3
"""Refits of the chosen network."""
_OVERFIT = 1.1
"""How far the last mean loss may be above the lowest. Fewer epochs than planned are a choice that adds noise."""
_POLL = 0.1  # seconds
_OVERHEAD = 0.2
"""Seconds of a run besides its training. The start of a worker, which imports torch, is not of a run."""
_TOO_LONG = "it would take too long"
_PACE = 5e9
"""Floating-point operations per second that a thread does at least, once networks are large enough to count."""


class Round(NamedTuple):
    """Looks that every remaining network gets, and the networks that remain after them."""

    looks: Sequence[int]
    keep: int


ROUNDS = {
    True: (Round(range(2), 8), Round(range(2, FOLDS), 4), Round(range(FOLDS, 10), 2), Round(range(10, 15), 1)),
    False: (Round(range(1), 6), Round(range(1, SEEDS), 1)),
}
"""For data with folds, and without."""


@dataclass(frozen=True)
class Network:
    """A network with its recipe."""

    number: int
    config: RunConfig

    @property
    def is_folded(self) -> bool:
        return getattr(self.config.source, "folds", None) is not None

    def look(self, number: int) -> RunConfig:
        source = self.config.source.model_copy(update={"fold": number} if self.is_folded else {})
        return self.config.model_copy(update={"source": source, "seed": number})

    def refit(self, epoch: int, seed: int) -> RunConfig | None:
        """The run on training and validation rows, ended where validation was best; None if the source has no such."""
        settings = self.config.source.model_dump(mode="json", exclude_defaults=True)
        kept = {name: value for name, value in settings.items() if name not in ("folds", "fold")}
        try:
            source = component("sources", kept | {"validation": 0})
        except UserError:
            return None
        stop = epoch if epoch < self.config.train.epochs else None
        train = self.config.train.model_copy(update={"stop_epoch": stop, "select": "last"})
        return self.config.model_copy(update={"source": source, "train": train, "seed": seed})


@dataclass(frozen=True)
class Score:
    """What the looks at a network showed after the last epoch, or before it overfits by their mean validation loss."""

    network: Network
    values: tuple[float, ...]
    loss: float
    epoch: int

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def overfits(self) -> bool:
        return self.epoch < self.network.config.train.epochs


@dataclass
class Race:
    """The state of a search: its networks, the runs that ended, and the time that is left."""

    networks: list[Network]
    task: Task
    options: Options
    executor: Executor
    ends: float
    """When the last look must have ended, by ``time.monotonic``."""
    longest: float
    """Seconds of a look above which a network is not tried: there would be no time to refit it."""
    tell: Callable[[Network, int, Score | None], None]
    should_stop: Callable[[], bool] = lambda: False
    failures: dict[str, str] = field(default_factory=dict)
    _data: dict[str, tuple[Data, Task]] = field(default_factory=dict)
    _runs: dict[tuple[int, int], Prepared] = field(default_factory=dict)
    _seconds: dict[int, float] = field(default_factory=dict)
    _curves: dict[str, dict[int, tuple[float, float]]] = field(default_factory=dict)
    is_stopped: bool = False
    must_have_one: bool = False
    """Whether the first run may take longer than there is time, because an answer needs one."""
    is_whole: bool = False
    """Whether every round was carried out."""

    def run(self, network: Network, look: int) -> Prepared:
        if (network.number, look) not in self._runs:
            self._runs[network.number, look] = self.prepare(network.look(look))
        return self._runs[network.number, look]

    def prepare(self, config: RunConfig) -> Prepared:
        return prepare(config, self.options, *self.data(config))

    def know(self, source: Component, data: Data, task: Task) -> None:
        """Data that were loaded before."""
        self._data[source.model_dump_json()] = data, task

    def data(self, config: RunConfig) -> tuple[Data, Task]:
        """The data of a fold, loaded once."""
        key = config.source.model_dump_json()
        if key not in self._data:
            data = load_data(config.source, self.options.data_dir)
            self._data[key] = data, learn_task(config.task, data)
        return self._data[key]

    def search(self) -> Score:
        """Carry out the rounds, or as much of them as time allows; returns the best network so far."""
        alive, looks = list(self.networks), list[int]()
        for each in ROUNDS[self.networks[0].is_folded]:
            looks = [*looks, *each.looks]
            is_whole = self._train([(network, look) for look in each.looks for network in alive])
            alive = [network for network in alive if not self._has_failed(network, looks)]
            if not is_whole:
                break
            alive = [score.network for score in self.rank(alive, looks)[: each.keep]]
        else:
            self.is_whole = _TOO_LONG not in self.failures.values()
        return self._best_so_far(alive, looks)

    def looks(self, network: Network) -> list[int]:
        """The looks that a network had."""
        known = sorted(look for number, look in self._runs if number == network.number and look >= 0)
        return [look for look in known if self.run(network, look).has_ended]

    def _best_so_far(self, alive: Sequence[Network], looks: Sequence[int]) -> Score:
        """The best by the looks that all of them had; by the first look, if not all of them had even that."""
        shared = [look for look in looks if alive and all(self.run(network, look).has_ended for network in alive)]
        tried = [network for network in self.networks if (network.number, 0) in self._runs]
        ranked = self.rank(alive, shared) if shared else self.rank(tried, looks[:1])
        if not ranked:
            reasons = "; ".join(dict.fromkeys(self.failures.values()))
            raise UserError(f"no network could be trained: {reasons or 'there was no time for one'}")
        return ranked[0]

    def rank(self, networks: Iterable[Network], looks: Sequence[int]) -> list[Score]:
        """The networks that had these looks, by their mean validation loss; equal ones by size.

        Not by the objective: the accuracy of a few dozen rows is too coarse to choose by.
        """
        scores = [score for network in networks if (score := self.score(network, looks))]
        return sorted(scores, key=lambda each: (each.loss, self.run(each.network, 0).cost.params))

    def score(self, network: Network, looks: Sequence[int]) -> Score | None:
        runs = [self.run(network, look) for look in looks]
        if not all(run.has_ended for run in runs) or self._has_failed(network, looks):
            return None
        curves = [self._curve(run) for run in runs]
        if self._has_failed(network, looks):
            return None
        epochs = sorted(set(curves[0]).intersection(*curves))
        losses = {epoch: statistics.fmean(curve[epoch][0] for curve in curves) for epoch in epochs}
        best, last = min(epochs, key=losses.__getitem__), epochs[-1]
        chosen = best if losses[last] > _OVERFIT * losses[best] else last
        values = tuple(curve[chosen][1] for curve in curves)
        return Score(network, values, losses[chosen], chosen)

    def _curve(self, run: Prepared) -> dict[int, tuple[float, float]]:
        """Validation loss and quality by epoch, from the verified log."""
        if run.id not in self._curves:
            lines = [line for line in read_metrics(run.folder, sealed=True) if line["split"] == "validation"]
            name = self.task.objective
            self._curves[run.id] = {round(line["epoch"]): (line["loss"], line[name]) for line in lines if name in line}
            if run.config.train.last_epoch not in self._curves[run.id]:
                self.failures[run.id] = read_record(run.folder).reason or f"{name} is not finite"
        return self._curves[run.id]

    def _has_failed(self, network: Network, looks: Sequence[int]) -> bool:
        return any(
            self.run(network, look).id in self.failures for look in looks if (network.number, look) in self._runs
        )

    # Training

    def _train(self, looks: Sequence[tuple[Network, int]]) -> bool:
        """Train the runs of these looks in their order; returns whether there was time for all of them."""
        self.must_have_one = not any(run.has_ended for run in self._runs.values())
        self.carry_out(looks, self.ends)
        reached = (each for each in looks if (each[0].number, each[1]) in self._runs)
        ended = [self.run(*each).has_ended or self.run(*each).id in self.failures for each in reached]
        return all(ended) and len(ended) == len(looks)

    def refit(self, best: Score, seeds: int, ends: float) -> list[Prepared]:
        """Train a network on training and validation rows, as far as time allows; returns the runs that finished."""
        configs = [best.network.refit(best.epoch, seed) for seed in range(seeds)]
        runs = {-1 - seed: self.prepare(config) for seed, config in enumerate(configs) if config is not None}
        self._runs |= {(best.network.number, look): run for look, run in runs.items()}
        self.carry_out([(best.network, look) for look in runs], ends)
        return [run for run in runs.values() if run.has_ended and read_record(run.folder).status == "finished"]

    def carry_out(self, looks: Sequence[tuple[Network, int]], ends: float) -> None:
        """Train runs in their order, each prepared when its turn comes.

        None is started that is expected to end too late, except if there is no other.
        """
        waiting, running = deque(looks), dict[str, tuple[Network, int]]()
        if isinstance(self.executor, ThisProcess):  # it returns only when a run has ended
            self.executor.tell = lambda event: None if self.must_have_one or time.monotonic() < ends else self.stop()
        while running or waiting:
            if not self.is_stopped and (self.should_stop() or (time.monotonic() > ends and not self.must_have_one)):
                waiting.clear()
                self.stop()
            while waiting and self.executor.has_room():
                network, look = waiting.popleft()
                run = self.run(network, look)
                if not run.has_ended and self._may_start(network, run, ends):
                    running[run.id] = (network, look)
                    job = Job(run.id, run.config.model_dump_json(), prepared=run)
                    self.executor.start(job, self.options)
            for event in self.executor.events(_POLL) if running else ():
                if isinstance(event, Advanced):
                    continue
                network, look = running.pop(event.id)
                if event.how == "busy":
                    waiting.append((network, look))
                elif self._note(event, network, self.run(network, look)):
                    self.must_have_one = False
                    self.tell(network, look, self.score(network, [look]) if look >= 0 else None)

    def _may_start(self, network: Network, run: Prepared, ends: float) -> bool:
        """Whether there is time for a run; one that is too long at any time counts as a failure."""
        expected = self._expect(network, run)
        if expected > self.longest and not self.must_have_one:
            self.failures[run.id] = _TOO_LONG
            return False
        return self.must_have_one or time.monotonic() + expected < ends

    def stop(self) -> None:
        self.is_stopped = True
        self.executor.stop()

    def _note(self, event: Ended, network: Network, run: Prepared) -> bool:
        """Whether the run ended with a result."""
        if event.how == "refused":
            raise UserError(f"run {event.id}: {event.reason}")
        if event.how in ("failed", "crashed"):
            self.failures[event.id] = event.reason
        elif event.how == "done":
            self._seconds[network.number] = read_record(run.folder).wall_seconds + _OVERHEAD
            return True
        return False

    def _expect(self, network: Network, run: Prepared) -> float:
        """Seconds that a run will take: as long as the last one of its network, or by its floating-point operations."""
        if network.number in self._seconds:
            return 1.1 * self._seconds[network.number]
        work, known = run.work, [each for each in self.networks if each.number in self._seconds]
        smaller = [self._seconds[each.number] for each in known if self._runs[each.number, 0].work <= work]
        return max(smaller, default=0.0) + work / _PACE
