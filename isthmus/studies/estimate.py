"""How much time, disk and memory a study needs, by a few measured steps; and how to fit it into a time budget."""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.machine import memory_bytes
from isthmus.core.protocols import SPLITS
from isthmus.studies.plan import Plan
from isthmus.studies.proposals import Proposal
from isthmus.studies.shared import list_untrained
from isthmus.training.devices import OneDevice, arithmetic
from isthmus.training.listener import Listener
from isthmus.training.loop import Diverged, NoJournal, Stopped
from isthmus.training.prepare import Options, Prepared, load_rows, starting_model
from isthmus.training.run import make_training
from isthmus.training.stacks import Member, train_together

_STEPS, _WARM_UP = 7, 3
_START_OF_WORKERS = 5.0  # seconds
_PROCESS_BYTES = 400e6  # Python with torch
_RUN_BYTES = 200e3  # config, log, record and samples


@dataclass(frozen=True)
class Pace:
    """Seconds of a step: a constant, and a part per floating-point operation."""

    per_step: float
    per_flop: float

    def of_run(self, plan: Plan, proposal: Proposal) -> float:
        train, cost = plan.config.base.train, proposal.cost
        rows = len(plan.data.train) * plan.task.views()
        steps = train.epochs * -(-rows // proposal.recipe.get("batch_size", train.batch_size))
        # Validations during training, and both held-out splits at the end; a forward is a third of a step.
        held_out = len(plan.data.validation) * (1 + train.epochs / train.evaluate_every) + len(plan.data.test)
        return steps * self.per_step + self.per_flop * cost["training_flops"] * (rows * train.epochs + held_out / 3)


@dataclass(frozen=True)
class Estimate:
    seconds: float
    disk_bytes: float
    memory_bytes: float
    work: float
    """Floating-point operations."""


Paces = Mapping[str, Pace]
"""By architecture: an operation of a sparse product takes many times as long as one of a dense product."""


def measure_paces(plan: Plan, candidates: Sequence[Proposal] | None = None) -> dict[str, Pace]:
    """Time a few steps of the cheapest and the most expensive candidate of each architecture, on the study's data."""
    ordered = sorted(
        plan.preview if candidates is None else candidates, key=lambda proposal: proposal.cost["training_flops"]
    )
    names = dict.fromkeys(proposal.architecture for proposal in ordered)
    return {name: _measure_pace(plan, [item for item in ordered if item.architecture == name]) for name in names}


def _measure_pace(plan: Plan, ordered: Sequence[Proposal]) -> Pace:
    rows, points = len(plan.data.train) * plan.task.views(), []
    for proposal in (ordered[0], ordered[-1]):
        run = plan.run(proposal.model, plan.config.rates[0], plan.config.seeds[0], proposal.recipe)
        try:
            share = min(run.config.train.stack or 1, plan.runs_per_candidate)
            batch = min(run.config.train.batch_size, rows)
            points.append((batch * proposal.cost["training_flops"], _step_seconds(run, plan.options) / share))
        except UserError:
            raise
        except Exception:  # the study records a candidate that cannot be trained
            continue
    if not points:
        return Pace(0.0, 0.0)
    (low, fast), (high, slow) = points[0], points[-1]
    slope = (slow - fast) / (high - low) if high > low and slow > fast else slow / high
    return Pace(max(0.0, slow - slope * high), slope)


class _Clock(Listener):
    """Notes when each step ends, and stops after a few."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]

    def step(self, step: int, steps: int) -> None:
        self.times.append(time.perf_counter())

    def should_stop(self) -> bool:
        return len(self.times) >= _STEPS


def _step_seconds(run: Prepared, options: Options) -> float:
    """Of the run, or of all runs of its stack."""
    config, clock = run.config, _Clock()
    with arithmetic(config.threads):
        devices = OneDevice(config.train)
        model = starting_model(config, options).model
        training = make_training(run, model, load_rows(run, devices.device), devices)
        with suppress(Stopped, Diverged):
            if config.train.stack is None:
                training.run(NoJournal(), clock)
            else:
                train_together([Member(training, NoJournal(), clock)], lambda member, outcome: None)
    steps = [later - earlier for earlier, later in itertools.pairwise(clock.times)]
    return statistics.median(steps[_WARM_UP:] or steps)


def estimate_ranking(plan: Plan, paces: Paces) -> float:
    """The seconds of the super-networks that are not on record; each is trained by this process alone."""
    if plan.config.shared is None or plan.inherited is not None or len(plan.candidates) < 2:
        return 0.0
    seconds, known = 0.0, {proposal.key: proposal for proposal in plan.candidates}
    for group in list_untrained(plan):
        members = [known[key] for key in group.keys]
        mean = statistics.fmean(paces[item.architecture].of_run(plan, item) for item in members)
        ends = [paces[members[place].architecture].of_run(plan, members[place]) for place in group.ends]
        slices = min(plan.config.shared.slices, len(members))
        part = group.run.train.epochs / plan.config.base.train.epochs
        seconds += part * (sum(ends) + (slices - len(ends)) * mean)
    return seconds


def estimate(plan: Plan, paces: Paces, workers: int, candidates: Sequence[Proposal] | None = None) -> Estimate:
    """The most that all candidates of a study, or those given, can need; pruning or a ranking may save some of it."""
    candidates = plan.preview if candidates is None else candidates
    times = [paces[proposal.architecture].of_run(plan, proposal) for proposal in candidates]
    rows = len(plan.data.train) * plan.task.views() * plan.config.base.train.epochs
    runs = plan.runs_per_candidate
    # Weights, two moments and the best weights, in memory or on disk.
    states = [16.0 * item.cost["trainable_params"] + 4.0 * item.cost["params"] for item in candidates]
    largest = max(states, default=0.0)
    waiting = sum(states) * runs if plan.config.stopping else 0.0  # all runs of a generation wait at a rung
    seconds = max(sum(times) * runs / min(workers, plan.runs_at_once), max(times, default=0.0))
    splits = [plan.data.split(name) for name in SPLITS]
    rows_bytes = sum(part.nbytes for split in splits for part in (split.inputs, split.targets) if part is not None)
    return Estimate(
        seconds=seconds + estimate_ranking(plan, paces) + (_START_OF_WORKERS if workers > 1 and times else 0.0),
        disk_bytes=sum(item.cost["checkpoint_bytes"] + _RUN_BYTES for item in candidates) * runs
        + max(waiting, largest * workers),
        memory_bytes=workers * (_PROCESS_BYTES + rows_bytes + 1.5 * largest),
        work=float(sum(item.cost["training_flops"] for item in candidates) * rows * runs),
    )


def fit(plan: Plan, paces: Paces, workers: int, seconds: float) -> Plan:
    """The plan with as many candidates as fit into the time, evenly spread over their cost."""
    if estimate(plan, paces, workers).seconds <= seconds:
        return plan

    def takes(candidates: int) -> float:
        return estimate(plan.limit(candidates), paces, workers).seconds

    number = bisect_right(range(1, len(plan.preview)), seconds, key=takes)  # one more does not fit
    if number:
        return plan.limit(number)
    raise UserError(
        f"one candidate takes about {takes(1):.0f} s with its learning rates and seeds, and the time budget is "
        f"{seconds:.0f} s; use fewer epochs, rates or seeds"
    )


def check_room(needed: Estimate, workers: int) -> None:
    """Refuse a study that does not fit on this machine, before anything is trained."""
    place = home()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed.disk_bytes > free:
        raise UserError(
            f"the study needs about {gigabytes(needed.disk_bytes)} of disk, and {place} has {gigabytes(free)} left; "
            "set ISTHMUS_HOME to another folder"
        )
    if needed.memory_bytes > memory_bytes():
        raise UserError(
            f"{workers} worker{'s' * (workers > 1)} need about {gigabytes(needed.memory_bytes)} of memory, and this "
            f"machine has {gigabytes(memory_bytes())}; use fewer --workers or smaller candidates"
        )


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
