"""What each network of a search contributed: the hypervolume of the front when it was first trained."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from isthmus.reports.sections import Run
from isthmus.studies.volumes import area, open_corner


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
    points = [(each["params"], statistics.fmean(each["values"])) for each in tried]
    corner = open_corner(points, found["maximise"])
    ends = sorted(
        (runs[run].record.finished, place) for place, each in enumerate(tried) for run in each["runs"] if run in runs
    )
    known, listed = list[int](), list[Contribution]()
    for number, (_, place) in enumerate(ends, start=1):
        if place not in known:
            known.append(place)
            covered = area([points[each] for each in known], corner, found["maximise"])
            listed.append(Contribution(tried[place]["title"], points[place][1], number, covered))
    return listed
