"""The Hourglass paper's claims as tests. Each docstring states its test, and is printed with the answer.

A test is asked of the measurement and, where the paper prints the numbers, of these too. Every budget, pair or setting
is judged at 95 % on its own; no correction is made for how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from isthmus.papers.engine.asking import (
    AHEAD,
    REVERSED,
    Finding,
    Rule,
    asked,
    at_least,
    case,
    counted,
    interval_numbers,
    not_addressed,
    numbers_of,
    pair,
    said,
)
from isthmus.papers.engine.networks import Meeting, Network, best, meetings
from isthmus.papers.engine.protocol import Findings, Judgement
from isthmus.papers.engine.verdicts import all_of, any_of
from isthmus.studies.statistics import Answer, Decision, Interval, compare, compare_runs

LITTLE = 0.1
"""dB; our bound, as the paper names none. It sees a plateau from L = 5 on, where its Table 8 still gains 0.082 dB."""


def _of(networks: Iterable[Network], shape: str) -> list[Network]:
    return [network for network in networks if network.shape == f"{shape}_mlp"]


def _find(networks: Iterable[Network], shape: str, d_z: int, d_h: int, depth: int) -> Network | None:
    settings = {"d_z": d_z, "d_h": d_h, "depth": depth}
    return next((network for network in _of(networks, shape) if network.has(settings)), None)


def _met(meeting: Meeting) -> dict[str, Any]:
    ends = {"budget": meeting.budget, "first": meeting.first.id, "second": meeting.second.id}
    return ends | interval_numbers(meeting.interval)


def c1(findings: Findings) -> Judgement:
    """The Hourglass of 66 M (3546, 1560, 4) is not below the conventional network of 84 M (3072, 3546, 3) by more than
    the last printed digit, 0.001 dB: yes or no if the interval of their difference lies on one side of that."""
    return asked(
        findings,
        lambda networks: pair(
            _find(networks, "hourglass", 3546, 1560, 4),
            _find(networks, "conventional", 3072, 3546, 3),
            at_least(-0.001),
        ),
        ["T6"],
    )


def c2(findings: Findings) -> Judgement:
    """The Hourglass of 69 M (3075, 1560, 6) is ahead of the best conventional network, selected on validation data: yes
    if decided ahead, no if decided behind."""
    return asked(
        findings,
        lambda networks: pair(
            _find(networks, "hourglass", 3075, 1560, 6),
            best(_of(networks, "conventional")) if _of(networks, "conventional") else None,
        ),
        ["T7"],
    )


def _higher_front(networks: Sequence[Network]) -> Finding:
    found = meetings(_of(networks, "hourglass"), _of(networks, "conventional"))
    if not found:
        return not_addressed("the two shapes have no range of sizes in common")
    decisions = [meeting.interval.decision for meeting in found]
    numbers: dict[str, Any] = {"said": counted(decisions, "budgets"), "budgets": [_met(meeting) for meeting in found]}
    searched = [n for n in networks if n.shape == "hourglass_mlp" or n.model["d_z"] >= n.model.get("d_in", 0)]
    if len(searched) < len(networks):
        among = _higher_front(searched)
        numbers["among_what_the_paper_searched"] = {"answer": among[0], **among[1]}
        numbers["said"] += f" (without conventional d_z < d_x, which the paper did not search: {among[1]['said']})"
    return all_of([AHEAD[word] for word in decisions]), numbers


def c3(findings: Findings) -> Judgement:
    """At every parameter budget in the range where both shapes have networks, the best Hourglass is ahead of the best
    conventional network, each selected on validation data and compared on test data: yes if decided ahead at all
    budgets, no if decided behind at one, else undecided. The answer among networks that the paper's search allows is
    stated beside it."""
    return asked(findings, _higher_front)


def f6(findings: Findings) -> Judgement:
    """The test of C3, on generative classification."""
    return asked(findings, _higher_front)


def c4(findings: Findings) -> Judgement:
    """Two things, both needed. Little is lost: for each Hourglass, the best frozen W_in (selected on validation data)
    is at most 0.1 dB below the trained one; no if it is decided to be further below for one of them. And trained
    parameters are saved: at some budget of trained parameters where both have networks, frozen ones are decided ahead;
    no if they are decided behind at all of them, undecided if there is no such budget."""
    return asked(findings, lambda networks: _frozen(_of(networks, "hourglass")))


def _frozen(networks: Sequence[Network]) -> Finding:
    pairs = [(best(frozen), trained) for trained, frozen in _by_projection(networks)]
    if not pairs:
        return not_addressed("no network was trained with both kinds of W_in")
    losses = [compare(frozen.quality, trained.quality) for frozen, trained in pairs]
    trained_ones = [network for network in networks if network.model["w_in"] == "trainable"]
    frozen_ones = [network for network in networks if network.model["w_in"] != "trainable"]
    moved = meetings(frozen_ones, trained_ones, lambda network: network.trainable)
    little = all_of([loss.above(-LITTLE) for loss in losses])
    saved = any_of([AHEAD[meeting.interval.decision] for meeting in moved])
    changes = [loss.difference for loss in losses]
    tally = counted([meeting.interval.decision for meeting in moved], "budgets of trained parameters")
    return all_of([little, "undecided" if saved == "not addressed" else saved]), {
        "said": f"frozen − trained from {min(changes):+.3f} to {max(changes):+.3f} dB (little: {little}); "
        f"frozen {tally} (saved: {saved})",
        "little_is_lost": {"answer": little, "cases": _projections(pairs, losses)},
        "trained_parameters_are_saved": {"answer": saved, "budgets": [_met(meeting) for meeting in moved]},
    }


def _projections(pairs: Sequence[tuple[Network, Network]], changes: Sequence[Interval]) -> list[dict[str, Any]]:
    return [
        {"w_in": frozen.model["w_in"]} | case(frozen, trained, change)
        for (frozen, trained), change in zip(pairs, changes, strict=True)
    ]


def _by_projection(networks: Sequence[Network]) -> list[tuple[Network, list[Network]]]:
    """Each network with a trained W_in, and those of its shape with a frozen one."""
    pairs = []
    for trained in networks:
        if trained.model.get("w_in") == "trainable":
            shape = {name: trained.model[name] for name in ("d_z", "d_h", "depth")}
            frozen = [other for other in networks if other.has(shape) and other.model["w_in"] != "trainable"]
            pairs += [(trained, frozen)] if frozen else []
    return pairs


def conventional_gains(findings: Findings) -> Judgement:
    """A conventional network with d_z = d_x is better with a frozen W_in (the kind selected on validation data) than
    with a trained one: yes if decided ahead for one network, no if decided behind for all of them."""

    def test(networks: Sequence[Network]) -> Finding:
        pairs = [(best(frozen), trained) for trained, frozen in _by_projection(_of(networks, "conventional"))]
        if not pairs:
            return not_addressed("no conventional network was trained with both kinds of W_in")
        gains = [compare(frozen.quality, trained.quality) for frozen, trained in pairs]
        decisions = [gain.decision for gain in gains]
        numbers = {"said": f"frozen {counted(decisions, 'networks')}", "cases": _projections(pairs, gains)}
        return any_of([AHEAD[word] for word in decisions]), numbers

    return asked(findings, test)


def c5(findings: Findings) -> Judgement:
    """Which matrix the paper means is not printed. For each of five readings, the interval of the difference of
    log rank, Hourglass minus conventional, over the seeds: yes if the Hourglass is decided higher in all readings, no
    if decided lower in all, else undecided. Whether 1.27 is in the interval of the ratio is stated beside it."""
    (item,) = findings.parts
    ranks: dict[str, Mapping[str, Sequence[float]]] = {
        network.shape: findings.analysis["rows"][network.id]["effective_rank"] for network in item.networks
    }
    numbers: dict[str, Any] = {}
    for reading in ranks["hourglass_mlp"]:
        logs = [
            [math.log(max(rank, 1e-12)) for rank in ranks[f"{shape}_mlp"][reading]]
            for shape in ("hourglass", "conventional")
        ]
        interval = compare_runs(logs[0], logs[1])
        low, high = (None if bound is None else math.exp(bound) for bound in (interval.low, interval.high))
        ratio = Interval(math.exp(interval.difference), low, high, interval.freedom, interval.rule)
        holds = low is not None and high is not None and low <= 1.27 <= high
        numbers[reading] = asdict(ratio) | {"decision": interval.decision, "holds 1.27": holds}
    decisions = {entry["decision"] for entry in numbers.values()}
    answer: Answer = "yes" if decisions == {"ahead"} else "no" if decisions == {"behind"} else "undecided"
    printed = {row.network.shape: row.columns["effective_rank"] for row in item.part.printed.values()}
    ratios = ", ".join(f"{name} {entry['difference']:.2f} ({entry['decision']})" for name, entry in numbers.items())
    return Judgement(
        measured=answer,
        published="undecided",
        numbers={"measured": numbers, "published": printed},
        because=f"ratio of the ranks: {ratios}",
        printed_because="a ratio of 1.27 from one network of each shape, without a spread",
    )


def c6(findings: Findings) -> Judgement:
    """The interval of the difference in PSNR, Hourglass minus conventional: yes if all of it lies within 0.1 dB of
    0.37 dB, no if none of it does. The printed difference, 0.092 dB, has no spread; it is taken as it stands."""
    low, high = 0.27, 0.47

    def judge(interval: Interval) -> Answer:
        answers = (interval.above(low), REVERSED[interval.above(high)])
        return all_of(answers)

    def test(networks: Sequence[Network]) -> Finding:
        first, second = _of(networks, "hourglass"), _of(networks, "conventional")
        return pair(best(first) if first else None, best(second) if second else None, Rule(judge, (low, high)))

    return replace(asked(findings, test), published="no", printed_because="T1.2 − T1.1 is 0.092 dB")


def c11(findings: Findings) -> Judgement:
    """Only a search could tell which shapes are good: a study of chosen networks cannot, so the measurement does not
    address it. The printed rows are counted: yes if all of them are in the stated ranges, no if one is not."""

    def count(networks: Sequence[Network]) -> Finding:
        wide, square = (_of(networks, shape) for shape in ("hourglass", "conventional"))
        counts = {
            "hourglass": {
                "rows": len(wide),
                "L >= 4": sum(network.model["depth"] >= 4 for network in wide),
                "d_z >= 3075": sum(network.model["d_z"] >= 3075 for network in wide),
                "115 <= d_h <= 765": sum(115 <= network.model["d_h"] <= 765 for network in wide),
            },
            "conventional": {
                "rows": len(square),
                "L <= 3": sum(network.model["depth"] <= 3 for network in square),
                "d_h >= 3075": sum(network.model["d_h"] >= 3075 for network in square),
            },
        }
        inside = all(number == group["rows"] for group in counts.values() for number in group.values())
        said = "; ".join(
            f"of {group['rows']} {shape} rows " + ", ".join(f"{n} have {what}" for what, n in list(group.items())[1:])
            for shape, group in counts.items()
        )
        return "yes" if inside else "no", {"said": said, **counts}

    judged = asked(findings, count)
    reason = "the networks were chosen and not searched"
    numbers = {"measured": {}, "published": judged.numbers["published"]}
    return replace(judged, measured="not addressed", numbers=numbers, because=reason)


def c12(findings: Findings) -> Judgement:
    """Two sweeps at one d_z: d_h at L = 5, and L at the d_h that is nearest to 270/3546 of d_z. Beyond that d_h, and
    beyond L = 5, the best network (selected on validation data) gains at most 0.1 dB: yes if both intervals lie below
    that, no if one lies above."""
    return asked(findings, _sweeps, ["T8", "T9"])


def _sweeps(networks: Sequence[Network]) -> Finding:
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
    found = {"d_h": _beyond(by_width, d_h), "L": _beyond(by_depth, 5)}
    answer = all_of([answer for answer, _ in found.values()])
    return answer, {"d_z": d_z, "said": said(found), **numbers_of(found)}


def _beyond(sweep: Mapping[int, Network], knee: int) -> Finding:
    """What the best network beyond the knee gains, and what the whole sweep gained up to it."""
    further = [network for value, network in sweep.items() if value > knee]
    if not further:
        return not_addressed(f"nothing beyond {knee} is trained at this scale")
    gain = compare(best(further).quality, sweep[knee].quality)
    before = sweep[knee].quality.mean - sweep[min(sweep)].quality.mean
    said = f"beyond {knee} it gains {gain.text('dB')}, and {before:+.3f} dB up to there"
    numbers = {"knee": knee, "gain_up_to_the_knee": before} | case(best(further), sweep[knee], gain)
    return REVERSED[gain.above(LITTLE)], numbers | {"said": said}


def c13(findings: Findings) -> Judgement:
    """One half in each table. Denoising (Table 8): the Hourglass of 66 M (3546, 1560, 4) is not below the conventional
    network of 75 M (3072, 3075, 3) by more than 0.01 dB, the digits that the claim states. Super-resolution (Table 9):
    the one of 69 M (3546, 1560, 5) is ahead of the one of 87 M (3072, 3075, 4). Yes or no where the interval decides.
    """
    pairs: dict[str, Callable[[Sequence[Network]], Finding]] = {
        "T8": lambda networks: pair(
            _find(networks, "hourglass", 3546, 1560, 4),
            _find(networks, "conventional", 3072, 3075, 3),
            at_least(-0.01),
        ),
        "T9": lambda networks: pair(
            _find(networks, "hourglass", 3546, 1560, 5),
            _find(networks, "conventional", 3072, 3075, 4),
        ),
    }
    (table,) = {item.part.table for item in findings.parts} & pairs.keys()
    return asked(findings, pairs[table], [table])


def s4(findings: Findings) -> Judgement:
    """For each norm, activation and initialisation, the Hourglass against the conventional network of the same three:
    yes if the same shape is decided ahead in all of them, no if each shape is in one, else undecided."""

    def test(networks: Sequence[Network]) -> Finding:
        fields = ("norm", "activation", "init")
        cells = []
        for wide in _of(networks, "hourglass"):
            cell = {name: wide.model[name] for name in fields}
            others = [network for network in _of(networks, "conventional") if network.has(cell)]
            if others:
                interval = compare(wide.quality, best(others).quality)
                cells.append(cell | case(wide, best(others), interval))
        decisions: list[Decision] = [cell["decision"] for cell in cells]
        answer: Answer = "no" if {"ahead", "behind"} <= set(decisions) else "undecided"
        if set(decisions) in ({"ahead"}, {"behind"}):
            answer = "yes"
        return answer, {"said": f"the Hourglass is {counted(decisions, 'settings')}", "cells": cells}

    return asked(findings, test)
