"""One super-network instead of many trainings: ranks the candidates of a study by weights that they inherit.

Paper: Searching for Efficient Multi-Stage Vision Transformers (ViT-ResNAS; Liao, Karaman, Sze 2021).

Candidates that differ only in sizes of which a smaller network takes the first part (``ModelConfig.sliced``) form a
group, and each group has a super-network that is as large as the largest of each. A candidate's tensors are prefixes of
the super-network's. A step adds the losses of the largest candidate, the smallest and some random ones. After that
every candidate is evaluated with the weights that it inherits, and the study trains the promising ones alone.

Differs from the paper:
    Every candidate has its own d_z throughout; the paper also varies widths within a network.
    The candidates are those of the study, and no evolutionary search follows: costs are known, so the order is by the
    hypervolume that each adds to the front of inherited qualities.
    Heads are sliced together with their width: a smaller network takes the first numbers of the first heads.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.func import functional_call

from isthmus.core.config import RunConfig, Shared, StudyConfig
from isthmus.core.draws import key, numpy_generator
from isthmus.core.errors import UserError
from isthmus.core.files import digest, home, make_folder, read_sealed, write_sealed
from isthmus.core.protocols import Batch, ModelConfig
from isthmus.core.registry import find
from isthmus.layers.projections import FixedProjection
from isthmus.studies.plan import Plan
from isthmus.studies.proposals import Proposal
from isthmus.studies.volumes import area, open_corner
from isthmus.training.devices import OneDevice, arithmetic
from isthmus.training.listener import Listener
from isthmus.training.loop import Diverged, NoJournal, Rows, Training, evaluate

LEAST_AGREEMENT = 0.5
"""Kendall's τ of the first stand-alone runs below which the ranking is not trusted."""
Tell = Callable[[str, float], None]
"""Called with what is being done, and which fraction of it is done."""


@dataclass(frozen=True)
class Group:
    """Candidates that share one super-network, as complete models, and the run whose settings train it."""

    keys: tuple[str, ...]
    models: tuple[ModelConfig, ...]
    costs: tuple[int, ...]
    run: RunConfig

    @property
    def identity(self) -> str:
        return digest(self.run.model_dump(mode="json"), 16)

    @property
    def ends(self) -> tuple[int, ...]:
        """The largest candidate and the smallest."""
        order = sorted(range(len(self.costs)), key=lambda place: (self.costs[place], self.keys[place]))
        return tuple(dict.fromkeys((order[-1], order[0])))

    def choose(self, step: int, number: int) -> list[int]:
        """The slices of a step: the largest, the smallest, and random ones."""
        rest = [place for place in range(len(self.costs)) if place not in self.ends]
        random = numpy_generator(self.run.seed, f"slices/{self.identity}", step)
        drawn = random.choice(len(rest), size=min(max(0, number - 2), len(rest)), replace=False)
        return [*self.ends, *(rest[place] for place in drawn)]


def group_candidates(plan: Plan) -> list[Group]:
    """The groups of a study's candidates. What cannot be sliced is one UserError."""
    config, shared = plan.config, settings_of(plan.config)
    if len(plan.candidates) < 2:
        raise UserError(f"--shared ranks candidates, and the study {config.name!r} has one; leave --shared out")
    found: dict[str, list[tuple[Proposal, ModelConfig]]] = {}
    for proposal in plan.candidates:
        model = proposal.model.complete(plan.task.signature, config.seeds[0])
        sizes = _need_sizes(model)
        fixed = {name: value for name, value in model.model_dump(mode="json").items() if name not in sizes}
        found.setdefault(digest({"model": fixed, "train": proposal.recipe}), []).append((proposal, model))
    groups = []
    for members in found.values():
        proposals, models = zip(*members, strict=True)
        largest = type(models[0]).cover(models)
        run = config.run(largest, config.rates[0], config.seeds[0], proposals[0].recipe)
        epochs = {"epochs": shared.count_epochs(config.base.train.epochs), "stop_epoch": None, "select": "last"}
        run = run.model_copy(update={"train": run.train.model_copy(update=epochs)})
        costs = tuple(int(proposal.cost["params"]) for proposal in proposals)
        groups.append(Group(tuple(proposal.key for proposal in proposals), models, costs, run))
    return groups


def _need_sizes(model: ModelConfig) -> tuple[str, ...]:
    """The sizes by which a model is sliced; a model that cannot be sliced is a UserError."""
    missing = "" if model.sliced else "it declares no sizes to slice"
    if (latent := getattr(model, "latent_width", None)) is not None:
        missing = f"latent_width={latent}"
    if getattr(model, "w_in", "") == "hadamard":
        missing = "w_in=hadamard mixes all coordinates"
    if missing:
        raise UserError(
            f"--shared cannot slice {model.name} ({missing}); use a residual MLP or ViT, or leave --shared out"
        )
    return model.sliced


