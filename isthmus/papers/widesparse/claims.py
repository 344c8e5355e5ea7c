"""Tests of the wide-and-sparse paper's claims; each docstring states its test. Accuracies are in percent."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from isthmus.analysis import shape_theory as theory
from isthmus.papers.engine.claims import (
    Claims,
    Finding,
    NotStored,
    Rule,
    combine,
    conclude,
    exact,
    judge,
    judge_parts,
    not_addressed,
    pair,
    set_aside,
)
from isthmus.papers.engine.exhibit import Findings, Judgement
from isthmus.papers.engine.networks import Network, best, find_network
from isthmus.studies.statistics import Sample, compare, compare_runs

LITTLE = 1.0
"""Points of accuracy; our bound of "about the same", as the paper names none. Its figures show a few points in all."""
NEAR = 2.0
"""C and S are near each other up to this factor."""
EDGE = 0.05
"""How far a Mixer's largest singular value may be from 1 + √γ, relatively: finite matrices are below their limit."""
MIXERS = ("s_mixer", "rp_s_mixer", "mlp_mixer", "rp_mlp_mixer")
THREE = ("cifar10", "cifar100", "stl10")
WIDE = 467
"""C of Mixer-SS-W, which has 255 M connections."""
claim = Claims("widesparse")


def of(networks: Iterable[Network], *shapes: str) -> list[Network]:
    return [network for network in networks if network.shape in shapes]


def width(network: Network) -> int:
    """m; for a Mixer S·C."""
    model = network.model
    return int(model["m"]) if "m" in model else int(model["S"] * model["C"])


def omega(network: Network) -> float:
    """Connections in a layer, on average over the two mixing steps."""
    model, gamma = network.model, network.model.get("gamma", 1.0)
    if "m" in model:
        return theory.sparse_connections(model["m"], model["p"], gamma)
    return theory.mixer_connections(model["S"], model["C"], gamma)


def series(networks: Iterable[Network]) -> dict[str, list[Network]]:
    """Networks of one kind with about the same Ω, by width; whole numbers of C and S miss Ω by a few percent."""
    found: dict[str, list[Network]] = {}
    for network in sorted(networks, key=lambda item: (item.shape, omega(item), item.id)):
        for name, members in found.items():
            shape = name.split(",")[0]
            if shape == network.shape and omega(network) <= 1.25 * omega(members[0]):
                members.append(network)
                break
        else:
            found[f"{network.shape}, Ω near {omega(network):,.0f}"] = [network]
    return {name: sorted(members, key=lambda item: (width(item), item.id)) for name, members in found.items()}


def families(networks: Iterable[Network]) -> dict[str, list[Network]]:
    """Mixers and SW-MLPs of one kind and one Ω."""
    return series(of(networks, *MIXERS, "sw_mlp"))


def rises(members: Sequence[Network], x: Callable[[Network], float]) -> Finding:
    """Whether the networks with the largest x are ahead of those with the smallest."""
    low, high = min(map(x, members)), max(map(x, members))
    if high <= 1.02 * low:
        return not_addressed("the networks hardly differ in it")
    least = [item for item in members if x(item) <= 1.02 * low]
    most = [item for item in members if x(item) >= high / 1.02]
    return combine({f"{x(b):g} against {x(a):g}": pair(b, a) for a in least for b in most})


@claim.each_part("C1", every=("cifar10", "cifar100"))
def c1(networks: Sequence[Network]) -> Finding:
    """The Mixer with smaller patches, which is the wider one, is ahead of the other, and in the printed numbers of
    β-LASSO as well: yes if decided ahead, no if decided behind. β-LASSO is not trained here, and other sizes do not
    address the claim."""
    mixers = sorted(of(networks, "mlp_mixer"), key=lambda item: item.model["patch"])
    if len(mixers) < 2:
        return not_addressed("one of the two Mixers has no finished run")
    cases = {"wide against narrow": pair(mixers[0], mixers[-1])}
    quoted = of(networks, "beta_lasso")
    found = combine(cases | ({"wide against β-LASSO": pair(mixers[0], quoted[0])} if quoted else {}))
    if mixers[0].model["C"] != WIDE:
        return set_aside("the claim is about 256 M connections, and these networks have fewer", found)
    return found


@claim.each_part("C2", "T1b", elsewhere="ImageNet-1k is trained at the paper's scale alone")
def c2(networks: Sequence[Network]) -> Finding:
    """On ImageNet-1k, Mixer-B-W is ahead of Mixer-B/16: yes if decided ahead, no if decided behind. The printed error
    of Mixer-B/16 has no spread, and is taken as exact."""
    return pair(find_network(networks, "mlp_mixer", patch=14), find_network(networks, "mlp_mixer", patch=16))


