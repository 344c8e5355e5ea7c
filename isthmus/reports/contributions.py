"""What each network of a search contributed: the hypervolume of the front when it was first trained."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from isthmus.reports.sections import Run
from isthmus.studies.volumes import Reference, area


class Contribution(NamedTuple):
    """A network, and the area of the front when its first run had ended."""

    title: str
    quality: float
    """The mean over all its folds or seeds. A first fold alone says more about its rows than about the network."""
    runs: int
    """Of all networks, that had ended by then."""
    area: float
    """Of the front of all networks so far."""


def list_contributions(found: Mapping[str, Any], runs: Mapping[str, Run]) -> list[Contribution]:
    """The networks of a search in the order in which their first runs ended, as far as their records are known.

    The area is that of validation quality over the logarithm of the parameters, above the worst network.
    """
    tried = [each for each in found.get("networks", ()) if each["values"]]
    if not tried:
        return []
    worst = min if found["maximise"] else max
    qualities = [statistics.fmean(each["values"]) for each in tried]
    # Otherwise the largest network, which has no width, could add nothing.
    corner = Reference(2 * max(each["params"] for each in tried), worst(qualities))
    ends = sorted(
        (runs[run].record.finished, place) for place, each in enumerate(tried) for run in each["runs"] if run in runs
    )
    known, listed = list[int](), list[Contribution]()
    for number, (_, place) in enumerate(ends, start=1):
        if place not in known:
            known.append(place)
            points = [(tried[each]["params"], qualities[each]) for each in known]
            covered = area(points, corner, found["maximise"])
            listed.append(Contribution(tried[place]["title"], qualities[place], number, covered))
    return listed
