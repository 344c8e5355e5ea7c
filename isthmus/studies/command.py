"""A study as a person runs it: progress, a table, and the page."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from isthmus import terminal
from isthmus.config import StudyConfig
from isthmus.errors import UserError
from isthmus.files import home
from isthmus.record import read_record
from isthmus.run import Options
from isthmus.studies.executors import Event, Executor, Finished, LocalWorkers, ThisProcess
from isthmus.studies.study import Study, Trial, carry_out, plan


def answer(config: StudyConfig, workers: int, out: Path | None, as_json: bool, data_dir: Path | None = None) -> None:
    """Carry a study out, or go on with it, or answer from its records; then show what it found."""
    options = Options(data_dir=data_dir, command=shlex.join(["isthmus", *sys.argv[1:]]))
    study = plan(config, options)
    if study.remaining:
        _train(study, LocalWorkers(workers) if workers > 1 else ThisProcess(), options)
    records = study.records()
    if not any(record.status == "finished" for record in records):
        raise UserError(f"no run of the study {config.name!r} finished; `isthmus runs list` shows why")
    _show(study, out or home() / "reports" / config.name, options.command, as_json)


def _train(study: Study, executor: Executor, options: Options) -> None:
    remaining = study.remaining
    numbers = {id(trial): number for number, trial in enumerate(study.trials)}
    work = {numbers[id(trial)]: trial.work for trial in remaining}
    terminal.err.print(
        f"{len(remaining)} of {len(study.trials)} runs to train, {sum(work.values()) / 1e12:.1f} TFLOP in all; "
        f"records go to {study.trials[0].prepared.folder.parent}",
        highlight=False,
        soft_wrap=True,
    )
    with terminal.StudyDisplay(work, len(study.trials)) as display:

        def tell(trial: Trial, event: Event) -> None:
            number, name = numbers[id(trial)], _name(trial)
            if isinstance(event, Finished):
                display.finish(number, name, f"failed: {event.error}" if event.error else _result(trial))
            else:
                display.advance(number, event.fraction, name)

        carry_out(study, executor, options, tell)


def _name(trial: Trial) -> str:
    model = trial.prepared.config.model.model_dump()
    shape = " ".join(f"{field}={model[field]}" for field in ("d_z", "d_h", "depth") if field in model)
    return f"{model['name']} {shape} seed={trial.prepared.config.seed}"


def _result(trial: Trial) -> str:
    if not trial.is_finished:
        return "stopped"
    record = read_record(trial.prepared.folder)
    quality = record.quality()
    return f"failed: {record.reason}" if quality is None else f"{record.objective} {quality:.3f}"


def _show(study: Study, out: Path, command: str, as_json: bool) -> None:
    """The table and the answer in words first: they are there at once, the page takes a moment."""
    from isthmus.fronts import front, summarise
    from isthmus.reports import table, write_report
    from isthmus.reports.sections import gather
    from isthmus.reports.wording import answer as in_words

    candidates = summarise(study.records())
    if as_json:
        page = write_report(study.folders, out, f"Isthmus {study.config.name}", command)
        members = {member.run_ids for member in front(candidates)}
        lines = [asdict(c) | {"mean": c.mean, "std": c.std, "on_front": c.run_ids in members} for c in candidates]
        terminal.print_json({"page": str(page), "candidates": lines})
        return
    rows = table(candidates)
    terminal.print_table("", list(rows[0]), [list(row.values()) for row in rows])
    note = "● on the Pareto front of its shape, chosen on validation data; ± is one standard deviation over seeds"
    terminal.out.print(note, style="dim")
    for section in gather(study.folders)[0]:
        terminal.out.print(" ".join(in_words(section)), highlight=False)
    page = write_report(study.folders, out, f"Isthmus {study.config.name}", command)
    terminal.out.print(f"page: {page}", highlight=False, soft_wrap=True)
