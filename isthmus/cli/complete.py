"""Runs a study for the terminal: estimate, progress, table, conclusion and page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from isthmus.cli import terminal
from isthmus.core.config import StudyConfig
from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.record import remove_leftovers
from isthmus.core.registry import model_title
from isthmus.studies.database import Damaged, Unusable, default_url, set_aside
from isthmus.studies.estimate import Estimate, check_room, estimate, fit, gigabytes, measure_paces
from isthmus.studies.executors import Ended, Event, Executor, LocalWorkers, ThisProcess
from isthmus.studies.fronts import summarise
from isthmus.studies.plan import Plan
from isthmus.studies.results import has_ended
from isthmus.studies.storage import Storage, differences
from isthmus.studies.study import Study, work_of
from isthmus.studies.trials import Run, Trial
from isthmus.training.run import Options


def complete_study(
    config: StudyConfig | Plan,
    options: Options,
    workers: int = 1,
    *,
    cluster: str | None = None,
    url: str | None = None,
    within: float | None = None,
    rebuild: bool = False,
) -> Study:
    """Run a study, resume it, or load its finished records; prints an estimate before training."""
    plan = config if isinstance(config, Plan) else Plan.of(config, options)
    storage = _storage(plan, url, rebuild)
    executor = _executor(plan.config, workers, cluster)
    if within is not None:
        plan = _fit_plan(plan, storage, executor.slots, within)
    study = Study(plan, storage)
    for run in (run for trial in study.trials for run in trial.runs.values()):
        remove_leftovers(run.folder)
    if study.is_complete:
        return study
    with terminal.err.status("measuring a few steps …"):
        remaining = study.remaining_candidates()
        needed = estimate(plan, measure_paces(plan, remaining), executor.slots, remaining)
    on_record = study.recorded_runs()
    if remaining:
        _announce(study, needed, executor, on_record)
    if cluster is None:
        check_room(needed, executor.slots)
    with terminal.StudyDisplay(needed.work, study.expected_runs, on_record) as display:
        study.carry_out(executor, lambda trial, run, event: _show_event(display, study, trial, run, event))
    return study


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
    except (Damaged, Unusable) as error:
        if url is not None:
            raise
        if not rebuild:
            raise UserError(f"{error}; `isthmus study … --rebuild` restores it from the records") from None
    set_aside(folder)
    return Storage(default_url(folder), plan.config.name, plan.maximise)


def _executor(config: StudyConfig, workers: int, cluster: str | None) -> Executor:
    if cluster is not None:
        from isthmus.studies.cluster import RayCluster

        train = config.base.train
        return RayCluster(cluster, config.base.threads, train.devices if train.device == "cuda" else 0)
    return LocalWorkers(workers) if workers > 1 else ThisProcess()


def _fit_plan(plan: Plan, storage: Storage, workers: int, seconds: float) -> Plan:
    """The plan reduced to the time that it may take; a resumed study keeps the size it started with."""
    begun = storage.stored_config()
    if begun is not None and set(differences(plan.identity, begun)) <= {"sampling.candidates"}:
        number = begun.get("sampling", {}).get("candidates")
        return plan if number is None else plan.limit(number)
    with terminal.err.status("measuring a few steps …"):
        return fit(plan, measure_paces(plan), workers, seconds)


def _announce(study: Study, needed: Estimate, executor: Executor, on_record: int) -> None:
    config = study.config
    most = "at most " if config.pruning else "about "
    where = f"{executor.slots} worker{'s' * (executor.slots > 1)}"
    threads = config.base.threads
    terminal.err.print(
        f"study {config.name}: {study.expected_candidates} candidates, {study.expected_runs} runs "
        f"({on_record} on record); {most}{terminal.duration(needed.seconds)} with {where} of {threads} "
        f"thread{'s' * (threads > 1)}, {gigabytes(needed.disk_bytes)} of disk, {gigabytes(needed.memory_bytes)} of "
        "memory",
        highlight=False,
        soft_wrap=True,
    )
    resume = "Ctrl-C or SIGTERM saves; repeat the command to resume"
    terminal.err.print(f"records are in {home() / 'runs'}; {resume}", style="dim", highlight=False, soft_wrap=True)


def _show_event(display: terminal.StudyDisplay, study: Study, trial: Trial, run: Run, event: Event) -> None:
    varied = {field for space in study.config.spaces for field in space.vary}
    name = f"{model_title(trial.model.model_dump(), sorted(varied))} rate={run[0]:g} seed={run[1]}"
    prepared = trial.runs[run]
    work = work_of(prepared)
    if not isinstance(event, Ended):
        display.advance(prepared.id, work, event.fraction, name)
    elif event.how == "done" and has_ended(prepared):
        record = study.results.record(prepared)
        quality = record.quality()
        note = f"failed: {record.reason}" if quality is None else f"{record.objective} {quality:.4g}"
        display.finish(prepared.id, work, name, note)
    elif event.how in ("failed", "crashed"):
        display.finish(prepared.id, work, name, f"failed: {event.reason}")
    else:
        display.hide(prepared.id)


def print_answer(study: Study, out: Path | None, as_json: bool, published: tuple[str, ...] = ()) -> None:
    """Print the table and the conclusion, then write the page, which takes a moment."""
    from isthmus.reports import table, write_report
    from isthmus.reports.sections import gather
    from isthmus.reports.text import answer as in_words
    from isthmus.reports.text import summary
    from isthmus.studies.fronts import front

    out = out or home() / "reports" / study.config.name
    records = study.records()
    if not any(record.status == "finished" for record in records):
        reasons = "; ".join(dict.fromkeys(trial.reason for trial in study.trials if trial.reason))
        raise UserError(f"no run of the study {study.config.name!r} finished: {reasons or 'nothing was trained'}")
    costs, title = study.costs, f"Isthmus {study.config.name}"

    def write_page() -> Path:
        command, quality = study.plan.options.command, study.config.quality
        return write_report(study.folders, out, title, command, published, costs, quality)

    candidates = summarise(records, costs, study.config.quality)
    if as_json:
        members = {member.run_ids for member in front(candidates, study.config.cost)}
        lines = [asdict(c) | {"mean": c.mean, "std": c.std, "on_front": c.run_ids in members} for c in candidates]
        terminal.print_json({"page": str(write_page()), "candidates": lines, "trials": study.outcomes()})
        return
    cost = study.config.cost
    rows = table(candidates, cost)
    terminal.print_table("", list(rows[0]), [list(row.values()) for row in rows])
    note = "● on the Pareto front of its architecture, chosen on validation data; ± one standard deviation over seeds"
    terminal.out.print(note, style="dim")
    for trial in study.trials:
        if trial.state == "failed":
            terminal.out.print(f"failed: {trial.model.name} #{trial.number}: {trial.reason}", highlight=False)
    for section in gather(study.folders, costs=costs, quality=study.config.quality)[0]:
        terminal.out.print(" ".join(in_words(section, cost)), highlight=False)
        for sentence in summary(section, cost):
            terminal.out.print(sentence, highlight=False)
    pruned = sum(trial.state == "pruned" for trial in study.trials)
    if pruned:
        terminal.out.print(f"{pruned} of {len(study.trials)} candidates were pruned.", style="dim")
    terminal.out.print(f"page: {write_page()}", highlight=False, soft_wrap=True)