def settings_of(config: StudyConfig) -> Shared:
    assert config.shared is not None
    return config.shared


class Slice(nn.Module):
    """A candidate whose weights are parts of a super-network's.

    A frozen W_in is the first part of the super-network's, so that the coordinates of the stream mean the same in all
    slices, scaled to the root mean square of the candidate's own.
    """

    def __init__(self, config: ModelConfig, whole: nn.Module) -> None:
        super().__init__()
        is_frozen = any(isinstance(module, FixedProjection) for module in whole.modules())
        with torch.device("cpu" if is_frozen else "meta"):
            self.skeleton: nn.Module = find("models", config.name)(config)
        self._whole = (whole,)  # not a submodule: its parameters are its own
        self._from, self._to = _list_axes(whole), _list_axes(self.skeleton)
        self._shapes = {name: tensor.shape for name, tensor in _list_tensors(self.skeleton).items()}
        self._scales: dict[str, float] = {}
        if unknown := [name for name in self._to if not self._is_part(name)]:
            raise UserError(f"--shared cannot slice {config.name}: {unknown[0]} is no part of the super-network's")
        parts = self.take()
        for place, module in self.skeleton.named_modules():
            for buffer, own in module.named_buffers() if isinstance(module, FixedProjection) else ():
                name = f"{place}.{buffer}"
                self._scales[name] = float(own.double().norm() / parts[name].double().norm())

    def _is_part(self, name: str) -> bool:
        own, whole = self._to[name], self._from.get(name, ())
        return len(own) == len(whole) and all(small <= large for small, large in zip(own, whole, strict=True))

    def take(self) -> dict[str, Tensor]:
        """The candidate's tensors: views of the super-network's, through which gradients flow."""
        whole, parts = _list_tensors(self._whole[0]), {}
        for name, axes in self._to.items():
            part = whole[name].view(self._from[name])[tuple(slice(size) for size in axes)].reshape(self._shapes[name])
            parts[name] = part * self._scales[name] if name in self._scales else part
        return parts

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = functional_call(self.skeleton, self.take(), (x,))
        return output


def _list_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _list_axes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The axes along which each tensor is sliced: its own, unless its module's ``sliced_axes`` says otherwise."""
    axes = {name: tuple(tensor.shape) for name, tensor in _list_tensors(model).items()}
    for name, module in model.named_modules():
        if declared := getattr(module, "sliced_axes", None):
            mine = {f"{name}.{part}": shape for part, shape in declared().items()}
            axes |= {part: shape for part, shape in mine.items() if part in axes}
    return axes


class SharedTraining(Training):
    """The ordinary loop, in which a step adds the losses of several slices."""

    def start(self, group: Group, slices: Sequence[Slice], number: int) -> None:
        self.group, self.slices, self.number = group, slices, number

    def is_validated_at(self, step: int) -> bool:
        return False  # only slices are evaluated, after the last step

    def compute_gradients(self, forward: Callable[[Tensor], Tensor], model: nn.Module, whole: Batch) -> None:
        for place in self.group.choose(self.position.step, self.number):
            loss = self.task.loss(self.slices[place](whole.input), whole.target)
            self.devices.backward(loss)
            self.position.loss_sum += float(loss.detach())


class Ranking(NamedTuple):
    inherited: dict[str, float]
    """The validation quality of each candidate with inherited weights; one that is not finite is left out."""
    seconds: float
    """The time of these evaluations, without the training before them."""


def train_group(plan: Plan, group: Group, listener: Listener | None = None) -> Ranking:
    """Train the super-network of a group, and evaluate each candidate with the weights that it inherits."""
    run, number = group.run, settings_of(plan.config).slices
    devices = OneDevice(run.train)
    rows = {split: Rows.of(plan.data.split(split), devices.device) for split in ("train", "validation")}
    with arithmetic(run.threads):
        torch.manual_seed(key(run.seed, "super-network"))
        whole = find("models", run.model.name)(run.model).to(devices.device)
        slices = [Slice(model, whole) for model in group.models]
        training = SharedTraining(whole, plan.task, rows["train"], rows["validation"], run.train, run.seed, devices)
        training.start(group, slices, number)
        training.run(NoJournal(), listener or Listener())
        whole.eval()
        began = time.perf_counter()
        found = [evaluate(each, plan.task, rows["validation"], "validation", devices.device) for each in slices]
        seconds = time.perf_counter() - began
    known = zip(group.keys, found, strict=True)
    return Ranking({key: values[plan.quality] for key, values in known if plan.quality in values}, seconds)


