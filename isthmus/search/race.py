"""Networks compete: all are tried once or twice, the worse ones drop out, and the rest are tried more often.

A look at a network is a run with a fold of its own (small data) or a seed of its own. Every decision is a function of
the runs' records, so that a search that was stopped or killed goes on as it would have; the time that it may take
decides how many of them are carried out, and which networks are too slow for it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isthmus.core.config import RunConfig
from isthmus.core.errors import UserError
from isthmus.core.protocols import Component, Data, Task
from isthmus.core.record import read_metrics, read_record
from isthmus.core.registry import component
from isthmus.studies.executors import CRASHES, Advanced, Ended, Executor, Job, ThisProcess
from isthmus.training.prepare import Options, Prepared, learn_task, load_data, prepare
from isthmus.training.run import discard_other_code
from isthmus.training.stacks import stack_key

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
_MARGIN = 1.1
"""By how much a run may take longer than the one before it."""
_FIRST_SHARE = 0.4
"""Of the time: for the first round, whose trainings are short. The networks in front are the most promising ones."""
_ENOUGH = 8
"""Networks that are tried in any case, as far as there is time."""
_PACE = 5e9
"""Floating-point operations per second that a thread does at least, once networks are large enough to count."""


class Round(NamedTuple):
    """Looks that every remaining network gets, and the networks that remain after them."""

    looks: Sequence[int]
    keep: int
    factor: int = 1
    """Above 1, every remaining network competes with itself trained for so many times its epochs."""


ROUNDS = {
    True: (
        Round(range(2), 8), Round(range(2, FOLDS), 4), Round(range(FOLDS), 4, factor=4),
        Round(range(FOLDS, 10), 2), Round(range(10, 15), 1),
    ),
    False: (
        Round(range(1), 8), Round(range(1), 4, factor=4), Round(range(1), 3, factor=16), Round(range(1), 2, factor=64),
        Round(range(1, SEEDS), 1),
    ),
}  # fmt: skip
"""For data with folds, and without."""


@dataclass(frozen=True)
class Network:
    """A network with its recipe."""

    number: int
    config: RunConfig
    factor: int = 1
    base: int | None = None
    """The number of the network that this one is, trained for ``factor`` times its epochs."""

    def stretch(self, number: int, factor: int) -> Network:
        train, times = self.config.train, factor // self.factor
        longer = {name: times * getattr(train, name) for name in ("epochs", "warmup_epochs", "evaluate_every")}
        config = self.config.model_copy(update={"train": train.model_copy(update=longer)})
        return Network(number, config, factor, self.number)

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
    """When the last refit must have ended, by ``time.monotonic``."""
    tell: Callable[[Network, int, Score | None], None] = lambda network, look, score: None
    say: Callable[[str], None] = lambda text: None
    should_stop: Callable[[], bool] = lambda: False
    failures: dict[str, str] = field(default_factory=dict)
    _data: dict[str, tuple[Data, Task]] = field(default_factory=dict)
    _runs: dict[tuple[int, int], Prepared] = field(default_factory=dict)
    _seconds: dict[int, float] = field(default_factory=dict)
    _curves: dict[str, dict[int, tuple[float, float]]] = field(default_factory=dict)
    _crashes: Counter[str] = field(default_factory=Counter)
    _first_ends: float = math.inf
    """When the first round starts no more runs, if enough networks were tried."""
    is_stopped: bool = False
    must_have_one: bool = False
    """Whether the first run may take longer than there is time, because an answer needs one."""
    skipped: set[str] = field(default_factory=set)
    """Runs for which there was no time."""
    is_whole: bool = False
    """Whether every round was carried out."""
    has_discarded: bool = False
    """Whether runs that other code began start again."""

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
        for number, each in enumerate(ROUNDS[self.networks[0].is_folded]):
            looks = sorted({*looks, *each.looks})
            trained = alive if each.factor == 1 else [self._stretch(network, each.factor) for network in alive]
            now = time.monotonic()
            self._first_ends = now + _FIRST_SHARE * (self.ends - now) if number == 0 else math.inf
            self._train([(network, look) for look in each.looks for network in trained])
            if number == 0:  # looks that only a few networks had decide nothing
                looks = [look for look in looks if 2 * self._count_ended(look) >= self._count_ended(0)]
            alive = [network for network in alive if not self._has_failed(network, looks)]
            competing = list(dict.fromkeys([*alive, *trained]))
            are_known = all(self.has_ended(network, look) for network in alive for look in looks)
            if self.is_stopped or time.monotonic() > self.ends or (number > 0 and not are_known):
                return self._best_so_far(alive, competing, looks)
            alive = [score.network for score in self.rank(competing, looks)[: each.keep]]
        self.is_whole = not self.skipped
        return self._best_so_far(alive, alive, looks)

    def _stretch(self, network: Network, factor: int) -> Network:
        longer = network.stretch(len(self.networks), factor)
        self.networks.append(longer)
        return longer

    def looks(self, network: Network) -> list[int]:
        """The looks that a network had."""
        known = sorted(look for number, look in self._runs if number == network.number and look >= 0)
        return [look for look in known if self.run(network, look).has_ended]

    def _best_so_far(self, alive: Sequence[Network], competing: Sequence[Network], looks: Sequence[int]) -> Score:
        """The best of the competing networks by the looks that all living ones had; by the first look if none."""
        shared = [look for look in looks if alive and all(self.has_ended(network, look) for network in alive)]
        ranked = self.rank(competing, shared) if shared else self.rank(self.networks, [0])
        if not ranked:
            reasons = "; ".join(dict.fromkeys(self.failures.values()))
            why = "it was stopped before the first one; the same command goes on" if self.should_stop() else "no time"
            raise UserError(f"no network could be trained: {reasons or why}")
        return ranked[0]

    def _count_ended(self, look: int) -> int:
        return sum(self.has_ended(network, look) for network in self.networks)

    def has_ended(self, network: Network, look: int) -> bool:
        return (network.number, look) in self._runs and self.run(network, look).has_ended

    def rank(self, networks: Iterable[Network], looks: Sequence[int]) -> list[Score]:
        """The networks that had these looks, by their mean validation loss; equal ones by size.

        Not by the objective: the accuracy of a few dozen rows is too coarse to choose by.
        """
        scores = [score for network in networks if (score := self.score(network, looks))]
        return sorted(scores, key=lambda each: (each.loss, self.run(each.network, 0).cost.params))

    def score(self, network: Network, looks: Sequence[int]) -> Score | None:
        if not all(self.has_ended(network, look) for look in looks) or self._has_failed(network, looks):
            return None
        runs = [self.run(network, look) for look in looks]
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

    def _train(self, looks: Sequence[tuple[Network, int]]) -> None:
        """Train the runs of these looks in their order, as far as there is time."""
        self.must_have_one = not any(run.has_ended for run in self._runs.values())
        self.carry_out(looks)

    def refit(self, best: Score, seeds: int) -> list[Prepared]:
        """Train a network on training and validation rows, as far as time allows; returns the runs that finished."""
        configs = [best.network.refit(best.epoch, seed) for seed in range(seeds)]
        runs = {-1 - seed: self.prepare(config) for seed, config in enumerate(configs) if config is not None}
        self._runs |= {(best.network.number, look): run for look, run in runs.items()}
        self.carry_out([(best.network, look) for look in runs])
        return [run for run in runs.values() if run.has_ended and read_record(run.folder).status == "finished"]

    def carry_out(self, looks: Sequence[tuple[Network, int]]) -> None:
        """Train runs in their order, each prepared when its turn comes.

        None is started that is expected to end too late, except if there is no other.
        """
        waiting, running = deque(looks), dict[str, tuple[Network, int]]()
        are_refits = any(look < 0 for _, look in looks)

        def is_over() -> bool:
            ends = self.ends - (0.0 if are_refits else self._refit_seconds())
            return time.monotonic() > ends and not self.must_have_one

        if isinstance(self.executor, ThisProcess):  # it returns only when a run has ended
            self.executor.tell = lambda event: self.stop() if is_over() else None
        while running or waiting:
            if not self.is_stopped and (self.should_stop() or is_over()):
                self.skipped |= {f"{network.number}/{look}" for network, look in waiting}
                waiting.clear()
                self.stop()
            if time.monotonic() > self._first_ends and len(self._seconds) >= _ENOUGH:
                self.skipped |= {f"{network.number}/{look}" for network, look in waiting}
                waiting.clear()
            while waiting and self.executor.has_room():
                network, look = waiting.popleft()
                run = self.run(network, look)
                if run.has_ended:
                    self._seconds.setdefault(network.number, read_record(run.folder).wall_seconds + _OVERHEAD)
                elif self._may_start(network, look, run):
                    together = self._take_stack(network, look, waiting)
                    runs = [self.run(*place) for place in together]
                    self._discard_other_code(runs)
                    running |= {each.id: place for each, place in zip(runs, together, strict=True)}
                    jobs = [Job(each.id, each.config.model_dump_json(), prepared=each) for each in runs]
                    self.executor.start(jobs, self.options)
            for event in self.executor.events(_POLL) if running else ():
                if isinstance(event, Advanced):
                    continue
                network, look = running.pop(event.id)
                self._crashes[event.id] += event.how == "crashed"
                if event.how == "busy":
                    waiting.append((network, look))
                elif event.how == "crashed" and self._crashes[event.id] < CRASHES and not self.is_stopped:
                    waiting.appendleft((network, look))
                elif self._note(event, network, self.run(network, look)):
                    self.must_have_one = False
                    self.tell(network, look, self.score(network, [look]) if look >= 0 else None)

    def _discard_other_code(self, runs: Sequence[Prepared]) -> None:
        """Let runs that were interrupted before an upgrade start again: nobody wants to clean them one by one."""
        are_discarded = [discard_other_code(run) for run in runs]
        if any(are_discarded) and not self.has_discarded:
            self.has_discarded = True
            self.say("unfinished trainings that another version of the code began start again")

    def _take_stack(
        self, network: Network, look: int, waiting: deque[tuple[Network, int]]
    ) -> list[tuple[Network, int]]:
        """A look and those that train together with it, which are removed from the waiting ones."""
        together, key = [(network, look)], self._stack_key(network, look)
        # Keys are compared first: to prepare a run takes much longer.
        for place in [place for place in waiting if self._stack_key(*place) == key] if key is not None else ():
            if len(together) == network.config.train.stack:
                break
            other = self.run(*place)
            if not other.has_ended and self._may_start(*place, other):
                together.append(place)
                waiting.remove(place)
        return together

    def _stack_key(self, network: Network, look: int) -> str | None:
        """Runs with the same key can train together; None if the run trains alone, as it does after a crash."""
        if (network.number, look) in self._runs and self._crashes[self.run(network, look).id]:
            return None
        config = network.look(look) if look >= 0 else self.run(network, look).config
        return stack_key(config, len(self.data(config)[0].train))

    def _may_start(self, network: Network, look: int, run: Prepared) -> bool:
        """Whether there is time for a run, and for a refit of its network if it turns out to be the best."""
        expected = self._expect(network, run)
        needed = expected if look < 0 else expected + max(expected, self._refit_seconds())
        if self.must_have_one or time.monotonic() + needed < self.ends:
            return True
        self.skipped.add(f"{network.number}/{look}")
        return False

    def _refit_seconds(self) -> float:
        """The time that the refit of any network tried so far takes."""
        return _MARGIN * max(self._seconds.values(), default=0.0)

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
            return _MARGIN * self._seconds[network.number]
        if network.base in self._seconds:
            base = next(each for each in self.networks if each.number == network.base)
            return _MARGIN * self._seconds[base.number] * network.factor / base.factor
        work, known = run.work, [each for each in self.networks if each.number in self._seconds]
        smaller = [self._seconds[each.number] for each in known if self._runs[each.number, 0].work <= work]
        return max(smaller, default=0.0) + work / _PACE
