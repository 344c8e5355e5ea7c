"""A study at work: candidates in generations, their runs, and the rungs at which some stop.

The driver proposes a generation, has its runs trained by an executor, compares them at the rungs, and writes the
outcome to the storage. Every decision is a function of the config and of records, so that any number of drivers, now or
after a crash, come to the same ones. They share the storage, where a lease on a run keeps two from training it. A trial
whose records are gone is trained again.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.interrupts import requests_to_stop
from isthmus.core.registry import find
from isthmus.studies.decisions import choose, is_over
from isthmus.studies.executors import CRASHES, Ended, Event, Executor, Job
from isthmus.studies.leases import LeaseLost
from isthmus.studies.progress import Progress
from isthmus.studies.proposals import Proposal, Run, Trial
from isthmus.studies.pruning import prune
from isthmus.studies.sampling import draw
from isthmus.training.checkpoint import State
from isthmus.training.prepare import Prepared

_POLL = 0.2  # seconds
_POLL_OTHERS = 1.0

Report = Callable[[Trial, Run, Event], None]


class Study(Progress):
    """A study that can be carried out."""

    def carry_out(self, executor: Executor, report: Report, ends: float = math.inf) -> None:
        """Train what is not on record yet, and report what happens to each run.

        After ``ends``, by ``time.monotonic``, ``sampling.name=model`` makes no more decisions; those that were made are
        carried out, and the study can be resumed.
        """
        assert self.plan.preview  # raises any error about the candidates before the study takes its name
        with executor, requests_to_stop(executor.stop) as self._should_stop, self.storage.renew_leases():
            self._executor, self._report = executor, report
            self._waiting, self._running = list[_Task](), dict[str, _Task]()
            self._check_identity(self.storage.begin(self.plan.identity, [self.plan.quality, self.config.cost]))
            self._refresh()
            self._compare_with_records()
            if lost := [trial for trial in self.trials if trial.has_lost_records]:
                self._train_to_the_end(lost)
            for number in itertools.count():
                if self.config.sampling.name == "model" and number >= bool(self.plan.candidates):
                    self._search(ends)
                    return
                self._alone("ask", self._propose, number)
                generation = [trial for trial in self.trials if trial.generation == number]
                if not generation:
                    return
                self._write_summary()
                self._train(generation)
                self._write_summary()

    # Searching, one decision after the other

    def _search(self, ends: float) -> None:
        """Carry out decisions until the budget or the time is spent, at the same time those that wait for no result."""
        lag = self.config.sampling.generation_size
        for number in itertools.count():
            if number >= lag:
                self._carry_out_decision(number - lag)
            if is_late := time.monotonic() >= ends:
                self._refresh()  # decisions that were made before are carried out
            else:
                self._alone("ask", self._decide_next, number)
            if found := self._find_decision(number):
                self._write_summary()
                trial, epoch = found
                self._queue(self._tasks([trial], self._search_runs, self._until(epoch)))
            elif is_late or is_over(self.plan.pool, self.trials, number):
                break
        made = sorted(decision for trial in self.trials for decision in trial.decisions)
        for decision in made:
            if decision > number - lag:
                self._carry_out_decision(decision)
        if not is_late:
            self._decide(self._stop_paused, self.trials)
        self._write_summary()

    def _carry_out_decision(self, number: int) -> None:
        if (found := self._find_decision(number)) is None:  # nothing was possible before other results were known
            return
        trial, epoch = found
        if (until := self._until(epoch)) is None:
            self._train_to_the_end([trial])
        elif until not in trial.rungs:
            self._work(self._tasks([trial], self._search_runs, until))
            self._decide(self._note_rung, [trial], until)

    def _until(self, epoch: int) -> int | None:
        return None if epoch == self.config.base.train.last_epoch else epoch

    def _find_decision(self, number: int) -> tuple[Trial, int] | None:
        return next(((trial, trial.decisions[number]) for trial in self.trials if number in trial.decisions), None)

    def _decide_next(self, number: int) -> None:
        """Make a decision, unless it was made before a crash or by another driver."""
        if self._find_decision(number) or any(trial.state == "pruned" for trial in self.trials):
            return
        found = choose(self.plan.pool, self.trials, number, self.plan.maximise)
        if found is None:
            return
        if found.trial is not None:
            self.storage.note_decision(found.trial.number, number, found.epoch)
        else:
            generation = self.trials[-1].generation + 1 if self.trials else 0
            self._add(found.proposal, generation, {"decision": [number, found.epoch]})

    def _stop_paused(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if trial.is_open:
                self._stop(trial, f"paused at epoch {max(trial.rungs)}")

    # Training

    def _train(self, generation: Sequence[Trial]) -> None:
        for rung in self.config.stopping.rungs if self.config.stopping else ():
            self._work(self._tasks(generation, self._search_runs, rung))
            self._decide(self._prune, generation, rung)
        self._train_to_the_end(generation)

    @property
    def _search_runs(self) -> list[Run]:
        return [(rate, seed) for seed in self.plan.search_seeds for rate in self.config.rates]

    def _train_to_the_end(self, generation: Sequence[Trial]) -> None:
        self._work(self._tasks(generation, self._search_runs, None))
        self._decide(self._choose_rates, generation)
        rest = [seed for seed in self.config.seeds if seed not in self.plan.search_seeds]
        chosen = [(trial, trial.rate) for trial in generation if trial.rate is not None]
        self._work([task for trial, rate in chosen for task in self._tasks([trial], [(rate, s) for s in rest], None)])
        self._decide(self._end, generation)

    def _tasks(self, trials: Sequence[Trial], runs: Sequence[Run], until: int | None) -> list[_Task]:
        tasks = [_Task(trial, run, until) for trial in trials if trial.is_open for run in runs]
        return [task for task in tasks if self._is_wanted(task)]

    def _work(self, tasks: list[_Task]) -> None:
        """Complete these tasks, here or by other drivers of this study. Others that were queued go on meanwhile."""
        # The longest first, so that no worker idles long at the end.
        self._queue(sorted(tasks, key=lambda task: -task.prepared_run.work))
        waiting, running, ours = self._waiting, self._running, {task.prepared_run.id for task in tasks}
        resting: dict[str, float] = {}
        crashes: Counter[str] = Counter()
        stopped, looked = False, time.monotonic()
        while running if stopped else not ours.isdisjoint([*running, *(task.prepared_run.id for task in waiting)]):
            stopped = stopped or self._should_stop()
            while self._executor.has_room() and not stopped and (tasks := self._take_stack(waiting, resting, crashes)):
                running |= {task.prepared_run.id: task for task in tasks}
                self._executor.start([task.job for task in tasks], self.plan.options)
            if not running and waiting and time.monotonic() - looked > _POLL_OTHERS:
                self._refresh()
                looked = time.monotonic()
                waiting[:] = [task for task in waiting if self._is_wanted(task)]
            for event in self._executor.events(_POLL):
                task = running[event.id]
                if isinstance(event, Ended):
                    del running[event.id]
                    stopped |= event.how == "stopped"
                    crashes[event.id] += event.how == "crashed"
                    again = self._must_repeat(task, event, crashes[event.id])
                    if again:
                        waiting.append(task)
                        resting[event.id] = time.monotonic() + (0.0 if event.how == "crashed" else _POLL_OTHERS)
                    self.storage.release(event.id)
                    if again:
                        continue
                self._report(task.trial, task.run, event)
        if stopped:
            raise KeyboardInterrupt

    def _queue(self, tasks: Sequence[_Task]) -> None:
        """Have tasks done by workers that would idle otherwise."""
        known = {*self._running, *(task.prepared_run.id for task in self._waiting)}
        self._waiting += [task for task in tasks if task.prepared_run.id not in known]

    def _must_repeat(self, task: _Task, event: Ended, crashes: int) -> bool:
        """Whether a task must be done again; after a failure, if another driver has taken the run meanwhile."""
        if event.how == "refused":
            raise UserError(f"run {event.id}: {event.reason}")
        if event.how == "busy" or (event.how == "crashed" and crashes < CRASHES):
            return True
        if event.how in ("failed", "crashed"):
            try:
                self.storage.note_failure(task.trial.number, event.id, event.reason)
            except LeaseLost:
                return True
            task.trial.failures[event.id] = event.reason
        return False

    def _take_stack(
        self, waiting: list[_Task], resting: Mapping[str, float], crashes: Mapping[str, int]
    ) -> list[_Task]:
        """Remove and return the first task that no other driver works on, and those that train together with it.

        A run that lost its process trains alone, because it may take its neighbours with it again.
        """
        first = self._take(waiting, resting, lambda task: True)
        key = None if first is None else _stack_key(first, crashes)
        if first is None or key is None:
            return [] if first is None else [first]
        tasks = [first]
        while len(tasks) < (first.prepared_run.config.train.stack or 1):
            task = self._take(waiting, resting, lambda task: _stack_key(task, crashes) == key)
            if task is None:
                break
            tasks.append(task)
        return tasks

    def _take(self, waiting: list[_Task], resting: Mapping[str, float], fits: Callable[[_Task], bool]) -> _Task | None:
        """Remove and return the first fitting task that no other driver works on."""
        for task in filter(fits, list(waiting)):
            run = task.prepared_run.id
            if resting.get(run, 0.0) > time.monotonic() or not self.storage.claim(run):
                continue
            waiting.remove(task)
            if self._is_wanted(task):  # another driver may have finished it
                return task
            self.storage.release(run)
        return None

    def _is_wanted(self, task: _Task) -> bool:
        return task.prepared_run.id not in task.trial.failures and self._result(task.prepared_run, task.until) is None

    # Deciding

    def _alone(self, name: str, act: Callable[..., None], *arguments: Any) -> None:
        """Act on the current content of the database while no other driver does; start again if the lease is lost."""
        while True:
            with contextlib.suppress(LeaseLost), self.storage.alone(name):
                self._refresh()
                act(*arguments)
                self._refresh()
                return

    def _decide(self, act: Callable[..., None], generation: Sequence[Trial], *arguments: Any) -> None:
        if any(trial.is_open for trial in generation):
            self._alone("decide", act, generation, *arguments)

    def _prune(self, generation: Sequence[Trial], rung: int) -> None:
        assert self.config.stopping is not None
        self._note_rung(generation, rung)
        self._refresh()
        last, sign = generation[0].generation, 1 if self.plan.maximise else -1
        points = {
            str(trial.number): (trial.model.name, self.cost(trial), sign * trial.rungs[rung])
            for trial in self.trials
            if rung in trial.rungs and trial.generation <= last
        }
        stopping = prune(points, {str(trial.number) for trial in generation}, self.config.stopping)
        for trial in generation:
            if str(trial.number) in stopping and trial.is_open:
                self._stop(trial, f"dominated at epoch {rung}")

    def _stop(self, trial: Trial, reason: str) -> None:
        self.storage.end(trial.number, "pruned", reason=reason)
        for run in trial.runs.values():
            if not run.has_ended:
                State(run.folder).clear()

    def _note_rung(self, generation: Sequence[Trial], rung: int) -> None:
        for trial in (trial for trial in generation if trial.is_open):
            if found := self._best_rate(trial, rung):
                self.storage.note_rung(trial.number, rung, found[1])
            else:
                self._fail(trial)

    def _choose_rates(self, generation: Sequence[Trial]) -> None:
        for trial in (trial for trial in generation if trial.is_open):
            if found := self._best_rate(trial, None):
                trial.rate = found[0]
            else:
                self._fail(trial)

    def _end(self, generation: Sequence[Trial]) -> None:
        for trial in generation:
            if not trial.is_open or trial.rate is None:
                continue
            if trial.has_lost_records:
                self._check_quality(trial)
                trial.has_lost_records = False
            else:
                quality = self._mean_quality(trial, trial.rate)
                self.storage.end(trial.number, "finished", (quality, self.cost(trial)))

    def _fail(self, trial: Trial) -> None:
        if trial.has_lost_records:
            self._check_quality(trial)
        reasons = [self._result(run, None) for run in trial.runs.values()]
        words = [*trial.failures.values(), *(reason for reason in reasons if isinstance(reason, str))]
        self.storage.end(trial.number, "failed", reason=words[0] if words else "no learning rate has a result")

    # Proposing

    def _propose(self, number: int) -> None:
        """Add what is missing of a generation; some of it may have been added before a crash."""
        if any(trial.generation > number for trial in self.trials):
            return
        if self.config.shared and self.plan.inherited is not None:
            # The second generation waits for the first, which checks the ranking.
            last = self.expected_candidates if number else self.config.shared.first
            for proposal in self.plan.candidates[len(self.trials) : last]:
                self._add(proposal, number, {})
            return
        if number == 0 and self.plan.candidates:
            present = sum(trial.generation == number for trial in self.trials)
            for proposal in self.plan.candidates[present:]:
                self._add(proposal, number, {})
            return
        # Draw from each space in turn until the generation is full.
        for place, (space, quota) in itertools.product(
            range(self.config.sampling.generation_size), enumerate(self.plan.quotas)
        ):
            past = [trial for trial in self.trials if trial.space == space]
            here = sum(trial.generation == number for trial in past)
            if here > place or len(past) >= quota:
                continue
            taken = {trial.key for trial in self.trials}
            found = draw(self.plan.judge, space, len(past), taken, past, maximise=self.plan.maximise, generation=number)
            if found:
                self._add(found[0], number, found[1])
                self._refresh()

    def _add(self, proposal: Proposal, generation: int, memory: Mapping[str, Any]) -> None:
        costs: dict[str, float] = dict(proposal.cost)
        if (name := self.config.cost) not in costs:
            complete = proposal.model.complete(self.plan.task.signature, self.config.seeds[0])
            known = self._written_costs().get(proposal.key)
            costs[name] = find("costs", name).compute(complete, self.config.base.threads) if known is None else known
        self.storage.add(proposal, generation, memory, costs, self.plan.parameters)


@dataclass(frozen=True)
class _Task:
    """A run of a trial that is to be trained until an epoch, or to its end."""

    trial: Trial
    run: Run
    until: int | None

    @property
    def prepared_run(self) -> Prepared:
        return self.trial.runs[self.run]

    @property
    def job(self) -> Job:
        run = self.prepared_run
        return Job(run.id, run.config.model_dump_json(), self.until, run)


def _stack_key(task: _Task, crashes: Mapping[str, int]) -> str | None:
    """Tasks with the same key train together."""
    key = task.prepared_run.stack_key
    return None if key is None or crashes.get(task.prepared_run.id) else f"{key} {task.until}"
