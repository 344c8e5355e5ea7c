"""What searches of recorded grids have reached: the tables and the picture of `isthmus bench search`."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from isthmus.core.files import make_folder, write_json, write_with
from isthmus.studies.statistics import Interval, compare_runs, decide_together

RECIPES = ("digits-shapes", "mnist5k-shapes", "mnist5k-families")
COLOURS = {
    "grid": "#6b7280", "random": "#d97706", "tpe": "#2563eb", "nsga2": "#059669", "optuna-tpe": "#60a5fa",
    "optuna-nsga2": "#6ee7b7", "optuna-gp": "#7c3aed", "moasha": "#0891b2", "model": "#dc2626",
}  # fmt: skip
"""In the order of the table."""
MOASHA = "moasha.json"
GOAL = 0.99
_PARTS = [part / 200 for part in range(6, 26)]
"""Where searches are compared: from 3 % of the grid's steps to 12.5 %, which is what our own may spend."""


@dataclass(frozen=True)
class Curve:
    """Of one search: parts of the grid's training steps, and parts of its hypervolume reached by then."""

    recipe: str
    sampler: str
    pruned: bool
    seed: int
    steps: tuple[float, ...]
    volume: tuple[float, ...]
    seconds: float = 0.0
    """Processor time of all decisions of the search."""
    spent: float = 0.0
    """The part of the grid's steps that all of it took, if the last ones ended no training."""

    @property
    def method(self) -> tuple[str, bool]:
        return self.sampler, self.pruned

    @property
    def to_goal(self) -> float | None:
        """The part of the grid's steps after which 99 % of its hypervolume is there; None if it never is."""
        return next((step for step, volume in zip(self.steps, self.volume, strict=True) if volume >= GOAL), None)

    def at(self, part: float) -> float:
        """The hypervolume reached with this part of the grid's steps."""
        return max((volume for step, volume in zip(self.steps, self.volume, strict=True) if step <= part), default=0.0)


def read_curves(folder: Path) -> list[Curve]:
    """The curves of earlier measurements, MOASHA's included."""
    found = []
    for name in ("search.json", MOASHA):
        if (folder / name).exists():
            found += [Curve(**fields) for fields in json.loads((folder / name).read_text())["curves"]]
    return sort_curves({(curve.recipe, curve.method, curve.seed): curve for curve in found}.values())


def sort_curves(curves: Iterable[Curve]) -> list[Curve]:
    order = {name: place for place, name in enumerate((*RECIPES, *COLOURS))}
    return sorted(curves, key=lambda curve: (order[curve.recipe], order[curve.sampler], curve.pruned, curve.seed))


def summary(curves: list[Curve]) -> list[dict[str, Any]]:
    """One line per data set and method: the part of the grid's steps to 99 % of its hypervolume, over study seeds."""
    lines = []
    for (recipe, sampler, prune), group in itertools.groupby(curves, key=lambda c: (c.recipe, *c.method)):
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
                    f"volume at {part:.0%}": _percent(statistics.fmean(c.at(part) for c in members))
                    for part in (0.03, 0.05, 0.1, 0.25)
                },
            }
        )
    return lines


def compare(curves: list[Curve]) -> list[dict[str, Any]]:
    """Our sampler, as it is by default, against every other method: steps to 99 %, and whether it is behind before.

    Hypervolumes at equal steps are compared in steps of half a per cent, paired by seed. "behind at" takes each
    interval alone, which is strict; "behind together" decides all of them together, as a study decides its budgets. A
    search that never reaches 99 % counts as if it did with its last step (a rival) or with the whole grid (ours).
    """
    lines = []
    for recipe in dict.fromkeys(curve.recipe for curve in curves):
        ours = [c for c in curves if (c.recipe, *c.method) == (recipe, "model", True)]
        rivals = dict.fromkeys(c.method for c in curves if c.recipe == recipe and c.sampler != "model")
        for sampler, pruned in rivals if ours else ():
            other = [c for c in curves if (c.recipe, *c.method) == (recipe, sampler, pruned)]
            medians = [_median_to_goal(members) for members in (ours, other)]
            goals = [c.to_goal or max(c.spent, c.steps[-1]) for c in other], [c.to_goal or 1.0 for c in ours]
            intervals = [compare_runs([c.at(part) for c in ours], [c.at(part) for c in other]) for part in _PARTS]
            behind = [part for part, found in zip(_PARTS, intervals, strict=True) if found.decision == "behind"]
            lines.append(
                {
                    "study": recipe,
                    "rival": f"{sampler}{', pruned' * pruned}",
                    "ours to 99 %": "–" if medians[0] is None else _percent(medians[0]),
                    "rival's to 99 %": "–" if medians[1] is None else _percent(medians[1]),
                    "saved": _describe_saving(compare_runs(*goals)),
                    "behind at": ", ".join(map(_percent, behind)) or "nowhere",
                    "behind together": "yes" if "behind" in decide_together(intervals) else "no",
                }
            )
    return lines


def _describe_saving(interval: Interval) -> str:
    """The steps that ours needs less, in percentage points of the grid's."""
    if interval.bounds is None:
        return f"{100 * interval.difference:.1f} (undecided)"
    low, high = interval.bounds
    return f"{100 * interval.difference:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def _median_to_goal(curves: Sequence[Curve]) -> float | None:
    """The median over seeds; None if half of them never reach 99 %."""
    goals = sorted(curve.to_goal or 2.0 for curve in curves)
    median = statistics.median(goals)
    return median if median <= 1 else None


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def write_curves(curves: list[Curve], folder: Path) -> None:
    """The curves alone, of a measurement that has not ended."""
    make_folder(folder)
    write_json(folder / "search.json", {"curves": [_rounded(curve) for curve in curves]})


def save(curves: list[Curve], folder: Path) -> None:
    """``search.json`` (a line per method and the curves) and ``search.png``."""
    make_folder(folder)
    curves = [Curve(**_rounded(curve)) for curve in curves]  # so that the table is that of the stored numbers
    content = {
        "optuna": version("optuna"), "summary": summary(curves), "comparisons": compare(curves),
        "curves": [_rounded(curve) for curve in curves],
    }  # fmt: skip
    write_json(folder / "search.json", content)
    write_with(folder / "search.png", lambda path: draw_curves(curves, path))


def _rounded(curve: Curve) -> dict[str, Any]:
    values = {"steps": [round(step, 4) for step in curve.steps], "volume": [round(v, 4) for v in curve.volume]}
    return asdict(curve) | values | {"seconds": round(curve.seconds, 2)}


def draw_curves(curves: list[Curve], path: Path) -> None:
    """Hypervolume over training steps, a panel per study; the band is from the worst to the best study seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    grid_points = [i / 200 for i in range(201)]
    figure, panels = plt.subplots(1, len(RECIPES), figsize=(15, 4.4), sharey=True, layout="constrained")
    for panel, recipe in zip(panels, RECIPES, strict=True):
        for sampler, prune in itertools.product(COLOURS, (False, True)):
            mine = [c for c in curves if (c.recipe, *c.method) == (recipe, sampler, prune)]
            if not mine:
                continue
            parts = [part for part in grid_points if part <= max(curve.steps[-1] for curve in mine)]  # where it ended
            heights = [[100 * curve.at(part) for curve in mine] for part in parts]
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
