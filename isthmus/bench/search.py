"""How much training a search needs to find what the full grid finds.

Every network of a grid is trained once. After that each sampler, with and without pruning, searches the same grid: its
candidates are on record already, so what it would have trained is counted and not trained again. A pruned candidate
counts the steps up to its rung, and nothing towards the front. Quality is the validation PSNR that a search sees.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isthmus.config import Pruning, Sampling, StudyConfig
from isthmus.files import make_folder, write_json, write_with
from isthmus.record import read_metrics
from isthmus.registry import find
from isthmus.run import Options
from isthmus.studies.command import complete
from isthmus.studies.executors import ThisProcess
from isthmus.studies.planning import Plan
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study, Trial
from isthmus.volumes import Reference, area

RECIPES = ("digits-shapes", "mnist5k-shapes")
SAMPLERS = ("grid", "random", "tpe", "nsga2")
RUNGS = (1, 3, 8)
GENERATION = 4
GOAL = 0.99


@dataclass(frozen=True)
class Curve:
    """Of one search: parts of the grid's training steps, and parts of its hypervolume reached by then."""

    recipe: str
    sampler: str
    pruned: bool
    seed: int
    steps: tuple[float, ...]
    volume: tuple[float, ...]

    @property
    def to_goal(self) -> float | None:
        """The part of the grid's steps after which 99 % of its hypervolume is there; None if it never is."""
        return next((step for step, volume in zip(self.steps, self.volume, strict=True) if volume >= GOAL), None)


def measure(seeds: int, workers: int, tell: Callable[[str], None]) -> list[Curve]:
    """Train the grids (or find them on record), then search them."""
    curves = []
    for recipe in RECIPES:
        config: StudyConfig = find("recipes", recipe)()
        full = complete(config, Options(command=f"isthmus study {recipe}"), workers)
        for sampler, prune in itertools.product(SAMPLERS, (False, True)):
            tell(f"{recipe}: {sampler}{' with pruning' * prune}")
            for seed in range(seeds if sampler != "grid" else 1):
                curves.append(_search(config, full, sampler, prune, seed))
    return curves


def _search(config: StudyConfig, full: Study, sampler: str, prune: bool, seed: int) -> Curve:
    sampling = Sampling(name=sampler, candidates=len(full.trials), generation=GENERATION, seed=seed)  # type: ignore[arg-type]
    changes = {"sampling": sampling, "pruning": Pruning(rungs=RUNGS) if prune else None}
    plan = Plan.of(config.model_copy(update=changes), Options())
    with tempfile.TemporaryDirectory() as folder:
        study = Study(plan, Storage(f"sqlite:///{Path(folder) / 'search.db'}", config.name, plan.maximise))
        study.carry_out(ThisProcess(), lambda trial, run, event: None)
        epochs, whole = config.base.train.epochs, len(full.trials)
        reference = _reference(full)
        grid_volume = area(_points(full.trials), reference)
        steps, volumes, known = [], [], list[Trial]()
        for used, trial in _in_order(study.trials, epochs):
            known.append(trial)
            steps.append(used / (epochs * whole))
            volumes.append(area(_points(known), reference) / grid_volume)
    return Curve(config.name, sampler, prune, seed, tuple(steps), tuple(volumes))


def _reference(full: Study) -> Reference:
    """The worst of the grid in both respects: from 0 dB, any point would look good."""
    points = _points(full.trials)
    return Reference(max(cost for cost, _ in points), min(quality for _, quality in points))


def _points(trials: list[Trial]) -> list[tuple[float, float]]:
    return [(trial.cost, trial.entry.quality) for trial in trials if trial.entry.quality is not None]


def _in_order(trials: list[Trial], epochs: int) -> Iterator[tuple[int, Trial]]:
    """Trials with the epochs trained by the time that each is known.

    Within a generation the rungs come first: a candidate is known when its generation has gone that far.
    """
    used = 0
    for _, generation in itertools.groupby(trials, key=lambda trial: trial.entry.generation):
        members = list(generation)
        ended = {trial.number: max(trial.entry.rungs) if trial.entry.state == "pruned" else epochs for trial in members}
        before = sum(min(stop, RUNGS[-1]) for stop in ended.values()) if trials_are_pruned(trials) else 0
        used += before
        for trial in sorted(members, key=lambda trial: (ended[trial.number], trial.number)):
            if ended[trial.number] == epochs:
                used += epochs - (RUNGS[-1] if before else 0)
                yield used, trial


