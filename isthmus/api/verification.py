"""Whether the network that `isthmus find` chooses beats the papers' own shapes, on data that steered no default.

The protocol, fixed before any result:

1.  `find` chooses a network within the budget; it never sees the test rows.
2.  The papers' best shapes keep their ratios and depths, and their width is the largest within the same budget.
3.  All are trained alike: the found network's recipe, the better of three learning rates around its own (the rate is
    chosen on validation rows, with the first seed), the same rows, the same seeds.
4.  The found network less each shape on the test rows, paired by seed, by the rule of `studies/statistics.py`; all
    differences are decided together by Holm's method.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from isthmus.core.config import StudyConfig, study_config
from isthmus.core.errors import UserError
from isthmus.core.files import digest
from isthmus.core.protocols import Signature
from isthmus.core.record import RunRecord, read_record, runs_folder
from isthmus.core.registry import component
from isthmus.core.space import FittedSpace
from isthmus.core.titles import model_title
from isthmus.layers.patches import list_patches
from isthmus.search.answer import Answer
from isthmus.studies.budget import fit_widths
from isthmus.studies.fronts import Candidate, noise_of, sample_of, summarise
from isthmus.studies.statistics import compare, decide_together
from isthmus.training.prepare import Options, learn_task, load_data

SCHEMA = "isthmus.verification/1"
RATES = (1 / 3, 1.0, 3.0)
"""Times the found network's learning rate."""
MLPS: dict[str, tuple[str, float, int]] = {
    "Hourglass MLP": ("hourglass_mlp", 1560 / 3546, 4),
    "conventional MLP": ("conventional_mlp", 3546 / 3072, 3),
}
"""d_h/d_z and depth of the two networks that the Hourglass paper compares (66 M and 84 M, Table 6)."""


def list_shapes(signature: Signature, budget: int) -> dict[str, FittedSpace]:
    """The papers' best shapes that fit these rows, by their names."""
    found = {}
    vary: dict[str, Any]
    model: dict[str, Any]
    if not signature.vocabulary:
        for title, (name, ratio, depth) in MLPS.items():
            vary = {"d_h/d_z": (ratio,), "depth": (depth,)}
            found[title] = FittedSpace(model={"name": name}, vary=vary, width="d_z", low=4)  # so that d_h > d_z
    patches = list_patches(signature, budget) if len(signature.output_shape) == 1 else ()
    if patches:
        patch = {"patch": patches[0]}
        for title, name, ratio, depth in (
            ("Hourglass ViT-Tiny", "hourglass_vit", 0.5, 11), ("ViT-Tiny", "conventional_vit", 4.0, 12),
        ):  # fmt: skip
            model = {"name": name, "num_heads": 3, **patch}
            vary = {"d_h/d_z": (ratio,), "depth": (depth,)}
            found[title] = FittedSpace(model=model, vary=vary, width="d_z", step=6, low=6)
        model = {"name": "imixer", "h_r": 2.0, "iterations": 2, "depth": 8, **patch}
        vary = {"token_hidden/C": (0.5,), "channel_hidden/C": (4.0,)}
        found["iMixer-S"] = FittedSpace(model=model, vary=vary, width="C", low=4)
        model = {"name": "hyper_set", "iterations": 12, "num_heads": 6, **patch}
        found["Hyper-SET Small"] = FittedSpace(model=model, vary={"ff_ratio": (1.0,)}, width="d", step=12, low=12)
    return found


def scale_shapes(signature: Signature, budget: int) -> dict[str, dict[str, Any]]:
    """Each shape with the largest width within the budget; shapes that do not fit are left out."""
    scaled = {}
    for title, space in list_shapes(signature, budget).items():
        (fitted,) = fit_widths(space, space.shapes()[0], signature, [budget])
        if fitted is not None:
            scaled[title] = fitted.model
    return scaled


