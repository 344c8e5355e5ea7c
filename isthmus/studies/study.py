"""A study: its runs, what they will cost, and carrying them out. The records are its memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isthmus import record as records
from isthmus.config import StudyConfig
from isthmus.files import home, write_json
from isthmus.record import RunRecord, read_record
from isthmus.run import Options, Prepared, load_data, prepare
from isthmus.studies.executors import Event, Executor


@dataclass(frozen=True)
class Trial:
    """One run of a study, with the arithmetic that it takes."""

    prepared: Prepared

    @property
    def work(self) -> float:
        """Floating-point operations of the training, for estimates of time."""
        train = self.prepared.config.train
        rows = len(self.prepared.data.train) * self.prepared.task.views()
        return float(self.prepared.cost.training_flops * rows * train.epochs)

    @property
    def is_finished(self) -> bool:
        return (self.prepared.folder / records.RECORD).exists()


@dataclass(frozen=True)
class Study:
    config: StudyConfig
    trials: list[Trial]

    @property
    def folder(self) -> Path:
        return home() / "studies" / self.config.name

    @property
    def remaining(self) -> list[Trial]:
        return [trial for trial in self.trials if not trial.is_finished]

    @property
    def folders(self) -> list[Path]:
        return [trial.prepared.folder for trial in self.trials]

    def records(self) -> list[RunRecord]:
        return [read_record(trial.prepared.folder) for trial in self.trials if trial.is_finished]


def plan(config: StudyConfig, options: Options) -> Study:
    """Name every run of a study; nothing is trained."""
    data = load_data(config.base.source, options.data_dir)
    return Study(config, [Trial(prepare(run, options, data)) for run in config.runs()])


def carry_out(study: Study, executor: Executor, options: Options, tell: Callable[[Trial, Event], None]) -> None:
    """Train what is not on record yet."""
    write_json(
        study.folder / "study.json",
        {"config": study.config.model_dump(mode="json"), "runs": [trial.prepared.id for trial in study.trials]},
    )
    remaining = study.remaining
    # The longest first: the last ones to finish are then short, and no worker idles long.
    remaining.sort(key=lambda trial: -trial.work)
    executor.carry_out(
        [trial.prepared.config for trial in remaining], options, lambda event: tell(remaining[event.number], event)
    )
