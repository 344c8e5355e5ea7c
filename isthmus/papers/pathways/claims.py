"""Tests of the digest's claims; each docstring states its test. All were written before any result, T2 after E3's.

"Level" means that the whole 95 % interval of the difference lies within a tolerance, not merely that it contains zero:
0.01 of R², which is one percent of the variance, 0.1 dB, or one point of accuracy. Where a test asked whether all
seeds agree, it asks for the interval of their mean since 2026-11-18, as every other test does.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from isthmus.papers.engine.claims import (
    TOLERANCE,
    Claims,
    Finding,
    Rule,
    Test,
    conclude,
    exact,
    judge,
    judge_parts,
    not_addressed,
    pair,
)
from isthmus.papers.engine.exhibit import Findings, Judgement, MeasuredPart
from isthmus.papers.engine.networks import Network
from isthmus.papers.pathways.laws import extra_macs
from isthmus.papers.pathways.studies import FORMS, label, of_pathway, plains_by_steps
from isthmus.studies.statistics import combine as weigh
from isthmus.studies.statistics import compare_runs, compare_shares, compare_with

EXACT = 1e-9
"""The largest relative error of an identity in float64."""
LARGE, BOUNDED = 10.0, 2.0
"""Of ‖x_L‖ / ‖x_0‖: above the first it has grown, below the second it is bounded."""
CONSTANT = 1.1
"""How much what is kept may grow from 16 to 256 blocks and still be called constant."""
EXPLAINED = 0.95
"""The share of a curve's variance from which on a fit describes it."""
LOOSE = 0.1
"""How far a counted c may be from the law, relatively."""
claim = Claims("pathways")


def versus(first: Network | None, second: Network | None, rule: Rule | None = None) -> Finding:
    """The finding about two networks, which are called by their pathways."""
    first, second = (network and replace(network, id=label(network.model)) for network in (first, second))
    return pair(first, second, rule)


def level(first: Network | None, second: Network | None) -> Finding:
    return versus(first, second, Rule.within(TOLERANCE[first.unit if first else ""]))


def list_compared_parts(findings: Findings) -> list[MeasuredPart]:
    """The parts with more than one pathway."""
    return [item for item in findings.parts if len({label(network.model) for network in item.networks}) > 1]


def _each(findings: Findings, test: Test) -> Judgement:
    return judge_parts(list_compared_parts(findings), test)


def _below(values: Sequence[float], bound: float, what: str) -> Finding:
    said = f"{what} at most {max(values):.3g} in {len(values)} draws"
    answer, numbers = judge(compare_with(values, bound), Rule.trails(), said)
    return answer, numbers | {"values": list(values)}


# Without training


@claim("X1")
def expansion(findings: Findings) -> Judgement:
    """In float64, the first and half the second derivative by λ at 0 of a random network of 9 blocks, by automatic
    differentiation, equal the theorem's terms within 1e-9, relatively: yes if the interval of the mean error over draws
    lies below that, no if above."""
    found = findings.analysis["identities"]
    return conclude({f"order {k}": _below([each[f"expansion, order {k}"] for each in found], EXACT, "error")
                     for k in (1, 2)})  # fmt: skip


@claim("X2")
def growth(findings: Findings) -> Judgement:
    """Before training and without norms, ‖x_L‖ / ‖x_0‖ of the deepest plain network is above 10, and of both scaled
    ones below 2 at every depth: yes if the intervals over draws all lie so, no if one lies on the other side."""
    found = findings.analysis["growth"]
    deepest = max(found["plain"], key=int)
    plain = found["plain"][deepest]
    said = f"{min(plain):.4g} to {max(plain):.4g} at {deepest} blocks"
    lines: dict[str, Finding] = {"plain": judge(compare_with(plain, LARGE), said=said)}
    for name in ("scaled/sqrt", "scaled/depth"):
        values = [value for by_depth in found[name].values() for value in by_depth]
        lines[name] = _below(values, BOUNDED, "growth")
    return conclude(lines)


