"""Carries out a study from its config to its last record: database, estimate, workers."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from isthmus.core.config import StudyConfig
from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.machine import default_workers
from isthmus.core.record import differences, remove_leftovers
from isthmus.core.titles import model_title
from isthmus.core.units import duration
from isthmus.studies.database import Damaged, default_url, set_aside
from isthmus.studies.estimate import Estimate, check_room, estimate, estimate_ranking, fit, gigabytes, measure_paces
from isthmus.studies.executors import Ended, Event, Executor, LocalWorkers, ThisProcess
from isthmus.studies.plan import Plan
from isthmus.studies.progress import Progress
from isthmus.studies.proposals import Run, Trial
from isthmus.studies.shared import list_untrained, rank_candidates, read_ranking, settings_of
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.prepare import Options


class Watcher:
    """Hears of a study's progress. This one ignores everything; a subclass overrides what it needs."""

    def measure(self) -> AbstractContextManager[Any]:
        """Entered while a few steps are measured."""
        return nullcontext()

    def rank(self, text: str, fraction: float) -> None:
        """Called while a super-network is trained, with its name and the fraction of its steps."""

    def announce(self, text: str) -> None:
        """Called before training with the size of the study and the time that it takes."""

    def train(self, work: float, runs: int, ended: int) -> AbstractContextManager[Any]:
        """Entered while runs are trained: their floating-point operations, their number, and how many have ended."""
        return nullcontext()

    def advance(self, run: str, work: float, fraction: float, name: str) -> None:
        """Called while a run is trained."""

    def hide(self, run: str) -> None:
        """Called when a run waits for others."""

    def finish(self, run: str, work: float, name: str, note: str) -> None:
        """Called when a run has ended, with its quality, or why it failed."""


def complete_study(
    config: StudyConfig | Plan,
    options: Options,
    workers: int | None = 1,
    *,
    cluster: str | None = None,
    url: str | None = None,
    within: float | None = None,
    rebuild: bool = False,
    watcher: Watcher | None = None,
) -> Study:
    """Run a study, resume it, or load its finished records. Without ``workers``, all cores are used.

    ``within`` seconds limit the number of candidates. With ``sampling.name=model`` they limit how many of its decisions
    are carried out now: the study may be left unfinished, and a later call resumes it.
    """
    ends = math.inf if within is None else time.monotonic() + within
    plan, watcher = config if isinstance(config, Plan) else Plan.of(config, options), watcher or Watcher()
    storage = _storage(plan, url, rebuild)
    executor = _executor(plan.config, workers or default_workers(plan.config.base.threads), cluster)
    is_searched = plan.config.sampling.name == "model" and bool(plan.config.spaces)
    if within is not None:
        plan = _fit_plan(plan, storage, executor.slots, within, watcher)
    if plan.config.shared:
        if untrained := list_untrained(plan):
            with watcher.measure():
                seconds = estimate_ranking(plan, measure_paces(plan))
            watcher.announce(_describe_ranking(plan, len(untrained), seconds))
        plan = replace(plan, inherited=rank_candidates(plan, watcher.rank))
    study = Study(plan, storage)
    for run in (run for trial in study.trials for run in trial.runs.values()):
        remove_leftovers(run.folder)
    if study.is_complete:
        return study
    with watcher.measure():
        remaining = study.remaining_candidates()
        needed = estimate(plan, measure_paces(plan, remaining), executor.slots, remaining)
    recorded = study.recorded_runs()
    if remaining:
        limit = "" if within is None or not is_searched else f"; it decides for {duration(within)}, then you can resume"
        watcher.announce(_describe(study, needed, executor.slots, recorded) + limit)
    if cluster is None:
        check_room(needed, executor.slots)
    with watcher.train(needed.work, study.expected_runs, recorded):
        study.carry_out(executor, lambda trial, run, event: _tell(watcher, study, trial, run, event), ends)
    return study


def read_study(config: StudyConfig, options: Options, workers: int = 1) -> Progress:
    """A study as far as it is on record; nothing is trained, and a study that has not begun has no runs."""
    plan = Plan.of(config, options)
    if config.shared:
        plan = replace(plan, inherited=read_ranking(plan))
    return Progress(plan, _storage(plan, None, rebuild=False))


