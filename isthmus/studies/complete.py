"""Carries out a study from its config to its last record: database, estimate, workers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from isthmus.core.config import StudyConfig
from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.machine import default_workers
from isthmus.core.record import differences, remove_leftovers
from isthmus.core.registry import model_title
from isthmus.core.space import duration
from isthmus.studies.database import Damaged, default_url, set_aside
from isthmus.studies.estimate import Estimate, check_room, estimate, fit, gigabytes, measure_paces
from isthmus.studies.executors import Ended, Event, Executor, LocalWorkers, ThisProcess
from isthmus.studies.plan import Plan
from isthmus.studies.progress import Progress
from isthmus.studies.proposals import Run, Trial
from isthmus.studies.shared import rank_candidates, read_ranking
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.run import Options


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
    """Run a study, resume it, or load its finished records. Without ``workers``, all cores are used."""
    plan, watcher = config if isinstance(config, Plan) else Plan.of(config, options), watcher or Watcher()
    storage = _storage(plan, url, rebuild)
    executor = _executor(plan.config, workers or default_workers(plan.config.base.threads), cluster)
    if within is not None:
        plan = _fit_plan(plan, storage, executor.slots, within, watcher)
    if plan.config.shared:
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
        watcher.announce(_describe(study, needed, executor.slots, recorded))
    if cluster is None:
        check_room(needed, executor.slots)
    with watcher.train(needed.work, study.expected_runs, recorded):
        study.carry_out(executor, lambda trial, run, event: _tell(watcher, study, trial, run, event))
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
    """The plan reduced to the time that it may take; a resumed study keeps the size it started with."""
    begun = storage.stored_config()
    if begun is not None and set(differences(plan.identity, begun)) <= {"sampling.candidates"}:
        number = begun.get("sampling", {}).get("candidates")
        return plan if number is None else plan.limit(number)
    with watcher.measure():
        return fit(plan, measure_paces(plan), workers, seconds)


def _describe(study: Study, needed: Estimate, workers: int, recorded: int) -> str:
    config, threads = study.config, study.config.base.threads
    size = f"{study.expected_candidates} candidates, {study.expected_runs} runs ({recorded} on record)"
    seconds = f"{'at most' if config.pruning else 'about'} {duration(needed.seconds)}"
    processes = f"{workers} worker{'s' * (workers > 1)} of {threads} thread{'s' * (threads > 1)}"
    room = f"{gigabytes(needed.disk_bytes)} of disk, {gigabytes(needed.memory_bytes)} of memory"
    return f"study {config.name}: {size}; {seconds} with {processes}, {room}"


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