@claim("D1")
def delta_spectrum(findings: Findings) -> Judgement:
    """In float64, the eigenvalues of the map of the stream, with direction and gates held, equal 1, …, 1, 1 − β within
    1e-9, and with β = 2 and v = 0 a length changes by less than that: yes if the intervals of the mean errors over
    draws lie below it, no if one lies above."""
    found = findings.analysis["identities"]
    names = ("delta, eigenvalues", "delta, length after a reflection")
    return conclude({name: _below([each[name] for each in found], EXACT, "error") for name in names})


@claim("R1")
def reversible_memory(findings: Findings) -> Judgement:
    """The numbers that autograd keeps for a row of the deepest network over those of the one with 16 blocks: yes if at
    most 1.1 with recomputation in every shape, no if one is above. What plain keeps is printed beside it."""
    lines: dict[str, Finding] = {}
    for shape, by_depth in findings.analysis["costs"].items():
        deep = max(by_depth, key=int)

        def ratio(name: str, by_depth: Mapping[str, Any] = by_depth, deep: str = deep) -> float:
            return float(by_depth[deep][name]["saved"] / by_depth["16"][name]["saved"])

        ours, plain = ratio("reversible/recomputed"), ratio("plain")
        text = f"{ours:.3f} times as many at {deep} blocks as at 16 (plain {plain:.3g})"
        lines[shape] = exact(ours <= CONSTANT, text)
    return conclude(lines)


@claim("M1")
def cost_laws(findings: Findings) -> Judgement:
    """Counted multiply–adds and parameters beyond plain against the closed forms, for every shape and depth: yes if all
    parameters are equal and all multiply–adds within 10 %, no if one is not. attended/full has no exact form here."""
    worst: dict[str, tuple[float, float]] = {}
    for by_depth in findings.analysis["costs"].values():
        for line in by_depth.values():
            for name, values in line.items():
                if name == "attended/full":
                    continue
                missed = abs(values["c"] - values["law"]) / max(values["law"], 1.0)
                params = abs(values["extra_params"] - values["law_of_params"])
                before = worst.get(name, (0.0, 0.0))
                worst[name] = max(before[0], missed), max(before[1], params)
    lines: dict[str, Finding] = {}
    for name, (macs, params) in worst.items():
        text = f"c within {macs:.1%} of the law, parameters off by {params:.0f}"
        lines[name] = exact(macs <= LOOSE and params == 0, text)
    return conclude(lines)


# Trained


@claim("I1")
def residuals_help(findings: Findings) -> Judgement:
    """Plain less the network without skip connections, after the same steps: yes if decided ahead in every part, no if
    decided behind in one. Each has the better of two learning rates."""
    return _each(findings, lambda networks: versus(of_pathway(networks, "plain"), of_pathway(networks, "none")))


@claim("L1")
def ladder_level(findings: Findings) -> Judgement:
    """Ladder less plain: yes if the interval lies within the tolerance (0.01 of R², 0.1 dB, one point) in every part,
    no if outside of it in one."""
    return _each(
        findings, lambda networks: level(of_pathway(networks, "delayed/ladder"), of_pathway(networks, "plain"))
    )


@claim("S1")
def parallel_level(findings: Findings) -> Judgement:
    """All branches side by side less plain: yes if the interval lies within the tolerance of 0.01 of R² at every λ, no
    if outside of it at one."""
    return _each(
        findings, lambda networks: level(of_pathway(networks, "delayed/parallel"), of_pathway(networks, "plain"))
    )


@claim("X3")
def depth_factor_costs(findings: Findings) -> Judgement:
    """256 blocks with the factor 1/L and no norms less plain with LayerNorm: yes if decided behind, no if ahead."""

    def test(networks: Sequence[Network]) -> Finding:
        factor = of_pathway(networks, "scaled/depth")
        normed = next((n for n in networks if label(n.model) == "plain" and n.model["norm"] == "layer"), None)
        return versus(factor, normed, Rule.trails())

    return _each(findings, test)


