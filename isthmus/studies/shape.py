"""Which shape is best for these data and this budget? A study of both shapes that needs no recipe.

Every candidate spends the budget, or a third of it: a ratio d_h / d_z, a depth, and the largest d_z that then fits.
Below about d_in · (d_in + d_out) parameters no Hourglass can have a stream wider than its input; its stream is then
narrower than the input, and still wider than its hidden layers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.config import StudyConfig, override, study_config
from isthmus.core.errors import UserError, nearest
from isthmus.core.files import data_dir as default_data_dir
from isthmus.core.files import digest
from isthmus.core.protocols import Signature
from isthmus.core.registry import catalogue, component, find
from isthmus.sources.arrays import names_in
from isthmus.studies.budget import widest_mlp
from isthmus.studies.plan import Plan
from isthmus.training.run import Options, learn_task, load_data

SHARES = (1.0, 1 / 3)
SHAPES: dict[str, tuple[tuple[float, ...], tuple[int, ...]]] = {
    "hourglass_mlp": ((1 / 2, 1 / 4, 1 / 16), (2, 4, 8)),
    "conventional_mlp": ((1.25, 2.0, 4.0), (1, 2, 3)),
}
"""Ratios d_h / d_z and depths."""
_STEPS = 4_000
_TARGET_NAMES = ("y", "target", "targets", "label", "labels", "class")
_NEEDS_TARGETS = ("regression", "classification")


def plan_shapes(
    data: str, task: str, budget: int, options: Options, target: Sequence[str] = (), overrides: Iterable[str] = ()
) -> Plan:
    """The study behind `isthmus study shape`, with ``key=value`` overrides applied."""
    source = component("sources", _source(data, task, target, options))
    find("tasks", task)
    loaded = load_data(source, options.data_dir)
    learned = learn_task(component("tasks", {"name": task}), loaded)
    rows = len(loaded.train)
    batch = 128 if rows >= 2_000 else 32
    epochs = min(200, max(6, round(_STEPS * batch / rows)))
    name = f"shape-{task.replace('_', '-')}-{digest([loaded.fingerprint, budget, task], 8)}"
    given = study_config(
        {
            "name": name,
            "base": {
                "source": source,
                "task": {"name": task},
                "train": {"epochs": epochs, "batch_size": batch, "betas": (0.9, 0.99)},
                "threads": 1,
            },
            "candidates": candidates(learned.signature, budget),
            "budget": {"params": budget},
            "learning_rates": (1e-3, 3e-3),
            "rates_on": "first_seed",
            "seeds": (0, 1, 2),
        }
    )
    config = _add_rungs(override(given.model_dump(mode="json", exclude_defaults=True), overrides))
    if (config.base.source, config.base.task) != (given.base.source, given.base.task):
        return Plan.of(config, options)
    return Plan.of(config, options, loaded, learned)


def _add_rungs(settings: dict[str, Any]) -> StudyConfig:
    """Compare candidates after a sixth and after half of the epochs, unless ``pruning.rungs`` says when.

    A study of one epoch has no rungs; ``pruning=null`` trains all to the end.
    """
    train = study_config(settings | {"pruning": None}).base.train
    wanted = (max(1, train.epochs // 6), max(2, train.epochs // 2))
    rungs = {math.ceil(rung / train.evaluate_every) * train.evaluate_every for rung in wanted}
    pruning = settings.get("pruning", {})
    if isinstance(pruning, dict) and (fit := sorted(rung for rung in rungs if rung < train.epochs)):
        settings = settings | {"pruning": {"rungs": fit} | pruning}
    return study_config(settings)


def candidates(signature: Signature, budget: int) -> list[dict[str, Any]]:
    """Networks of both shapes that spend the budget or a third of it, each once."""
    d_in, d_out = math.prod(signature.input_shape), math.prod(signature.output_shape)
    found: dict[str, dict[str, Any]] = {}
    for name, (ratios, depths) in SHAPES.items():
        for share, ratio, depth in itertools.product(SHARES, ratios, depths):
            d_z, d_h = widest_mlp(int(budget * share), d_in, d_out, ratio, depth) or (0, 0)
            if d_z >= 2 and d_z != d_h:  # rounding can make a tiny network square
                model = {"name": name, "d_z": d_z, "d_h": d_h, "depth": depth}
                found[digest(model)] = model
    if not found:
        smallest = 2 * (d_in + d_out + 4)  # an Hourglass with d_z = 2, d_h = 1 and two blocks
        raise UserError(f"a budget of {budget} parameters is too small: these data need at least {smallest}")
    return list(found.values())


def _source(data: str, task: str, target: Sequence[str], options: Options) -> dict[str, Any]:
    """A registered source by its name, a folder of images, or a file of rows."""
    if data in catalogue("sources") and not Path(data).exists():
        return {"name": data}
    known = [Path(data), (options.data_dir or default_data_dir()) / data]
    path = next((path for path in known if path.exists()), None)
    if path is None:
        raise UserError(
            f"--data {data}: there is no such file, folder or source; {nearest(data, catalogue('sources'))}"
        )
    path = path.absolute()
    if path.is_dir():
        return {"name": "image_folder", "path": str(path)}
    if task not in _NEEDS_TARGETS:
        return {"name": "arrays", "path": str(path)}
    return {"name": "arrays", "path": str(path), "targets": list(target) or [_guess_target(path)]}


def _guess_target(path: Path) -> str:
    """The array or column to predict: one with a usual name such as ``y``, or else the last."""
    names = names_in(path)
    if not names:
        raise UserError(f"{path} names no arrays or columns: give the one to predict as --target")
    usual = [name for name in names if name.lower() in _TARGET_NAMES]
    return usual[0] if usual else names[-1]
