"""How much training a search needs to find what the full grid finds.

Every network of a grid is trained once. After that each sampler searches the same grid: its candidates are on record
already, so what it would have trained is counted and not trained again. A pruned candidate counts the steps up to its
rung, and nothing towards the front. A sampler draws at most a third of the grid; our own may spend the steps of an
eighth, and Optuna's Gaussian process, which takes seconds for a network, draws an eighth. Quality is what a search sees
on validation data.

``random``, ``tpe`` and ``nsga2`` are searched as a study does, four candidates at a time, with and without pruning;
``optuna-…`` are the package's own loops (`benchmarks/rivals.py`). MOASHA, which needs a package of its own, is measured
by `benchmarks/moasha.py`.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import moasha
from benchmarks.curves import MOASHA, RECIPES, Curve, read_curves, sort_curves, write_curves
from benchmarks.grids import Grid, find_grid
from benchmarks.rivals import OPTUNA, ask_optuna
from isthmus.core.config import Pruning, Sampling
from isthmus.core.errors import UserError
from isthmus.studies.decisions import choose, is_over
from isthmus.studies.plan import Plan
from isthmus.studies.proposals import Trial
from isthmus.studies.pruning import prune as prune_dominated
from isthmus.studies.sampling import draw

STUDIED = ("grid", "random", "tpe", "nsga2", "model")
"""Samplers of `isthmus study`."""
SAMPLERS = (*STUDIED, *OPTUNA)
RUNGS, GENERATION = (1, 3, 8), 4
PAUSES, OWN_GENERATION = (0.1, 0.2, 0.4), 1
"""Of our own sampler: the parts of a training after which it may pause, and one decision at a time. Both were the best
of those tried on development seeds (EXPERIMENTS.md)."""
FIRST_SEED = 100
"""Study seeds below it steered the settings of our own sampler."""


def measure(
    seeds: int, workers: int, tell: Callable[[str], None], folder: Path | None = None, only: Sequence[str] = ()
) -> list[Curve]:
    """Search the grids. Those that a folder of earlier results lacks are trained first, or found on record.

    A search that the folder holds is not repeated, except by a sampler in ``only``. Each is written as it ends.
    """
    kept = [] if folder is None else read_curves(folder)
    curves = [c for c in kept if c.sampler not in only and FIRST_SEED <= c.seed < FIRST_SEED + seeds]
    known = {(curve.recipe, curve.method, curve.seed) for curve in curves}
    for recipe in RECIPES:
        wanted = [case for case in _list_cases(seeds) if (recipe, *case) not in known]
        if not wanted:
            continue
        plan, grid = find_grid(recipe, workers, folder)
        for (sampler, prune), seed in wanted:
            tell(f"{recipe}: {sampler}{' with pruning' * prune}, seed {seed}")
            curves.append(_search(plan, grid, recipe, sampler, prune, seed))
            if folder is not None:
                write_curves(curves, folder)
    return sort_curves(curves)


def _list_cases(seeds: int) -> Iterator[tuple[tuple[str, bool], int]]:
    for sampler, prune in itertools.product(SAMPLERS, (False, True)):
        if not (prune and sampler in OPTUNA):
            for seed in range(FIRST_SEED, FIRST_SEED + (1 if sampler == "grid" else seeds)):
                yield (sampler, prune), seed


def _search(plan: Plan, grid: Grid, recipe: str, sampler: str, prune: bool, seed: int) -> Curve:
    if sampler in OPTUNA:
        number = len(plan.candidates) // (8 if sampler == "optuna-gp" else 3)
        began = time.process_time()
        ends = enumerate(ask_optuna(sampler, plan, grid, number, seed), 1)
        steps, volume = grid.follow((place * grid.epochs, key) for place, key in ends)
        return Curve(recipe, sampler, prune, seed, steps, volume, time.process_time() - began)
    changed = _changed(plan, sampler, prune, seed)
    if sampler == "model":
        assert changed.pool.features.size  # counted before the clock starts, as in a study
    began = time.process_time()
    search = searched(changed, grid)
    seconds = time.process_time() - began
    return Curve(recipe, sampler, prune, seed, *grid.progress(search), seconds)


def run_moasha(python: Path, folder: Path, seeds: int) -> None:
    """Measure MOASHA with the Python of an environment that has Syne Tune."""
    command = [str(python), moasha.__file__, str(folder), str(FIRST_SEED), str(seeds)]
    if subprocess.run(command, check=False).returncode:
        raise UserError(f"{' '.join(command)} failed; {python} needs the package syne-tune")
    assert (folder / MOASHA).exists()


def _changed(plan: Plan, sampler: str, prune: bool, seed: int) -> Plan:
    number = None if sampler == "grid" else len(plan.candidates) // (8 if sampler == "model" else 3)
    generation = OWN_GENERATION if sampler == "model" else GENERATION
    sampling = Sampling.model_validate({"name": sampler, "candidates": number, "generation": generation, "seed": seed})
    rungs = RUNGS if sampler != "model" else [round(part * plan.config.base.train.epochs) for part in PAUSES]
    changes = {"sampling": sampling, "pruning": Pruning(rungs=tuple(rungs) if prune else ())}
    return replace(plan, config=plan.config.model_copy(update=changes))


def searched(plan: Plan, known: Grid) -> list[Trial]:
    """What a study of this plan would do, decided by the study's own functions (a test compares the two)."""
    if plan.config.sampling.name == "model":
        return _decide_all(plan, known)
    rule, search = plan.config.stopping, list[Trial]()
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
            if is_over(plan.pool, search, number):
                break
            continue
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
    for _, (space, quota) in itertools.product(range(plan.config.sampling.generation_size), enumerate(plan.quotas)):
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
