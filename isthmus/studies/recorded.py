"""The candidates of a study, from its run records or from what `results/` keeps of it when they are gone.

a study's recipe, or its JSON or YAML file    the run records of the finished study
candidates.csv, or the folder that has it     a report's table: every candidate over its seeds
GRID.json                                     a benchmark's grid: the validation quality after each epoch
"""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isthmus.core.config import StudyConfig, find_settings, study_config
from isthmus.core.errors import UserError
from isthmus.core.files import read_text
from isthmus.core.protocols import ModelConfig
from isthmus.core.registry import catalogue, component, find
from isthmus.core.space import split_recipe
from isthmus.core.titles import architecture_of
from isthmus.studies.complete import read_study
from isthmus.studies.fronts import DIRECTIONS, Candidate, summarise
from isthmus.studies.laws import SHAPE_FIELDS
from isthmus.studies.plan import Plan
from isthmus.training.prepare import Options

TABLE = "candidates.csv"
_LARGEST = 20_000_000
_SIZES = (1e-9, 1e15)
"""What a number that describes a shape lies between."""


@dataclass(frozen=True)
class Recorded:
    name: str
    candidates: list[Candidate]
    cost: str = "params"
    split: str = "test"
    """The data of the candidates' qualities: ``test``, or ``validation`` where nothing else was recorded."""


def read_recorded(target: str | Path, options: Options) -> Recorded:
    """The candidates of a finished study; nothing is trained."""
    path = Path(target)
    if str(target) in catalogue("recipes"):
        return _read_records(target, options)
    if path.is_dir():
        if not (path / TABLE).is_file():
            raise UserError(f"{path} has no {TABLE}; give a folder of `isthmus report`, a study's recipe or its file")
        return Recorded(path.resolve().name, _read_table(path / TABLE))
    if path.suffix == ".csv":
        return Recorded(path.resolve().parent.name, _read_table(path))
    if path.suffix == ".json" and isinstance(lines := _read_list(path), list):
        return _read_grid(path, lines, options)
    return _read_records(target, options)


def _read_records(target: str | Path, options: Options) -> Recorded:
    config = study_config(find_settings(target, StudyConfig))
    study = read_study(config, options)
    if not study.is_complete:
        ended = sum(not trial.is_open for trial in study.trials)
        raise UserError(
            f"the study {config.name!r} is not finished: {ended} of {study.expected_candidates} candidates have ended; "
            f"`isthmus study {target}` completes it"
        )
    return Recorded(config.name, summarise(study.records(), study.costs, config.quality), config.cost)


def _read_table(path: Path) -> list[Candidate]:
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path, _LARGEST)), strict=True))
        candidates = [_read_row(row) for row in rows]
    except KeyError as error:
        raise UserError(f"{path} has no column {error}; give the {TABLE} of `isthmus report`") from None
    except (csv.Error, ValueError, AttributeError) as error:
        raise UserError(f"{path} is not the {TABLE} of a report: {error}") from None
    if not candidates:
        raise UserError(f"{path} has no candidate")
    return candidates


def _read_row(row: Mapping[str, str]) -> Candidate:
    metric, seeds = row["objective"], tuple(int(text) for text in row["seeds"].split())
    test = tuple(float(text) for text in row["test_per_seed"].split())
    if metric not in DIRECTIONS:
        raise ValueError(f"it does not say whether more {metric!r} is better")
    if not seeds or len({*seeds}) != len(test):
        raise ValueError(f"{len(test)} qualities of {len({*seeds})} seeds")
    if (mean := row.get("test_mean")) and not math.isclose(float(mean), statistics.fmean(test), rel_tol=1e-9):
        raise ValueError(f"test_mean is {mean}, and the mean of test_per_seed is {statistics.fmean(test)}")
    settings: dict[str, Any] = {"source": {}, "task": {}, "model": {}, "train": {}}
    for name, text in row.items():
        group, _, field = name.partition(".")
        if group in settings and field and text:
            settings[group][field] = _parse(text)
    return _need_numbers(Candidate(
        source=row["source"], task=row["task"], architecture=row["architecture"], settings=settings,
        learning_rate=float(row["learning_rate"]), objective=metric, maximise=DIRECTIONS[metric],
        params=int(row["params"]), trainable_params=int(row["trainable_params"]), macs=int(row["macs"]), seeds=seeds,
        run_ids=tuple(row["run_ids"].split()), metrics={metric: test}, validation=float(row["validation_mean"]),
        wall_seconds=float(row["wall_seconds"]), failed=int(row["failed_runs"]),
    ))  # fmt: skip


def _need_numbers(candidate: Candidate) -> Candidate:
    """The candidate, unless it has a number that nothing measures: these files have no checksum."""
    numbers = (*candidate.test, candidate.validation, candidate.learning_rate, candidate.wall_seconds)
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{candidate.run_ids} has a number that is not finite")
    if not 0 < candidate.trainable_params <= candidate.params <= _SIZES[1] or candidate.macs < 0:
        raise ValueError(f"{candidate.run_ids} has {candidate.params} parameters and {candidate.macs} multiply-adds")
    for name in SHAPE_FIELDS:
        value = candidate.settings["model"].get(name)
        if isinstance(value, int | float) and not _SIZES[0] <= value <= _SIZES[1]:
            raise ValueError(f"{candidate.run_ids} has {name}={value}")
    return candidate


def _parse(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read_list(path: Path) -> Any:
    try:
        return json.loads(read_text(path, _LARGEST))
    except ValueError:
        return None  # the reader of settings says what is wrong with it


def _read_grid(path: Path, lines: list[Any], options: Options) -> Recorded:
    """Each network has one seed; its quality is the best of its epochs, whose weights the run kept.

    Its cost is the number of parameters; multiply–adds were not recorded.
    """
    if path.stem not in catalogue("recipes"):
        raise UserError(
            f"{path} has a list: a recorded grid is named after its study's recipe, which {path.stem} is not"
        )
    config = find("recipes", path.stem)()
    if not isinstance(config, StudyConfig):
        raise UserError(f"{path} is named after a recipe of one run; a recorded grid is named after its study's")
    plan = Plan.of(config, options)
    fixed = {space.model["name"]: dict(space.model) for space in config.spaces}
    try:
        candidates = [_read_line(line, plan, fixed, number) for number, line in enumerate(lines)]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a recorded grid: {type(error).__name__} {error}") from None
    return Recorded(path.stem, candidates, split="validation")


def _read_line(line: Mapping[str, Any], plan: Plan, fixed: Mapping[str, dict[str, Any]], number: int) -> Candidate:
    base = plan.config.base
    given, recipe = split_recipe(line["model"])
    model = fixed[given.get("name", next(iter(fixed)))] | given
    complete = cast("ModelConfig", component("models", model)).complete(plan.task.signature, 0).model_dump(mode="json")
    quality = float((max if plan.maximise else min)(line["quality"]))
    train = base.train.model_dump(mode="json") | recipe
    return _need_numbers(Candidate(
        source=base.source.name, task=base.task.name, architecture=architecture_of(complete),
        settings={"model": complete, "train": train}, learning_rate=train["learning_rate"], objective=plan.quality,
        maximise=plan.maximise, params=int(line["cost"]), trainable_params=int(line["cost"]), macs=0, seeds=(0,),
        run_ids=(f"{plan.config.name} {number}",), metrics={plan.quality: (quality,)}, validation=quality,
        wall_seconds=0.0,
    ))  # fmt: skip
