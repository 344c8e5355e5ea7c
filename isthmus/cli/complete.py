"""A study as a person runs it: what it will take, progress, a table, the answer in words, and the page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from isthmus.cli import terminal
from isthmus.core.config import StudyConfig
from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.record import read_record, remove_leftovers
from isthmus.core.registry import model_title
from isthmus.studies.estimate import Estimate, check_room, estimate, fitted, gigabytes, measured_paces
from isthmus.studies.executors import Ended, Event, Executor, LocalWorkers, ThisProcess
from isthmus.studies.fronts import best, judged_by, summarise
from isthmus.studies.planning import Plan
from isthmus.studies.storage import Damaged, Storage, Unusable, default_url, differences, set_aside
from isthmus.studies.study import Run, Study, Trial, work_of
from isthmus.training.run import Options


def complete_study(
    config: StudyConfig,
    options: Options,
    workers: int = 1,
    *,
    cluster: str | None = None,
    url: str | None = None,
    time_budget: float | None = None,
    rebuild: bool = False,
) -> Study:
    """Carry a study out, or go on with it, or find it on record; what it will take is said first."""
    plan = Plan.of(config, options)
    storage = _storage(plan, url, rebuild)
    executor = _executor(config, workers, cluster)
    if time_budget is not None:
        plan = _fitted(plan, storage, executor.slots, time_budget)
    study = Study(plan, storage)
    for run in (run for trial in study.trials for run in trial.runs.values()):
        remove_leftovers(run.folder)
    if study.is_complete:
        return study
    with terminal.err.status("measuring a few steps …"):
        remaining = study.remaining()
        needed = estimate(plan, measured_paces(plan, remaining), executor.slots, remaining)
    on_record = study.recorded_runs()
    if remaining:
        _announce(study, needed, executor, on_record)
    if cluster is None:
        check_room(needed, executor.slots)
    with terminal.StudyDisplay(needed.work, study.expected_runs, on_record) as display:
        study.carry_out(executor, lambda trial, run, event: _show_event(display, study, trial, run, event))
    return study


def _storage(plan: Plan, url: str | None, rebuild: bool) -> Storage:
    """With ``rebuild``, without what it knew of the study. A file of the study's own that cannot even be opened is put
    aside; another database may hold more than this study."""
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
            raise UserError(f"{error}; `isthmus study … --rebuild` builds it again from the records") from None
    set_aside(folder)
    return Storage(default_url(folder), plan.config.name, plan.maximise)


def _executor(config: StudyConfig, workers: int, cluster: str | None) -> Executor:
    if cluster is not None:
        from isthmus.studies.cluster import RayCluster

        train = config.base.train
        return RayCluster(cluster, config.base.threads, train.devices if train.device == "cuda" else 0)
    return LocalWorkers(workers) if workers > 1 else ThisProcess()


def _fitted(plan: Plan, storage: Storage, workers: int, seconds: float) -> Plan:
    """A study that was made to fit when it began keeps that size, whatever the clock says today."""
    begun = storage.begun()
    if begun is not None and set(differences(plan.identity, begun)) <= {"sampling.candidates"}:
        number = begun.get("sampling", {}).get("candidates")
        return plan if number is None else plan.thinned(number)
    with terminal.err.status("measuring a few steps …"):
        return fitted(plan, measured_paces(plan), workers, seconds)


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
    saves = "Ctrl-C or SIGTERM saves, and the same command goes on"
    terminal.err.print(f"records go to {home() / 'runs'}; {saves}", style="dim", highlight=False, soft_wrap=True)


def _show_event(display: terminal.StudyDisplay, study: Study, trial: Trial, run: Run, event: Event) -> None:
    varied = {field for space in study.config.spaces for field in space.vary}
    name = f"{model_title(trial.model.model_dump(), sorted(varied))} rate={run[0]:g} seed={run[1]}"
    prepared = trial.runs[run]
    work = work_of(prepared)
    if not isinstance(event, Ended):
        display.advance(prepared.id, work, event.fraction, name)
    elif event.how == "done" and (prepared.folder / "record.json").exists():
        record = read_record(prepared.folder)
        quality = record.quality()
        note = f"failed: {record.reason}" if quality is None else f"{record.objective} {quality:.4g}"
        display.finish(prepared.id, work, name, note)
    elif event.how in ("failed", "crashed"):
        display.finish(prepared.id, work, name, f"failed: {event.reason}")
    else:
        display.rest(prepared.id)


def print_recommendation(study: Study) -> None:
    """The network to use, its checkpoint, and how."""
    from isthmus.reports.wording import magnitude, with_spread

    quality = study.plan.quality
    records = [judged_by(record, quality) for record in study.records()]
    chosen = best(summarise(records, study.costs))
    sign = 1 if chosen.maximise else -1
    runs = {record.id: record for record in records if record.id in chosen.run_ids}
    run = max(runs.values(), key=lambda record: sign * record.metrics["validation"][quality])
    reached = f"{chosen.objective} {with_spread(chosen.mean, chosen.std, chosen.objective)}"
    lines = [
        f"recommended: {model_title(run.config['model'])}, {magnitude(chosen.params)} parameters, "
        f"learning rate {chosen.learning_rate:g}: {reached} on test data",
        f"checkpoint: {home() / 'runs' / run.id / 'model.safetensors'}",
        f"use it: isthmus predict {run.id} FILES    or in Python: isthmus.load({str(home() / 'runs' / run.id)!r})",
    ]
    for line in lines:
        terminal.out.print(line, highlight=False, soft_wrap=True)


def print_answer(study: Study, out: Path | None, as_json: bool, published: tuple[str, ...] = ()) -> None:
    """The table and the answer in words first: they are there at once, the page takes a moment."""
    from isthmus.reports import table, write_report
    from isthmus.reports.sections import gather
    from isthmus.reports.wording import answer as in_words
    from isthmus.reports.wording import summary
    from isthmus.studies.fronts import front

    out = out or home() / "reports" / study.config.name
    records = study.records()
    if not any(record.status == "finished" for record in records):
        reasons = "; ".join(dict.fromkeys(trial.entry.reason for trial in study.trials if trial.entry.reason))
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
    note = "● on the Pareto front of its shape, chosen on validation data; ± is one standard deviation over seeds"
    terminal.out.print(note, style="dim")
    for trial in study.trials:
        if trial.entry.state == "failed":
            terminal.out.print(f"failed: {trial.model.name} #{trial.number}: {trial.entry.reason}", highlight=False)
    for section in gather(study.folders, costs=costs, quality=study.config.quality)[0]:
        terminal.out.print(" ".join(in_words(section, cost)), highlight=False)
        for sentence in summary(section, cost):
            terminal.out.print(sentence, highlight=False)
    pruned = sum(trial.entry.state == "pruned" for trial in study.trials)
    if pruned:
        terminal.out.print(f"{pruned} of {len(study.trials)} candidates were stopped early, dominated.", style="dim")
    terminal.out.print(f"page: {write_page()}", highlight=False, soft_wrap=True)
