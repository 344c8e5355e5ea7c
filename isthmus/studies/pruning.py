"""Which candidates stop early, when cost is known before training and only quality unfolds.

At a rung, a candidate is dominated when a cheaper or equally cheap one is better there by more than a margin. The
candidates are ranked by how many layers of such dominance lie above them, and the best part goes on: successive
halving by non-dominated rank. Whoever is not dominated goes on in any case, so a small margin and a small part to keep
trade training steps against the risk of losing a late starter; ``tests/studies/test_pruning.py`` states that risk on
recorded curves.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isthmus.core.config import Pruning


@dataclass(frozen=True)
class Standing:
    """A candidate at a rung; larger quality is better. Those of the past compete, but are not judged again."""

    key: str
    architecture: str
    cost: float
    quality: float
    judged: bool = True


def pruned(standings: Sequence[Standing], rule: Pruning) -> set[str]:
    """The keys of those that stop here."""
    groups: dict[str, list[Standing]] = {}
    for standing in standings:
        groups.setdefault("" if rule.across_architectures else standing.architecture, []).append(standing)
    return set().union(*(_pruned(group, rule) for group in groups.values()))


def _pruned(standings: Sequence[Standing], rule: Pruning) -> set[str]:
    best = max(standing.quality for standing in standings)
    margin = rule.margin * (best - statistics.median(standing.quality for standing in standings))
    ranks = dominance_ranks(standings, margin)
    judged = [standing for standing in standings if standing.judged]
    room = math.ceil(rule.keep * len(judged))
    # Within a rank, the better one for its cost goes first: the one whose quality is nearer to the best it must beat.
    order = sorted(judged, key=lambda item: (ranks[item.key], _shortfall(item, standings), item.cost, item.key))
    return {standing.key for place, standing in enumerate(order) if place >= room and ranks[standing.key] > 0}


def dominance_ranks(standings: Sequence[Standing], margin: float) -> Mapping[str, int]:
    """0 for those that nobody dominates by more than the margin, 1 for those only they dominate, and so on."""
    left, ranks, rank = list(standings), Counter[str](), 0
    while left:
        free = [item for item in left if not any(_dominates(other, item, margin) for other in left)]
        for item in free:
            ranks[item.key] = rank
        left = [item for item in left if item not in free]
        rank += 1
    return ranks


def _dominates(one: Standing, other: Standing, margin: float) -> bool:
    return one.cost <= other.cost and one.quality > other.quality + margin


def _shortfall(item: Standing, standings: Sequence[Standing]) -> float:
    return max(other.quality for other in standings if other.cost <= item.cost) - item.quality
