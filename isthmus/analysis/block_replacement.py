"""Replacement of a single block: how much a mixer depends on the order of the units in one block.

Understanding MLP-Mixer as a Wide and Sparse MLP (Hayase, Karakida), appendix D.5 and Figure S.4: networks of four
blocks are *trained* with one random-permuted block l; only l = 1 costs accuracy. ``trained_configs`` lists them.

For a run, one normal block of the *trained* network gets random permutations and keeps its weights, without further
training. That shows how much the learned weights rely on the order of the units in this block, not how well the other
network could learn. Each block is replaced by several draws.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus.analysis.pictures import finish, page, save, style
from isthmus.analysis.trained_run import Answer, TrainedRun, store_results
from isthmus.core.draws import key
from isthmus.core.registry import create_model
from isthmus.reports.axes import INK
from isthmus.training.loop import Rows, evaluate

SCHEMA = "isthmus.analysis.block_replacement/1"
DRAWS = 3


def trained_configs(model: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The networks of Figure S.4 for a mixer's fields, to be trained: the normal one, then one for each random block.

    Unless ``model`` has a permutation seed, every run draws its own.
    """
    normal = {name: value for name, value in model.items() if name not in ("permutation", "random_blocks")}
    blocks = range(1, model["depth"] + 1)
    return [normal, *({**normal, "permutation": "random", "random_blocks": (block,)} for block in blocks)]


def normal_blocks(model: Any) -> list[int]:
    return [block for block in range(1, model.config.depth + 1) if not model.config.is_random(block)]


def applies(model: Any, task: str) -> str | None:
    if not hasattr(getattr(model, "config", None), "is_random"):
        return "its blocks have no permutation"
    return None if normal_blocks(model) else "all its blocks are random already"


def replace_block(model: Any, block: int, seed: int) -> Any:
    """The same weights, with random permutations in one more block."""
    chosen = {"permutation": "random", "random_blocks": (block,), "permutation_seed": seed}
    other: Any = create_model(**model.config.model_dump() | chosen).to(next(model.parameters()).device)
    other.load_state_dict(model.state_dict())  # permutations are not in it
    changed = copy.deepcopy(model)
    changed.blocks[block - 1] = other.blocks[block - 1]
    return changed.eval()


@store_results(SCHEMA, applies)
def of_run(trained: TrainedRun) -> Answer:
    """The test quality of a finished run, unchanged and with each normal block replaced."""
    model, blocks = trained.model, normal_blocks(trained.model)
    seeds = [key(0, "replacement", draw) for draw in range(DRAWS)]
    return {
        "model": trained.record.config["model"]["name"],
        "metric": trained.task.objective,
        "maximise": trained.task.maximise,
        "whole": _quality(trained, model),
        "blocks": blocks,
        "replaced": [[_quality(trained, replace_block(model, block, seed)) for seed in seeds] for block in blocks],
    }


def _quality(trained: TrainedRun, model: Any) -> float | None:
    """The task's objective on the test rows; None if it is not finite."""
    rows = Rows.of(trained.data.test, trained.device)
    return evaluate(model, trained.task, rows, "test", trained.device).get(trained.task.objective)


def _means(found: Mapping[str, Any]) -> dict[int, tuple[float, float]]:
    """Mean and standard deviation over the draws, by block."""
    means = {}
    for block, values in zip(found["blocks"], found["replaced"], strict=True):
        if finite := [value for value in values if value is not None]:
            means[block] = (statistics.fmean(finite), statistics.pstdev(finite))
    return means


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    whole = found["whole"]
    shown: dict[str, float | str] = {f"test {found['metric']}, as trained": "–" if whole is None else whole}
    return shown | {
        f"block {block} replaced, not retrained": f"{mean:.4g} ± {deviation:.2g}"
        for block, (mean, deviation) in _means(found).items()
    }


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """The axes of Figure S.4."""
    figure, ((axis,),) = page(1, 1)
    means = _means(found)
    look = style(1)
    axis.errorbar(
        list(means), [mean for mean, _ in means.values()], yerr=[deviation for _, deviation in means.values()],
        fmt=look["marker"], color=look["color"], markersize=5, capsize=2.5,
        label=f"replaced, mean ± 1 σ of {DRAWS} draws",
    )  # fmt: skip
    if found["whole"] is not None:
        axis.axhline(found["whole"], color=INK, linestyle="--", linewidth=1, label="as trained")
    axis.set_xticks(found["blocks"])
    title = f"{found['model']} {found['run']}, not retrained"
    finish(axis, title, "index of the replaced block", f"test {found['metric']}")
    return [save(figure, folder / "block_replacement.png")]
