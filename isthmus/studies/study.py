"""A study: candidates in generations, their runs, the rungs at which some stop, and what is known so far.

The driver asks for a generation, has its runs trained by an executor, compares at the rungs, and tells the storage.
Every decision is a function of the config and of records, so any number of drivers, now or after a crash, come to the
same ones; they share the storage, where a claim on a run keeps two from training it. What the storage says is compared
with both: a trial whose records are gone is trained again, and one that cannot be ends the study in a line.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from isthmus.core import record as records
from isthmus.core.errors import UserError
from isthmus.core.files import home, read_sealed, write_sealed
from isthmus.core.protocols import ModelConfig
from isthmus.core.record import RunRecord, comparable, read_metrics
from isthmus.core.registry import find
from isthmus.studies.executors import Ended, Event, Executor, Job, stopping_on_interrupt
from isthmus.studies.fronts import COSTS
from isthmus.studies.judging import Proposal
from isthmus.studies.planning import Plan
from isthmus.studies.pruning import Standing, pruned
from isthmus.studies.sampling import Tried, draw
from isthmus.studies.storage import Entry, Overtaken, Storage, differences
from isthmus.studies.verification import check_candidate, check_progress
from isthmus.training.checkpoint import State
from isthmus.training.run import Prepared, finished_record

_CRASHES = 4
"""How often a run may lose its process before it counts as failed; it goes on where it was each time."""
_POLL = 0.2  # seconds
_POLL_OTHERS = 1.0

Run = tuple[float, int]  # learning rate and seed


@dataclass
class Trial:
    """One network of a study."""

    number: int
    model: ModelConfig
    cost: float
    entry: Entry
    runs: dict[Run, Prepared]
    failures: dict[str, str] = field(default_factory=dict)
    rate: float | None = None
    """The learning rate that was best on validation data, once that is known."""
    has_lost_records: bool = False
    """Whether it has ended, and must be trained again in part."""

    @property
    def is_open(self) -> bool:
        return self.entry.state == "open" or self.has_lost_records

    @property
    def key(self) -> str:
        return self.entry.key


class Study:
    """A study at work, or one to look at."""

    def __init__(self, plan: Plan, storage: Storage) -> None:
        self.plan, self.config, self.storage = plan, plan.config, storage
        self.folder = home() / "studies" / self.config.name
        self._is_asked_to_stop: Callable[[], bool] = lambda: False
        self._agree(self.storage.begun())
        self.trials: list[Trial] = []
        self._refresh()

    def _agree(self, begun: Mapping[str, Any] | None) -> None:
        if begun is not None and (different := differences(self.plan.identity, begun)):
            if different == [f"metric_versions.{self.plan.quality}"]:
                raise UserError(
                    f"the study {self.config.name!r} was decided by {self.plan.quality} as an older version measured "
                    "it; give this one another name=…: finished runs are evaluated again and not trained again"
                )
            raise UserError(
                f"a study named {self.config.name!r} exists and differs in {', '.join(different[:5])}; "
                "give this one another name=…: runs that both have are trained once"
            )

    # What is known

    @property
    def expected_candidates(self) -> int:
        return len(self.plan.listed) + sum(self.plan.quotas)

    @property
    def expected_runs(self) -> int:
        return self.expected_candidates * self.plan.runs_per_candidate

    @property
    def is_complete(self) -> bool:
        """Whether every candidate has ended and its records are here."""
        self._compare_with_records()
        return len(self.trials) >= self.expected_candidates and not any(trial.is_open for trial in self.trials)

    def remaining(self) -> list[Proposal]:
        """The candidates still to be trained, with stand-ins for those that are not known yet."""
        self._compare_with_records()
        ended = {trial.key for trial in self.trials if not trial.is_open}
        return [item for item in self.plan.preview if item.key not in ended and not self._is_on_record(item)]

    def recorded_runs(self) -> int:
        """Runs that need no training any more, those of candidates that are not complete among them."""
        remaining, each = self.remaining(), self.plan.runs_per_candidate
        begun = [
            sum(
                _has_ended(self.plan.run(item.model, *run))
                for run in itertools.product(self.config.rates, self.config.seeds)
            )
            for item in remaining
        ]
        return (self.expected_candidates - len(remaining)) * each + sum(min(number, each) for number in begun)

    def _is_on_record(self, proposal: Proposal) -> bool:
        """Whether other studies have trained all that this one needs: every rate that it tries, or chooses."""
        ended = [
            {seed for seed in self.config.seeds if _has_ended(self.plan.run(proposal.model, rate, seed))}
            for rate in self.config.rates
        ]
        searched = set(self.plan.search_seeds)
        return all(searched <= seeds for seeds in ended) and any(
            len(seeds) == len(self.config.seeds) for seeds in ended
        )

    def outcomes(self) -> list[dict[str, Any]]:
        """Every trial in plain values."""
        return [
            {
                "number": trial.number,
                "state": trial.entry.state,
                "reason": trial.entry.reason,
                "model": trial.entry.model,
                "cost": trial.cost,
                "quality": trial.entry.quality,
                "rungs": trial.entry.rungs,
                "failures": trial.failures,
                "runs": [run.id for run in trial.runs.values() if _has_ended(run)],
            }
            for trial in self.trials
        ]

    @property
    def folders(self) -> list[Path]:
        """The folders of all runs that ended, with the rate tried or selected, of candidates that were not pruned."""
        return [run.folder for run in self._ended_runs()]

    def records(self) -> list[RunRecord]:
        return [finished_record(run) for run in self._ended_runs()]

    def _ended_runs(self) -> Iterator[Prepared]:
        for trial in self.trials:
            if trial.entry.state != "pruned":
                yield from (run for run in trial.runs.values() if _has_ended(run))

    @property
    def costs(self) -> dict[str, dict[str, float]]:
        """The study's cost of every run id, under the cost's name, if records do not hold it."""
        if self.config.cost in COSTS:
            return {}
        return {self.config.cost: {run.id: trial.cost for trial in self.trials for run in trial.runs.values()}}

    def _refresh(self) -> None:
        """What the storage knows, which other processes may have told it, if the config says the same."""
        for entry in self.storage.entries():
            try:
                check_progress(self.config, entry)
                if entry.number < len(self.trials):
                    self.trials[entry.number].entry = entry
                    self.trials[entry.number].failures |= entry.failures
                else:
                    self.trials.append(self._trial(entry))
            except (ValueError, TypeError, KeyError) as error:
                raise self.storage.damaged(f"trial {entry.number}: {error}") from None

    def _trial(self, entry: Entry) -> Trial:
        config = self.config
        model = check_candidate(self.plan, entry, self.trials[-1].entry if self.trials else None).model
        runs = {(rate, seed): self.plan.run(model, rate, seed) for rate in config.rates for seed in config.seeds}
        return Trial(entry.number, model, entry.costs[config.cost], entry, runs, dict(entry.failures))

    def _compare_with_records(self) -> None:
        """Find the trials whose records are gone; records that say something else than the storage are refused."""
        for trial in self.trials:
            if trial.entry.state == "finished" or (trial.entry.state == "failed" and not self.config.pruning):
                has_records = self._has_records(trial)
                trial.has_lost_records = trial.entry.state == "finished" and not has_records
                if has_records:
                    self._check_quality(trial)

    def _has_records(self, trial: Trial) -> bool:
        """Whether all runs are known on which a trial's quality rests."""

        def are_known(rates: Sequence[float], seeds: Sequence[int]) -> bool:
            runs = [trial.runs[rate, seed] for rate in rates for seed in seeds]
            return all(_has_ended(run) or run.id in trial.failures for run in runs)

        if not are_known(self.config.rates, self.plan.search_seeds):
            return False
        found = self._best_rate(trial, None)
        return found is None or are_known([found[0]], self.config.seeds)

    def _check_quality(self, trial: Trial) -> None:
        found = self._best_rate(trial, None)
        quality = None if found is None else self._quality(trial, found[0])
        if quality != trial.entry.quality:
            raise self.storage.damaged(
                f"trial {trial.number} reached {trial.entry.quality}, and by its records {quality}"
            )

    # Carrying it out

    def carry_out(self, executor: Executor, tell: Callable[[Trial, Run, Event], None]) -> None:
        """Train what is not on record yet."""
        assert self.plan.preview  # whatever can refuse the study comes before its name is taken
        with executor, stopping_on_interrupt(executor) as self._is_asked_to_stop, self.storage.renewing():
            self._agree(self.storage.begin(self.plan.identity))
            self._refresh()
            self._restore(executor, tell)
            for number in itertools.count():
                generation = self._generation(number)
                if not generation:
                    return
                self._write_down()
                self._train(generation, executor, tell)
                self._write_down()

    def _restore(self, executor: Executor, tell: Callable[..., None]) -> None:
        """Train again what the records of ended trials have lost; they must come to what they came to before."""
        self._compare_with_records()
        if lost := [trial for trial in self.trials if trial.has_lost_records]:
            self._train_to_the_end(lost, executor, tell)

    def _train(self, generation: Sequence[Trial], executor: Executor, tell: Callable[..., None]) -> None:
        for rung in self.config.pruning.rungs if self.config.pruning else ():
            self._work(self._jobs(generation, self._searched, rung), executor, tell)
            self._decide(generation, partial(self._prune, generation, rung))
        self._train_to_the_end(generation, executor, tell)

    @property
    def _searched(self) -> list[Run]:
        return [(rate, seed) for seed in self.plan.search_seeds for rate in self.config.rates]

    def _train_to_the_end(self, generation: Sequence[Trial], executor: Executor, tell: Callable[..., None]) -> None:
        config = self.config
        self._work(self._jobs(generation, self._searched, None), executor, tell)
        self._decide(generation, partial(self._choose_rates, generation))
        rest = [seed for seed in config.seeds if seed not in self.plan.search_seeds]
        chosen = {trial.number: [(trial.rate, seed) for seed in rest] for trial in generation if trial.rate is not None}
        self._work([job for trial in generation for job in self._jobs([trial], chosen.get(trial.number, ()), None)],
                   executor, tell)  # fmt: skip
        self._decide(generation, partial(self._end, generation))

    def _jobs(self, trials: Sequence[Trial], runs: Sequence[Run], until: int | None) -> list[_Task]:
        return [
            _Task(trial, run, until)
            for trial in trials
            if trial.is_open
            for run in runs
            if trial.runs[run].id not in trial.failures and self._reached(trial.runs[run], until) is None
        ]

    def _work(self, tasks: list[_Task], executor: Executor, tell: Callable[..., None]) -> None:
        """Have every run taken as far as it is meant to go, by us or by others at work on this study."""
        # The longest first: the last ones to finish are then short, and no worker idles long.
        waiting = sorted(tasks, key=lambda task: -work_of(task.prepared))
        running: dict[str, _Task] = {}
        resting: dict[str, float] = {}
        crashes: Counter[str] = Counter()
        stopped, looked = False, time.monotonic()
        while running or (waiting and not stopped):
            stopped = stopped or self._is_asked_to_stop()
            while executor.has_room() and not stopped and (task := self._take(waiting, resting)):
                running[task.prepared.id] = task
                executor.start(task.job, self.plan.options)
            if not running and waiting and time.monotonic() - looked > _POLL_OTHERS:
                self._refresh()
                looked = time.monotonic()
                waiting = [task for task in waiting if self._is_wanted(task)]
            for event in executor.events(_POLL):
                task = running[event.id]
                if isinstance(event, Ended):
                    if event.how == "refused":
                        raise UserError(f"run {event.id}: {event.reason}")
                    del running[event.id]
                    stopped |= event.how == "stopped"
                    crashes[event.id] += event.how == "crashed"
                    again = event.how == "busy" or (event.how == "crashed" and crashes[event.id] < _CRASHES)
                    if event.how in ("failed", "crashed") and not again:
                        again = not self._note_failure(task, event.reason)
                    if again:
                        waiting.append(task)
                        resting[event.id] = time.monotonic() + (0.0 if event.how == "crashed" else _POLL_OTHERS)
                    self.storage.release(event.id)
                    if again:
                        continue
                tell(task.trial, task.run, event)
        if stopped:
            raise KeyboardInterrupt

    def _take(self, waiting: list[_Task], resting: Mapping[str, float]) -> _Task | None:
        """The first that nobody else has in hand; removed from the list."""
        for task in list(waiting):
            if resting.get(task.prepared.id, 0.0) > time.monotonic() or not self.storage.claim(task.prepared.id):
                continue
            waiting.remove(task)
            if self._is_wanted(task):  # it may have been finished since we made the list
                return task
            self.storage.release(task.prepared.id)
        return None

    def _is_wanted(self, task: _Task) -> bool:
        return task.prepared.id not in task.trial.failures and self._reached(task.prepared, task.until) is None

    def _note_failure(self, task: _Task, reason: str) -> bool:
        """Whether it is ours to say: another process may have the run by now."""
        try:
            self.storage.note_failure(task.trial.number, task.prepared.id, reason)
        except Overtaken:
            return False
        task.trial.failures[task.prepared.id] = reason
        return True

    # Deciding

    def _reached(self, run: Prepared, until: int | None) -> float | str | None:
        """The quality of a run (so far, at an epoch), or why it failed, or None while it has not got there."""
        if _has_ended(run):
            record = finished_record(run)
            if record.status != "finished":
                return record.reason or "failed"
            if until is None:
                value = record.metrics["validation"].get(self.plan.quality)
                return f"{self.plan.quality} is not finite" if value is None else value
        if until is None:
            return None
        lines = [line for line in _sealed_lines(run) if line["split"] == "validation" and line["epoch"] <= until]
        if not any(line["epoch"] == until for line in lines):
            return None
        task = run.config.task.name
        values = [known[self.plan.quality] for line in lines if self.plan.quality in (known := comparable(line, task))]
        if len(values) < sum(self.plan.quality in line for line in lines):
            raise UserError(
                f"the log of run {run.id} has {self.plan.quality} as an older version measured it, which is not "
                f"comparable; `isthmus runs clean {run.id}` and train it again"
            )
        if not values:
            return f"{self.plan.quality} is not finite"
        return max(values) if self.plan.maximise else min(values)

    def _by_rate(self, trial: Trial, until: int | None) -> dict[float, float]:
        """Mean quality of every learning rate of which no run failed, over the seeds on which rates are compared."""
        found: dict[float, float] = {}
        for rate in self.config.rates:
            values = self._values(trial, rate, self.plan.search_seeds, until)
            if len(values) == len(self.plan.search_seeds):
                found[rate] = statistics.fmean(values)
        return found

    def _values(self, trial: Trial, rate: float, seeds: Sequence[int], until: int | None) -> list[float]:
        """The qualities of the runs that did not fail. One that has neither failed nor a result was tampered with."""
        found = []
        for run in (trial.runs[rate, seed] for seed in seeds):
            value = self._reached(run, until)
            if isinstance(value, float | int):
                found.append(value)
            elif value is None and run.id not in trial.failures:
                raise UserError(f"run {run.id} has lost its results; the same command trains it again")
        return found

    def _best_rate(self, trial: Trial, until: int | None) -> tuple[float, float] | None:
        rates = self._by_rate(trial, until)
        if not rates:
            return None
        return max(rates.items(), key=lambda item: self._sign * item[1])

    @property
    def _sign(self) -> int:
        return 1 if self.plan.maximise else -1

    def _alone(self, name: str, act: Callable[[], None]) -> None:
        """Act on what the storage knows while no other driver does. One that was held up, and finds that another has
        taken its place, looks again."""
        while True:
            with contextlib.suppress(Overtaken), self.storage.alone(name):
                self._refresh()
                act()
                self._refresh()
                return

    def _decide(self, generation: Sequence[Trial], act: Callable[[], None]) -> None:
        if any(trial.is_open for trial in generation):
            self._alone("decide", act)

    def _prune(self, generation: Sequence[Trial], rung: int) -> None:
        assert self.config.pruning is not None
        for trial in (trial for trial in generation if trial.is_open):
            if found := self._best_rate(trial, rung):
                self.storage.note_rung(trial.number, rung, found[1])
            else:
                self._fail(trial)
        self._refresh()
        standings = [
            Standing(str(trial.number), trial.model.name, trial.cost, self._sign * trial.entry.rungs[rung],
                     judged=trial in generation)
            for trial in self.trials
            if rung in trial.entry.rungs and trial.entry.generation <= generation[0].entry.generation
        ]  # fmt: skip
        stopping = pruned(standings, self.config.pruning) if standings else set()
        for trial in generation:
            if str(trial.number) in stopping and trial.is_open:
                self.storage.end(trial.number, "pruned", reason=f"dominated at epoch {rung}")
                for run in trial.runs.values():
                    if not _has_ended(run):
                        State(run.folder).clear()

    def _choose_rates(self, generation: Sequence[Trial]) -> None:
        for trial in (trial for trial in generation if trial.is_open):
            if found := self._best_rate(trial, None):
                trial.rate = found[0]
            else:
                self._fail(trial)

    def _end(self, generation: Sequence[Trial]) -> None:
        for trial in (trial for trial in generation if trial.is_open and trial.rate is not None):
            assert trial.rate is not None
            quality = self._quality(trial, trial.rate)
            if trial.has_lost_records:
                self._check_quality(trial)
                trial.has_lost_records = False
            else:
                self.storage.end(trial.number, "finished", (quality, trial.cost))

    def _quality(self, trial: Trial, rate: float) -> float:
        """The mean over the seeds of its learning rate that did not fail."""
        return statistics.fmean(self._values(trial, rate, self.config.seeds, None))

    def _fail(self, trial: Trial) -> None:
        if trial.has_lost_records:
            self._check_quality(trial)
        reasons = [self._reached(run, None) for run in trial.runs.values()]
        words = [*trial.failures.values(), *(reason for reason in reasons if isinstance(reason, str))]
        self.storage.end(trial.number, "failed", reason=words[0] if words else "no learning rate has a result")

    # Asking

    def _generation(self, number: int) -> list[Trial]:
        """The trials of a generation, asked for by one process for all. Empty after the last one."""
        self._alone("ask", partial(self._ask, number))
        return [trial for trial in self.trials if trial.entry.generation == number]

    def _ask(self, number: int) -> None:
        present = [trial for trial in self.trials if trial.entry.generation == number]
        if any(trial.entry.generation > number for trial in self.trials):
            return
        if number == 0 and self.plan.listed:
            for proposal in self.plan.listed[len(present) :]:  # all but those added before a crash
                self._add(proposal, number, {})
        else:
            self._draw(number)

    def _draw(self, number: int) -> None:
        """Ask each space in turn for its part of a generation; what is there already was asked for before a crash."""
        for place in range(self.config.sampling.generation):
            for space, quota in enumerate(self.plan.quotas):
                past = [trial for trial in self.trials if trial.entry.space == space]
                here = sum(trial.entry.generation == number for trial in past)
                if here > place or len(past) >= quota:
                    continue
                taken = {trial.key for trial in self.trials}
                tried = [self._tried(trial, number) for trial in past]
                found = draw(self.config, space, len(past), tried, self.plan.judge, taken)
                if found:
                    self._add(found[0], number, found[1])
                    self._refresh()

    def _tried(self, trial: Trial, generation: int) -> Tried:
        entry = trial.entry
        if entry.generation == generation:  # as it was when its neighbours were asked for
            return Tried(entry.varied, None, trial.cost, entry.memory)
        reached = entry.quality if entry.state != "pruned" else entry.rungs[max(entry.rungs)]
        failed = entry.state == "failed"
        quality = None if reached is None or failed else self._sign * reached
        return Tried(entry.varied, quality, trial.cost, entry.memory, failed)

    def _add(self, proposal: Proposal, generation: int, memory: Mapping[str, Any]) -> None:
        costs: dict[str, float] = dict(proposal.cost)
        if (name := self.config.cost) not in costs:
            complete = proposal.model.completed(self.plan.task.signature, self.config.seeds[0])
            known = self._written_costs().get(proposal.key)
            costs[name] = find("costs", name).compute(complete, self.config.base.threads) if known is None else known
        self.storage.add(proposal, generation, memory, costs)

    def _write_down(self) -> None:
        """What the study is beside its database: the runs that it needs, and what was measured and is on no record."""
        needed = [run.id for trial in self.trials if trial.entry.state != "pruned" for run in trial.runs.values()]
        content = {
            "config": self.config.model_dump(mode="json"), "data": self.plan.data.fingerprint,
            "trials": self.outcomes(), "keys": [trial.key for trial in self.trials], "needs": needed,
        }  # fmt: skip
        # As JSON has it: the checksum depends on the order of keys, and rungs are numbers only here.
        write_sealed(self.folder / "study.json", json.loads(json.dumps(content)))

    def _written_costs(self) -> dict[str, float]:
        """Another measurement would be another front, so that a study whose database was lost keeps the first one."""
        try:
            content = read_sealed(self.folder / "study.json")
        except UserError:
            return {}
        if content.get("data") != self.plan.data.fingerprint or content["config"] != self.config.model_dump(
            mode="json"
        ):
            return {}
        return {key: trial["cost"] for key, trial in zip(content["keys"], content["trials"], strict=True)}


@dataclass(frozen=True)
class _Task:
    """A run of a trial that is to be taken until an epoch, or to its end."""

    trial: Trial
    run: Run
    until: int | None

    @property
    def prepared(self) -> Prepared:
        return self.trial.runs[self.run]

    @property
    def job(self) -> Job:
        config = self.prepared.config
        gpus = config.train.devices if config.train.device == "cuda" else 0
        return Job(self.prepared.id, config.model_dump_json(), self.until, config.threads, gpus)


def work_of(run: Prepared) -> float:
    """Floating-point operations of a training, for estimates of time."""
    rows = len(run.data.train) * run.task.views()
    return float(run.cost.training_flops * rows * run.config.train.epochs)


def _has_ended(run: Prepared) -> bool:
    return (run.folder / records.RECORD).exists()


def _sealed_lines(run: Prepared) -> list[dict[str, Any]]:
    """What a run logged and checksums vouch for. A damaged log of an unfinished run counts for nothing: the run starts
    again, or says in its turn what is damaged."""
    try:
        return read_metrics(run.folder, sealed=True)
    except UserError:
        if _has_ended(run):
            raise
        return []
