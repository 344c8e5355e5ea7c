"""`isthmus.compare`: how far one network is ahead of another, and whether that is more than noise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.record import RunRecord, differences, read_record, select_runs
from isthmus.core.titles import model_title
from isthmus.reports.text import interval_ends, metric_noun, with_unit
from isthmus.search.answer import Answer
from isthmus.studies.fronts import is_outdated, settings_of
from isthmus.studies.statistics import Decision, Interval, Sample, compare_folds, fit_noise
from isthmus.studies.statistics import compare as interval_between

_SHORT_ID, _MOST_SETTINGS = 8, 2


@dataclass(frozen=True, repr=False)
class Difference:
    """How far the first network is ahead of the second; positive is better, whatever the metric."""

    first: str
    second: str
    metric: str
    split: str
    interval: Interval
    evidence: str
    """Such as ``3 paired seeds``."""

    @property
    def decision(self) -> Decision:
        """``ahead``, ``behind`` or ``undecided``, at 95 %."""
        return self.interval.decision

    @property
    def difference(self) -> float:
        """How much better the first is than the second, in units of the metric."""
        return self.interval.difference

    def __repr__(self) -> str:
        better, worse, interval = self.first, self.second, self.interval
        if self.difference < 0:
            better, worse, interval = worse, better, interval.swap()
        amount, ends = interval_ends(interval)
        lead = with_unit(amount, self.metric)
        if self.decision != "undecided":
            return f"{better} is ahead of {worse} by {lead} ({ends}), {self.evidence}"
        evidence = f"({ends}), {self.evidence}" if ends else "with one run each, which shows no spread"
        return f"undecided: {better} is ahead of {worse} by {lead} {evidence}"


def compare(first: Any, second: Any) -> Difference:
    """How far one network is ahead of another on test data, with its 95 % interval.

    Each side is one network: a run, or several that differ in their seeds only (ids, folders, rows of
    ``isthmus.runs()``), a model of ``load`` or ``train`` or a list of them, a candidate of a study, or an answer of
    ``find``, which stands for its best network. Runs with the same seeds are paired. Networks that were
    cross-validated are compared by their folds, on validation data.

    >>> import isthmus
    >>> digits = {
    ...     "source": {"name": "digits"},
    ...     "task": {"name": "classification"},
    ...     "model": {"name": "hourglass_mlp", "d_z": 32, "d_h": 8, "depth": 1},
    ...     "train": {"epochs": 2},
    ...     "threads": 1,
    ... }
    >>> slow = [isthmus.train(digits, {"seed": seed}, progress=False) for seed in range(3)]
    >>> fast = [isthmus.train(m.record.config, {"train.learning_rate": 0.01}, progress=False) for m in slow]
    >>> isthmus.compare(fast, slow)
    hourglass_mlp ... (learning_rate=0.01) is ahead of ... by ... in accuracy (...), 3 paired seeds
    >>> isthmus.compare(fast, slow).decision
    'ahead'
    """
    sides = _read(first), _read(second)
    _check_comparable(*sides)
    record, titles = sides[0][0], _titles(*sides)
    stated = _stated_values(first) | _stated_values(second)
    found = _compare_by_fold(*sides, stated)
    split = "test" if found is None else "validation"
    interval, evidence = found or _compare_by_seed(*sides)
    return Difference(*titles, record.objective, split, interval, evidence)


def _compare_by_fold(
    first: Sequence[RunRecord], second: Sequence[RunRecord], stated: Mapping[str, float]
) -> tuple[Interval, str] | None:
    """By the folds that both have; None if there are none."""
    if not all(record.config["source"].get("folds") for record in (*first, *second)):
        return None
    one, other = (
        {record.config["source"]["fold"]: stated.get(record.id, _quality(record, "validation")) for record in side}
        for side in (first, second)
    )
    if len(shared := sorted(one.keys() & other.keys())) < 2:
        return None
    sign, rows = 1 if first[0].maximise else -1, first[0].data["rows"]
    leads = [sign * (one[fold] - other[fold]) for fold in shared]
    return compare_folds(leads, rows["validation"] / rows["train"]), f"{len(shared)} paired folds"


def _compare_by_seed(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> tuple[Interval, str]:
    sign = 1 if first[0].maximise else -1
    one, other = ({record.seed: sign * _quality(record, "test") for record in side} for side in (first, second))
    noise = fit_noise([one, other])
    interval = interval_between(*(Sample.of(list(side.values()), list(side), noise) for side in (one, other)))
    shared = len(one.keys() & other.keys())
    is_paired = interval.rule.startswith("paired")
    return interval, f"{shared} paired seed{'s' * (shared > 1)}" if is_paired else f"{len(one)} and {len(other)} runs"


def _stated_values(side: Any) -> dict[str, float]:
    """The validation figures of an answer's best network by run: those of the epoch at which its training ends."""
    best = side.content["best"] if isinstance(side, Answer) else {"runs": [], "values": []}
    return dict(zip(best["runs"], best["values"], strict=False))


def _read(side: Any) -> list[RunRecord]:
    """The records of one network."""
    if isinstance(side, Answer):
        best = side.content["best"]
        side = best["runs"] if side.content["folds"] or not side.content["refits"] else side.content["refits"]
    records = [read_record(folder) for folder in select_runs(side)]
    if not records:
        raise UserError("a side of the comparison has no runs; give the id of a run, or a list of them")
    networks = {
        json.dumps([settings_of(each), each.config["train"]["learning_rate"], each.fingerprint], sort_keys=True)
        for each in records
    }
    if len(networks) > 1:
        raise UserError(
            f"one side has runs of {len(networks)} different networks; give runs that differ in their seeds only"
        )
    for record in records:
        if record.status != "finished" or is_outdated(record):
            raise UserError(f"run {record.id} has no result to compare; leave it out, or train it again")
    return records


def _quality(record: RunRecord, split: str) -> float:
    value = record.quality(split)
    if value is None:
        raise UserError(f"run {record.id} has no {metric_noun(record.objective)} on {split} data; leave it out")
    return value


def _check_comparable(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> None:
    def problem(record: RunRecord) -> Mapping[str, Any]:
        return {"data": record.fingerprint, "task": record.config["task"], "objective": record.objective}

    one, other = problem(first[0]), problem(second[0])
    if different := [name for name in one if one[name] != other[name]]:
        raise UserError(
            f"runs {first[0].id} and {second[0].id} cannot be compared: they differ in {' and '.join(different)}"
        )


def _titles(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> tuple[str, str]:
    """The networks in words, with what else distinguishes them: settings, or the ids of their runs."""
    one, other = (model_title(side[0].config["model"]) for side in (first, second))
    if one != other:
        return one, other
    settings = [settings_of(side[0]) | {"train": side[0].config["train"]} for side in (first, second)]
    different = list(differences(*settings).items())[:_MOST_SETTINGS]
    if not different:
        return f"{one} ({first[0].id[:_SHORT_ID]})", f"{other} ({second[0].id[:_SHORT_ID]})"
    words = [", ".join(f"{name.rpartition('.')[2]}={pair[side]}" for name, pair in different) for side in (0, 1)]
    return f"{one} ({words[0]})", f"{other} ({words[1]})"
