"""Tests of the iMixer paper's claims; each docstring states its test. Networks are compared on accuracy in percent."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from isthmus.papers.engine.claims import (
    Claims,
    Finding,
    Rule,
    combine,
    conclude,
    judge,
    judge_parts,
    not_addressed,
    pair,
)
from isthmus.papers.engine.exhibit import Findings, Judgement
from isthmus.papers.engine.networks import Network, find_network
from isthmus.studies.statistics import Sample, compare, compare_with, contrast, seeds_to_decide

PAR = 1.0
"""Points within which two models are on a par; our bound. The printed differences are 0.13, 0.13, 0.03 and 0.19."""
FOUR = ("cifar100", "imagenet1k", "cars", "food101")
FAILED = 15.0
"""Percent below which a data set is not learned; our bound, for 196 classes and a printed 8 %."""
CONVERGED = 0.1
"""An iteration has converged when the next step is at most this share of the first; our bound."""
claim = Claims("imixer")


def _both(networks: Iterable[Network]) -> tuple[Network | None, Network | None]:
    return find_network(networks, "imixer"), find_network(networks, "mlp_mixer")


@claim("C1")
def c1(findings: Findings) -> Judgement:
    """At each of the three sizes, iMixer is ahead of Mixer: yes if decided ahead at all, no if decided behind at one.
    The number of seeds that would decide the printed gain at the spread measured here is printed beside it."""
    judgement = judge_parts(findings.parts, lambda networks: pair(*_both(networks)))
    said = [judgement.because]
    for item in findings.parts:
        both = (*_both(item.networks), *_both(item.part.printed.values()))
        found = [network.quality for network in both if network]
        gain = found[2].mean - found[3].mean if len(found) == 4 else 0.0
        if gain and (seeds := seeds_to_decide(found[0], found[1], gain)):
            where = item.part.printed_title
            said.append(f"a gain of {gain:+.2f} points, as printed in {where}, would take {seeds:,} seeds")
    return replace(judgement, because="; ".join(said))


@claim("C2")
def c2(findings: Findings) -> Judgement:
    """The gain of iMixer over Mixer as L, less the gain as S (which is how much less iMixer loses from S to L) and less
    the gain as B: yes if the intervals of both lie above 0, no if one lies below."""
    measured = [item.networks for item in findings.parts]
    printed = [list(item.part.printed.values()) for item in findings.parts]
    return conclude({"measured": _larger_gain(measured)}, {"Table 1": _larger_gain(printed)})


def _larger_gain(sizes: Sequence[Sequence[Network]]) -> Finding:
    qualities = [[network.quality for network in _both(networks) if network] for networks in sizes]
    if len(qualities) < 3 or any(len(both) < 2 for both in qualities):
        return not_addressed("a model of one of the three sizes has no finished run")
    found: dict[str, Finding] = {}
    large, large_mixer = qualities[2]
    for name, (small, small_mixer) in zip(("S", "B"), qualities[:2], strict=True):
        gap = contrast([large, small_mixer], [large_mixer, small])
        found[f"gain as L − gain as {name}"] = judge(gap, said=gap.text("points"))
    return combine(found)


@claim.each_part("C3")
def c3(networks: Sequence[Network]) -> Finding:
    """Two things, both needed. The cell h_r = 2, n = 2 is ahead of every other: yes if decided ahead of all, no if
    decided behind one. And at each h_r any two n are within one point of each other: yes if the intervals of all pairs
    lie within that, no if one lies outside."""
    chosen = find_network(networks, "imixer", h_r=2.0, iterations=2)
    cells = {_cell(item): pair(chosen, item) for item in networks if item is not chosen}
    same = {
        f"{_cell(one)} and {_cell(other)}": pair(one, other, Rule.within(PAR))
        for one in networks
        for other in networks
        if one.model["h_r"] == other.model["h_r"] and one.model["iterations"] < other.model["iterations"]
    }
    return combine({"best cell": _count(cells, "other cells"), "n makes no difference": _count(same, "pairs of n")})


def _cell(network: Network) -> str:
    return f"h_r {network.model['h_r']:g} n {network.model['iterations']}"


def _count(found: Mapping[str, Finding], noun: str) -> Finding:
    """Many findings, counted instead of listed; the numbers keep them all."""
    answer, numbers = combine(found)
    tally = [each for each, _ in found.values()]
    words = ", ".join(f"{word} {tally.count(word)}" for word in ("yes", "no", "undecided") if word in tally)
    seeds = [entry["seeds_to_decide"] for _, entry in found.values() if "seeds_to_decide" in entry]
    more = f"; {min(seeds):,} to {max(seeds):,} seeds would decide the open ones" if seeds else ""
    return answer, numbers | {"said": f"of {len(found)} {noun}: {words}{more}"}


def _steps(networks: Sequence[Network]) -> list[int]:
    return sorted({item.model["iterations"] for item in networks})


def _at_every_n(networks: Sequence[Network], **settings: Sequence[Any]) -> Finding:
    """The first value of a setting against the second."""
    ((name, values),) = settings.items()

    found: dict[str, Finding] = {}
    for n in _steps(networks):
        first, second = (find_network(networks, "imixer", iterations=n, **{name: value}) for value in values)
        found[f"n = {n}"] = pair(first, second)
    return combine(found)


@claim.each_part("C4")
def c4(networks: Sequence[Network]) -> Finding:
    """For every n, h_r = 2 is ahead of the smallest h_r tried: yes if decided ahead for all n, no if decided behind for
    one."""
    return _at_every_n(networks, h_r=(2.0, min(item.model["h_r"] for item in networks)))


@claim.each_part("C5")
def c5(networks: Sequence[Network]) -> Finding:
    """For every n, spectral norm is ahead of batch norm: yes if decided ahead for all n, no if decided behind for
    one."""
    return _at_every_n(networks, norm=("spectral", "batch"))


@claim.each_part("C6")
def c6(networks: Sequence[Network]) -> Finding:
    """Three things, all needed: at n = 1 no norm is ahead of spectral norm, at the larger n behind it, and without a
    norm each n is ahead of the next larger one. Yes if all are decided so, no if one is decided the other way."""
    first, *larger = _steps(networks)
    none, spectral = (
        {n: find_network(networks, "imixer", norm=norm, iterations=n) for n in (first, *larger)}
        for norm in ("none", "spectral")
    )
    found = {f"n = {first}, none ahead": pair(none[first], spectral[first])}
    found |= {f"n = {n}, none behind": pair(spectral[n], none[n]) for n in larger}
    found |= {f"none, n = {n} ahead of n = {more}": pair(none[n], none[more]) for n, more in pairwise(larger)}
    return combine(found)


@claim.each_part("C7", every=FOUR, elsewhere="the paper's four data sets are trained at its own scale alone")
def c7(networks: Sequence[Network]) -> Finding:
    """On each of the four data sets iMixer-S and Mixer-S are within one point of each other: yes if the intervals lie
    within that on all of them, no if one lies outside. A single run without a spread decides nothing."""
    return pair(*_both(networks), Rule.within(PAR))


@claim.each_part("C8", "cars", elsewhere="Stanford Cars is trained at the paper's scale alone")
def c8(networks: Sequence[Network]) -> Finding:
    """On Stanford Cars both models stay below 15 %: yes if the intervals of both means do, no if one lies above."""
    gaps = {item.shape: (item.quality.mean, compare(item.quality, Sample.exact(FAILED))) for item in networks}
    return combine(
        {
            shape: judge(gap, Rule.trails(), f"{mean:.2f} %, {gap.text('points')} from {FAILED:g} %")
            for shape, (mean, gap) in gaps.items()
        }
    )


@claim("C9")
def c9(findings: Findings) -> Judgement:
    """In the first block of each trained model, the step after its own n iterations, ‖x^{n+1} − x^n‖, as a share of the
    first step, in the mean over 16 test images: below a tenth for n = 2 and n = 4, and above it for n = 1. Yes if the
    intervals over seeds all lie so, no if one lies on the other side."""
    found: dict[str, Finding] = {}
    for n, shares in sorted(findings.analysis["remaining"].items(), key=lambda entry: int(entry[0])):
        gap = compare_with(shares, CONVERGED)
        text = f"{statistics.fmean(shares):.3f} of the first step is left, {gap.text()} from a tenth"
        answer, numbers = judge(gap, Rule.trails() if int(n) > 1 else Rule.leads(), text)
        found[f"n = {n}"] = answer, numbers | {"shares": list(shares)}
    whole = combine(found)
    return replace(conclude({"first block": whole}), because=whole[1]["said"])


@claim("C.3", "The iteration converges faster in the middle blocks than in the first and the last (appendix C.3).")
def middle(findings: Findings) -> Judgement:
    """The step after n iterations, as a share of the first: the smaller of the first and of the last block less the
    mean over the blocks between them, over seeds. Yes if the interval lies above 0 for every trained n, no if below for
    one."""
    found: dict[str, Finding] = {}
    for n, blocks in sorted(findings.analysis["remaining_by_block"].items(), key=lambda entry: int(entry[0])):
        if len(blocks) < 3:
            return conclude({f"n = {n}": not_addressed(f"{len(blocks)} blocks have no middle")})
        gap = compare_with([min(run[0], run[-1]) - statistics.fmean(run[1:-1]) for run in zip(*blocks, strict=True)], 0)
        shares = ", ".join(f"{statistics.fmean(block):.3f}" for block in blocks)
        found[f"n = {n}"] = judge(gap, said=f"shares left, block by block: {shares}; the difference is {gap.text()}")
    return conclude(found)