def _storage(plan: Plan, url: str | None, rebuild: bool) -> Storage:
    """The study's database, emptied if ``rebuild``.

    A damaged default file is set aside; another database is left alone, because it may hold other studies.
    """
    folder = home() / "studies" / plan.config.name
    try:
        storage = Storage(url or default_url(folder), plan.config.name, plan.maximise)
        if rebuild:
            storage.drop()
        return storage
    except Damaged as error:
        if url is not None:
            raise
        if not rebuild:
            raise UserError(f"{error}; `isthmus study … --rebuild` restores it") from None
    set_aside(folder)
    return Storage(default_url(folder), plan.config.name, plan.maximise)


def _executor(config: StudyConfig, workers: int, cluster: str | None) -> Executor:
    if cluster is not None:
        from isthmus.studies.cluster import RayCluster

        train = config.base.train
        return RayCluster(cluster, config.base.threads, train.devices if train.device == "cuda" else 0)
    return LocalWorkers(workers) if workers > 1 else ThisProcess()


def _fit_plan(plan: Plan, storage: Storage, workers: int, seconds: float, watcher: Watcher) -> Plan:
    """The plan reduced to the time that it may take; a resumed study keeps the size it started with.

    A search by model keeps its size: the time ends it between two decisions.
    """
    begun = storage.stored_config()
    if begun is not None and set(differences(plan.identity, begun)) <= {"sampling.candidates"}:
        number = begun.get("sampling", {}).get("candidates")
        return plan if number is None else plan.limit(number)
    if plan.config.sampling.name == "model" and plan.config.spaces:
        return plan
    with watcher.measure():
        return fit(plan, measure_paces(plan), workers, seconds)


def _describe(study: Study, needed: Estimate, workers: int, recorded: int) -> str:
    config, threads = study.config, study.config.base.threads
    size = f"{study.expected_candidates} candidates, {study.expected_runs} runs ({recorded} on record)"
    seconds = f"{'at most' if config.stopping else 'about'} {duration(needed.seconds)}"
    processes = f"{workers} worker{'s' * (workers > 1)} of {threads} thread{'s' * (threads > 1)}"
    room = f"{gigabytes(needed.disk_bytes)} of disk, {gigabytes(needed.memory_bytes)} of memory"
    at_once, hint = study.plan.runs_at_once, ""
    if at_once < workers:
        generation = math.ceil(workers * config.sampling.generation_size / at_once)
        hint = f"; it trains {at_once} runs at a time, sampling.generation={generation} would use all workers"
    return f"study {config.name}: {size}; {seconds} with {processes}, {room}{hint}"


def _describe_ranking(plan: Plan, untrained: int, seconds: float) -> str:
    shared, number = settings_of(plan.config), len(plan.candidates)
    networks = f"{untrained} super-network{'s' * (untrained > 1)}"
    return (
        f"study {plan.config.name}: {networks} to rank {number} candidates, about {duration(seconds)} with one worker; "
        f"then {shared.count_promising(number)} of them are trained alone"
    )


def _tell(watcher: Watcher, study: Study, trial: Trial, run: Run, event: Event) -> None:
    varied = sorted({field for space in study.config.spaces for field in space.vary})
    prepared, work = trial.runs[run], trial.runs[run].work
    recipe = {"rate": prepared.config.train.learning_rate} | trial.recipe | {"seed": run[1]}
    recipe.pop("learning_rate", None)
    name = " ".join([model_title(trial.model.model_dump(), varied), *(f"{key}={recipe[key]}" for key in recipe)])
    if not isinstance(event, Ended):
        watcher.advance(prepared.id, work, event.fraction, name)
    elif event.how == "done" and prepared.has_ended:
        record = study.record(prepared)
        quality = record.quality()
        note = f"failed: {record.reason}" if quality is None else f"{record.objective} {quality:.4g}"
        watcher.finish(prepared.id, work, name, note)
    elif event.how in ("failed", "crashed"):
        watcher.finish(prepared.id, work, name, f"failed: {event.reason}")
    else:
        watcher.hide(prepared.id)
