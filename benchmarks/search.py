"""How much training a search needs to find what the full grid finds.

Every network of a grid is trained once. After that each sampler, with and without pruning, searches the same grid: its
candidates are on record already, so what it would have trained is counted and not trained again. A pruned candidate
counts the steps up to its rung, and nothing towards the front. A sampler draws at most a third of the grid; our own may
spend the steps of an eighth. Quality is what a search sees on validation data. MOASHA, which needs a package of its
own, is measured by `benchmarks/moasha.py`.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from isthmus.cli.complete import complete_study
from isthmus.core.config import Pruning, Sampling, StudyConfig
from isthmus.core.files import make_folder, write_json, write_with
from isthmus.core.record import read_metrics, read_record
from isthmus.core.registry import find
from isthmus.studies.decisions import choose
from isthmus.studies.plan import Plan
from isthmus.studies.proposals import Proposal, Trial
from isthmus.studies.pruning import prune as prune_dominated
from isthmus.studies.sampling import draw
from isthmus.studies.volumes import Reference, area
from isthmus.training.run import Options

RECIPES = ("digits-shapes", "mnist5k-shapes", "mnist5k-families")
SAMPLERS = ("grid", "random", "tpe", "nsga2", "gp", "model")
COLOURS = dict(
    zip(
        (*SAMPLERS, "moasha"),
        ("#6b7280", "#d97706", "#2563eb", "#059669", "#7c3aed", "#dc2626", "#0891b2"),
        strict=True,
    )
)
RUNGS = (1, 3, 8)
PAUSES = (0.1, 0.2, 0.4)
"""The parts of a training after which our own sampler may pause it."""
MOASHA = "moasha.json"
GENERATION = 4
GOAL = 0.99
FIRST_SEED = 8
"""Study seeds below it steered the settings of our own sampler."""


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


def measure(
    seeds: int, workers: int, tell: Callable[[str], None], folder: Path | None = None, only: Sequence[str] = ()
) -> list[Curve]:
    """Search the grids. Those that a folder of earlier results lacks are trained first, or found on record.

    With ``only`` some samplers are measured, and the curves of the others are taken from the folder.
    """
    curves = [] if folder is None else [curve for curve in read_curves(folder) if only and curve.sampler not in only]
    for recipe in RECIPES:
        plan, known = find_grid(recipe, workers, folder)
        for sampler, prune in itertools.product(only or SAMPLERS, (False, True)):
            if sampler == "gp" and prune:
                continue  # it takes seconds for a proposal
            tell(f"{recipe}: {sampler}{' with pruning' * prune}")
            for seed in range(FIRST_SEED, FIRST_SEED + (seeds if sampler != "grid" else 1)):
                search = searched(_changed(plan, sampler, prune, seed), known)
                curves.append(Curve(recipe, sampler, prune, seed, *known.progress(search)))
    order = {name: place for place, name in enumerate((*RECIPES, *COLOURS))}
    return sorted(curves, key=lambda curve: (order[curve.recipe], order[curve.sampler], curve.pruned, curve.seed))


def find_grid(recipe: str, workers: int, folder: Path | None = None) -> tuple[Plan, Grid]:
    config: StudyConfig = find("recipes", recipe)()
    path = None if folder is None else folder / f"{recipe}.json"
    if path is None or not path.exists():
        complete_study(config, Options(command=f"isthmus study {recipe}"), workers)
    plan = Plan.of(config, Options())
    if path is None:
        return plan, Grid.of(plan)
    if not path.exists():
        write_json(path, recorded_curves(plan))
    return plan, Grid.recorded(plan, json.loads(path.read_text()))


def read_curves(folder: Path) -> list[Curve]:
    """The curves of earlier measurements, MOASHA's included."""
    found = []
    for name in ("search.json", MOASHA):
        if (folder / name).exists():
            found += [Curve(**fields) for fields in json.loads((folder / name).read_text())["curves"]]
    return list({(curve.recipe, curve.sampler, curve.pruned, curve.seed): curve for curve in found}.values())


