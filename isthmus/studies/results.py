"""What the runs of a study have reached, by their records and logs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.record import RECORD, RunRecord, drop_stale, read_metrics
from isthmus.studies.plan import Plan
from isthmus.studies.trials import Trial
from isthmus.training.run import Prepared, finished_record


def has_ended(run: Prepared) -> bool:
    return (run.folder / RECORD).exists()


class Results:
    """Qualities of runs and trials. A record never changes, so that each is read once."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._records = plan, dict[str, RunRecord]()

    def record(self, run: Prepared) -> RunRecord:
        if run.id not in self._records:
            self._records[run.id] = finished_record(run)
        return self._records[run.id]

    def result(self, run: Prepared, until: int | None) -> float | str | None:
        """The quality of a run (the best up to an epoch), why it failed, or None if it has not got there yet."""
        quality = self.plan.quality
        if has_ended(run):
            record = self.record(run)
            if record.status != "finished":
                return record.reason or "failed"
            if until is None:
                value = record.metrics["validation"].get(quality)
                return f"{quality} is not finite" if value is None else value
        if until is None:
            return None
        lines = [line for line in _sealed_lines(run) if line["split"] == "validation" and line["epoch"] <= until]
        if not any(line["epoch"] == until for line in lines):
            return None
        task = run.config.task.name
        values = [known[quality] for line in lines if quality in (known := drop_stale(line, task))]
        if len(values) < sum(quality in line for line in lines):
            raise UserError(
                f"the log of run {run.id} has {quality} as an older version measured it, which is not comparable; "
                f"`isthmus runs clean {run.id}` and train it again"
            )
        if not values:
            return f"{quality} is not finite"
        return max(values) if self.plan.maximise else min(values)

    def best_rate(self, trial: Trial, until: int | None) -> tuple[float, float] | None:
        """The best learning rate and its mean over the search seeds; a rate with a failed run does not count."""
        seeds = self.plan.search_seeds
        values = {rate: self._values(trial, rate, seeds, until) for rate in self.plan.config.rates}
        means = {rate: statistics.fmean(found) for rate, found in values.items() if len(found) == len(seeds)}
        if not means:
            return None
        rate = (max if self.plan.maximise else min)(means, key=means.__getitem__)
        return rate, means[rate]

    def quality(self, trial: Trial, rate: float) -> float:
        """The mean over the seeds of a learning rate that did not fail."""
        return statistics.fmean(self._values(trial, rate, self.plan.config.seeds, None))

    def _values(self, trial: Trial, rate: float, seeds: Sequence[int], until: int | None) -> list[float]:
        """The qualities of the runs that did not fail. A run without result or failure was removed by somebody."""
        found = []
        for run in (trial.runs[rate, seed] for seed in seeds):
            value = self.result(run, until)
            if isinstance(value, float | int):
                found.append(value)
            elif value is None and run.id not in trial.failures:
                raise UserError(f"run {run.id} has lost its results; the same command trains it again")
        return found


def _sealed_lines(run: Prepared) -> list[dict[str, Any]]:
    """The part of a log that checksums cover. An unfinished run with a damaged log counts as not begun."""
    try:
        return read_metrics(run.folder, sealed=True)
    except UserError:
        if has_ended(run):
            raise
        return []