def plan_verification(config: Mapping[str, Any], models: Sequence[Mapping[str, Any]], seeds: int) -> StudyConfig:
    """The study of the found network, given by the config of its run, and of the papers' shapes."""
    source = {name: value for name, value in config["source"].items() if name not in ("validation", "folds", "fold")}
    train = {name: value for name, value in config["train"].items() if name not in ("stop_epoch", "stack")}
    rate = train["learning_rate"]
    own = {"warmup_learning_rate", "final_learning_rate"}
    lowest = min(RATES) * rate
    train |= {name: min(train[name], lowest) for name in own & train.keys()}
    base = {"source": source, "task": config["task"], "train": train | {"select": "best"}, "threads": config["threads"]}
    candidates = [config["model"], *models]
    return study_config(
        {
            "name": f"verify-{digest([base, candidates, seeds], 8)}",
            "base": base,
            "candidates": candidates,
            "learning_rates": [float(f"{factor * rate:.3g}") for factor in RATES],
            "rates_on": "first_seed",
            "seeds": list(range(seeds)),
        }
    )


def compare_shapes(records: Sequence[RunRecord], found: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, Any]:
    """The found network against each shape, on the test rows."""
    candidates = summarise(records)
    noise = noise_of(candidates)
    ours = _recognise(candidates, found)
    shapes = {title: candidate for title, model in models.items() if (candidate := _recognise(candidates, model))}
    if ours is None or not shapes:
        raise UserError("the found network or every paper's shape has no finished run; `isthmus runs list` shows why")
    gaps = {title: compare(sample_of(ours, noise), sample_of(each, noise)) for title, each in shapes.items()}
    decisions = dict(zip(gaps, decide_together(list(gaps.values())), strict=True))
    return {
        "objective": ours.objective,
        "found": _describe(ours),
        "shapes": {
            title: _describe(each) | {"lead": asdict(gaps[title]), "decision": decisions[title]}
            for title, each in shapes.items()
        },
    }


def _recognise(candidates: Sequence[Candidate], model: Mapping[str, Any]) -> Candidate | None:
    """The candidate whose model has these settings, and the defaults of the others; the data fill in some."""
    full = component("models", dict(model)).model_dump(mode="json")
    wanted = {name: value for name, value in full.items() if value is not None and not name.endswith("_seed")}
    return next((each for each in candidates if wanted.items() <= each.settings["model"].items()), None)


def _describe(candidate: Candidate) -> dict[str, Any]:
    return {
        "title": model_title(candidate.settings["model"], ()),
        "model": candidate.settings["model"],
        "parameters": candidate.params,
        "learning_rate": candidate.learning_rate,
        "seeds": list(candidate.seeds),
        "values": list(candidate.test),
        "mean": statistics.fmean(candidate.test),
        "std": candidate.std,
        "runs": list(candidate.run_ids),
    }


CarryOut = Callable[[StudyConfig, Options, int | None], Any]


def verify_shape(
    answer: Answer, budget: int, seeds: int, options: Options, carry_out: CarryOut, workers: int | None = None
) -> dict[str, Any]:
    """Train the papers' shapes beside the network that a search found, and compare them on its test rows."""
    if seeds < 2:
        raise UserError(f"--seeds {seeds} gives no interval; use 2 or more")
    config = read_record(runs_folder() / answer.run).config
    model = {name: value for name, value in config["model"].items() if value is not None}
    source = study_config(
        {"name": "any", "base": {name: config[name] for name in ("source", "task")}, "candidates": [model]}
    ).base
    task = learn_task(source.task, load_data(source.source, options.data_dir))
    models = scale_shapes(task.signature, budget)
    study = plan_verification(config | {"model": model}, list(models.values()), seeds)
    done = carry_out(study, options, workers)
    compared = compare_shapes(done.records(), model, models)
    search = {"is_whole": answer.content["is_whole"], "networks": len(answer.content["networks"])}
    return {"schema": SCHEMA, "data": answer.name, "budget": budget, "study": study.name, "search": search, **compared}


def say(result: Mapping[str, Any]) -> list[str]:
    """The answer in sentences."""
    lines = []
    for title, shape in result["shapes"].items():
        lead = shape["lead"]
        bounds = "no spread" if lead["low"] is None else f"{lead['low']:+.4g} to {lead['high']:+.4g}"
        words = {"ahead": "is ahead of", "behind": "is behind", "undecided": "is not told from"}[shape["decision"]]
        lines.append(f"The found network {words} {title}: {lead['difference']:+.4g} ({bounds}, {lead['seeds']} seeds)")
    if not result["search"]["is_whole"]:
        tried = result["search"]["networks"]
        named = f"{tried} network{'s' * (tried != 1)}"
        lines.append(f"The search had time for {named} only; repeat the command with a longer --within.")
    return lines
