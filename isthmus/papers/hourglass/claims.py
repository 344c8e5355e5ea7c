"""Tests of the Hourglass paper's claims about MLPs; each docstring states its test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from isthmus.core.space import condition
from isthmus.papers.engine.claims import (
    REVERSED,
    Claims,
    Finding,
    Rule,
    all_of,
    any_leads,
    case,
    combine,
    conclude,
    exact,
    judge,
    judge_parts,
    not_addressed,
    pair,
    set_aside,
    tally,
)
from isthmus.papers.engine.exhibit import Findings, Judgement, MeasuredPart
from isthmus.papers.engine.networks import Meeting, Network, best, find_network, meetings
from isthmus.studies.fronts import Candidate
from isthmus.studies.laws import DRAWS, LEAST_BUDGETS, RATIO, FamilyLaw, fit_laws, group_budgets, read_shape
from isthmus.studies.statistics import Answer, Interval, compare, compare_runs, decide_together

LITTLE = 0.1
"""dB; our bound, as the paper names none. It sees a plateau from L = 5 on, where its Table 8 still gains 0.082 dB."""
THREE = ("mnist", "imagenet32", "imagenet224")
OTHER_DATA = "the claim is about MNIST, ImageNet-32 and ImageNet-224"
claim = Claims("hourglass")


def _of(networks: Iterable[Network], shape: str) -> list[Network]:
    return [network for network in networks if network.shape == f"{shape}_mlp"]


def _find(networks: Iterable[Network], shape: str, d_z: int, d_h: int, depth: int) -> Network | None:
    return find_network(networks, f"{shape}_mlp", d_z=d_z, d_h=d_h, depth=depth)


def _ends(meeting: Meeting) -> dict[str, Any]:
    return {"budget": meeting.budget, "first": meeting.first.id, "second": meeting.second.id}


@claim.each_part("C1", "T6")
def c1(networks: Sequence[Network]) -> Finding:
    """The Hourglass of 66 M (3546, 1560, 4) is not below the conventional network of 84 M (3072, 3546, 3) by more than
    the last printed digit, 0.001 dB: yes or no if the interval of their difference lies on one side of that."""
    ends = _find(networks, "hourglass", 3546, 1560, 4), _find(networks, "conventional", 3072, 3546, 3)
    return pair(*ends, Rule.at_least(-0.001))


@claim.each_part("C2", "T7")
def c2(networks: Sequence[Network]) -> Finding:
    """The Hourglass of 69 M (3075, 1560, 6) is ahead of the best conventional network, selected on validation data: yes
    if decided ahead, no if decided behind."""
    others = _of(networks, "conventional")
    return pair(_find(networks, "hourglass", 3075, 1560, 6), best(others) if others else None)


def _higher_front(networks: Sequence[Network]) -> Finding:
    """At every parameter budget in the range where both shapes have networks, the best Hourglass is ahead of the best
    conventional network, each selected on validation data and compared on test data: yes if decided ahead at all
    budgets, no if decided behind at one, else undecided. The answer for the networks that the paper's search allows is
    printed beside it."""
    found = meetings(_of(networks, "hourglass"), _of(networks, "conventional"))
    if not found:
        return not_addressed("the two shapes have no range of sizes in common")
    answer, numbers = combine({f"{item.budget:,.0f}": (judge(item.interval)[0], judge(item.interval)[1] | _ends(item))
                               for item in found})  # fmt: skip
    numbers["said"] = tally([item.interval.decision for item in found], "budgets")
    searched = [n for n in networks if n.shape == "hourglass_mlp" or n.model["d_z"] >= n.model.get("d_in", 0)]
    if len(searched) < len(networks):
        among = _higher_front(searched)
        numbers["among_what_the_paper_searched"] = {"found": among[0], **among[1]}
        numbers["said"] += f" (without conventional d_z < d_x, which the paper did not search: {among[1]['said']})"
    return answer, numbers


c3 = claim.each_part("C3", *THREE, elsewhere=OTHER_DATA)(_higher_front)


@claim.each_part(
    "C.2.1", statement="In generative classification, too, the Hourglass front is the higher one (appendix C.2.1)."
)
def generative_front(networks: Sequence[Network]) -> Finding:
    """The test of C3, on generative classification."""
    return _higher_front(networks)


@claim.each_part("C4")
def c4(networks: Sequence[Network]) -> Finding:
    """Two things, both needed. Little is lost: for each Hourglass, the best frozen W_in (selected on validation data)
    is at most 0.1 dB below the trained one; no if it is decided to be further below for one of them. And trained
    parameters are saved: at some budget of trained parameters where both have networks, frozen ones are decided ahead;
    no if they are decided behind at all of them, undecided if there is no such budget."""
    networks = _of(networks, "hourglass")
    pairs = _by_projection(networks)
    if not pairs:
        return not_addressed("no network was trained with both kinds of W_in")
    changes = [change.difference for _, _, change in pairs]
    frozen, trained = ([n for n in networks if (n.model["w_in"] == "trainable") == kind] for kind in (False, True))
    budgets = meetings(frozen, trained, lambda network: network.trainable)
    little = combine(_cases(pairs, Rule.at_least(-LITTLE)))
    little[1]["said"] = f"from {min(changes):+.3f} to {max(changes):+.3f} dB ({little[0]})"
    none: Finding = ("undecided", {"said": "both train as many parameters at no budget"})
    saved = any_leads([meeting.interval for meeting in budgets], "budgets of trained parameters") if budgets else none
    return combine({"little is lost, frozen − trained": little, "trained parameters are saved, frozen": saved})


def _by_projection(networks: Sequence[Network]) -> list[tuple[Network, Network, Interval]]:
    """Each network with a trained W_in after the best of its shape with a frozen one, and the difference."""
    found = []
    for trained in networks:
        if trained.model.get("w_in") == "trainable":
            shape = {name: trained.model[name] for name in ("d_z", "d_h", "depth")}
            others = [other for other in networks if other.has(shape) and other.model["w_in"] != "trainable"]
            if others:
                frozen = best(others)
                found.append((frozen, trained, compare(frozen.quality, trained.quality)))
    return found


def _cases(pairs: Iterable[tuple[Network, Network, Interval]], rule: Rule) -> dict[str, Finding]:
    found = {}
    for frozen, trained, _ in pairs:
        answer, numbers = pair(frozen, trained, rule)
        found[f"{frozen.id} − {trained.id}"] = answer, numbers | {"w_in": frozen.model["w_in"]}
    return found


@claim.each_part(
    "C.2",
    statement="A conventional network can gain from a random input projection that keeps the dimension (appendix C.2).",
)
def conventional_gains(networks: Sequence[Network]) -> Finding:
    """A conventional network with d_z = d_x is better with a frozen W_in (the kind selected on validation data) than
    with a trained one: yes if decided ahead for one network, no if decided behind for all of them."""
    pairs = _by_projection(_of(networks, "conventional"))
    if not pairs:
        return not_addressed("no conventional network was trained with both kinds of W_in")
    answer, numbers = any_leads([gain for _, _, gain in pairs], "networks")
    return answer, numbers | {"said": f"frozen {numbers['said']}"}


@claim("C5")
def c5(findings: Findings) -> Judgement:
    """The paper does not print which matrix it means. For each of five readings, the interval of the difference of
    log rank, Hourglass minus conventional, over the seeds: yes if the Hourglass is decided higher in all readings, no
    if decided lower in all, else undecided. Whether the interval of the ratio contains 1.27 is printed beside it. Other
    sizes than those of Table 1 do not address it."""
    (item,) = findings.parts
    ranks: dict[str, Mapping[str, Sequence[float]]] = {
        network.shape: findings.analysis["rows"][network.id]["effective_rank"] for network in item.networks
    }
    numbers: dict[str, Any] = {}
    for reading in ranks["hourglass_mlp"]:
        first, second = (
            [math.log(max(rank, 1e-12)) for rank in ranks[f"{shape}_mlp"][reading]]
            for shape in ("hourglass", "conventional")
        )
        interval = compare_runs(first, second)
        low, high = (None if bound is None else math.exp(bound) for bound in (interval.low, interval.high))
        ratio = replace(interval, difference=math.exp(interval.difference), low=low, high=high)
        holds = low is not None and high is not None and low <= 1.27 <= high
        numbers[reading] = asdict(ratio) | {"decision": interval.decision, "holds 1.27": holds}
    decisions = {entry["decision"] for entry in numbers.values()}
    answer: Answer = "yes" if decisions == {"ahead"} else "no" if decisions == {"behind"} else "undecided"
    printed = {row.shape: row.columns["effective_rank"] for row in item.part.printed.values()}
    ratios = ", ".join(f"{name} {entry['difference']:.2f} ({entry['decision']})" for name, entry in numbers.items())
    seeds = max((entry["seeds"] or 0 for entry in numbers.values()), default=0)
    because = f"ratio of the ranks over {seeds} seeds: {ratios}"
    if not _as_printed(item):
        answer, because = "not addressed", f"{OTHER_SIZES}; here {answer}: {because}"
    return Judgement(
        measured=answer, published="undecided", numbers={"measured": numbers, "published": printed}, because=because,
        printed_because="a ratio of 1.27 from one network of each shape, without a spread",
    )  # fmt: skip


OTHER_SIZES = "the claim is about two networks of 55 M parameters"


def _as_printed(item: MeasuredPart) -> bool:
    """Whether the networks are those that the paper prints."""
    return {network.id for network in item.networks} == set(item.part.printed)


@claim("C6")
def c6(findings: Findings) -> Judgement:
    """The interval of the difference in PSNR, Hourglass minus conventional: yes if all of it lies within 0.1 dB of
    0.37 dB, no if none of it does. The printed difference, 0.092 dB, has no spread and is taken as exact. Other sizes
    than those of Table 1 do not address it."""
    inside = Rule(lambda gap: all_of([gap.above(0.27), REVERSED[gap.above(0.47)]]), (0.27, 0.47))

    def test(networks: Sequence[Network]) -> Finding:
        groups = (_of(networks, shape) for shape in ("hourglass", "conventional"))
        first, second = (best(group) if group else None for group in groups)
        return pair(first, second, inside)

    measured = {
        item.part.title: test(item.networks) if _as_printed(item) else set_aside(OTHER_SIZES, test(item.networks))
        for item in findings.parts
    }
    printed = exact(False, "T1.2 − T1.1 is 0.092 dB")
    return conclude(measured, {"Table 1": printed})


DIRECTIONS = {"depth": 1, "d_z": 1, RATIO: -1}
"""Of the best Hourglass as its budget grows: deeper, a wider stream, and a narrower computation within it."""


@claim("C11")
def c11(findings: Findings) -> Judgement:
    """The printed ranges are those of the paper's sizes; elsewhere the claim is read as a direction. Of the best
    Hourglass over the budget, both in logarithms, the slopes of L and d_z are above 0 and that of d_h / d_z below 0:
    yes if their 90 % intervals, over seeds and candidates, all lie on these sides; no if one lies on the other side,
    also after a correction for the number of slopes; else undecided. Fewer than four budgets with a choice of shapes,
    as in a study of chosen networks, do not address it. The printed rows are counted: yes if all of them are in the
    stated ranges, no if one is not."""
    printed = judge_parts(findings.parts, _count_rows)
    judgement = conclude({item.part.title: judge_shapes(item.candidates) for item in findings.parts})
    return replace(
        judgement, published=printed.published, printed_because=printed.printed_because,
        numbers={"measured": judgement.numbers["measured"], "published": printed.numbers["published"]},
    )  # fmt: skip


def judge_shapes(candidates: Sequence[Candidate]) -> Finding:
    """Whether the best Hourglasses of a study have the slopes of C11."""
    group = [candidate for candidate in candidates if candidate.architecture == "hourglass_mlp"]
    number = len(group_budgets(group)) if group else 0
    if number < LEAST_BUDGETS:
        return not_addressed(
            f"its Hourglasses have {number} budget{'s' * (number != 1)}; a slope needs {LEAST_BUDGETS}"
        )
    (problem,) = fit_laws(group)
    (law,) = problem.families
    choices = sum(point.shapes > 1 for point in law.points)
    if not law.is_searched:
        said = f"{choices} of {number} budgets have more than one shape; a slope needs {LEAST_BUDGETS}"
        return not_addressed(f"the networks were chosen and not searched: {said}")
    tried = [read_shape(candidate) for candidate in group]
    if fixed := [name for name in DIRECTIONS if len({shape.get(name) for shape in tried}) == 1]:
        return not_addressed(f"all networks have the same {' and '.join(fixed)}")
    return combine({name: _judge_slope(law, name, sign) for name, sign in DIRECTIONS.items()})


def _judge_slope(law: FamilyLaw, name: str, sign: int) -> Finding:
    slope, rising = law.slopes[name], law.rising[name]
    ends = sorted((sign * slope.low, sign * slope.high))
    answer: Answer = "yes" if ends[0] > 0 else "no" if ends[1] < 0 else "undecided"
    wrong = max(rising if sign > 0 else 1 - rising, 1 / DRAWS)
    edge = ", and the largest value tried is the best" if name in law.edges else ""
    said = f"slope {slope.value:.2f} ({slope.low:.2f} to {slope.high:.2f}{edge})"
    numbers = {"said": said, **slope._asdict(), "rising": rising, "p_of_no": wrong if answer == "no" else 1.0}
    return answer, numbers


STATED = {"hourglass": ("L >= 4", "d_z >= 3075", "115 <= d_h <= 765"), "conventional": ("L <= 3", "d_h >= 3075")}
"""The ranges in which the paper finds good shapes."""


def _count_rows(networks: Sequence[Network]) -> Finding:
    counts: dict[str, dict[str, int]] = {}
    said = []
    for shape, ranges in STATED.items():
        rows = [{**network.model, "L": network.model["depth"]} for network in _of(networks, shape)]
        inside = {stated: sum(map(condition(stated), rows)) for stated in ranges}
        counts[shape] = {"rows": len(rows), **inside}
        said.append(f"of {len(rows)} {shape} rows " + ", ".join(f"{n} have {name}" for name, n in inside.items()))
    holds = all(number == group["rows"] for group in counts.values() for number in group.values())
    answer, numbers = exact(holds, "; ".join(said))
    return answer, numbers | counts


D_Z = 3546


@claim.each_part("C12", "T8", "T9")
def c12(networks: Sequence[Network]) -> Finding:
    """Two sweeps at d_z = 3546: d_h at L = 5, and L at the d_h that is nearest to 270/3546 of d_z. Beyond that d_h, and
    beyond L = 5, the best network (selected on validation data) gains at most 0.1 dB: yes if both intervals lie below
    that, no if one lies above. Another d_z does not address it, and its answer is printed."""
    wide = _of(networks, "hourglass")
    at_five = [network for network in wide if network.model["depth"] == 5]
    if not at_five:
        return not_addressed("no network has L = 5")
    widths = [network.model["d_z"] for network in at_five]
    d_z = max(sorted(set(widths)), key=widths.count)
    by_width = {network.model["d_h"]: network for network in at_five if network.model["d_z"] == d_z}
    aim = 270 / 3546 * d_z
    d_h = min(by_width, key=lambda width: max(width / aim, aim / width))
    by_depth = {network.model["depth"]: network for network in wide if network.has({"d_z": d_z, "d_h": d_h})}
    answer, numbers = combine({"d_h": _gain_beyond(by_width, d_h), "L": _gain_beyond(by_depth, 5)})
    found = answer, {"d_z": d_z, **numbers}
    return found if d_z == D_Z else set_aside(f"the claim is about d_z = {D_Z}, and d_z is {d_z}", found)


def _gain_beyond(sweep: Mapping[int, Network], knee: int) -> Finding:
    """The gain of the best network beyond the knee, and of the whole sweep up to it."""
    further = [network for value, network in sweep.items() if value > knee]
    if not further:
        return not_addressed(f"nothing beyond {knee} is trained at this scale")
    gain = compare(best(further).quality, sweep[knee].quality)
    before = sweep[knee].quality.mean - sweep[min(sweep)].quality.mean
    said = f"beyond {knee} it gains {gain.text('dB')}, and {before:+.3f} dB up to there"
    answer, numbers = judge(gain, Rule.less_than(LITTLE))
    numbers |= {"knee": knee, "gain_up_to_the_knee": before} | case(best(further), sweep[knee], gain, (LITTLE,))
    return answer, numbers | {"said": said}


@claim("C13")
def c13(findings: Findings) -> Judgement:
    """One half in each table. Denoising (Table 8): the Hourglass of 66 M (3546, 1560, 4) is not below the conventional
    network of 75 M (3072, 3075, 3) by more than 0.01 dB, the digits that the claim states. Super-resolution (Table 9):
    the one of 69 M (3546, 1560, 5) is ahead of the one of 87 M (3072, 3075, 4). Yes or no where the interval decides.
    """
    (table,) = {item.part.table for item in findings.parts} & {"T8", "T9"}
    denoising = table == "T8"

    def test(networks: Sequence[Network]) -> Finding:
        ours = _find(networks, "hourglass", 3546, 1560, 4 if denoising else 5)
        theirs = _find(networks, "conventional", 3072, 3075, 3 if denoising else 4)
        return pair(ours, theirs, Rule.at_least(-0.01)) if denoising else pair(ours, theirs)

    return judge_parts(findings.parts, test, [table])


@claim.each_part(
    "S4",
    statement="Which shape is ahead does not depend on norm, activation and initialisation (our question; section 4).",
)
def s4(networks: Sequence[Network]) -> Finding:
    """For each norm, activation and initialisation, the Hourglass against the conventional network of the same three:
    yes if the same shape is ahead in all of them, no if each shape is ahead in one, decided together; else
    undecided."""
    cells, gaps = [], list[Interval]()
    for wide in _of(networks, "hourglass"):
        cell = {name: wide.model[name] for name in ("norm", "activation", "init")}
        others = [network for network in _of(networks, "conventional") if network.has(cell)]
        if others:
            gap = compare(wide.quality, best(others).quality)
            gaps.append(gap)
            cells.append(cell | case(wide, best(others), gap))
    alone, decisions = [gap.decision for gap in gaps], decide_together(gaps)
    same, both = set(alone) in ({"ahead"}, {"behind"}), {"ahead", "behind"} <= set(decisions)
    said = f"the Hourglass is {tally(alone, 'settings')}; decided together, {tally(decisions, 'settings')}"
    numbers = {"said": said, "cells": cells}
    return "yes" if same else "no" if both else "undecided", numbers | {"p_of_no": 0.0 if both else 1.0}