def _changed(plan: Plan, sampler: str, prune: bool, seed: int) -> Plan:
    number = None if sampler == "grid" else len(plan.candidates) // (8 if sampler == "model" else 3)
    sampling = Sampling.model_validate({"name": sampler, "candidates": number, "generation": GENERATION, "seed": seed})
    rungs = RUNGS if sampler != "model" else [round(part * plan.config.base.train.epochs) for part in PAUSES]
    changes = {"sampling": sampling, "pruning": Pruning(rungs=tuple(rungs)) if prune else None}
    return replace(plan, config=plan.config.model_copy(update=changes))


@dataclass(frozen=True)
class Grid:
    """Every network of a grid as recorded: quality after each epoch, and that of the weights that were kept."""

    curves: dict[str, list[float]]
    quality: dict[str, float]
    cost: dict[str, float]
    epochs: int
    maximise: bool = True

    @classmethod
    def of(cls, plan: Plan) -> Grid:
        curves, quality = {}, {}
        for proposal in plan.candidates:
            folder = plan.run(proposal.model, plan.config.rates[0], plan.config.seeds[0], proposal.recipe).folder
            lines = [line for line in read_metrics(folder, sealed=True) if line["split"] == "validation"]
            curves[proposal.key] = [line[plan.quality] for line in lines]
            quality[proposal.key] = read_record(folder).metrics["validation"][plan.quality]
        cost = {proposal.key: proposal.cost["params"] for proposal in plan.candidates}
        return cls(curves, quality, cost, plan.config.base.train.epochs, plan.maximise)

    @classmethod
    def recorded(cls, plan: Plan, lines: Sequence[Mapping[str, Any]]) -> Grid:
        """The grid as :func:`recorded_curves` wrote it."""
        known = {json.dumps(line["model"]): line["quality"] for line in lines}
        curves = {proposal.key: known[json.dumps(_model_of(plan, proposal))] for proposal in plan.candidates}
        best = max if plan.maximise else min
        cost = {proposal.key: proposal.cost["params"] for proposal in plan.candidates}
        quality = {key: best(curve) for key, curve in curves.items()}
        return cls(curves, quality, cost, plan.config.base.train.epochs, plan.maximise)

    def best(self, key: str, epoch: int) -> float:
        """The best quality up to an epoch."""
        return (max if self.maximise else min)(self.curves[key][:epoch])

    def points(self, keys: Iterable[str]) -> list[tuple[float, float]]:
        return [(self.cost[key], self.quality[key]) for key in keys]

    def volume(self, keys: Iterable[str]) -> float:
        return area(self.points(keys), self.reference, self.maximise)

    @property
    def reference(self) -> Reference:
        """The worst of the grid in both respects: from 0 dB, any point would look good."""
        return Reference(max(self.cost.values()), (min if self.maximise else max)(self.quality.values()))

    def progress(self, search: Sequence[Trial]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Parts of the grid's steps, and of its hypervolume, whenever a candidate has been trained to its end.

        Within a generation the rungs come first: all that reach one are trained to it before any goes on.
        """
        whole, target = self.epochs * len(self.quality), self.volume(self.quality)
        used, ended, steps, volumes = 0, list[str](), list[float](), list[float]()
        decisions = {number: (trial.key, epoch) for trial in search for number, epoch in trial.decisions.items()}
        reached: dict[str, int] = {}
        for _, (key, epoch) in sorted(decisions.items()):
            used += epoch - reached.get(key, 0)
            reached[key] = epoch
            if epoch == self.epochs:
                ended.append(key)
                steps.append(used / whole)
                volumes.append(self.volume(ended) / target)
        if decisions:
            return tuple(steps), tuple(volumes)
        for _, members in itertools.groupby(search, key=lambda outcome: outcome.generation):
            generation = list(members)
            used += sum(max(outcome.rungs, default=0) for outcome in generation)
            for outcome in (outcome for outcome in generation if outcome.state != "pruned"):
                used += self.epochs - max(outcome.rungs, default=0)
                ended.append(outcome.key)
                steps.append(used / whole)
                volumes.append(self.volume(ended) / target)
        return tuple(steps), tuple(volumes)


def searched(plan: Plan, known: Grid) -> list[Trial]:
    """What a study of this plan would do, decided by the study's own functions (a test compares the two)."""
    if plan.config.sampling.name == "model":
        return _decide_all(plan, known)
    rule, search = plan.config.pruning, list[Trial]()
    for generation in itertools.count():
        if plan.config.sampling.name == "grid":
            new = [] if search else [Trial.of(proposal, place) for place, proposal in enumerate(plan.candidates)]
        else:
            new = _draw_generation(plan, search, generation)
        if not new:
            break
        for rung in rule.rungs if rule else ():
            _compare(new, search, known, rung, rule)
        for trial in (trial for trial in new if trial.state == "open"):
            trial.state, trial.quality = "finished", known.quality[trial.key]
        search += new
    return search


def _decide_all(plan: Plan, known: Grid) -> list[Trial]:
    search: list[Trial] = []
    for number in itertools.count():
        decision = choose(plan.pool, search, number, plan.maximise)
        if decision is None:
            break
        trial = decision.trial or Trial.of(decision.proposal, len(search), len(search))
        search += [] if decision.trial else [trial]
        trial.decisions = {**trial.decisions, number: decision.epoch}
        if decision.epoch == known.epochs:
            trial.state, trial.quality = "finished", known.quality[trial.key]
        else:
            trial.rungs = {**trial.rungs, decision.epoch: known.best(trial.key, decision.epoch)}
    for trial in search:
        trial.state = "finished" if trial.quality is not None else "pruned"
    return search


def _draw_generation(plan: Plan, search: list[Trial], generation: int) -> list[Trial]:
    new: list[Trial] = []
    for _, (space, quota) in itertools.product(range(plan.config.sampling.generation), enumerate(plan.quotas)):
        past = [trial for trial in (*search, *new) if trial.space == space]
        taken = {trial.key for trial in (*search, *new)}
        if len(past) < quota and (
            found := draw(plan.judge, space, len(past), taken, past, maximise=plan.maximise, generation=generation)
        ):
            new.append(Trial.of(found[0], len(search) + len(new), generation, found[1]))
    return new


def _compare(new: list[Trial], search: list[Trial], known: Grid, rung: int, rule: Pruning | None) -> None:
    assert rule is not None
    alive = {trial.key: trial for trial in new if trial.state == "open"}
    for trial in alive.values():
        trial.rungs = {**trial.rungs, rung: known.best(trial.key, rung)}
    before = [trial for trial in search if rung in trial.rungs]
    sign = 1 if known.maximise else -1
    points = {
        trial.key: (trial.model.name, float(known.cost[trial.key]), sign * trial.rungs[rung])
        for trial in (*before, *alive.values())
    }
    for key in prune_dominated(points, alive, rule):
        alive[key].state = "pruned"


def summary(curves: list[Curve]) -> list[dict[str, Any]]:
    """One line per data set and method: the part of the grid's steps to 99 % of its hypervolume, over study seeds."""
    lines = []
    for (recipe, sampler, prune), group in itertools.groupby(curves, key=lambda c: (c.recipe, c.sampler, c.pruned)):
        members = list(group)
        goals = [curve.to_goal for curve in members]
        reached = [goal for goal in goals if goal is not None]
        lines.append(
            {
                "study": recipe,
                "sampler": sampler,
                "pruning": "yes" if prune else "no",
                "reached": f"{len(reached)} of {len(goals)}",
                "steps to 99 %": _percent(statistics.median(reached)) if reached else "–",
                "worst seed": _percent(max(reached)) if len(reached) == len(goals) else "–",
                **{
                    f"volume at {part:.0%}": _percent(statistics.fmean(_at(c, part) for c in members))
                    for part in (0.03, 0.05, 0.1, 0.25)
                },
            }
        )
    return lines


def compare(curves: list[Curve]) -> list[dict[str, Any]]:
    """Our sampler, as it is by default, against every other method: steps to 99 %, and whether it is behind before.

    From 3 % of the grid's steps to the end of our budget, hypervolumes are compared in steps of half a per cent; behind
    means that Welch's test gives p < 0.05.
    """
    lines, parts = [], [part / 200 for part in range(6, 26)]
    for recipe in dict.fromkeys(curve.recipe for curve in curves):
        ours = [c for c in curves if (c.recipe, c.sampler, c.pruned) == (recipe, "model", True)]
        rivals = dict.fromkeys((c.sampler, c.pruned) for c in curves if c.recipe == recipe and c.sampler != "model")
        for sampler, pruned in rivals if ours else ():
            other = [c for c in curves if (c.recipe, c.sampler, c.pruned) == (recipe, sampler, pruned)]
            medians = [_median_to_goal(members) for members in (ours, other)]
            behind = [part for part in parts if _is_behind([_at(c, part) for c in ours], [_at(c, part) for c in other])]
            lines.append(
                {
                    "study": recipe,
                    "rival": f"{sampler}{', pruned' * pruned}",
                    "ours to 99 %": "–" if medians[0] is None else _percent(medians[0]),
                    "rival's to 99 %": "–" if medians[1] is None else _percent(medians[1]),
                    "behind at": ", ".join(map(_percent, behind)) or "nowhere",
                }
            )
    return lines


def _is_behind(ours: Sequence[float], other: Sequence[float]) -> bool:
    from scipy.stats import ttest_ind

    if min(len(ours), len(other)) < 2 or statistics.fmean(ours) >= statistics.fmean(other):
        return False
    return bool(ttest_ind(ours, other, equal_var=False).pvalue < 0.05)


def _median_to_goal(curves: Sequence[Curve]) -> float | None:
    """The median over seeds; None if half of them never reach 99 %."""
    goals = sorted(curve.to_goal or 2.0 for curve in curves)
    median = statistics.median(goals)
    return median if median <= 1 else None


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _at(curve: Curve, part: float) -> float:
    """The hypervolume reached with this part of the grid's steps."""
    return max((volume for step, volume in zip(curve.steps, curve.volume, strict=True) if step <= part), default=0.0)


def _model_of(plan: Plan, proposal: Proposal) -> dict[str, Any]:
    """The fields in which the networks of a grid differ."""
    return ({"name": proposal.architecture} if len(plan.config.spaces) > 1 else {}) | dict(proposal.varied)


def recorded_curves(plan: Plan) -> list[dict[str, Any]]:
    """Cost and validation quality per epoch of every network of a grid that is on record."""
    known = Grid.of(plan)
    return [
        {
            "model": _model_of(plan, proposal),
            "cost": known.cost[proposal.key],
            "quality": [round(value, 4) for value in known.curves[proposal.key]],
        }
        for proposal in plan.candidates
    ]


def save(curves: list[Curve], folder: Path) -> None:
    """``search.json`` (a line per method and the curves) and ``search.png``."""
    make_folder(folder)
    content = {"summary": summary(curves), "comparisons": compare(curves), "curves": [_rounded(c) for c in curves]}
    write_json(folder / "search.json", content)
    write_with(folder / "search.png", lambda path: draw_curves(curves, path))


def _rounded(curve: Curve) -> dict[str, Any]:
    values = {"steps": [round(step, 4) for step in curve.steps], "volume": [round(v, 4) for v in curve.volume]}
    return asdict(curve) | values


def draw_curves(curves: list[Curve], path: Path) -> None:
    """Hypervolume over training steps, a panel per study; the band is from the worst to the best study seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    grid_points = [i / 200 for i in range(201)]
    figure, panels = plt.subplots(1, len(RECIPES), figsize=(15, 4.4), sharey=True, layout="constrained")
    for panel, recipe in zip(panels, RECIPES, strict=True):
        for sampler, prune in itertools.product(COLOURS, (False, True)):
            mine = [c for c in curves if (c.recipe, c.sampler, c.pruned) == (recipe, sampler, prune)]
            if not mine:
                continue
            parts = [part for part in grid_points if part <= max(curve.steps[-1] for curve in mine)]  # where it ended
            heights = [[100 * _at(curve, part) for curve in mine] for part in parts]
            style = "-" if prune else "--"
            label = f"{sampler}{', pruned' * prune}"
            x = [100 * part for part in parts]
            panel.plot(x, [statistics.fmean(h) for h in heights], style, color=COLOURS[sampler], label=label, lw=1.6)
            if prune:
                low, high = list(map(min, heights)), list(map(max, heights))
                panel.fill_between(x, low, high, color=COLOURS[sampler], alpha=0.12)
        panel.axhline(100 * GOAL, color="#9ca3af", lw=0.8)
        panel.set(title=recipe, xlabel="Training steps, % of the full grid", xlim=(0, 35), ylim=(60, 101))
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("Hypervolume, % of the full grid")
    handles, labels = max((panel.get_legend_handles_labels() for panel in panels), key=lambda found: len(found[1]))
    panels[1].legend(handles, labels, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)
