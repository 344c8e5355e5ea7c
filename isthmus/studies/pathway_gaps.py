"""Pathways against plain at the same shape: networks that differ in nothing but the pathway, paired by seed."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from isthmus.core.titles import pathway_title
from isthmus.studies.fronts import Candidate, noise_of, sample_of
from isthmus.studies.statistics import Decision, Interval, combine, decide_together
from isthmus.studies.statistics import compare as intervals_between


@dataclass(frozen=True)
class ShapeGap:
    """One shape with a pathway and with plain; the difference of their test qualities is positive if plain is worse."""

    plain: Candidate
    other: Candidate
    difference: Interval


@dataclass(frozen=True)
class PathwayGap:
    """A pathway against plain over all shapes that were tried with both."""

    pathway: str
    shapes: tuple[ShapeGap, ...]
    mean: Interval
    decision: Decision
    """On the mean, together with those on the other pathways."""

    def ratio(self, cost: Callable[[Candidate], float]) -> float:
        """The geometric mean of a cost relative to plain's."""
        pairs = [(cost(shape.other), cost(shape.plain)) for shape in self.shapes]
        return math.exp(statistics.fmean(math.log(other / plain) if plain else 0.0 for other, plain in pairs))


def compare_with_plain(candidates: Sequence[Candidate]) -> list[PathwayGap]:
    """Every pathway that was tried at a shape that was also tried with plain, in the order of the candidates."""
    noise = noise_of(candidates)
    plain = {_shape(each): each for each in candidates if "pathway" not in each.settings.get("model", {})}
    groups: dict[str, list[ShapeGap]] = defaultdict(list)
    for other in candidates:
        pathway, partner = other.settings.get("model", {}).get("pathway"), plain.get(_shape(other))
        if pathway is not None and partner is not None:
            difference = intervals_between(sample_of(other, noise), sample_of(partner, noise))
            groups[pathway_title(pathway)].append(ShapeGap(partner, other, difference))
    means = []
    for shapes in groups.values():
        share = 1 / len(shapes)
        terms = [(share, sample_of(shape.other, noise)) for shape in shapes]
        means.append(combine([*terms, *((-share, sample_of(shape.plain, noise)) for shape in shapes)]))
    decided = zip(groups.items(), means, decide_together(means), strict=True)
    return [PathwayGap(name, tuple(shapes), mean, decision) for (name, shapes), mean, decision in decided]


def _shape(candidate: Candidate) -> str:
    """Everything but the pathway."""
    settings = dict(candidate.settings)
    settings["model"] = {name: value for name, value in settings.get("model", {}).items() if name != "pathway"}
    return json.dumps(settings, sort_keys=True)