def trials_are_pruned(trials: list[Trial]) -> bool:
    return any(trial.entry.rungs for trial in trials)


def summary(curves: list[Curve]) -> list[dict[str, Any]]:
    """One line per data set and method: the part of the grid's steps to 99 % of its hypervolume, over study seeds."""
    lines = []
    for (recipe, sampler, pruned), group in itertools.groupby(curves, key=lambda c: (c.recipe, c.sampler, c.pruned)):
        members = list(group)
        goals = [curve.to_goal for curve in members]
        reached = [goal for goal in goals if goal is not None]
        lines.append(
            {
                "study": recipe,
                "sampler": sampler,
                "pruning": "yes" if pruned else "no",
                "reached": f"{len(reached)} of {len(goals)}",
                "steps to 99 %": _percent(statistics.median(reached)) if reached else "–",
                "worst seed": _percent(max(reached)) if len(reached) == len(goals) else "–",
                **{
                    f"volume at {part:.0%}": _percent(statistics.fmean(_at(c, part) for c in members))
                    for part in (0.1, 0.25, 0.5)
                },
            }
        )
    return lines


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _at(curve: Curve, part: float) -> float:
    """The hypervolume reached with this part of the grid's steps."""
    return max((volume for step, volume in zip(curve.steps, curve.volume, strict=True) if step <= part), default=0.0)


def recorded_curves(recipe: str) -> list[dict[str, Any]]:
    """Cost and validation quality per epoch of every network of a grid that is on record."""
    plan = Plan.of(find("recipes", recipe)(), Options())
    lines = []
    for proposal in plan.listed:
        run = plan.run(proposal.model, plan.config.rates[0], plan.config.seeds[0])
        values = [line[plan.quality] for line in read_metrics(run.folder) if line["split"] == "validation"]
        lines.append(
            {"model": dict(proposal.varied), "cost": proposal.cost["params"], "quality": [round(v, 4) for v in values]}
        )
    return lines


def save(curves: list[Curve], folder: Path) -> None:
    """``search.json`` (a line per method and the curves), ``search.png``, and the grids' recorded training curves."""
    make_folder(folder)
    content = {"summary": summary(curves), "curves": [_rounded(curve) for curve in curves]}
    write_json(folder / "search.json", content)
    write_with(folder / "search.png", lambda path: draw_curves(curves, path))
    for recipe in RECIPES:
        write_json(folder / f"{recipe}.json", recorded_curves(recipe))


def _rounded(curve: Curve) -> dict[str, Any]:
    values = {"steps": [round(step, 4) for step in curve.steps], "volume": [round(v, 4) for v in curve.volume]}
    return asdict(curve) | values


def draw_curves(curves: list[Curve], path: Path) -> None:
    """Hypervolume over training steps, a panel per study; the band is from the worst to the best study seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    grid_points = [i / 200 for i in range(201)]
    figure, panels = plt.subplots(1, len(RECIPES), figsize=(11, 4.4), sharey=True, layout="constrained")
    colours = dict(zip(SAMPLERS, ("#6b7280", "#d97706", "#2563eb", "#059669"), strict=True))
    for panel, recipe in zip(panels, RECIPES, strict=True):
        for sampler, prune in itertools.product(SAMPLERS, (False, True)):
            mine = [c for c in curves if (c.recipe, c.sampler, c.pruned) == (recipe, sampler, prune)]
            if not mine:
                continue
            heights = [[100 * _at(curve, part) for curve in mine] for part in grid_points]
            style = "-" if prune else "--"
            label = f"{sampler}{', pruned' * prune}"
            x = [100 * part for part in grid_points]
            panel.plot(x, [statistics.fmean(h) for h in heights], style, color=colours[sampler], label=label, lw=1.6)
            if prune:
                panel.fill_between(
                    x, list(map(min, heights)), list(map(max, heights)), color=colours[sampler], alpha=0.12
                )
        panel.axhline(100 * GOAL, color="#9ca3af", lw=0.8)
        panel.axvline(25, color="#9ca3af", lw=0.8)
        panel.set(title=recipe, xlabel="Training steps, % of the full grid", xlim=(0, 100), ylim=(60, 101))
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("Hypervolume, % of the full grid")
    panels[1].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)
