"""What a section's fronts are worth and how far they are apart, as numbers; `wording` and `page` say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from isthmus.reports.sections import Section
from isthmus.studies.fronts import Candidate, cost_of, ladder, noise_of
from isthmus.studies.volumes import Gap, Reference, Savings, gap, hypervolume, measure_savings, reference_point


@dataclass(frozen=True)
class Area:
    """What the front of one architecture dominates, and between which costs it was tried."""

    architecture: str
    start: float
    stop: float
    members: int
    validation: float
    test: float


@dataclass(frozen=True)
class Measures:
    """``gaps`` and ``savings`` hold one entry per pair of architectures."""

    cost: str
    objective: str
    reference: Reference
    areas: tuple[Area, ...]
    gaps: tuple[Gap, ...]
    savings: tuple[Savings, ...]


def measure(section: Section, cost: str = "params") -> Measures | None:
    """None where there is nothing to measure from: a single candidate is its own reference."""
    if len(section.candidates) < 2:
        return None
    reference = reference_point(section.candidates, cost)
    noise = noise_of(section.candidates)
    pairs = [(section.of(first), section.of(second)) for first, second in combinations(section.tried, 2)]
    return Measures(
        cost=cost,
        objective=section.objective,
        reference=reference,
        areas=tuple(_area(section.of(architecture), reference, cost) for architecture in section.tried),
        gaps=tuple(gap(first, second, cost, noise) for first, second in pairs),
        savings=tuple(measure_savings(first, second, cost, noise) for first, second in pairs),
    )


def _area(candidates: Sequence[Candidate], reference: Reference, cost: str) -> Area:
    costs = [cost_of(item, cost) for item in candidates]
    return Area(
        architecture=candidates[0].architecture,
        start=min(costs),
        stop=max(costs),
        members=len(ladder(candidates, cost)),
        validation=hypervolume(candidates, reference, cost),
        test=hypervolume(candidates, reference, cost, split="test"),
    )
