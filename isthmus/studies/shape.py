"""Which shape for these data and this budget? A study of both shapes that needs no recipe.

Every candidate spends the budget, or a third of it, in its own way: a ratio d_h / d_z, a depth, and the d_z that then
fits. Below about d_in · (d_in + d_out) parameters no Hourglass can have a stream wider than its input; its stream is
then narrower than the input, and still wider than its computation.
"""

from __future__ import annotations

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
from isthmus.training.counting import cost
from isthmus.training.run import Options, load_data

SHARES = (1.0, 1 / 3)
SHAPES: dict[str, tuple[tuple[float, ...], tuple[int, ...]]] = {
    "hourglass_mlp": ((1 / 2, 1 / 4, 1 / 16), (2, 4, 8)),
    "conventional_mlp": ((1.25, 2.0, 4.0), (1, 2, 3)),
}
"""Ratios d_h / d_z and depths."""
_STEPS = 4_000
_TARGET_NAMES = ("y", "target", "targets", "label", "labels", "class")
_NEEDS_TARGETS = ("regression", "classification")


def shape_study(
    data: str, task: str, budget: int, options: Options, target: Sequence[str] = (), overrides: Iterable[str] = ()
) -> StudyConfig:
    """The study behind `isthmus study shape`, with ``key=value`` applied."""
    source = component("sources", _source(data, task, target, options))
    find("tasks", task)
    loaded = load_data(source, options.data_dir)
    chosen = find("tasks", task)(component("tasks", {"name": task}))
    chosen.learn(loaded)
    rows = len(loaded.train)
    batch = 128 if rows >= 2_000 else 32
    epochs = min(200, max(6, round(_STEPS * batch / rows)))
    name = f"shape-{task.replace('_', '-')}-{digest([loaded.fingerprint, budget, task], 8)}"
    config = study_config(
        {
            "name": name,
            "base": {
                "source": source,
                "task": {"name": task},
                "train": {"epochs": epochs, "batch_size": batch, "betas": (0.9, 0.99)},
                "threads": 1,
            },
            "candidates": candidates(chosen.signature, budget),
            "budget": {"params": budget},
            "learning_rates": (1e-3, 3e-3),
            "rates_on": "first_seed",
            "seeds": (0, 1, 2),
        }
    )
    return _with_rungs(override(config.model_dump(mode="json", exclude_defaults=True), overrides))


def _with_rungs(settings: dict[str, Any]) -> StudyConfig:
    """Candidates are compared after a sixth and after half of the epochs, unless it was said when; of one epoch, never.

    ``pruning=null`` trains all to the end.
    """
    train = study_config(settings | {"pruning": None}).base.train
    wanted = (max(1, train.epochs // 6), max(2, train.epochs // 2))
    rungs = {math.ceil(rung / train.evaluate_every) * train.evaluate_every for rung in wanted}
    pruning = settings.get("pruning", {})
    if isinstance(pruning, dict) and (fit := sorted(rung for rung in rungs if rung < train.epochs)):
        settings = settings | {"pruning": {"rungs": fit} | pruning}
    return study_config(settings)


def candidates(signature: Signature, budget: int) -> list[dict[str, Any]]:
    """Networks of both shapes that spend the budget or a part of it, each once."""
    found: dict[str, dict[str, Any]] = {}
    for name, (ratios, depths) in SHAPES.items():
        for share in SHARES:
            for ratio in ratios:
                for depth in depths:
                    if model := _largest(name, ratio, depth, signature, int(budget * share)):
                        found[digest(model)] = model
    if not found:
        smallest = cost(_model("conventional_mlp", 1, 2, 1, signature)).params
        raise UserError(f"a budget of {budget} parameters is too small: {smallest} are the least for these data")
    return list(found.values())


def _largest(name: str, ratio: float, depth: int, signature: Signature, budget: int) -> dict[str, Any] | None:
    """The widest network of this form within the budget; none if not even d_z = 2 fits."""
    d_in, d_out = math.prod(signature.input_shape), math.prod(signature.output_shape)
    # params = d_z (d_in + d_out) + 2 depth ratio d_z²
    linear, square = d_in + d_out, 2 * depth * ratio
    width = int((math.sqrt(linear**2 + 4 * square * budget) - linear) / (2 * square))
    for d_z in range(width + 1, 1, -1):
        inner = max(1, round(ratio * d_z))
        narrow = inner < d_z if name == "hourglass_mlp" else inner > d_z
        if narrow and cost(_model(name, d_z, inner, depth, signature)).params <= budget:
            return {"name": name, "d_z": d_z, "d_h": inner, "depth": depth}
    return None


def _model(name: str, d_z: int, d_h: int, depth: int, signature: Signature) -> dict[str, Any]:
    d_in, d_out = math.prod(signature.input_shape), math.prod(signature.output_shape)
    return {"name": name, "d_in": d_in, "d_out": d_out, "d_z": d_z, "d_h": d_h, "depth": depth}


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
    return {"name": "arrays", "path": str(path), "targets": list(target) or [_guessed_target(path)]}


def _guessed_target(path: Path) -> str:
    """The array or column to predict: the one with a usual name, else the last one."""
    names = names_in(path)
    if not names:
        raise UserError(f"{path} names no arrays or columns: say with --target which one is to be predicted")
    usual = [name for name in names if name.lower() in _TARGET_NAMES]
    return usual[0] if usual else names[-1]
