"""Tests of the hypotheses H1 to H5, which were written before any result; each docstring states its test."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.papers.engine.claims import TOLERANCE, Finding, Rule, combine, conclude, judge, not_addressed
from isthmus.papers.engine.exhibit import Findings, Judgement, MeasuredPart
from isthmus.papers.engine.networks import SIZE_TOLERANCE, Network, best
from isthmus.papers.pathways.claims import claim, level, list_compared_parts, versus
from isthmus.papers.pathways.studies import HISTORIES, NARROW, label, of_pathway
from isthmus.studies.statistics import combine as weigh

SMALL, BIG = 0.1, 0.4
"""Of the share beyond first order: below the first the target is nearly first order, above the second it is not."""


@claim("H1")
def histories_cost_too_much(findings: Findings) -> Judgement:
    """With d_h up to 16, each pathway that keeps a history against the network that validation selects among all others
    with at most 1.02 times its multiply–adds, larger plain ones included: yes if every interval of the lead lies below
    the tolerance (0.01 of R², 0.1 dB), no if one lies above it."""
    costs = findings.analysis["costs"]
    lines: dict[str, Finding] = {}
    for item in list_compared_parts(findings):
        for network in item.networks:
            if label(network.model) not in HISTORIES or network.model["d_h"] > NARROW:
                continue
            most = SIZE_TOLERANCE * costs[network.id]["macs"]
            others = [
                other
                for other in item.networks
                if label(other.model) not in HISTORIES and costs[other.id]["macs"] <= most
            ]
            name = f"{label(network.model)}, {item.part.title}"
            if not others:
                lines[name] = not_addressed("no other network has so few multiply–adds")
                continue
            rival = best(others)
            answer, numbers = versus(network, rival, Rule.less_than(TOLERANCE[network.unit]))
            numbers["said"] += f" (d_z {rival.model['d_z']})"
            lines[name] = answer, numbers
    return conclude(lines)


@claim("H2")
def free_lunch(findings: Findings) -> Judgement:
    """Ladder less plain, and groups of four less plain: yes if both intervals lie within the tolerance (0.01 of R²,
    0.1 dB, one point) in every part, no if one lies outside of it."""
    lines: dict[str, Finding] = {}
    for item in list_compared_parts(findings):
        plain = of_pathway(item.networks, "plain")
        for name in ("delayed/ladder", "delayed/groups-4"):
            lines[f"{name}, {item.part.title}"] = level(of_pathway(item.networks, name), plain)
    return conclude(lines)


@claim("H3")
def parallel_loses_beyond_first_order(findings: Findings) -> Judgement:
    """All branches side by side less plain, by the share of the target beyond first order: below 0.1 the interval lies
    within the tolerance of 0.01 of R², above 0.4 it lies below 0: yes if all are so, no if one is decided otherwise."""
    lines: dict[str, Finding] = {}
    addressed = []
    for item in list_compared_parts(findings):
        share = findings.analysis["orders"][item.part.title]
        ours, plain = (of_pathway(item.networks, name) for name in ("delayed/parallel", "plain"))
        if SMALL <= share <= BIG:
            continue
        found = level(ours, plain) if share < SMALL else versus(ours, plain, Rule.trails())
        lines[f"share {share:.3f}"] = found
        addressed.append((share, found[0]))
    if {share < SMALL for share, answer in addressed if answer != "not addressed"} != {True, False}:
        lines["both sides"] = "undecided", {"said": "results for a small and for a large share are needed"}
    return conclude(lines)


def _by_source(findings: Findings) -> dict[str, list[MeasuredPart]]:
    found: dict[str, list[MeasuredPart]] = {}
    for item in list_compared_parts(findings):
        found.setdefault(item.part.source, []).append(item)
    return found


def _width(item: MeasuredPart) -> int:
    plain = of_pathway(item.networks, "plain")
    return int(plain.model["d_z"]) if plain else 0


@claim("H4")
def erasing_needs_a_narrow_stream(findings: Findings) -> Judgement:
    """For each data set, erase-and-add less plain in the shape with the narrowest stream, less the same in the shape
    with the widest: yes if both intervals lie above 0, no if one lies below."""
    lines: dict[str, Finding] = {}
    for source, items in _by_source(findings).items():
        ends = [min(items, key=_width), max(items, key=_width)]
        pairs = [[of_pathway(item.networks, name) for name in ("delta/erase-and-add", "plain")] for item in ends]
        lines[source] = _gains_more(ends, pairs)
    return conclude(lines)


def _gains_more(ends: Sequence[MeasuredPart], pairs: Sequence[Sequence[Network | None]]) -> Finding:
    (narrow, wide), widths = pairs, [_width(item) for item in ends]
    known = [network for network in (*narrow, *wide) if network is not None]
    if len(known) < 4 or widths[0] == widths[1]:
        return not_addressed("two shapes with both pathways are needed")
    weights = (1.0, -1.0, -1.0, 1.0)
    gap = weigh([(weight, network.quality) for weight, network in zip(weights, known, strict=True)])
    gains = [versus(each[0], each[1])[1]["said"] for each in pairs]
    said = f"d_z {widths[0]}: {gains[0]}; d_z {widths[1]}: {gains[1]}; the first gain is larger by {gap.text()}"
    return judge(gap, said=said)


@claim("H5")
def shapes_differ_in_their_best(findings: Findings) -> Judgement:
    """For each data set, the pathways that validation selects in the conventional shape and in the narrowest hourglass
    trained: no if they are the same and decided ahead of every other in both shapes; yes if they differ and each is
    decided ahead of the other in its own shape; else undecided."""
    lines: dict[str, Finding] = {}
    for source, items in _by_source(findings).items():
        shapes = {item.part.title: item for item in items}
        ends = list(shapes.values())[:: len(shapes) - 1] if len(shapes) > 1 else []
        lines[source] = _crosses(ends) if ends else not_addressed("two shapes are needed")
    return conclude(lines)


def _crosses(ends: Sequence[MeasuredPart]) -> Finding:
    budgeted = []
    for item in ends:
        names = dict.fromkeys(label(network.model) for network in item.networks)
        budgeted.append({name: network for name in names if (network := of_pathway(item.networks, name))})
    winners = [label(best(networks.values()).model) for networks in budgeted]
    said = f"{winners[0]} in {ends[0].part.title}, {winners[1]} in {ends[1].part.title}"
    if winners[0] == winners[1]:
        rest = {
            f"{winners[0]} against {name}, {item.part.title}": versus(networks[winners[0]], other)
            for item, networks in zip(ends, budgeted, strict=True)
            for name, other in networks.items()
            if name != winners[0]
        }
        best_in_both = combine(rest)[0] == "yes"
        return "no" if best_in_both else "undecided", {"said": said, "p_of_no": 0.05 if best_in_both else 1.0}
    answer, numbers = combine(
        {
            f"{winner} against {other}, {item.part.title}": versus(networks.get(winner), networks.get(other))
            for winner, other, item, networks in zip(winners, winners[::-1], ends, budgeted, strict=True)
        }
    )
    # A decided loss on test data of what validation selects refutes the selection, not the hypothesis.
    numbers["said"] = f"{said}: {numbers['said']}"
    return "yes" if answer == "yes" else "undecided", numbers