class _Heard(Listener):
    def __init__(self, tell: Tell, text: str) -> None:
        self.tell, self.text = tell, text

    def step(self, step: int, steps: int) -> None:
        self.tell(self.text, step / steps)


def rank_candidates(plan: Plan, tell: Tell = lambda text, fraction: None) -> dict[str, float]:
    """The inherited quality of every candidate, the most promising first: read from the record, or trained and stored.

    A super-network that was interrupted starts again; those before it are on record.
    """
    groups = group_candidates(plan)
    folder = home() / "studies" / plan.config.name
    make_folder(folder)
    with FileLock(folder / ".shared.lock"):  # a second driver waits, and reads what the first has found
        for number, group in enumerate(groups, start=1):
            if _read_group(plan, group) is None:
                text = f"super-network {number} of {len(groups)}, {len(group.keys)} candidates"
                try:
                    found = train_group(plan, group, _Heard(tell, text))
                except Diverged as error:
                    raise UserError(f"--shared: the super-network of {group.run.model.name}: {error}") from None
                path, meant = _describe(plan, group)
                write_sealed(path, {**meant, "inherited": found.inherited, "seconds": round(found.seconds, 3)})
    ranked = read_ranking(plan)
    assert ranked is not None
    if not ranked:
        raise UserError(f"--shared: no candidate has a finite {plan.quality} with inherited weights")
    return ranked


def read_ranking(plan: Plan) -> dict[str, float] | None:
    """The inherited quality of every candidate, the most promising first; None if some of it is not on record."""
    inherited: dict[str, float] = {}
    for group in group_candidates(plan):
        if (found := _read_group(plan, group)) is None:
            return None
        inherited |= found.inherited
    name = plan.config.cost
    costs = {proposal.key: proposal.cost.get(name, proposal.cost["params"]) for proposal in plan.candidates}
    order = order_candidates({key: (costs[key], quality) for key, quality in inherited.items()}, plan.maximise)
    return {key: inherited[key] for key in order}


def list_untrained(plan: Plan) -> list[Group]:
    """The groups whose super-network is not on record."""
    return [group for group in group_candidates(plan) if _read_group(plan, group) is None]


def read_ranking_seconds(plan: Plan) -> float | None:
    """What evaluating all candidates with inherited weights took; None if the records do not say."""
    found = [_read_group(plan, group) for group in group_candidates(plan)]
    seconds = math.fsum(math.nan if each is None else each.seconds for each in found)
    return seconds if math.isfinite(seconds) else None


def _read_group(plan: Plan, group: Group) -> Ranking | None:
    path, meant = _describe(plan, group)
    if not path.exists():
        return None
    content = read_sealed(path)
    inherited, seconds = content.pop("inherited", None), content.pop("seconds", math.nan)
    if content != meant or not isinstance(inherited, dict) or not inherited.keys() <= {*group.keys}:
        raise UserError(f"{path} is not the ranking of this study; delete it and repeat the command")
    return Ranking({key: float(value) for key, value in inherited.items()}, float(seconds))


def _describe(plan: Plan, group: Group) -> tuple[Path, dict[str, Any]]:
    """Where a group's ranking is stored, and everything that determines it."""
    meant = {
        "data": plan.data.fingerprint, "quality": plan.quality, "slices": settings_of(plan.config).slices,
        "run": group.run.model_dump(mode="json"), "candidates": list(group.keys),
    }  # fmt: skip
    if version := plan.task.metric_versions.get(plan.quality):  # measured in another way, it is ranked again
        meant["metric_version"] = version
    meant = json.loads(json.dumps(meant))
    return home() / "studies" / plan.config.name / f"shared-{digest(meant, 16)}.json", meant


def measure_agreement(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Kendall's τ of inherited and stand-alone quality; None for fewer than three candidates, or if all are equal."""
    from scipy.stats import kendalltau

    if len(pairs) < 3:
        return None
    tau = float(kendalltau(*zip(*pairs, strict=True)).statistic)
    return tau if math.isfinite(tau) else None


def order_candidates(points: Mapping[str, tuple[float, float]], maximise: bool) -> list[str]:
    """Keys of (cost, inherited quality): always the one next that adds most hypervolume to those before.

    When the front is complete, the rest is ordered in the same way without it.
    """
    left, ordered = dict(sorted(points.items())), list[str]()
    corner = open_corner(points.values(), maximise)
    while left:
        layer = list[tuple[float, float]]()
        while left:
            size = area(layer, corner, maximise)
            gains = {key: area([*layer, point], corner, maximise) - size for key, point in left.items()}
            best = max(gains, key=gains.__getitem__)
            if gains[best] <= 1e-12 * size and layer:  # relative, so that units do not matter
                break
            layer.append(left.pop(best))
            ordered.append(best)
            if gains[best] <= 0:
                break
    return ordered