@claim.each_part("C3")
def c3(networks: Sequence[Network]) -> Finding:
    """Three things, all needed. The widest Mixer is ahead of the narrowest, and the widest SW-MLP within the Mixers'
    widths likewise; SW-MLP gains less than one point beyond the width of the widest Mixer, where any are so wide; and
    the best Mixer is ahead of the best SW-MLP, both selected on validation data. Yes or no where intervals decide."""
    mixers, masks = of(networks, "mlp_mixer"), of(networks, "sw_mlp")
    if not mixers or not masks:
        return not_addressed("one of the two kinds has no finished run")
    limit = max(map(width, mixers))
    inside, beyond = ([m for m in masks if (width(m) > limit) == far] for far in (False, True))
    found = {"Mixer over m": rises(mixers, width), "SW-MLP over m": rises(inside, width)}
    if beyond:
        found["SW-MLP beyond"] = pair(best(beyond), max(inside, key=width), Rule.less_than(LITTLE))
    return combine(found | {"Mixer against SW-MLP": pair(best(mixers), best(masks))})


@claim("C4")
def c4(findings: Findings) -> Judgement:
    """Random weights are drawn for every width. SW-MLP's largest singular value is above 1 + √γ at the smallest width
    and larger at the largest, and the Mixer's is at no width above 1 + √γ by more than 5 %, and within 5 % of it at the
    largest: yes if the intervals over the draws all lie so, no if one lies on the other side."""
    found = findings.analysis["singular_values"]
    edge, lines = found["dense_edge"], sorted(found["widths"], key=lambda line: line["width"])
    masks, mixers = (
        [Sample(line[kind]["mean"], line[kind]["std"], found["trials"]) for line in lines]
        for kind in ("sw_mlp", "mixer")
    )
    most, least = Sample.exact((1 + EDGE) * edge), Sample.exact((1 - EDGE) * edge)
    widths = [f"{line['width']:,}" for line in lines]
    below = [judge(compare(mixer, most), Rule.trails()) for mixer in mixers]
    answer, numbers = combine(dict(zip(widths, below, strict=True)))
    span = f"as γm grows from {widths[0]} to {widths[-1]}"
    numbers["said"] = f"{mixers[0].mean:.3f} to {mixers[-1].mean:.3f} {span}, of {edge:.3f}"
    return conclude(
        {
            "SW-MLP − (1 + √γ), narrowest": judge(compare(masks[0], Sample.exact(edge))),
            "SW-MLP, widest − narrowest": judge(compare(masks[-1], masks[0])),
            "Mixer, not above": (answer, numbers),
            "Mixer − 0.95 (1 + √γ), widest": judge(compare(mixers[-1], least)),
        }
    )


@claim.each_part("C5", every=THREE)
def c5(networks: Sequence[Network]) -> Finding:
    """For every Ω and both kinds of permutation, each S-Mixer of the largest effective width S·C is ahead of each of
    the smallest: yes if all are decided ahead, no if one is decided behind."""
    return combine({name: rises(group, width) for name, group in series(of(networks, *MIXERS)).items()})


def near_equal(members: Sequence[Network]) -> Finding:
    """Whether the best with C/S between 1/2 and 2 is ahead of the best below and of the best above."""
    ratio = {item.id: item.model["C"] / item.model["S"] for item in members}
    middle = [item for item in members if 1 / NEAR <= ratio[item.id] <= NEAR]
    sides = {
        "C below S": [item for item in members if ratio[item.id] < 1 / NEAR],
        "C above S": [item for item in members if ratio[item.id] > NEAR],
    }
    if not middle or not all(sides.values()):
        return not_addressed("there are not networks on both sides of C = S and near it")
    return combine({f"against {name}": pair(best(middle), best(side)) for name, side in sides.items()})


@claim.each_part("C6", every=(*THREE, "imagenet1k"))
def c6(networks: Sequence[Network]) -> Finding:
    """With normal and with random permutations, the best network with C/S between 1/2 and 2 is ahead of the best with C
    below that and of the best with C above it, each selected on validation data: yes if decided ahead of both, no if
    decided behind one."""
    return combine({name: near_equal(group) for name, group in series(of(networks, *MIXERS)).items()})


@claim.each_part("C7")
def c7(networks: Sequence[Network]) -> Finding:
    """RP − normal at the smallest number of blocks is decided behind, and at the largest number it is not below −1
    point: yes if both are decided so, no if one is decided the other way."""
    depths = sorted({item.model["depth"] for item in networks})
    found: dict[str, Finding] = {}
    for blocks, rule in ((depths[0], Rule.trails()), (depths[-1], Rule.at_least(-LITTLE))):
        random, normal = (find_network(networks, shape, depth=blocks) for shape in ("rp_s_mixer", "s_mixer"))
        found[f"{blocks} blocks"] = pair(random, normal, rule)
    return combine(found)