@claim("A1")
def more_uniform(findings: Findings) -> Judgement:
    """Standard deviation over mean, over depth, of the lengths of updates and of the loss's gradients by them: plain's
    less that of attention over 8 blocks, over seeds, on test rows of trained networks: yes if both intervals lie above
    0 in every part, no if one lies below. Where the published form was trained too, it must hold for both forms."""
    found = findings.analysis["uniformity"]
    lines: dict[str, Finding] = {}
    for item in list_compared_parts(findings):
        plain = of_pathway(item.networks, "plain")
        for form, where in _list_forms(item).items():
            for key, words in (("update", "updates"), ("gradient", "gradients")):
                lines[f"{where}, {words}"] = _less_varied(found, plain, of_pathway(item.networks, form), key)
    return conclude(lines)


def _list_forms(item: MeasuredPart) -> dict[str, str]:
    """What each form of attention over depth is called in this part: ours, and the published one if it was trained."""
    ours, *others = FORMS
    trained = {label(network.model) for network in item.networks}
    published = {form: f"{item.part.title}, {form}" for form in others if {form, FORMS[form]} & trained}
    return {ours: item.part.title} | published


def _less_varied(found: Mapping[str, Any], plain: Network | None, ours: Network | None, key: str) -> Finding:
    if plain is None or ours is None or min(len(found[each.id][key]) for each in (plain, ours)) < 2:
        return not_addressed("one of the two has fewer than two runs")
    before, after = found[plain.id][key], found[ours.id][key]
    gap = compare_runs(before, after)
    means = f"{statistics.fmean(before):.3f} for plain, {statistics.fmean(after):.3f} for attended"
    return judge(gap, said=f"{means}, less by {gap.text()}")


@claim("A2")
def blocks_keep_the_gain(findings: Findings) -> Judgement:
    """Where attention over all updates is decided ahead of plain: attention over 8 blocks less the middle of plain and
    of the full variant, which is half of the gain: yes if the interval lies above 0, no if below. Where the full
    variant gains nothing that is decided, the claim is not addressed. Where the published form was trained too, the
    same of its blocks and its full variant."""
    return conclude({
        where: _keeps_the_gain(item.networks, form)
        for item in list_compared_parts(findings)
        for form, where in _list_forms(item).items()
    })  # fmt: skip


def _keeps_the_gain(networks: Sequence[Network], form: str) -> Finding:
    blocks, full, plain = (of_pathway(networks, name) for name in (form, FORMS[form], "plain"))
    if blocks is None or full is None or plain is None:
        return not_addressed("one of the three networks has no finished run")
    answer, numbers = versus(full, plain)
    if answer != "yes":
        return not_addressed(f"the full variant is not decided ahead of plain: {numbers['said']}")
    gap = weigh([(1.0, blocks.quality), (-0.5, full.quality), (-0.5, plain.quality)])
    return judge(gap, said=f"beyond half of the gain by {gap.text()}, of {numbers['said']}")


def _by_seconds(network: Network, plains: Mapping[float, Network | None], ratio: float) -> Finding:
    """A pathway less plain with the most steps that take no longer."""
    times = max(each for each in plains if each <= max(1.0, ratio))
    answer, numbers = versus(network, plains[times], Rule.less_than(TOLERANCE[network.unit]))
    numbers["said"] = f"{ratio:.2f} of plain's time, against {times:g} times its steps: {numbers['said']}"
    return answer, numbers


@claim("T1")
def equal_seconds(findings: Findings) -> Judgement:
    """At λ = 2, every pathway less plain trained for 1, 2 or 4 times the steps, the most that take no longer by the CPU
    time of a step: yes if every interval lies below the tolerance of 0.01 of R², no if one lies above it."""
    first = findings.parts[0]
    plains = plains_by_steps(first, findings.parts)
    costs = findings.analysis["costs"]
    return conclude({
        label(network.model): _by_seconds(network, plains, costs[network.id]["seconds"])
        for network in first.networks
        if label(network.model) not in ("plain", "none")
    })  # fmt: skip


