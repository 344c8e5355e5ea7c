"""Groups run folders into sections of comparable runs: same data, same task, same objective."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
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
from isthmus.core.registry import without_defaults
from isthmus.core.titles import architecture_of, split_architecture, title_fields
from isthmus.reports.published import PublishedFront, load_fronts, matching_fronts
from isthmus.studies.fronts import (
    COSTS,
    Candidate,
    best,
    front,
    is_measured,
    is_outdated,
    is_refit,
    judge_by,
    summarise,
)
from isthmus.studies.pathway_gaps import PathwayGap, compare_with_plain

SPLITTING = ("fold", "folds", "validation")
"""The settings of a source that say which rows validate."""


@dataclass(frozen=True)
class Run:
    folder: Path
    record: RunRecord

    @property
    def architecture(self) -> str:
        return architecture_of(self.record.config["model"])

    @property
    def settings(self) -> str:
        """The settings that distinguish this run."""
        shape = [f"{name} {value}" for name, value in title_fields(self.record.config["model"]).items()]
        rate = self.record.config["train"]["learning_rate"]
        return ", ".join([*shape, f"learning rate {rate:g}", f"seed {self.record.seed}"])

    @cached_property
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
    references: Mapping[str, float] = field(default_factory=dict)  # test figures of other models, by their titles
    found: Mapping[str, Any] = field(default_factory=dict)  # what a search found with these runs
    suffix: str = ""  # tells sections of one name apart
    versions: tuple[Candidate, ...] = ()  # candidates with int8 weights, for the cost that they have

    @property
    def first(self) -> RunRecord:
        return self.runs[0].record

    @property
    def name(self) -> str:
        """Such as ``regression of price on houses.csv``."""
        return name_problem(self.first.config) + self.suffix

    @property
    def targets(self) -> list[str]:
        """The columns to predict, if the source has columns."""
        return list(map(str, self.first.config["source"].get("targets") or ()))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the task and the source that differ from their defaults."""
        config = self.first.config
        changed = without_defaults("tasks", config["task"]) | without_defaults("sources", config["source"])
        return {
            name: value
            for name, value in flatten(changed).items()
            if name not in ("name", "fold") and value is not None
        }

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
    def is_folded(self) -> bool:
        """Whether the runs of a candidate are folds of a cross-validation."""
        return self.first.config["source"].get("folds") is not None

    @property
    def costs(self) -> tuple[str, ...]:
        """The costs that every candidate has, first those by which versions of one network differ."""
        first = self.candidates[0].costs if self.candidates else ()
        further = [name for name in first if all(name in each.costs for each in self.candidates)]
        return (*further, *COSTS) if self.versions else (*COSTS, *further)

    @property
    def finished_architectures(self) -> list[str]:
        """The architectures with a finished run."""
        return [architecture for architecture in self.architectures if self.candidates_of(architecture)]

    @cached_property
    def architectures(self) -> list[str]:
        return sorted({run.architecture for run in self.runs}, key=_shape_order)

    @cached_property
    def failed_runs(self) -> list[Run]:
        left_out = {run.record.id for run in (*self.outdated_runs, *self.refits)}
        return [run for run in self.runs if not is_measured(run.record) and run.record.id not in left_out]

    @cached_property
    def refits(self) -> list[Run]:
        """Runs on training and validation rows together, which have test figures only."""
        return [run for run in self.runs if is_refit(run.record)]

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

    def at(self, cost: str) -> list[Candidate]:
        """The candidates that compete at a cost. Versions of a network do so only at the cost that they change."""
        return [*self.candidates, *(version for version in self.versions if cost in version.costs)]

    def front_at(self, cost: str) -> set[tuple[str, ...]]:
        return {candidate.identity for candidate in front(self.at(cost), cost)}

    def candidates_of(self, architecture: str, cost: str = "params") -> list[Candidate]:
        return [candidate for candidate in self.at(cost) if candidate.architecture == architecture]

    @property
    def pairs(self) -> list[tuple[list[Candidate], list[Candidate]]]:
        return self.pairs_at("params")

    def pairs_at(self, cost: str) -> list[tuple[list[Candidate], list[Candidate]]]:
        """The candidates of every two architectures that have finished runs, and are to be compared.

        Pathways are compared with plain, or with each other where plain was not tried; two models with one pathway.
        """
        finished = self.finished_architectures
        return [
            (self.candidates_of(first, cost), self.candidates_of(second, cost))
            for first, second in combinations(finished, 2)
            if _are_rivals(first, second, finished)
        ]

    @cached_property
    def pathway_gaps(self) -> list[PathwayGap]:
        """Every pathway against plain at equal shapes."""
        return compare_with_plain(self.candidates)

    def best_run(self, architecture: str) -> Run | None:
        """The best run of the best candidate, both chosen on validation data."""
        candidates = self.candidates_of(architecture)
        return self.best_of(best(candidates)) if candidates else None

    def best_of(self, candidate: Candidate) -> Run:
        """The run of a candidate that is best on validation data."""
        sign = 1 if self.first.maximise else -1
        runs = [self.by_id[identity] for identity in candidate.run_ids]
        return max(runs, key=lambda run: sign * run.record.metrics["validation"][run.record.objective])


