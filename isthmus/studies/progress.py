"""How far a study is: its trials as the database holds them, checked against the config and the run records."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.files import home, read_sealed, write_sealed
from isthmus.core.record import RunRecord, differences, drop_stale, read_metrics
from isthmus.studies.decisions import count_left
from isthmus.studies.fronts import COSTS
from isthmus.studies.plan import Plan
from isthmus.studies.proposals import Proposal, Trial
from isthmus.studies.shared import LEAST_AGREEMENT, measure_agreement
from isthmus.studies.storage import Storage
from isthmus.training.prepare import Prepared
from isthmus.training.results import finished_record


class Progress:
    """A study that is only read. Records never change, so each is read once."""

    def __init__(self, plan: Plan, storage: Storage) -> None:
        self.plan, self.config, self.storage = plan, plan.config, storage
        self.folder = home() / "studies" / self.config.name
        self.trials: list[Trial] = []
        self._records: dict[str, RunRecord] = {}
        self._check_identity(self.storage.stored_config())
        self._refresh()

    def _check_identity(self, begun: Mapping[str, Any] | None) -> None:
        if begun is None or not (different := sorted(differences(self.plan.identity, begun))):
            return
        if different == [f"metric_versions.{self.plan.quality}"]:
            raise UserError(
                f"the study {self.config.name!r} was decided by {self.plan.quality} as an older version measured it; "
                "give this one another name=…: finished runs are evaluated again and not trained again"
            )
        raise UserError(
            f"a study named {self.config.name!r} exists and differs in {', '.join(different[:5])}; "
            "give this one another name=…: runs that both have are trained once"
        )

    @property
    def agreement(self) -> float | None:
        """Kendall's τ of inherited and stand-alone quality over all candidates that were trained alone."""
        return self._measure_agreement(self.trials)

    @property
    def has_fallen_back(self) -> bool:
        """Whether the first stand-alone runs contradict the ranking, so that all candidates are trained."""
        first = [trial for trial in self.trials if trial.generation == 0]
        if self.plan.inherited is None or not first or any(trial.state == "open" for trial in first):
            return False
        tau = self._measure_agreement(first)
        return tau is None or tau < LEAST_AGREEMENT

    def _measure_agreement(self, trials: Sequence[Trial]) -> float | None:
        inherited = self.plan.inherited or {}
        pairs = [(inherited[t.key], t.quality) for t in trials if t.quality is not None and t.key in inherited]
        return measure_agreement(pairs)

    @property
    def expected_candidates(self) -> int:
        if self.config.shared and self.plan.inherited is not None and not self.has_fallen_back:
            return self.config.shared.count_promising(len(self.plan.candidates))
        return len(self.plan.candidates) + sum(self.plan.quotas)

    @property
    def expected_runs(self) -> int:
        return self.expected_candidates * self.plan.runs_per_candidate

    @property
    def is_complete(self) -> bool:
        """Whether every candidate has ended and its records are here."""
        self._compare_with_records()
        if any(trial.is_open for trial in self.trials):
            return False
        if self.config.sampling.name != "model":
            return len(self.trials) >= self.expected_candidates
        is_spent = count_left(self.config, self.trials) < self.config.base.train.last_epoch
        return is_spent or len(self.trials) == len(self.plan.pool.proposals)

    def remaining_candidates(self) -> list[Proposal]:
        """The candidates still to be trained, with random ones for those that a sampler has yet to choose."""
        self._compare_with_records()
        ended = {trial.key for trial in self.trials if not trial.is_open}
        known = self.plan.preview if self.plan.inherited is None else self.plan.candidates[: self.expected_candidates]
        return [item for item in known if item.key not in ended and not self._is_on_record(item)]

    def recorded_runs(self) -> int:
        """How many runs need no more training."""
        remaining, each = self.remaining_candidates(), self.plan.runs_per_candidate
        ended = [sum(run.has_ended for run in self.plan.runs(item).values()) for item in remaining]
        return (self.expected_candidates - len(remaining)) * each + sum(min(number, each) for number in ended)

    def _is_on_record(self, proposal: Proposal) -> bool:
        """Whether other studies have trained what this one needs: every rate with its search seeds, one with all."""
        ended = {run for run, prepared in self.plan.runs(proposal).items() if prepared.has_ended}
        rates, seeds = self.config.rates, self.config.seeds
        is_searched = ended.issuperset(itertools.product(rates, self.plan.search_seeds))
        return is_searched and any(ended.issuperset(itertools.product([rate], seeds)) for rate in rates)

    def outcomes(self) -> list[dict[str, Any]]:
        """Every trial in plain values."""
        names = ("number", "state", "reason", "quality", "rungs", "failures")
        return [
            {name: getattr(trial, name) for name in names}
            | {"model": trial.settings, "cost": self.cost(trial)}
            | {"runs": [run.id for run in trial.runs.values() if run.has_ended]}
            for trial in self.trials
        ]

    def cost(self, trial: Trial) -> float:
        return trial.costs[self.config.cost]

    @property
    def folders(self) -> list[Path]:
        """The folders of all runs that ended, of candidates that were not pruned."""
        return [run.folder for run in self._ended_runs()]

    def records(self) -> list[RunRecord]:
        return [self.record(run) for run in self._ended_runs()]

    def record(self, run: Prepared) -> RunRecord:
        if run.id not in self._records:
            self._records[run.id] = finished_record(run)
        return self._records[run.id]

    def _ended_runs(self) -> Iterator[Prepared]:
        for trial in self.trials:
            if trial.state != "pruned":
                yield from (run for run in trial.runs.values() if run.has_ended)

    @property
    def costs(self) -> dict[str, dict[str, float]]:
        """The study's cost of every run id, under the cost's name, if records do not hold it."""
        if self.config.cost in COSTS:
            return {}
        return {self.config.cost: {run.id: self.cost(trial) for trial in self.trials for run in trial.runs.values()}}

    def _refresh(self) -> None:
        """Read the database, which other processes may have changed, and check it against the config."""
        for trial in self.storage.trials():
            try:
                self.plan.check_progress(trial)
                if trial.number >= len(self.trials):
                    self.plan.check(trial, self.trials[-1] if self.trials else None)
                    trial.runs = self.plan.runs(trial)
                    self.trials.append(trial)
            except (ValueError, TypeError, KeyError) as error:
                raise self.storage.damage(f"trial {trial.number}: {error}") from None

    def _compare_with_records(self) -> None:
        """Find the trials whose records are gone. Records that contradict the database are an error."""
        for trial in self.trials:
            if trial.state == "finished" or (trial.state == "failed" and not self.config.stopping):
                has_records = self._has_records(trial)
                trial.has_lost_records = trial.state == "finished" and not has_records
                if has_records:
                    self._check_quality(trial)

    def _has_records(self, trial: Trial) -> bool:
        """Whether all runs have ended on which a trial's quality rests."""

        def have_ended(rates: Sequence[float], seeds: Sequence[int]) -> bool:
            runs = [trial.runs[rate, seed] for rate in rates for seed in seeds]
            return all(run.has_ended or run.id in trial.failures for run in runs)

        if not have_ended(self.config.rates, self.plan.search_seeds):
            return False
        found = self._best_rate(trial, None)
        return found is None or have_ended([found[0]], self.config.seeds)

    def _check_quality(self, trial: Trial) -> None:
        found = self._best_rate(trial, None)
        quality = None if found is None else self._mean_quality(trial, found[0])
        if quality != trial.quality:
            raise self.storage.damage(f"trial {trial.number} reached {trial.quality}, but its records say {quality}")

    def _result(self, run: Prepared, until: int | None) -> float | str | None:
        """The quality of a run (the best up to an epoch), why it failed, or None if it has not got there yet."""
        quality = self.plan.quality
        if run.has_ended:
            record = self.record(run)
            if record.status != "finished":
                return record.reason or "failed"
            if until is None:
                return record.metrics["validation"].get(quality, f"{quality} is not finite")
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
        return (max if self.plan.maximise else min)(values) if values else f"{quality} is not finite"

    def _best_rate(self, trial: Trial, until: int | None) -> tuple[float, float] | None:
        """The best learning rate and its mean over the search seeds; a rate with a failed run does not count."""
        seeds = self.plan.search_seeds
        values = {rate: self._qualities(trial, rate, seeds, until) for rate in self.config.rates}
        means = {rate: statistics.fmean(found) for rate, found in values.items() if len(found) == len(seeds)}
        if not means:
            return None
        rate = (max if self.plan.maximise else min)(means, key=means.__getitem__)
        return rate, means[rate]

    def _mean_quality(self, trial: Trial, rate: float) -> float:
        return statistics.fmean(self._qualities(trial, rate, self.config.seeds, None))

    def _qualities(self, trial: Trial, rate: float, seeds: Sequence[int], until: int | None) -> list[float]:
        """Of the runs that did not fail. A run without a result or a failure was removed by somebody."""
        found = []
        for run in (trial.runs[rate, seed] for seed in seeds):
            value = self._result(run, until)
            if isinstance(value, float | int):
                found.append(value)
            elif value is None and run.id not in trial.failures:
                raise UserError(f"run {run.id} has lost its results; the same command trains it again")
        return found

    def _write_summary(self) -> None:
        """Keep beside the database which runs the study needs, and measured latencies, which no record holds."""
        needed = [run.id for trial in self.trials if trial.state != "pruned" for run in trial.runs.values()]
        content = {
            "config": self.config.model_dump(mode="json"), "data": self.plan.data.fingerprint,
            "trials": self.outcomes(), "keys": [trial.key for trial in self.trials], "needs": needed,
        }  # fmt: skip
        # Through JSON first: the checksum depends on the order of keys, and rungs are numbers only in memory.
        write_sealed(self.folder / "study.json", json.loads(json.dumps(content)))

    def _written_costs(self) -> dict[str, float]:
        """Latencies of an earlier database: measuring again would give another front."""
        try:
            content = read_sealed(self.folder / "study.json")
        except UserError:
            return {}
        ours = self.plan.data.fingerprint, self.config.model_dump(mode="json")
        if (content.get("data"), content["config"]) != ours:
            return {}
        return {key: trial["cost"] for key, trial in zip(content["keys"], content["trials"], strict=True)}


def _sealed_lines(run: Prepared) -> list[dict[str, Any]]:
    """The part of a log that checksums cover. An unfinished run with a damaged log counts as not begun."""
    try:
        return read_metrics(run.folder, sealed=True)
    except UserError:
        if run.has_ended:
            raise
        return []