@claim("T2")
def equal_seconds_by_shape(findings: Findings) -> Judgement:
    """In every shape, each pathway that adds multiply–adds less plain trained for 1, 1.5 or 2 times the steps, the most
    of those trained that take no longer by the CPU time of a forward and a backward pass: yes if every interval lies
    below the tolerance (0.01 of R², 0.1 dB), no if one lies above it. Not addressed where plain was not trained for
    longer. Pathways that add none take plain's time; E3 compares them with it."""
    costs = findings.analysis["costs"]
    lines: dict[str, Finding] = {}
    for item in list_compared_parts(findings):
        plains = plains_by_steps(item, findings.parts)
        for network in item.networks:
            name = label(network.model)
            if not extra_macs(name, network.model["depth"]):
                continue
            if len(plains) > 1 and network.id in costs:
                found = _by_seconds(network, plains, costs[network.id]["seconds"])
            else:
                found = not_addressed("plain has no finished run, or none of more steps")
            lines[f"{name}, {item.part.title}"] = found
    return conclude(lines)


# Iterations


def _curves(findings: Findings, *names: str) -> list[Any]:
    return [findings.analysis["curves"].get(name) for name in names]


@claim("P1")
def saturates(findings: Findings) -> Judgement:
    """Least squares of a + b·exp(−cT) to the test loss after T = 1 to 24 iterations, with decay towards the input,
    trained with 6: yes if the interval of the explained share of the variance over seeds lies above 0.95, no if below.
    The same of the other two is printed beside it."""
    (ours,) = _curves(findings, "injected/parcae")
    if ours is None:
        return conclude({"injected/parcae": not_addressed("it has no finished run")})
    lines = {}
    for name, entry in findings.analysis["curves"].items():
        shares = [fit["explained"] for fit in entry["fits"]]
        lines[name] = f"{name}: {min(shares):.3f} to {max(shares):.3f} explained"
    gap = compare_with([fit["explained"] for fit in ours["fits"]], EXPLAINED)
    said = f"{'; '.join(lines.values())}; injected/parcae is {gap.text()} from {EXPLAINED:g}"
    return conclude({"fit": judge(gap, said=said)})


@claim("P2")
def bounded_state(findings: Findings) -> Judgement:
    """Length of a token after 24 iterations over that after 6, plain's less that with decay towards the input, over
    seeds: yes if the interval lies above 0, no if below. A state that is not finite is no length."""
    ours, plain = _curves(findings, "injected/parcae", "plain")
    if ours is None or plain is None or None in [*ours["growth"], *plain["growth"]]:
        return conclude({"growth": not_addressed("one of the two has no finished run or no finite state")})
    if min(len(ours["growth"]), len(plain["growth"])) < 2:
        return conclude({"growth": not_addressed("one run has no spread")})
    gap = compare_runs(plain["growth"], ours["growth"])
    means = [statistics.fmean(each["growth"]) for each in (plain, ours)]
    said = f"{means[0]:.3f} for plain, {means[1]:.3f} with decay, less by {gap.text()}"
    return conclude({"growth": judge(gap, said=said)})


@claim("P3")
def fewer_diverge(findings: Findings) -> Judgement:
    """The share of trainings that diverged, over three learning rates and all seeds, of plain and of addition less that
    with decay towards the input (Newcombe's interval): yes if both lie above 0, no if one lies below; not addressed
    where none diverged."""
    ours, *others = _curves(findings, "injected/parcae", "plain", "injected/addition")
    if ours is None or None in others:
        return conclude({"diverged": not_addressed("one of them has no finished run")})
    counts = [each["diverged"] for each in others]
    said = f"{ours['diverged']} of {ours['tried']} with decay, {counts[0]} plain, {counts[1]} with addition"
    if not ours["diverged"] and not any(counts):
        return conclude({"diverged": not_addressed(f"none diverged: {said}")})
    shares = [(each["diverged"], each["tried"]) for each in (*others, ours)]
    gaps = {name: compare_shares(share, shares[-1]) for name, share in zip(("plain", "addition"), shares, strict=False)}
    return conclude({name: judge(gap, said=f"{said}; the difference is {gap.text()}") for name, gap in gaps.items()})
