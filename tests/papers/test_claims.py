"""Each claim's test: with numbers that hold, that refute, that decide nothing; and of what the paper prints."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isthmus.papers.engine.exhibit import Findings, MeasuredPart
from isthmus.papers.engine.networks import Network
from isthmus.papers.hourglass import claims
from isthmus.papers.hourglass.exhibits import TABLES
from isthmus.studies.fronts import Candidate
from tests.papers.networks import around, findings, network
from tests.unit.candidates import make_candidate

RESULTS = Path(__file__).parents[2] / "results" / "reproductions"

T1, T6, T7, T8, T9, F4, F9, S4 = (
    TABLES[name].parts("paper")[0] for name in ("T1", "T6", "T7", "T8", "T9", "F4", "F9", "S4")
)
NOISE = 5.0


def fronts(*leads: float, spread: float = 0.001) -> list[Network]:
    """Pairs of equal size, each Hourglass so far ahead of its rival."""
    return [
        network(shape, 10, 4, place, around(20 + place + (lead if shape == "hourglass" else 0), spread), params=place)
        for place, lead in enumerate(leads, start=1)
        for shape in ("hourglass", "conventional")
    ]


@pytest.mark.parametrize(
    ("leads", "spread", "answer"),
    [((0.1, 0.2), 0.001, "yes"), ((0.1, -0.2), 0.001, "no"), ((0.1, 0.0), 0.001, "undecided"),
     ((0.1, 0.2), NOISE, "undecided")],
)  # fmt: skip
def test_c3_asks_for_a_lead_at_every_budget(leads, spread, answer):
    judged = claims.c3(findings(T8, fronts(*leads, spread=spread)))
    assert judged.measured == answer
    assert "of 2 budgets" in judged.because


def test_c3_is_not_addressed_by_other_data():
    (stand_in,) = TABLES["T8"].parts("cpu")
    judged = claims.c3(findings(stand_in, fronts(0.1, -0.2)))
    assert judged.measured == "not addressed"
    assert "the claim is about MNIST, ImageNet-32 and ImageNet-224; here no: ahead at 1, behind at 1" in judged.because
    assert judged.published == "yes", "the printed rows are the paper's own"


def test_c3_is_refuted_by_one_part_and_not_addressed_without_a_common_size():
    parts = [MeasuredPart(part, [], fronts(lead, lead), []) for part, lead in ((T8, 0.1), (T9, -0.1))]
    assert claims.c3(Findings(parts)).measured == "no"
    apart = [network("hourglass", 10, 4, 1, [1.0], params=1), network("conventional", 4, 8, 1, [1.0], params=2)]
    assert claims.c3(findings(T8, apart)).measured == "not addressed"


def test_c3_also_says_what_holds_without_networks_that_the_paper_did_not_search():
    """A conventional network with d_z below d_x is ahead; without it, the Hourglass leads wherever there is a rival."""
    narrow = network("conventional", 5, 8, 1, around(30.0), params=1)
    networks = [narrow, *fronts(0.1, 0.1)]
    searched = [replace(item, model={**item.model, "d_in": 10 if item is narrow else 5}) for item in networks]
    judged = claims.c3(findings(T8, searched))
    (numbers,) = judged.numbers["measured"].values()
    assert (judged.measured, numbers["among_what_the_paper_searched"]["found"]) == ("no", "yes")
    assert "which the paper did not search: ahead at 2, behind at 0" in judged.because


@pytest.mark.parametrize(
    ("part", "published", "said"),
    [(T8, "yes", "ahead at 14, behind at 0"), (T9, "yes", "ahead at 16, behind at 0"),
     (T6, "undecided", "ahead at 0, behind at 0"), (T7, "undecided", "ahead at 0, behind at 0")],
)  # fmt: skip
def test_c3_holds_in_the_printed_tables_that_have_a_spread(part, published, said):
    judged = claims.c3(findings(part, fronts(0.1, 0.1)))
    assert judged.published == published
    assert said in judged.printed_because


Shape = tuple[int, int, int]


def pair(first: Shape, second: Shape, lead: float, spread: float = 0.0001) -> list[Network]:
    return [
        network("hourglass", *first, around(24 + lead, spread)),
        network("conventional", *second, around(24.0, spread)),
    ]


@pytest.mark.parametrize(("lead", "answer"), [(0.0, "yes"), (-0.01, "no"), (-0.001, "undecided")])
def test_c1_asks_for_no_less_than_the_larger_network(lead, answer):
    assert claims.c1(findings(T6, pair((3546, 1560, 4), (3072, 3546, 3), lead))).measured == answer


@pytest.mark.parametrize(("lead", "answer"), [(0.01, "yes"), (-0.01, "no"), (0.0, "undecided")])
def test_c2_asks_for_a_lead_over_the_best(lead, answer):
    worse = network("conventional", 3072, 3075, 1, around(20.0))
    judged = claims.c2(findings(T7, [*pair((3075, 1560, 6), (3072, 3075, 4), lead), worse]))
    assert judged.measured == answer


@pytest.mark.parametrize(
    ("part", "shapes", "lead", "answer"),
    [(T8, ((3546, 1560, 4), (3072, 3075, 3)), -0.005, "yes"), (T8, ((3546, 1560, 4), (3072, 3075, 3)), -0.02, "no"),
     (T9, ((3546, 1560, 5), (3072, 3075, 4)), 0.005, "yes"), (T9, ((3546, 1560, 5), (3072, 3075, 4)), -0.005, "no")],
)  # fmt: skip
def test_c13_asks_for_equality_in_one_table_and_for_a_lead_in_the_other(part, shapes, lead, answer):
    first, second = shapes
    judged = claims.c13(findings(part, pair(first, second, lead)))
    assert (judged.measured, judged.published) == (answer, "yes")


@pytest.mark.parametrize(("test", "part"), [(claims.c1, T6), (claims.c2, T7), (claims.c13, T8), (claims.c13, T9)])
def test_claims_about_networks_that_were_not_trained_are_not_addressed(test, part):
    judged = test(findings(part, fronts(0.1, 0.1)))
    assert judged.measured == "not addressed"
    assert "not trained" in judged.because


def projections(change: float, spread: float = 0.001, trainable: float = 1e6) -> list[Network]:
    """Two Hourglasses with each kind of W_in; frozen ones train ``trainable`` parameters."""
    return [
        network("hourglass", 785, 64, depth, around(20 + depth + (change if kind == "uniform" else 0), spread),
                params=2e6 + depth, w_in=kind, trainable=trainable + depth if kind == "uniform" else 2e6 + depth)
        for depth in (1, 2) for kind in ("trainable", "uniform")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "trainable", "little", "saved", "answer"),
    [
        (-0.05, 2e6 - 0.5, "yes", "yes", "yes"),  # frozen depth 2 trains less than trained depth 2, and beats depth 1
        (-0.5, 2e6 - 0.5, "no", "yes", "no"),
        (-0.05, 1e6, "yes", "undecided", "undecided"),  # frozen networks train so few that the ranges do not meet
        (-3.0, 2e6 - 0.5, "no", "no", "no"),
    ],
)
def test_c4_asks_for_little_loss_and_fewer_trained_parameters(change, trainable, little, saved, answer):
    judged = claims.c4(findings(F4, projections(change, trainable=trainable)))
    (numbers,) = judged.numbers["measured"].values()
    assert numbers["little is lost, frozen − trained"]["answer"] == little
    assert numbers["trained parameters are saved, frozen"]["answer"] == saved
    assert judged.measured == answer
    assert judged.published == "not printed"


def test_c4_takes_the_frozen_kind_that_validation_selects():
    trained = network("hourglass", 785, 64, 1, around(20.0))
    kinds = [
        network("hourglass", 785, 64, 1, around(20.0 + d), w_in=k) for k, d in (("uniform", -0.05), ("gaussian", -9))
    ]
    (numbers,) = claims.c4(findings(F4, [trained, *kinds])).numbers["measured"].values()
    cases = numbers["little is lost, frozen − trained"].values()
    assert [case["w_in"] for case in cases if isinstance(case, dict)] == ["uniform"]


@pytest.mark.parametrize(("gains", "answer"), [((0.1, -0.1), "yes"), ((-0.1, -0.1), "no"), ((-0.1, 0.0), "undecided")])
def test_a_conventional_network_gains_from_a_frozen_projection_if_one_does(gains, answer):
    networks = [
        network("conventional", 784, 785, depth, around(20.0 + (gain if kind == "uniform" else 0)), w_in=kind)
        for depth, gain in enumerate(gains, start=1)
        for kind in ("trainable", "uniform")
    ]
    assert claims.conventional_gains(findings(F4, networks)).measured == answer


def table_1(gain: float, spread: float = 0.01) -> list[Network]:
    """The two networks of Table 1."""
    return [
        replace(item, id=row)
        for item, row in zip(pair((3075, 1146, 6), (3072, 3546, 2), gain, spread), ("T1.2", "T1.1"), strict=True)
    ]


def ranked(*ratios: float) -> Findings:
    networks = table_1(0.37)
    ranks = {f"reading {place}": around(600.0, 1.0) for place in range(len(ratios))}
    higher = {name: [rank * ratio for rank in ranks[name]] for name, ratio in zip(ranks, ratios, strict=True)}
    rows = {networks[0].id: {"effective_rank": higher}, networks[1].id: {"effective_rank": ranks}}
    return findings(T1, networks, rows=rows)


@pytest.mark.parametrize(
    ("ratios", "answer"), [((1.27, 2.0), "yes"), ((0.5, 0.9), "no"), ((1.27, 0.5), "undecided"), ((1.0,), "undecided")]
)
def test_c5_asks_every_reading(ratios, answer):
    judged = claims.c5(ranked(*ratios))
    assert judged.measured == answer
    assert judged.numbers["measured"]["reading 0"]["holds 1.27"] == (ratios[0] == 1.27)
    assert judged.numbers["measured"]["reading 0"]["difference"] == pytest.approx(ratios[0])


@pytest.mark.parametrize(
    ("gain", "spread", "answer"), [(0.37, 0.01, "yes"), (0.09, 0.01, "no"), (0.37, 0.5, "undecided")]
)
def test_c6_asks_for_the_stated_gain(gain, spread, answer):
    judged = claims.c6(findings(T1, table_1(gain, spread)))
    assert (judged.measured, judged.published) == (answer, "no")


def test_c5_and_c6_are_not_addressed_by_other_sizes():
    halves = pair((1537, 573, 6), (1536, 1773, 2), 0.37, 0.01)
    assert claims.c6(findings(T1, halves)).measured == "not addressed"
    rows = {item.id: {"effective_rank": {"W_out": around(1.0)}} for item in halves}
    judged = claims.c5(findings(T1, halves, rows=rows))
    assert judged.measured == "not addressed"
    assert "the claim is about two networks of 55 M parameters; here undecided" in judged.because


def searched(depth: float, d_z: float, d_h: float, budgets: int = 6, scatter: float = 0.0) -> list[Candidate]:
    """At each budget the shape with these slopes and two worse ones; larger budgets are better."""
    random, made = np.random.default_rng(0), []
    for place in range(budgets):
        cost = 10_000 * 2**place
        for loss, factor in ((0.0, 1.0), (2.0, 0.5), (2.0, 1.7)):
            drift = math.exp(scatter * random.standard_normal())
            shape = {
                name: max(1, round(start * factor * drift * 2 ** (slope * place)))
                for name, start, slope in (("depth", 20, depth), ("d_z", 1000, d_z), ("d_h", 100, d_h))
            }
            candidate = make_candidate(cost, 20 + place - loss, "hourglass_mlp", f"{cost} {factor}", spread=0.01)
            made.append(replace(candidate, settings={"model": {"name": "hourglass_mlp", **shape}}))
    return made


@pytest.mark.parametrize(
    ("slopes", "scatter", "answer"),
    [((0.3, 0.5, 0.1), 0.0, "yes"), ((0.3, 0.5, 0.9), 0.0, "no"), ((-0.4, 0.5, 0.1), 0.0, "no"),
     ((0.3, 0.5, 0.1), 1.5, "undecided")],
)  # fmt: skip
def test_c11_asks_for_deeper_and_wider_streams_and_a_narrower_computation(
    slopes: tuple[float, float, float], scatter: float, answer: str
) -> None:
    item = MeasuredPart(T9, searched(*slopes, scatter=scatter), [], [])
    judged = claims.c11(Findings([item]))
    assert judged.measured == answer
    (numbers,) = judged.numbers["measured"].values()
    assert {"depth", "d_z", "d_h/d_z"} < set(numbers)
    assert "slope" in judged.because


def test_c11_is_not_addressed_without_a_choice_of_shapes_at_four_budgets():
    few = searched(0.3, 0.5, 0.1, budgets=3)
    assert "have 3 budgets; a slope needs 4" in claims.judge_shapes(few)[1]["said"]
    chosen = searched(0.3, 0.5, 0.1)[::3]
    assert "0 of 6 budgets have more than one shape" in claims.judge_shapes(chosen)[1]["said"]
    same = searched(0.3, 0.5, 0.1)
    for candidate in same:
        candidate.settings["model"]["depth"] = 3
    assert claims.judge_shapes(same) == ("not addressed", {"said": "all networks have the same depth"})


@pytest.mark.parametrize(
    ("table", "answer"), [("F7", "not addressed"), ("F8", "not addressed"), ("T6", "not addressed")]
)
def test_c11_is_not_addressed_by_the_chosen_networks_that_are_stored(table, answer):
    result = json.loads((RESULTS / f"hourglass-{table}-cpu" / "result.json").read_text())
    (claim,) = (claim for claim in result["claims"] if claim["id"] == "C11")
    assert claim["measured"] == "not addressed"
    assert "a slope needs 4" in claim["because"]


def test_c11_counts_printed_rows():
    judged = claims.c11(findings(T9, fronts(0.1, 0.1)))
    assert (judged.measured, judged.published) == ("not addressed", "no")
    counts = judged.numbers["published"]["T9"]
    assert counts["hourglass"] == {"rows": 21, "L >= 4": 18, "d_z >= 3075": 21, "115 <= d_h <= 765": 8}
    assert counts["conventional"] == {"rows": 6, "L <= 3": 5, "d_h >= 3075": 6}


def sweep(wider: float, deeper: float, spread: float = 0.001, d_z: int = 3546) -> list[Network]:
    """The knee is nearest to d_h = 256; the gains are those beyond it and beyond L = 5."""
    return [
        network("hourglass", d_z, 64, 5, around(19.0, spread)),
        network("hourglass", d_z, 256, 5, around(20.0, spread)),
        network("hourglass", d_z, 1024, 5, around(20.0 + wider, spread)),
        network("hourglass", d_z, 256, 1, around(18.0, spread)),
        network("hourglass", d_z, 256, 9, around(20.0 + deeper, spread)),
    ]


@pytest.mark.parametrize(
    ("gains", "spread", "answer"),
    [((0.05, 0.05), 0.001, "yes"), ((0.2, 0.05), 0.001, "no"), ((0.05, 0.2), 0.001, "no"),
     ((0.05, 0.05), NOISE, "undecided")],
)  # fmt: skip
def test_c12_asks_for_little_gain_beyond_both_knees(gains, spread, answer):
    judged = claims.c12(findings(F9, sweep(gains[0], gains[1], spread)))
    (numbers,) = judged.numbers["measured"].values()
    assert judged.measured == answer
    assert (numbers["d_h"]["knee"], numbers["L"]["knee"]) == (256, 5)
    assert numbers["d_h"]["gain_up_to_the_knee"] == pytest.approx(1.0)


def test_c12_is_not_addressed_by_another_d_z():
    judged = claims.c12(findings(F9, sweep(0.05, 0.05, d_z=3000)))
    assert judged.measured == "not addressed"
    assert "the claim is about d_z = 3546, and d_z is 3000; here yes" in judged.because


def test_c12_is_refuted_for_d_h_by_the_paper_s_own_table():
    """Table 8, d_z 3546 and L 5: 22.082 dB at d_h 270 and 22.335 at 1560; d_h 270: 22.164 at L 8."""
    judged = claims.c12(findings(T8, sweep(0.0, 0.0)))
    numbers = judged.numbers["published"]["T8"]
    assert judged.published == "no"
    assert numbers["d_h"]["difference"] == pytest.approx(0.253)
    assert (numbers["L"]["answer"], numbers["L"]["difference"]) == ("yes", pytest.approx(0.082))


def test_c12_is_not_addressed_without_anything_beyond():
    narrow = [network("hourglass", 3546, d_h, 5, around(21.0)) for d_h in (8, 16, 64, 128)]
    assert claims.c12(findings(T8, narrow)).measured == "not addressed"
    assert claims.c12(findings(T8, fronts(0.1))).measured == "not addressed"


@pytest.mark.parametrize(
    ("leads", "answer"), [((0.1, 0.2), "yes"), ((-0.1, -0.2), "yes"), ((0.1, -0.1), "no"), ((0.1, 0.0), "undecided")]
)
def test_s4_asks_whether_one_shape_is_ahead_with_every_setting(leads, answer):
    networks = [
        network(shape, 785, 96, 4, around(20 + (lead if shape == "hourglass" else 0)),
                norm=norm, activation="gelu", init="zero_w2")
        for norm, lead in zip(("layer", "rms"), leads, strict=True) for shape in ("hourglass", "conventional")
    ]  # fmt: skip
    assert claims.s4(findings(S4, networks)).measured == answer


def test_every_claim_of_these_tables_is_tested_and_says_how():
    tested = {name for exhibit in TABLES.values() for name in exhibit.tests}
    assert {f"C{number}" for number in range(1, 14)} <= tested
    for exhibit in TABLES.values():
        for test in exhibit.tests.values():
            assert test.statement.endswith(".")
