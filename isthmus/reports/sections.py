"""Groups run folders into sections of comparable runs: same data, same task, same objective."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.files import resolve_links
from isthmus.core.record import (
    RECORD,
    SAMPLES,
    RunRecord,
    drop_stale,
    flatten,
    read_metrics,
    read_record,
    run_folders,
    verify_file,
)
from isthmus.core.registry import title_fields
from isthmus.reports.published import PublishedFront, load_fronts, matching_fronts
from isthmus.studies.fronts import (
    COSTS,
    Candidate,
    best,
    front,
    is_measured,
    is_outdated,
    judge_by,
    summarise,
)


@dataclass(frozen=True)
class Run:
    folder: Path
    record: RunRecord

    @property
    def architecture(self) -> str:
        name: str = self.record.config["model"]["name"]
        return name

    @property
    def settings(self) -> str:
        """The settings that distinguish this run."""
        shape = [f"{name} {value}" for name, value in title_fields(self.record.config["model"]).items()]
        rate = self.record.config["train"]["learning_rate"]
        return ", ".join([*shape, f"learning rate {rate:g}", f"seed {self.record.seed}"])

    def metrics(self) -> list[dict[str, Any]]:
        return [drop_stale(line, self.record.task) for line in read_metrics(self.folder)]

    def samples(self) -> bytes | None:
        """The sample sheet of a few test rows, if the task made one."""
        if SAMPLES not in self.record.files or not (self.folder / SAMPLES).is_file():
            return None
        return verify_file(self.folder, SAMPLES, self.record).read_bytes()


@dataclass(frozen=True)
class Section:
    """All runs of one source and one task, on the same data."""

    runs: tuple[Run, ...]
    candidates: tuple[Candidate, ...]
    published: tuple[PublishedFront, ...] = ()

    @property
    def first(self) -> RunRecord:
        return self.runs[0].record

    @property
    def name(self) -> str:
        return f"{self.task} on {self.source}"

    @property
    def source(self) -> str:
        name: str = self.first.config["source"]["name"]
        return name

    @property
    def task(self) -> str:
        return self.first.task

    @property
    def objective(self) -> str:
        return self.first.objective

    @property
    def costs(self) -> tuple[str, ...]:
        """The costs that every candidate has."""
        first = self.candidates[0].costs if self.candidates else ()
        return (*COSTS, *(name for name in first if all(name in each.costs for each in self.candidates)))

    @property
    def finished_architectures(self) -> list[str]:
        """The architectures with a finished run."""
        return [architecture for architecture in self.architectures if self.candidates_of(architecture)]

    @cached_property
    def architectures(self) -> list[str]:
        return sorted({run.architecture for run in self.runs}, key=_shape_order)

    @cached_property
    def failed_runs(self) -> list[Run]:
        return [run for run in self.runs if not is_measured(run.record) and run not in self.outdated_runs]

    @cached_property
    def outdated_runs(self) -> list[Run]:
        """Finished runs whose objective an earlier version computed differently."""
        return [run for run in self.runs if is_outdated(run.record)]

    @cached_property
    def by_id(self) -> dict[str, Run]:
        return {run.record.id: run for run in self.runs}

    @cached_property
    def front_ids(self) -> set[tuple[str, ...]]:
        return {candidate.run_ids for candidate in front(self.candidates)}

    def candidates_of(self, architecture: str) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.architecture == architecture]

    @property
    def pairs(self) -> list[tuple[list[Candidate], list[Candidate]]]:
        """The candidates of every two architectures that have finished runs."""
        by_architecture = map(self.candidates_of, self.finished_architectures)
        return list(combinations(by_architecture, 2))

    def best_run(self, architecture: str) -> Run | None:
        """The best run of the best candidate, both chosen on validation data."""
        candidates = self.candidates_of(architecture)
        if not candidates:
            return None
        sign = 1 if self.first.maximise else -1
        runs = [self.by_id[identity] for identity in best(candidates).run_ids]
        return max(runs, key=lambda run: sign * run.record.metrics["validation"][run.record.objective])


def metric_names(candidates: Sequence[Candidate]) -> list[str]:
    """The test metrics that every candidate has, the objective first."""
    names = [name for candidate in candidates[:1] for name in candidate.metrics]
    shared = [name for name in names if all(name in candidate.metrics for candidate in candidates)]
    return sorted(shared, key=lambda name: name != candidates[0].objective)


def varying_settings(candidates: Sequence[Candidate]) -> list[str]:
    """Dotted names of the settings in which candidates differ, and always of the models' title fields."""
    settings = [flatten(candidate.settings) for candidate in candidates]
    names = dict.fromkeys(name for item in settings for name in item if name != "model.name")
    always = {f"model.{name}" for candidate in candidates for name in title_fields(candidate.settings["model"])}
    return [name for name in names if name in always or len({str(item.get(name)) for item in settings}) > 1]


def read_setting(candidate: Candidate, name: str) -> Any:
    """A setting by its dotted name; an empty string if the candidate has no such field or no value for it."""
    value = flatten(candidate.settings).get(name)
    return "" if value is None else value


def gather(
    paths: Sequence[Path],
    published: Sequence[str] = (),
    costs: Mapping[str, Mapping[str, float]] | None = None,
    quality: str | None = None,
) -> tuple[list[Section], int]:
    """The sections of all ended runs below the paths, and the number of unfinished runs.

    The other arguments are those of ``reports.write_report``.
    """
    fronts = load_fronts(published)
    folders = dict.fromkeys(resolve_links(folder) for path in paths for folder in _folders(path))
    if not folders:
        where = f" in {', '.join(map(str, paths))}" if paths else ""
        raise UserError(f"there are no runs{where}; `isthmus runs list` shows the runs")
    ended = [folder for folder in folders if (folder / RECORD).exists()]
    if not ended:
        these = "the run has not ended" if len(folders) == 1 else f"none of the {len(folders)} runs has ended"
        raise UserError(f"{these}; repeat the command that started it to resume")
    read = [(folder, read_record(folder)) for folder in ended]
    runs = {record.id: Run(folder, judge_by(record, quality or record.objective)) for folder, record in read}
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs.values():
        record = run.record
        source = {name: value for name, value in record.config["source"].items() if name != "fold"}
        key = [source, record.config["task"], record.fingerprint, record.objective]
        groups[json.dumps(key, sort_keys=True)].append(run)
    sections = []
    for group in groups.values():
        section = Section(tuple(group), tuple(summarise((run.record for run in group), costs)))
        drawn = [item for item in fronts if item.task == section.task]
        drawn = drawn if fronts else matching_fronts(section.source, section.task)
        sections.append(replace(section, published=tuple(drawn)))
    return sorted(sections, key=lambda section: section.name), len(folders) - len(ended)


def _folders(path: Path) -> list[Path]:
    if path.name == RECORD:
        return [path.parent] if path.is_file() else []
    if not path.is_dir():
        raise UserError(f"there is no folder {path}; give a run folder or a folder of run folders")
    return list(run_folders(path))


def _shape_order(architecture: str) -> tuple[int, str]:
    known = ("hourglass_mlp", "conventional_mlp", "hourglass_vit", "conventional_vit")
    return (known.index(architecture) if architecture in known else len(known), architecture)