@claim("C8")
def c8(findings: Findings) -> Judgement:
    """Mean CKA of corresponding blocks, for every seed: of the p with the largest mean between the ends, less that of
    the dense MLP (p = 1), and less that of the smallest p. Yes if both intervals lie above 0, no if one lies below."""
    found: dict[str, Finding] = {}
    for name, curve in findings.analysis["cka"].items():
        means = {line["p"]: line["mean"] for line in curve}
        values = {line["p"]: line["values"] for line in curve}
        ends = {"the dense MLP": max(means), "the sparsest": min(means)}
        between = [p for p in means if p not in ends.values()]
        if not between:
            found[name] = not_addressed("there is no density between the ends")
            continue
        peak = max(between, key=lambda p: means[p])
        gaps = {end: compare_runs(values[peak], values[p]) for end, p in ends.items()}
        answer, numbers = combine({f"1/p = {1 / peak:g} less {end}": judge(gap) for end, gap in gaps.items()})
        found[name] = answer, numbers | {"peak": peak}
    return conclude(found)


@claim("C9")
def c9(findings: Findings) -> Judgement:
    """The two shallow nets differ by less than one point: yes if the interval lies within that, no if outside of it."""

    def test(networks: Sequence[Network]) -> Finding:
        first, second = (find_network(networks, shape) for shape in ("monarch_mlp", "kronecker_mlp"))
        return pair(first, second, Rule.within(LITTLE))

    return judge_parts([item for item in findings.parts if of(item.networks, "monarch_mlp", "kronecker_mlp")], test)


@claim.each_part("C10")
def c10(networks: Sequence[Network]) -> Finding:
    """At C = S, the network with the largest γ is ahead of the one with the smallest; and at one Ω, the test of C6. For
    normal and for random permutations: yes if all are decided so, no if one is decided the other way."""
    found: dict[str, Finding] = {}
    for shape in sorted({item.shape for item in networks}):
        group = of(networks, shape)
        square = [item for item in group if item.model["C"] == item.model["S"]]
        found[f"{shape}, γ"] = rises(square, lambda item: item.model["gamma"]) if square else not_addressed("none")
        found |= {f"{name}, C/S": near_equal(members) for name, members in series(group).items()}
    return combine(found)


@claim("C11")
def c11(findings: Findings) -> Judgement:
    """In the ImageNet setting, SW-MLP's memory and FLOPs divided by RP-Mixer's, computed from the printed settings,
    both lie between 10^3 and 10^6: yes or no. The same test is applied to the printed entries."""
    found: list[Finding] = []
    for ratios in (findings.analysis["ratios"][name] for name in ("measured", "published")):
        said = ", ".join(f"{name} {ratio:,.0f}" for name, ratio in ratios.items())
        answer, numbers = exact(all(1e3 <= ratio <= 1e6 for ratio in ratios.values()), said)
        found.append((answer, numbers | ratios))
    return conclude({"by the rules": found[0]}, {"Table S.3": found[1]})


@claim.each_part("C12")
def c12(networks: Sequence[Network]) -> Finding:
    """The network with a random first block is decided behind the normal one, and those with another random block are
    not below it by one point: yes if all are decided so, no if one is decided the other way."""
    blocks = {tuple(item.model.get("random_blocks") or ()): item for item in networks}
    normal = blocks.pop((), None)
    return combine(
        {
            f"block {random[0]}": pair(item, normal, Rule.trails() if random == (1,) else Rule.at_least(-LITTLE))
            for random, item in sorted(blocks.items())
        }
    )


@claim("C13")
def c13(findings: Findings) -> Judgement:
    """Overfitting is the last validation loss less the lowest one, in every run. At the largest C, its mean with normal
    permutations is more than twice that with random ones: yes if the interval of normal − 2 · random lies above 0,
    no if below. Where neither overfits, the claim is not addressed."""
    lines = findings.analysis["curves"]
    found: dict[str, Finding] = {}
    for title in dict.fromkeys(line["part"] for line in lines):
        group = [line for line in lines if line["part"] == title]
        C = max(line["C"] for line in group)
        rise = {line["random"]: line["rises"] for line in group if line["C"] == C}
        normal, random = rise.get(False), rise.get(True)
        if not normal or not random:
            found[title] = not_addressed("one of the two kinds has no finished run")
        elif max(*normal, *random) <= 0:
            found[title] = not_addressed(f"at C = {C} the lowest loss is the last one: nothing overfits")
        else:
            gap = compare_runs(normal, [2 * value for value in random])
            means = [statistics.fmean(values) for values in (normal, random)]
            text = f"at C = {C} the loss rises by {means[0]:.4f} (normal) and {means[1]:.4f} (random)"
            found[title] = judge(gap, said=f"{text}; normal − 2 · random is {gap.text()}")
    return conclude(found)


