"""The trained networks of a study with int8 weights, as further candidates of its front.

int8 needs no training, so each chosen network is quantised once, and what was measured is stored beside its record,
for every cost in a file of its own. A network has up to two versions:

int8     all matrices of weights that onnxruntime can make int8
mixed    some of them, by measured sensitivity: what `isthmus export RUN --to onnx --int8` writes, or if that is none
         or all of them, the set with the least loss that saves at least half as much
"""

from __future__ import annotations

import importlib.util
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from isthmus.core.errors import UserError
from isthmus.core.files import make_folder, read_sealed, write_sealed
from isthmus.core.protocols import Data
from isthmus.core.record import MODEL, find_run, read_record
from isthmus.core.titles import model_title
from isthmus.export.formats import Int8, choose_int8
from isthmus.export.int8_format import CostName, Policy
from isthmus.export.onnx_format import INSTALL
from isthmus.studies.fronts import Candidate
from isthmus.training.devices import arithmetic
from isthmus.training.loading import load_model, load_task

VERSIONS = ("int8", "mixed")
_MODULES = ("onnx", "onnxscript", "onnxruntime")
_FIELDS: dict[CostName, str] = {"bytes": "weights", "latency": "latency"}
Tell = Callable[[str, float], None]
"""Called with a text that names the measurement, and the fraction of it that is done."""
Policies = Mapping[str, Any]


@dataclass(frozen=True)
class Versions:
    candidates: list[Candidate]
    costs: dict[str, float]
    """The measured cost of the float32 networks by their runs, as onnxruntime computes them too."""
    notes: list[str]
    """The networks that have no int8 version, and why."""


def need_int8() -> None:
    """Raise a UserError before anything is trained if int8 networks cannot be measured here."""
    if missing := [name for name in _MODULES if importlib.util.find_spec(name) is None]:
        raise UserError(f"precision=int8 needs {' and '.join(missing)}: {INSTALL}")


def find_versions(
    candidates: Sequence[Candidate], cost: str, data: Data, tell: Tell = lambda text, fraction: None
) -> Versions:
    """The int8 versions of trained candidates, measured or read from what is stored beside their runs."""
    found, costs, notes = list[Candidate](), dict[str, float](), list[str]()
    for number, candidate in enumerate(candidates):
        title = model_title(candidate.settings["model"])
        tell(f"int8 weights of network {number + 1} of {len(candidates)}: {title}", number / len(candidates))
        try:
            measured = [
                read_policies(find_run(run), cast("CostName", cost), data, candidate.objective)
                for run in candidate.run_ids
            ]
        except CannotQuantise as error:
            notes.append(f"No int8 version of {title}: {error}.")
            continue
        name = _FIELDS[cast("CostName", cost)]
        costs |= {run: each["float32"][name] for run, each in zip(candidate.run_ids, measured, strict=True)}
        for version in VERSIONS:
            if all(each[version] for each in measured):
                found.append(_version(candidate, version, cost, [each[version] for each in measured]))
    return Versions(found, costs, notes)


def _version(candidate: Candidate, precision: str, cost: str, policies: Sequence[Policies]) -> Candidate:
    name = _FIELDS[cast("CostName", cost)]
    return replace(
        candidate,
        precision=precision,
        metrics={
            metric: tuple(policy["test"][metric] for policy in policies)
            for metric in policies[0]["test"]
            if all(metric in policy["test"] for policy in policies)
        },
        validation=statistics.fmean(policy["validation"] for policy in policies),
        costs={cost: statistics.fmean(policy[name] for policy in policies)},
    )


class CannotQuantise(UserError):
    """A network that onnxruntime cannot make int8."""


def read_policies(folder: Path, cost: CostName, data: Data, quality: str) -> Policies:
    """What was measured of a run's network in float32, ``int8`` and ``mixed``; it is measured unless it is stored."""
    record = read_record(folder)
    task, path = load_task(folder), folder / "analysis" / f"int8-{cost}.json"
    meant = {
        "run": record.id, "model": record.files[MODEL], "cost": cost, "quality": quality,
        "metric_versions": dict(task.metric_versions),
    }  # fmt: skip
    if path.exists():
        content = read_sealed(path)
        if {name: content.get(name) for name in meant} == meant:
            return _need_layers(content["policies"])
    with arithmetic(record.config["threads"]):
        try:
            choice = choose_int8(load_model(folder), task, data, Int8(cost), quality)
        except UserError as error:
            policies: dict[str, Any] = {"reason": str(error)}
        else:
            known = zip(("float32", *VERSIONS), (choice.float32, choice.uniform, choice.mixed), strict=True)
            policies = {name: _plain(policy) for name, policy in known}
    make_folder(path.parent)
    write_sealed(path, {**meant, "policies": policies})
    return _need_layers(policies)


def _plain(policy: Policy | None) -> Any:
    return None if policy is None else json.loads(json.dumps(asdict(policy)))


def _need_layers(policies: Policies) -> Policies:
    if "reason" in policies:
        raise CannotQuantise(policies["reason"])
    return policies
