"""Numbers that compare the fronts of a section: hypervolumes, gaps and savings. `text` and `page` present them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.reports.sections import Section
from isthmus.studies.fronts import Candidate, cost_of, ladder, noise_of
from isthmus.studies.volumes import Gap, Reference, Savings, gap, hypervolume, measure_savings, reference_point


@dataclass(frozen=True)
class Area:
    """The hypervolume of one architecture's front, and the range of costs that was tried."""

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
    """None for a single candidate, which would be its own reference point."""
    if len(section.candidates) < 2:
        return None
    reference = reference_point(section.at(cost), cost)
    noise = noise_of(section.candidates)
    pairs = section.pairs_at(cost)
    return Measures(
        cost=cost,
        objective=section.objective,
        reference=reference,
        areas=tuple(
            _area(section.candidates_of(name, cost), reference, cost) for name in section.finished_architectures
        ),
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
