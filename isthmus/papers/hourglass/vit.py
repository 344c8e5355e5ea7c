"""The paper's Transformers (Tables 3 and 4, Figures 10 to 13): their studies at three scales, and tests of claims.

``paper`` is Table 11 on the data sets of Table 10, three seeds. ``smoke`` shows in seconds that everything works.
``cpu`` keeps the rule of Table 2 (d_z half as wide again, d_h half of d_z, equal parameters and FLOPs) on CIFAR-10 at
32 pixels with patches of 8, so that an image has 17 tokens: half of a ViT-Tiny, and for Table 4 three sizes of four
layers, the largest as wide. Its cost on one core (two workers of one thread take half of it):

    study                     runs   epochs   minutes   used by
    hourglass-vit-tiny           6       10        54   T3, F10
    hourglass-vit-tiny-brief     6        6         2   T4, F13
    hourglass-vit-small-brief    6        6         3   T4, F11, F13
    hourglass-vit-large-brief    6        6         4   T4, F12, F13
    hourglass-vit-future-work   12        6         4   S4V; 3 of its runs are those of T4

The paper prints accuracies without a spread, so by the same tests its own numbers decide nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from isthmus.papers import load_paper
from isthmus.papers.engine.claims import Claims, Finding, Rule, combine, conclude, exact, judge, not_addressed, pair
from isthmus.papers.engine.exhibit import ClaimTest, Findings, Judgement, Part, Scale
from isthmus.papers.engine.networks import Network, count_parameters, find_network, printed_network
from isthmus.papers.engine.parts import Base, Model, Settings, describe_study, make_part, shorten, smoke_base
from isthmus.papers.hourglass import protocols, recipes
from isthmus.studies.statistics import Sample, compare_runs, compare_with, contrast

SIZES = ("tiny", "small", "large")
SHAPES = ("conventional", "hourglass")
FIELDS = ("d_z", "d_h", "depth", "num_heads")
CLASSES = {"cars": 196, "flowers": 102, "cifar10": 10, "cifar100": 100, "imagenet100": 100}
WIDTHS: dict[tuple[Scale, str], dict[str, int]] = {
    ("cpu", "T3"): {"tiny": 96},
    ("cpu", "T4"): {"tiny": 48, "small": 72, "large": 96},
    ("smoke", "T3"): {"tiny": 12},
    ("smoke", "T4"): {"tiny": 12, "small": 24, "large": 36},
}
"""d_z of the conventional network."""
DEPTHS = {("cpu", "T3"): 6, ("cpu", "T4"): 4, ("smoke", "T3"): 1, ("smoke", "T4"): 1}
EPOCHS = {"T3": 10, "T4": 6}
ROWS = {"T3": None, "T4": 8_000}
"""Training images at the cpu scale; None: all."""
CPU_RATE = 0.1
"""Of 0.03, 0.1 and 0.3: after 200 steps the smallest Hourglass had a loss of 1.993, 1.947 and 1.954, the conventional
network 2.006, 1.950 and 1.987."""
UNPRINTED = "the paper does not print how many seeds it reports; here three"
QUOTED = "the first row of Table 3 is quoted by the authors from elsewhere and not trained"
SHRUNK = (
    "images at their own 32 pixels with patches of 8 instead of 224 with patches of 16, and narrower, shallower "
    "networks without drop path; by Table 2's rule d_z is half as wide again and d_h half of d_z in the Hourglass"
)
ONE_RATE = (
    "one learning rate for both shapes: of 0.03, 0.1 and 0.3 the one with the least loss after 200 steps of either"
)
STANDS_FOR = "CIFAR-10 stands for the data sets of the paper, which are run at its own scale"
PLATEAU = 0.95
"""A curve has reached its plateau at this share of its last accuracy; our bound, as the paper names none."""
FIVE = {"cifar10", "cifar100", "cars", "flowers102", "imagenet100"}
HALF_DIGIT = 0.05
claim = Claims("hourglass")


def vit(size: str, shape: str, scale: Scale, table: str) -> Model:
    """One of the paper's six networks, at the size of the scale, which for Table 4 is smaller than for Table 3."""
    if scale == "paper":
        return recipes.vit(size, shape)
    width = WIDTHS[scale, table][size]
    d_z, d_h = (width, 4 * width) if shape == "conventional" else (3 * width // 2, 3 * width // 4)
    shared = {"patch": 8 if scale == "cpu" else 4, "depth": DEPTHS[scale, table], "num_heads": 3}
    return {"name": f"{shape}_vit", "d_z": d_z, "d_h": d_h, **shared}


def _base(size: str, scale: Scale, source: str, table: str) -> Base:
    if scale == "smoke":
        return smoke_base(epochs=2)
    if scale == "paper":
        return recipes.from_scratch(size, "hourglass", source)
    task = {"resize": None, "crop_ratio": 1.0, "augment": {"crop_padding": 4, "flip": True}}
    recipe = shorten(
        recipes.from_scratch(size, "hourglass", "cifar10"), EPOCHS[table], task, warmup_epochs=1, batch_size=128,
        accumulate=1, learning_rate=CPU_RATE, warmup_learning_rate=0.0, final_learning_rate=0.0, clip_norm=1.0,
    )  # fmt: skip
    if ROWS[table] is None:
        return recipe
    fewer = type(recipe.source)(**recipe.source.model_dump() | {"rows": ROWS[table]})
    return recipe.model_copy(update={"source": fewer})


def _part(
    title: str, name: str, size: str, scale: Scale, source: str, table: str, shapes: Sequence[str] = SHAPES,
    notes: Iterable[str] = (), **more: Any,
) -> Part:  # fmt: skip
    def study(chosen: Scale) -> Settings:
        label = f"hourglass-vit-{name}" if chosen != "paper" else f"hourglass-vit-{name}-{source}"
        models = [vit(size, shape, chosen, table) for shape in shapes]
        return describe_study(label, chosen, _base(size, chosen, source, table), models)

    fewer = [f"{ROWS[table]:,} training images"] if ROWS[table] else []
    all_notes = {"all": [*notes, UNPRINTED], "cpu": [SHRUNK, *fewer, ONE_RATE, STANDS_FOR]}
    protocol = protocols.transformers(size, source)
    if name.endswith("curves"):
        protocol = replace(protocol, unapplied={"source.validation": "the curves are those of validation images"})
    if "printed" in more:
        more["table"] = table
    return make_part(title, scale, study, all_notes, fields=FIELDS, protocol=protocol, **more)


def _cell(identity: str, row: Mapping[str, Any], column: str, size: str, shape: str, source: str) -> Network:
    """The paper prints neither a spread nor the number of runs."""
    model = recipes.vit(size, shape)
    params = count_parameters(model, (3, 224, 224), (CLASSES[source],))
    settings = {name: model[name] for name in ("name", *FIELDS)}
    return printed_network(identity, row, settings, params, Sample(row[column], None, 1), (1, 1))


def table_3(scale: Scale) -> list[Part]:
    """ViT-Tiny on five data sets; at the small scales CIFAR-10 stands for them."""
    rows = {row["architecture"]: (name, row) for name, row in load_paper("hourglass").tables["T3"].rows.items()}
    parts = []
    for source in CLASSES if scale == "paper" else ("cifar10",):
        cells = [_cell(f"{rows[s][0]}.{source}", rows[s][1], source, "tiny", s, source) for s in SHAPES]
        more: Settings = {"printed_title": f"Table 3, {source}", "printed": cells, "notes": [QUOTED]}
        parts.append(_part("ViT-Tiny", "tiny", "tiny", scale, source, "T3", **more))
    return parts


def table_4(scale: Scale, sizes: Iterable[str] = SIZES, suffix: str = "") -> list[Part]:
    """Three sizes on Cars and Flowers-102; a part for each, because the largest has its own batch and rate."""
    rows = {row["dataset"]: (name, row) for name, row in load_paper("hourglass").tables["T4"].rows.items()}
    parts = []
    for size in sizes:
        for source in ("cars", "flowers") if scale == "paper" else ("cars",):
            identity, row = rows[source]
            cells = [_cell(f"{identity}.{size}.{s}", row, f"{size}_{s}", size, s, source) for s in SHAPES]
            more: Settings = {"printed_title": f"Table 4, {source}, {size}", "printed": cells}
            label = f"{size}{suffix}" if scale == "paper" else f"{size}-brief"
            parts.append(_part(f"ViT-{size.capitalize()}", label, size, scale, source, "T4", **more))
    return parts


def curves_of(size: str, scale: Scale) -> list[Part]:
    """Figures 10 to 12: the networks of Table 4, with validation images; at the small scales the same runs, or for the
    smallest size the longer ones of Table 3."""
    return table_3(scale) if size == "tiny" and scale != "paper" else table_4(scale, [size], "-curves")


def hourglasses(scale: Scale) -> list[Part]:
    """Figure 13: the Hourglasses of Table 4, with the same runs."""
    return [
        _part(
            f"Hourglass ViT-{size.capitalize()}", f"{size}-hourglass-curves", size, scale, source, "T4",
            ["hourglass"],
        )
        for source in (("cars", "flowers") if scale == "paper" else ("cars",))
        for size in SIZES
    ]  # fmt: skip


def future_work(scale: Scale) -> list[Part]:
    """Ours: what section 4 names for later, each with about the parameters of the smallest Hourglass. Two feed-forward
    blocks of half the width; one block applied twice; a stream half as wide again, read by narrow latent attention."""

    def study(chosen: Scale) -> Settings:
        base = vit("tiny", "hourglass", chosen, "T4")
        d_z, d_h = base["d_z"], base["d_h"]
        latent = {"attention_width": 2 * d_z // 3, "latent_width": d_z // 3}
        changes: list[Model] = [
            {}, {"ffn_blocks": 2, "d_h": d_h // 2}, {"ffn_blocks": 2, "tied_ffn": True},
            {**latent, "d_z": 3 * d_z // 2, "d_h": 5 * d_h // 4},
        ]  # fmt: skip
        name, models = "hourglass-vit-future-work", [base | change for change in changes]
        return describe_study(name, chosen, _base("tiny", chosen, "cifar10", "T4"), models)

    notes = {
        "all": ["the paper prints no such study: section 4 names it as future work"],
        "cpu": [SHRUNK, ONE_RATE],
    }
    fields = (*FIELDS, "ffn_blocks", "tied_ffn", "latent_width")
    protocol = protocols.transformers("tiny", "cifar10")
    return [make_part("ViT-Tiny", scale, study, notes, fields=fields, protocol=protocol, comparable=False)]


def _both(networks: Sequence[Network]) -> tuple[Network | None, Network | None]:
    return find_network(networks, "hourglass_vit"), find_network(networks, "conventional_vit")


def _hourglass_leads(networks: Sequence[Network]) -> Finding:
    """On each data set (and at each size) that is trained, the Hourglass is ahead of the conventional network: yes if
    decided ahead in all, no if decided behind in one."""
    return pair(*_both(networks))


c9 = claim.each_part("C9", every=("cars", "flowers102"))(_hourglass_leads)
tiny_leads = claim.each_part(
    "3.3.1", statement="As ViT-Tiny the Hourglass is ahead on every data set (section 3.3.1).", every=sorted(FIVE)
)(_hourglass_leads)


def _improves(name: str, what: str, blocks: int = 1, tied: bool = False, latent: bool = False) -> ClaimTest:
    @claim.each_part(
        name, statement=f"With about as many parameters, {what} the Hourglass ViT (our question; section 4)."
    )
    def ahead(networks: Sequence[Network]) -> Finding:
        """The Hourglass ViT with the change is ahead of the one without it: yes if decided ahead, no if behind."""
        known = {
            (model.get("ffn_blocks", 1), model.get("tied_ffn", False), bool(model.get("latent_width"))): network
            for network in networks
            for model in [network.model]
        }
        return pair(known.get((blocks, tied, latent)), known.get((1, False, False)))

    return ahead


stacked = _improves("4.N", "two feed-forward blocks of half the width improve", blocks=2)
iterated = _improves("4.T", "a feed-forward block that is applied twice improves", blocks=2, tied=True)
latent = _improves("4.L", "latent attention and a wider stream improve", latent=True)


def _gain_on(findings: Findings, source: str, stated: float) -> Finding:
    for item in findings.parts:
        if item.part.source == source:
            return pair(*_both(item.networks), Rule.at_least(stated - HALF_DIGIT))
    return not_addressed(f"{source} is not trained at this scale")


@claim("C7")
def c7(findings: Findings) -> Judgement:
    """On Cars, the Hourglass is at least 3.8 points ahead, to half of the printed digit: yes if the interval of the
    difference lies above 3.75, no if it lies below. Other data do not address it."""
    answer = conclude({"Cars": _gain_on(findings, "cars", 3.8)})
    return replace(answer, published="yes", printed_because="T3.3 − T3.2 on Cars is 3.8 points")


@claim("C8")
def c8(findings: Findings) -> Judgement:
    """Three things, all needed: the mean gain over all data sets of Table 3 is at least 3.0 points (the paper does not
    say which four it means), that on Cars 4.0, that on Flowers 5.0, each to half of a printed digit. Other data do not
    address it."""
    mean: Finding = not_addressed("not all five data sets are trained at this scale")
    if {item.part.source for item in findings.parts} == FIVE:
        pairs = zip(*(_both(item.networks) for item in findings.parts), strict=True)
        whole = contrast(*([network.quality for network in column if network] for column in pairs))
        low, high = (None if value is None else value / len(FIVE) for value in (whole.low, whole.high))
        gap = replace(whole, difference=whole.difference / len(FIVE), low=low, high=high)
        mean = judge(gap, Rule.at_least(3.0 - HALF_DIGIT), f"mean gain {gap.text('points')}")
    gains = {"mean": mean, "Cars": _gain_on(findings, "cars", 4.0), "Flowers": _gain_on(findings, "flowers102", 5.0)}
    printed = "the mean gain of Table 3 is 2.32 points, 2.625 without ImageNet-100, on Cars 3.8, on Flowers 4.2"
    return replace(conclude(gains), published="no", printed_because=printed)


@claim("C10")
def c10(findings: Findings) -> Judgement:
    """On Cars, the Hourglass ViT-Large is ahead of the conventional one, with more layers and fewer parameters: yes if
    all three hold, no if one is decided not to. Other sizes and data do not address it."""
    for item in findings.parts:
        ours, theirs = _both(item.networks)
        if item.part.source == "cars" and ours and ours.has({"d_z": 1536, "d_h": 768}):
            found = {"accuracy": pair(ours, theirs)}
            if theirs is not None:
                sizes = f"{ours.params:,.0f} and {theirs.params:,.0f} parameters"
                depths = [network.model["depth"] for network in (ours, theirs)]
                found["smaller"] = exact(ours.params < theirs.params, sizes)
                found["deeper"] = exact(depths[0] > depths[1], f"{depths[0]} and {depths[1]} layers")
            return conclude({"Cars": combine(found)})
    return conclude({"Cars": not_addressed("ViT-Large on Cars is not trained at this scale")})


@claim("2.T", "At every size the Hourglass ViT is smaller and cheaper to train than the conventional one (Table 2).")
def cheaper(findings: Findings) -> Judgement:
    """At each size, the Hourglass has fewer parameters and fewer training FLOPs than the conventional ViT: counted here
    and as printed."""
    found: dict[str, dict[str, Finding]] = {"measured": {}, "published": {}}
    for size, both in findings.analysis["costs"].items():
        for column, answers in found.items():
            ours, theirs = (both[shape][column] for shape in ("hourglass", "conventional"))
            ratios = [ours[what] / theirs[what] - 1 for what in ("params", "gflops")]
            said = f"{ratios[0]:+.1%} parameters, {ratios[1]:+.1%} training FLOPs"
            answers[size] = exact(max(ratios) < 0, said)
    return conclude(**found)


@claim("2.L", "At every size the Hourglass ViT is as fast as the conventional one (our question, of Table 2).")
def not_slower(findings: Findings) -> Judgement:
    """At each size, the logarithm of the Hourglass's time for an image over the conventional ViT's, over rounds that
    measure both: yes if the interval lies below 0, no if above. The printed times have no spread and are taken as
    exact."""
    measured: dict[str, Finding] = {}
    printed: dict[str, Finding] = {}
    for size, both in findings.analysis["costs"].items():
        known = both["latency_ratio"]
        said = f"{known['published']:.3f} of the conventional time"
        printed[size] = exact(known["published"] <= 1, said)
        if known["measured"] is not None:
            said = f"{known['measured']:.3f} of the conventional time"
            rounds = known.get("rounds", ())
            gap = compare_with([math.log(ratio) for ratio in rounds], 0) if rounds else None
            unknown: Finding = ("undecided", {"said": f"{said}; the rounds of this measurement are not stored"})
            measured[size] = unknown if gap is None else judge(gap, Rule.trails(), f"{said}, logarithm {gap.text()}")
    return conclude(measured, printed)


@claim("E.1", "The Hourglass ViT gains accuracy faster, from early on (appendix E.1).")
def faster(findings: Findings) -> Judgement:
    """Halfway through the training, the Hourglass has the higher validation accuracy: yes if decided ahead for every
    pair, no if decided behind for one. The paper plots this and prints no value."""
    found: dict[str, Finding] = {}
    for title in dict.fromkeys(line["part"] for line in findings.analysis["curves"]):
        lines = {line["shape"]: line["curves"] for line in findings.analysis["curves"] if line["part"] == title}
        if len(lines) == 2:
            gap = compare_runs(_halfway(lines["hourglass_vit"]), _halfway(lines["conventional_vit"]))
            found[title] = judge(gap, said=f"halfway the Hourglass is {gap.text('points')} ahead")
    return conclude(found)


def _halfway(curves: Sequence[Any]) -> list[float]:
    return [curve[max(0, round(0.5 * len(curve)) - 1)][1] for curve in curves]


@claim("E.2", "The larger the Hourglass ViT, the sooner it reaches its plateau (appendix E.2).")
def sooner(findings: Findings) -> Judgement:
    """The epoch at which a run reaches 95 % of its last validation accuracy, of the largest Hourglass less that of each
    smaller one: yes if all intervals lie below 0, no if one lies above. The paper plots this and prints no value."""
    found: dict[str, Finding] = {}
    for source in dict.fromkeys(line["source"] for line in findings.analysis["curves"]):
        lines = [line for line in findings.analysis["curves"] if line["source"] == source]
        epochs = {
            line["part"]: [
                next(epoch for epoch, value in curve if value >= PLATEAU * curve[-1][1]) for curve in line["curves"]
            ]
            for line in lines
        }
        largest = max(lines, key=lambda line: line["params"])["part"]
        means = {part: statistics.fmean(values) for part, values in epochs.items()}
        gaps = {part: compare_runs(epochs[largest], epochs[part]) for part in epochs if part != largest}
        found[source] = combine(
            {
                part: judge(
                    gap, Rule.trails(), f"after {means[largest]:.3g} and {means[part]:.3g} epochs, {gap.text()}"
                )
                for part, gap in gaps.items()
            }
        )
    return conclude({"all": combine(found)})