@claim("4.1", "With the connections held fixed, the width is largest and the density smallest where C = S (eq. 15).")
def widest(findings: Findings) -> Judgement:
    """Computed on a grid of C: m = S·C is largest at C = S = (Ω/γ)^{1/3} and (Ω/γ)^{2/3} there, and p = (1/S + 1/C)/2
    is smallest there: yes if so to a thousandth."""
    found = findings.analysis["peak"]
    ratios = (found["C"] / found["C_theory"], found["m"] / found["m_theory"], found["C_of_least_p"] / found["C_theory"])
    holds = all(abs(ratio - 1) < 1e-3 for ratio in ratios)
    at = f"at C = {found['C']:.1f}, and p smallest at C = {found['C_of_least_p']:.1f}"
    return conclude({"eq. (15)": exact(holds, f"m is largest, {found['m']:,.0f}, {at}")})


@claim.each_part("D.1", statement="An SW-MLP that is too sparse learns worse, though it is wider (appendix D.1).")
def too_sparse(networks: Sequence[Network]) -> Finding:
    """The sparsest SW-MLP tried is behind the best of the others, which is selected on validation data: yes if decided
    behind, no if decided ahead."""
    masks = sorted(of(networks, "sw_mlp"), key=lambda item: item.model["p"])
    if len(masks) < 3:
        return not_addressed("fewer than three densities have finished")
    return pair(best(masks[1:]), masks[0])


@claim("D.1b", "The sparser a random weight of the same connections is, the larger its largest singular value (D.1).")
def largest_value(findings: Findings) -> Judgement:
    """Random sparse weights with m = Ω^{(1+a)/2} and p = Ω^{-a}, scaled to a mean squared singular value of 1: the
    largest singular value at each a less that at the a before it, over draws: yes if all intervals lie above 0, no if
    one lies below."""
    found = findings.analysis["scaling"]
    draws = {
        f"a = {line['a']:g}": Sample(line["largest"]["mean"], line["largest"]["std"], found["trials"])
        for line in found["exponents"]
    }
    answer, numbers = combine(
        {f"{after} − {before}": judge(compare(draws[after], draws[before])) for before, after in pairwise(draws)}
    )
    ends = list(draws.items())
    numbers["said"] = " to ".join(f"{sample.mean:.2f} at {name}" for name, sample in (ends[0], ends[-1]))
    return conclude({"at initialisation": (answer, numbers)})


@claim.each_part(
    "D.2",
    statement="Accuracy grows with the width also with γ = 4, for normal and RP Mixers and for SW-MLP (appendix D.2).",
)
def wider(networks: Sequence[Network]) -> Finding:
    """The test of C5, for every Ω of normal Mixers, RP Mixers and SW-MLP: each of the widest is ahead of each of the
    narrowest."""
    return combine({name: rises(group, width) for name, group in series(networks).items()})


@claim.each_part("D.6", statement="On CIFAR the best patches have 4 pixels, C0 = 48 (appendix D.6).")
def best_patch(networks: Sequence[Network]) -> Finding:
    """On CIFAR, patches of 4 pixels (C0 = 48) are ahead of the best of the other patches, selected on validation data:
    yes if decided ahead, no if decided behind, for normal and random permutations."""
    found: dict[str, Finding] = {}
    for shape in sorted({item.shape for item in networks}):
        four = find_network(networks, shape, patch=4)
        others = [item for item in of(networks, shape) if item.model["patch"] != 4]
        untrained = not_addressed("patches of 4 pixels are not trained")
        found[shape] = pair(four, best(others)) if four and others else untrained
    return combine(found)


@claim.each_part("D.7", statement="With AdamW and C = S the RP Mixer passes the normal one (appendix D.7).")
def random_leads(networks: Sequence[Network]) -> Finding:
    """With AdamW and C = S, RP − normal in test accuracy: yes if decided ahead, no if decided behind."""
    return pair(find_network(networks, "rp_mlp_mixer"), find_network(networks, "mlp_mixer"))


def _table_agrees(findings: Findings) -> Judgement:
    """Every entry that the table prints is what is built here: yes if all agree, no if one differs."""
    entries = findings.analysis.get("quantities")
    if entries is None:
        raise NotStored("the entries are counted anew by `isthmus reproduce widesparse`, without training")
    off = [entry.id for entry in entries if entry.word == "differs"]
    printed = sum(entry.published is not None for entry in entries)
    said = f"{printed - len(off)} of {printed} printed entries agree" + (f"; not {', '.join(off)}" if off else "")
    return conclude({"entries": exact(not off, said)})


table_s1 = claim("TS1", "The models built here have the components that Table S.1 ticks (our question).")(_table_agrees)
table_s2 = claim("TS2", "Figure 6 is trained here, at the paper's scale, as Table S.2 says (our question).")(
    _table_agrees
)
