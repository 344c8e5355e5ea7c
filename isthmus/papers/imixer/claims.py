"""The claims of the iMixer paper as tests. Each docstring states its test, and is printed with the answer.

Networks are compared on test accuracy in percent. Every pair is judged at 95 % on its own; no correction is made for
how many there are. Where the seeds leave a pair undecided, the number of seeds that would decide it is said.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from isthmus.papers.engine.asking import (
    AHEAD,
    Finding,
    Rule,
    Test,
    asked,
    interval_numbers,
    judged,
    not_addressed,
    pair,
    said,
    together,
    within,
)
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.protocol import Findings, Judgement, Measured
from isthmus.studies.statistics import Answer, contrast, seeds_to_decide

SAME = Rule(lambda gap: "yes" if gap.decision == "undecided" else "no", ())
PAR = 1.0
"""Points within which two models are on a par; our bound. The printed differences are 0.13, 0.13, 0.03 and 0.19."""
FAILED = 15.0
"""Percent below which a data set is not learned; our bound, for 196 classes and a printed 8 %."""
CONVERGED = 0.1
"""An iteration has converged when a further step is so small, as a share of the first; our bound."""


def _one(networks: Iterable[Network], name: str, **settings: Any) -> Network | None:
    return next((item for item in networks if item.shape == name and item.has(settings)), None)


def _gain(networks: Sequence[Network]) -> Finding:
    return pair(_one(networks, "imixer"), _one(networks, "mlp_mixer"))


def c1(findings: Findings) -> Judgement:
    """At each of the three sizes, iMixer is ahead of Mixer: yes if decided ahead at all, no if decided behind at one.
    Beside it stands how many seeds would decide the printed gain at the spread that is measured here."""
    judgement = asked(findings, _gain)
    lines = [line for item in findings.parts if (line := _seeds_of_printed_gain(item))]
    return replace(judgement, because="; ".join([judgement.because, *lines]))


def _seeds_of_printed_gain(item: Measured) -> str:
    here = [_one(item.networks, name) for name in ("imixer", "mlp_mixer")]
    there = [_one([row.network for row in item.part.printed.values()], name) for name in ("imixer", "mlp_mixer")]
    if None in (*here, *there):
        return ""
    first, second, printed, baseline = (network.quality for network in (*here, *there) if network)
    gain = printed.mean - baseline.mean
    seeds = seeds_to_decide(first, second, gain)
    return (
        f"a gain of {gain:+.2f} points, as printed in {item.part.printed_title}, would take {seeds:,} seeds"
        if seeds
        else ""
    )


def c2(findings: Findings) -> Judgement:
    """The gain of iMixer over Mixer as L, less the gain as S (which is how much less iMixer loses from S to L) and less
    the gain as B: yes if the intervals of both lie above 0, no if one lies below."""
    measured = [item.networks for item in findings.parts]
    printed = [[row.network for row in item.part.printed.values()] for item in findings.parts]
    return judged({"measured": _larger_gain(measured)}, {"Table 1": _larger_gain(printed)})


def _larger_gain(sizes: Sequence[Sequence[Network]]) -> Finding:
    ends = [(_one(networks, "imixer"), _one(networks, "mlp_mixer")) for networks in sizes]
    if len(ends) < 3 or any(network is None for both in ends for network in both):
        return not_addressed("a model of one of the three sizes has no finished run")
    qualities = [[network.quality for network in both if network] for both in ends]
    found: dict[str, Finding] = {}
    (large, large_mixer) = qualities[2]
    for name, (small, small_mixer) in zip(("S", "B"), qualities[:2], strict=True):
        gap = contrast([large, small_mixer], [large_mixer, small])
        found[f"gain as L − gain as {name}"] = (
            AHEAD[gap.decision],
            {"said": gap.text("points"), **interval_numbers(gap)},
        )
    return together(found)


def c3(findings: Findings) -> Judgement:
    """Two things, both needed. The cell h_r = 2, n = 2 is ahead of every other: yes if decided ahead of all, no if
    decided behind one. And at each h_r no two n differ: yes if no pair is decided, no if one is."""

    def test(networks: Sequence[Network]) -> Finding:
        chosen = _one(networks, "imixer", h_r=2.0, iterations=2)
        others = [item for item in networks if item is not chosen]
        cells = {_cell(item): pair(chosen, item) for item in others}
        same = {
            f"{_cell(one)} and {_cell(other)}": pair(one, other, SAME)
            for one in networks
            for other in networks
            if one.model["h_r"] == other.model["h_r"] and one.model["iterations"] < other.model["iterations"]
        }
        return together(
            {"best cell": _counted(cells, "other cells"), "n makes no difference": _counted(same, "pairs of n")}
        )

    return asked(findings, test)


def _cell(network: Network) -> str:
    return f"h_r {network.model['h_r']:g} n {network.model['iterations']}"


def _counted(found: Mapping[str, Finding], noun: str) -> Finding:
    """Many findings, counted instead of listed; the numbers keep them all."""
    answer, numbers = together(found)
    tally = [each for each, _ in found.values()]
    words = ", ".join(f"{word} {tally.count(word)}" for word in ("yes", "no", "undecided") if word in tally)
    seeds = [entry["seeds_to_decide"] for _, entry in found.values() if "seeds_to_decide" in entry]
    more = f"; {min(seeds):,} to {max(seeds):,} seeds would decide the open ones" if seeds else ""
    return answer, numbers | {"said": f"of {len(found)} {noun}: {words}{more}"}


def c4(findings: Findings) -> Judgement:
    """For every n, h_r = 2 is ahead of the smallest h_r tried: yes if decided ahead for all n, no if decided behind for
    one."""

    def test(networks: Sequence[Network]) -> Finding:
        least = min(item.model["h_r"] for item in networks)
        steps = sorted({item.model["iterations"] for item in networks})
        return together(
            {
                f"n = {n}": pair(
                    _one(networks, "imixer", h_r=2.0, iterations=n), _one(networks, "imixer", h_r=least, iterations=n)
                )
                for n in steps
            }
        )

    return asked(findings, test)


def _norm(networks: Sequence[Network], norm: str, n: int) -> Network | None:
    return _one(networks, "imixer", norm=norm, iterations=n)


def c5(findings: Findings) -> Judgement:
    """For every n, spectral norm is ahead of batch norm: yes if decided ahead for all n, no if decided behind for
    one."""
    return asked(findings, _every_n(lambda networks, n: (_norm(networks, "spectral", n), _norm(networks, "batch", n))))


def _every_n(ends: Any) -> Test:
    def test(networks: Sequence[Network]) -> Finding:
        steps = sorted({item.model["iterations"] for item in networks})
        return together({f"n = {n}": pair(*ends(networks, n)) for n in steps})

    return test


def c6(findings: Findings) -> Judgement:
    """Three things, all needed: at n = 1 no norm is ahead of spectral norm, at the larger n behind it, and without a
    norm each n is ahead of the next larger one. Yes if all are decided so, no if one is decided the other way."""

    def test(networks: Sequence[Network]) -> Finding:
        steps = sorted({item.model["iterations"] for item in networks})
        found = {
            f"n = {steps[0]}, none ahead": pair(
                _norm(networks, "none", steps[0]), _norm(networks, "spectral", steps[0])
            )
        }
        for n in steps[1:]:
            found[f"n = {n}, none behind"] = pair(_norm(networks, "spectral", n), _norm(networks, "none", n))
        for n, more in pairwise(steps[1:]):
            found[f"none, n = {n} ahead of n = {more}"] = pair(
                _norm(networks, "none", n), _norm(networks, "none", more)
            )
        return together(found)

    return asked(findings, test)


def c7(findings: Findings) -> Judgement:
    """On each data set iMixer-S and Mixer-S are within one point of each other: yes if the intervals lie within that on
    all of them, no if one lies outside. A single run without a spread decides nothing."""
    return asked(findings, lambda networks: pair(_one(networks, "imixer"), _one(networks, "mlp_mixer"), within(PAR)))


def c8(findings: Findings) -> Judgement:
    """On Stanford Cars both models stay below 15 %: yes if both means do, no if one does not."""

    def test(networks: Sequence[Network]) -> Finding:
        means = {item.shape: item.quality.mean for item in networks}
        words = ", ".join(f"{name} {mean:.2f} %" for name, mean in means.items())
        return "yes" if max(means.values()) < FAILED else "no", {"said": words}

    cars = [item for item in findings.parts if item.part.study.base.source.name == "cars"]
    if not cars:
        return replace(judged({}), because="Stanford Cars is trained at the paper's scale alone")
    return asked(Findings(cars), test)


def c9(findings: Findings) -> Judgement:
    """In the first block of each trained model, the step after its own n iterations, ‖x^{n+1} − x^n‖, as a share of the
    first step: below a tenth for n = 2 and n = 4, and not for n = 1, in the mean over seeds and 16 test images. Yes if
    so, no if not; undecided if seeds of one model fall on both sides."""
    found: dict[str, Finding] = {}
    for n, shares in sorted(findings.analysis["remaining"].items(), key=lambda entry: int(entry[0])):
        below = {value < CONVERGED for value in shares}
        wanted = int(n) > 1
        answer: Answer = "undecided" if len(below) > 1 else "yes" if below == {wanted} else "no"
        text = f"{statistics.fmean(shares):.3f} of the first step is left"
        found[f"n = {n}"] = answer, {"said": text, "shares": list(shares)}
    answer, numbers = together(found)
    return replace(judged({"first block": (answer, numbers)}), because=said(found))


def middle(findings: Findings) -> Judgement:
    """The step after n iterations, as a share of the first, in the mean over the middle blocks, is smaller than in the
    first block and than in the last, for every trained n: yes if so for all seeds, no if for none, else undecided."""
    found: dict[str, Finding] = {}
    for n, blocks in sorted(findings.analysis["remaining_by_block"].items(), key=lambda entry: int(entry[0])):
        if len(blocks) < 3:
            return judged({f"n = {n}": not_addressed(f"{len(blocks)} blocks have no middle")})
        holds = {statistics.fmean(run[1:-1]) < min(run[0], run[-1]) for run in zip(*blocks, strict=True)}
        answer: Answer = "undecided" if len(holds) > 1 else "yes" if holds == {True} else "no"
        shares = ", ".join(f"{statistics.fmean(block):.3f}" for block in blocks)
        found[f"n = {n}"] = answer, {"said": f"shares left, block by block: {shares}"}
    return judged(found)
