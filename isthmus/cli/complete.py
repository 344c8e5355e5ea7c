"""A study in the terminal: estimate, progress, table, conclusion and page."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from isthmus.api.study import StudyAnswer
from isthmus.cli import terminal
from isthmus.core.config import StudyConfig
from isthmus.core.record import runs_folder
from isthmus.studies.complete import Watcher
from isthmus.studies.complete import complete_study as complete
from isthmus.studies.plan import Plan
from isthmus.studies.study import Study
from isthmus.training.prepare import Options


class TerminalWatcher(Watcher):
    """Bars for the study and for each of its runs."""

    def measure(self) -> AbstractContextManager[Any]:
        return terminal.err.status("measuring a few steps …")

    def rank(self, text: str, fraction: float) -> None:
        if fraction == 1:
            terminal.err.print(f"trained {text}", soft_wrap=True)

    def announce(self, text: str) -> None:
        terminal.err.print(text, soft_wrap=True)
        resume = "Ctrl-C or SIGTERM saves; repeat the command to resume"
        terminal.err.print(f"records are in {runs_folder()}; {resume}", style="dim", soft_wrap=True)

    def train(self, work: float, runs: int, ended: int) -> AbstractContextManager[Any]:
        display = terminal.StudyDisplay(work, runs, ended)
        self.advance, self.hide, self.finish = display.advance, display.hide, display.finish  # type: ignore[method-assign]
        return display


def complete_study(config: StudyConfig | Plan, options: Options, workers: int | None = 1, **others: Any) -> Study:
    """Run a study, resume it, or load its finished records; prints an estimate before training."""
    return complete(config, options, workers, watcher=TerminalWatcher(), **others)


def print_answer(study: Study, out: Path | None, as_json: bool, **more: Any) -> None:
    """Print the table and the conclusion, then write the page, which takes a moment; the JSON also holds ``more``."""
    from isthmus.reports import table

    with terminal.err.status("") as status:
        answer, cost = StudyAnswer(study, lambda text, fraction: status.update(text)), study.config.cost
    everyone = [*answer.candidates, *answer.versions]
    if as_json:
        members = {member.identity for member in answer.front_members}
        lines = [
            asdict(each) | {"mean": each.mean, "std": each.std, "on_front": each.identity in members}
            for each in everyone
        ]
        content = {"page": str(answer.report(out)), "candidates": lines, "trials": study.outcomes()}
        terminal.print_json(content | more)
        return
    rows = table(everyone, cost)
    terminal.print_table("", list(rows[0]), [list(row.values()) for row in rows])
    note = "● on the Pareto front of its architecture, chosen on validation data; ± one standard deviation over seeds"
    terminal.out.print(note, style="dim")
    for trial in study.trials:
        if trial.state == "failed":
            terminal.out.print(f"failed: {trial.model.name} #{trial.number}: {trial.reason}")
    for sentence in answer.sentences():
        terminal.out.print(sentence)
    if pruned := sum(trial.state == "pruned" for trial in study.trials):
        terminal.out.print(f"{pruned} of {len(study.trials)} candidates were pruned.", style="dim")
    terminal.out.print(f"page: {answer.report(out)}", soft_wrap=True)