def name_problem(config: Mapping[str, Any]) -> str:
    """The task and the data of a run in words."""
    source, task = config["source"], config["task"]["name"]
    path, targets = source.get("path"), [cut_middle(str(name), 40) for name in source.get("targets") or ()]
    what = f"{task} of {', '.join(targets[:3])}{' …' * (len(targets) > 3)}" if targets else task
    return f"{what} on {cut_middle(Path(path).name, 60) if path else source['name']}"


def _are_rivals(first: str, second: str, finished: Sequence[str]) -> bool:
    (model, pathway), (other_model, other_pathway) = map(split_architecture, (first, second))
    if model != other_model:
        return pathway == other_pathway
    return model in (first, second) or model not in finished


def cut_middle(name: str, longest: int) -> str:
    """A name without its middle if it is too long; beginnings and ends tell names apart."""
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"


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
    shown = [name for name in names if name in always or len({str(item.get(name)) for item in settings}) > 1]
    # The architecture names the pathway, with the fields that tell most of them apart.
    labels = [candidate.architecture for candidate in candidates]
    shown = [name for name in shown if not name.startswith("model.pathway.") or _splits(name, labels, settings)]
    return sorted(shown, key=lambda name: name not in always)


def _splits(name: str, labels: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether candidates with the same label differ in a setting."""
    values = {(label, str(item.get(name))) for label, item in zip(labels, settings, strict=True)}
    return len(values) > len(set(labels))


def read_setting(candidate: Candidate, name: str) -> Any:
    """A setting by its dotted name; an empty string if the candidate has no such field or no value for it."""
    value = flatten(candidate.settings).get(name)
    return "" if value is None else value


def gather(
    paths: Sequence[Path],
    published: Sequence[str] = (),
    costs: Mapping[str, Mapping[str, float]] | None = None,
    quality: str | None = None,
    versions: Sequence[Candidate] = (),
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
    for run in sorted(runs.values(), key=lambda run: is_refit(run.record)):
        key = json.dumps([*_problem(run.record, "fold"), run.record.fingerprint], sort_keys=True)
        if is_refit(run.record):  # it belongs to the runs with validation rows of the same data
            ours = _problem(run.record, *SPLITTING)
            alike = (name for name, group in groups.items() if _problem(group[0].record, *SPLITTING) == ours)
            key = next(alike, key)
        groups[key].append(run)
    sections = []
    for group in groups.values():
        section = Section(tuple(group), tuple(summarise((run.record for run in group), costs)))
        here = tuple(version for version in versions if version.run_ids[0] in section.by_id)
        section = replace(section, versions=here)
        drawn = [item for item in fronts if item.task == section.task]
        drawn = drawn if fronts else matching_fronts(section.source, section.task)
        sections.append(replace(section, published=tuple(drawn)))
    return sorted(_tell_apart(sections), key=lambda section: section.name), len(folders) - len(ended)


def _problem(record: RunRecord, *left_out: str) -> list[Any]:
    source = {name: value for name, value in record.config["source"].items() if name not in left_out}
    return [source, record.config["task"], record.objective]


def _tell_apart(sections: Sequence[Section]) -> list[Section]:
    """Sections with names that differ: what distinguishes those of one name is appended to it."""
    groups: dict[str, list[Section]] = defaultdict(list)
    for section in sections:
        groups[section.name].append(section)
    named = []
    for group in groups.values():
        facts = [
            flatten({kind: each.first.config[kind] for kind in ("task", "source")})
            | {"by": each.objective, "data": each.first.fingerprint[:8]}
            for each in group
        ]
        names = [name for name in dict.fromkeys(chain(*facts)) if len({str(each.get(name)) for each in facts}) > 1]
        shown = names[:-1] if len(names) > 1 and names[-1] == "data" else names
        for section, known in zip(group, facts, strict=True):
            words = [f"{name.rpartition('.')[2]} {cut_middle(str(known.get(name)), 60)}" for name in shown]
            named.append(replace(section, suffix=", ".join(["", *words])))
    return named


def _folders(path: Path) -> list[Path]:
    if path.name == RECORD:
        return [path.parent] if path.is_file() else []
    if not path.is_dir():
        raise UserError(f"there is no folder {path}; give a run folder or a folder of run folders")
    return list(run_folders(path))


def _shape_order(architecture: str) -> tuple[int, str]:
    known, model = (
        ("hourglass_mlp", "conventional_mlp", "hourglass_vit", "conventional_vit"),
        split_architecture(architecture)[0],
    )
    return (known.index(model) if model in known else len(known), architecture)
