"""Which candidates stop early. Their costs are known before training, so that only quality is compared.

At a rung, a candidate is dominated when another that costs no more is better there by more than a margin. Candidates
are ranked by how many layers of such dominance lie above them, and the best part continues: successive halving by
non-dominated rank. A candidate that is not dominated always continues. A small margin and a small part to keep save
training steps, at the risk of losing a late starter; ``tests/studies/test_pruning.py`` measures that risk on recorded
curves.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping

from isthmus.core.config import Pruning


def prune(points: Mapping[str, tuple[str, float, float]], judged: Collection[str], rule: Pruning) -> set[str]:
    """The keys of the candidates that stop here, all of them among ``judged``.

    ``points`` maps every candidate that has reached the rung to its architecture, cost and quality (larger is better).
    """
    groups: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for key, (architecture, *point) in points.items():
        groups["" if rule.across_architectures else architecture][key] = point[0], point[1]
    return set().union(*(_prune_group(group, judged, rule) for group in groups.values()))


def _prune_group(group: Mapping[str, tuple[float, float]], judged: Collection[str], rule: Pruning) -> set[str]:
    qualities = [quality for _, quality in group.values()]
    ranks = rank_by_dominance(group, rule.margin * (max(qualities) - statistics.median(qualities)))

    def order(key: str) -> tuple[int, float, float, str]:
        """Within a rank, the candidate nearest to the best of its cost or less comes first."""
        cost, quality = group[key]
        return ranks[key], max(other[1] for other in group.values() if other[0] <= cost) - quality, cost, key

    ordered = sorted((key for key in group if key in judged), key=order)
    return {key for key in ordered[math.ceil(rule.keep * len(ordered)) :] if ranks[key] > 0}


def rank_by_dominance(points: Mapping[str, tuple[float, float]], margin: float) -> dict[str, int]:
    """0 for those that nothing dominates by more than the margin, 1 for those that only rank 0 dominates, and so on."""
    left, ranks = dict(points), dict[str, int]()
    for rank in range(len(points)):
        free = [
            key
            for key, (cost, quality) in left.items()
            if not any(other[0] <= cost and other[1] > quality + margin for other in left.values())
        ]
        ranks |= dict.fromkeys(free, rank)
        left = {key: point for key, point in left.items() if key not in ranks}
    return ranks
