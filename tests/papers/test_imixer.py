"""The iMixer paper: its studies, its claims on printed and on made-up numbers, and the fixed points of trained runs."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest

from isthmus.papers import import_exhibits, load_paper
from isthmus.papers.engine.exhibit import Findings, Judgement, MeasuredPart
from isthmus.papers.engine.networks import Network
from isthmus.papers.imixer import claims, studies
from isthmus.papers.imixer.exhibits import TABLES
from isthmus.studies.statistics import Sample, compare, contrast, seeds_to_decide
from tests.papers.networks import Parts, around, as_printed, classifier, completed, findings, models, run_ids, smoke

PAPER = load_paper("imixer")
MAKERS: dict[str, Any] = {
    "T1": studies.sizes, "T2": studies.search, "T3": studies.norms, "T4": studies.data_sets,
    "F3": studies.iterations, "F7": studies.feature_maps,
}  # fmt: skip
PARTS = Parts(MAKERS)


def printed(name: str) -> Findings:
    return as_printed(PARTS[name, "paper"])


def test_every_table_and_figure_is_found_by_name():
    assert list(import_exhibits("imixer")) == list(TABLES) == ["T1", "T2", "T3", "T4", "F3", "F5", "F6", "F7"]
    assert set(PAPER.claims) <= {name for exhibit in TABLES.values() for name in exhibit.tests}


# The studies


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_the_paper_scale_is_table_5(size):
    column = {row["name"]: row[size] for row in PAPER.tables["T5"].rows.values()}
    part = PARTS["T1", "paper"][studies.SIZES.index(size)]
    study = part.study
    train, task = study.base.train, study.base.task.model_dump()
    augment = task["augment"]
    assert train.epochs == column["epochs"] + column["cooldown_epochs"]
    found = {
        "batch_size": train.batch_size, "base_learning_rate": train.learning_rate, "weight_decay": train.weight_decay,
        "optimizer_eps": train.epsilon, "beta1": train.betas[0], "beta2": train.betas[1],
        "min_learning_rate": train.final_learning_rate, "warmup_epochs": train.warmup_epochs,
        "warmup_learning_rate": train.warmup_learning_rate, "cooldown_epochs": train.cooldown_epochs,
        "crop_ratio": task["crop_ratio"], "rand_augment_magnitude": augment["magnitude"],
        "rand_augment_std": augment["magnitude_std"], "mixup_alpha": augment["mixup"],
        "cutmix_alpha": augment["cutmix"], "random_erasing": augment["erasing"],
        "label_smoothing": task["label_smoothing"],
    }  # fmt: skip
    assert found == {name: column[name] for name in found}
    assert {m["drop_path"] for m in models(part)} == {column["stochastic_depth"]}
    assert (task["resize"], len(study.seeds)) == (224, 10)


def test_printed_networks_have_the_size_of_their_models():
    sizes = {row.id: row.params for row in PARTS["T2", "paper"][0].printed.values()}
    mixed, hidden, blocks = 256, {"T2.1.n1": 64, "T2.4.n1": 512}, 8  # D_S and h_r · D_S
    of_f = {name: blocks * (2 * mixed * width + mixed + width) for name, width in hidden.items()}
    assert sizes["T2.4.n1"] - sizes["T2.1.n1"] == of_f["T2.4.n1"] - of_f["T2.1.n1"]
    counted = {
        ("mlp_mixer", 512): 18_020_394, ("mlp_mixer", 768): 59_119_162, ("mlp_mixer", 1024): 207_181_418,
        ("imixer", 512): 20_123_690, ("imixer", 768): 66_210_874, ("imixer", 1024): 232_384_106,
    }  # fmt: skip
    for part in PARTS["T1", "paper"]:
        for row in part.printed.values():
            assert row.params == counted[row.shape, row.model["C"]]


@pytest.mark.parametrize(("name", "cells"), [("T1", 2), ("T2", 12), ("T3", 9), ("T4", 2)])
def test_every_printed_cell_is_one_network_of_the_paper_s_scale(name, cells):
    for part in PARTS[name, "paper"]:
        assert len(part.printed) == len(part.study.candidates) == cells
        for row in part.printed.values():
            fits = [
                m for m in models(part)
                if m["name"] == row.shape and all(m.get(k) == v for k, v in row.model.items())
            ]  # fmt: skip
            assert len(fits) == 1, row.id


def test_the_cpu_scale_keeps_proportions_and_shares_its_runs():
    small, base, large = (models(part)[0] for part in PARTS["T1", "cpu"])
    assert [m["C"] * 16 for m in (small, base, large)] == [512, 768, 1024]
    assert [m["depth"] * 4 for m in (small, base, large)] == [8, 12, 24]

    def runs(name: str) -> set[str]:
        return run_ids(PARTS[name, "cpu"])

    assert len(runs("T2")) == 36
    assert runs("F3") < runs("T2"), "Figure 3 needs no training of its own"
    assert len(runs("T3") - runs("T2")) == 18
    assert len(runs("T1") & runs("T2")) == 3
    assert runs("F7") < runs("T2")
    said = "\n".join(PARTS["T2", "cpu"][0].differences)
    for words in ("2 epochs instead of 310", "3 seeds instead of 10", "a sixteenth of the channels", "1.25e-4"):
        assert words in said


@pytest.mark.parametrize("name", MAKERS)
def test_every_network_fits_its_data(name):
    for part in [*PARTS[name, "smoke"], *PARTS[name, "cpu"]]:
        assert len(completed(part)) == len(part.study.candidates) > 0


# The claims


def test_table_1_as_printed_decides_two_of_three_sizes():
    """Welch's t is 2.57, 0.31 and 5.12."""
    judged = claims.c1(printed("T1"))
    answers = {name: entry["decision"] for name, entry in judged.numbers["published"].items()}
    assert answers == {"Table 1, small": "ahead", "Table 1, base": "undecided", "Table 1, large": "ahead"}
    assert judged.published == "undecided"
    base = judged.numbers["published"]["Table 1, base"]
    assert base["seeds_to_decide"] == pytest.approx(818, rel=0.02), "0.04 points at σ 0.24 and 0.33"


def test_table_1_as_printed_leaves_the_growth_of_the_gain_open():
    judged = claims.c2(printed("T1"))
    gaps = judged.numbers["published"]["Table 1"]
    assert gaps["gain as L − gain as S"]["difference"] == pytest.approx(1.41 - 1.08)
    assert gaps["gain as L − gain as B"]["decision"] == "ahead"
    assert judged.published == "undecided"


def test_tables_2_and_3_as_printed():
    assert claims.c3(printed("T2")).published == "undecided"
    assert claims.c4(printed("T2")).published == "undecided", "0.17 points for n = 4 do not decide"
    assert claims.c5(printed("T3")).published == "yes"
    assert claims.c6(printed("T3")).published == "undecided"
    assert claims.c7(printed("T4")).published == "undecided", "ImageNet-1k was run once"
    assert claims.c8(printed("T4")).published == "yes"


def pairs(gain: float, spread: float) -> list[Network]:
    return [
        classifier("mlp_mixer", around(40.0, spread), C=32, depth=2),
        classifier("imixer", around(40.0 + gain, spread), C=32, depth=2),
    ]


@pytest.mark.parametrize(("gain", "answer"), [(2.0, "yes"), (-2.0, "no"), (0.2, "undecided")])
def test_c1_says_how_many_seeds_the_printed_gain_would_take(gain, answer):
    judged = claims.c1(findings(PARTS["T1", "cpu"][0], pairs(gain, 0.3)))
    assert judged.measured == answer
    assert "a gain of +0.48 points, as printed in Table 1, small, would take 8 seeds" in judged.because


def cells(quality: dict[tuple[float, int], float]) -> list[Network]:
    return [
        classifier("imixer", around(mean, 0.1), h_r=ratio, iterations=n, norm="spectral")
        for (ratio, n), mean in quality.items()
    ]


def test_c3_and_c4_read_the_search():
    part = PARTS["T2", "cpu"][0]
    flat = {(ratio, n): 40.0 for ratio in (0.25, 2.0) for n in (1, 2, 4)}
    assert claims.c3(findings(part, cells(flat))).measured == "undecided"
    better = flat | {(2.0, 2): 45.0}
    assert claims.c3(findings(part, cells(better))).measured == "no", "then n makes a difference"
    ratios = {(ratio, n): 40.0 + ratio for ratio in (0.25, 2.0) for n in (1, 2, 4)}
    assert claims.c4(findings(part, cells(ratios))).measured == "yes"
    assert claims.c4(findings(part, cells(flat))).measured == "undecided"


@pytest.mark.parametrize(
    ("none_1", "none_4", "batch", "c5", "c6"), [(42, 36, 30, "yes", "yes"), (38, 36, 45, "no", "no")]
)
def test_c5_and_c6_compare_the_norms(none_1, none_4, batch, c5, c6):
    means = {"spectral": (40, 40, 40), "none": (none_1, 38, none_4), "batch": (batch,) * 3}
    networks = [
        classifier("imixer", around(mean, 0.1), norm=norm, iterations=n)
        for norm, row in means.items()
        for n, mean in zip((1, 2, 4), row, strict=True)
    ]
    found = findings(PARTS["T3", "cpu"][0], networks)
    assert (claims.c5(found).measured, claims.c6(found).measured) == (c5, c6)


def test_c7_wants_the_interval_within_a_point_on_all_four_data_sets():
    def judged(gain: float, spread: float, parts: slice = slice(None)) -> Judgement:
        chosen = PARTS["T4", "paper"][parts]
        return claims.c7(Findings([MeasuredPart(part, [], pairs(gain, spread), []) for part in chosen]))

    assert judged(0.1, 0.1).measured == "yes"
    assert judged(3.0, 0.1).measured == "no"
    assert judged(0.1, 1.0).measured == "undecided"
    assert "seeds of each would decide" in judged(0.1, 1.0).because
    assert judged(0.1, 0.1, slice(1)).measured == "undecided"
    assert "not trained at this scale" in judged(0.1, 0.1, slice(1)).because
    stand_in = claims.c7(findings(PARTS["T4", "cpu"][0], pairs(0.1, 0.1)))
    assert stand_in.measured == "not addressed"
    assert "at its own scale alone; here yes" in stand_in.because


def test_c3_wants_equal_n_within_a_point_and_not_merely_undecided():
    def judged(spread: float, other: float = 50.0) -> str:
        cells = [(0.5, 1, 50.0), (0.5, 2, other), (2.0, 2, 60.0)]
        networks = [classifier("imixer", around(mean, spread), h_r=h_r, iterations=n) for h_r, n, mean in cells]
        (numbers,) = claims.c3(findings(PARTS["T2", "cpu"][0], networks)).numbers["measured"].values()
        return str(numbers["n makes no difference"]["answer"])

    assert judged(0.1) == "yes"
    assert judged(5.0) == "undecided", "a wider interval proves nothing"
    assert judged(0.1, other=55.0) == "no"


def test_c8_has_an_interval():
    part = next(part for part in PARTS["T4", "paper"] if part.source == "cars")

    def judged(mean: float, spread: float) -> str:
        both = [classifier(name, around(mean, spread)) for name in ("imixer", "mlp_mixer")]
        return claims.c8(findings(part, both)).measured

    assert [judged(8.0, 0.2), judged(20.0, 0.2), judged(14.0, 5.0)] == ["yes", "no", "undecided"]
    elsewhere = claims.c8(findings(PARTS["T4", "cpu"][0], pairs(0.1, 0.1)))
    assert elsewhere.measured == "not addressed"


@pytest.mark.parametrize(
    ("shares", "answer"),
    [({"1": [0.3, 0.32, 0.34], "2": [0.05, 0.04, 0.05]}, "yes"), ({"1": [0.3, 0.3, 0.3], "2": [0.2, 0.2, 0.22]}, "no"),
     ({"1": [0.3, 0.05, 0.1], "2": [0.01, 0.02, 0.01]}, "undecided"), ({"1": [0.3], "2": [0.01]}, "undecided")],
)  # fmt: skip
def test_c9_asks_what_is_left_to_go(shares, answer):
    assert claims.c9(Findings([], {"remaining": shares})).measured == answer


def test_the_middle_converges_faster_or_not():
    def judged(*blocks: list[float]) -> str:
        return claims.middle(Findings([], {"remaining_by_block": {"2": list(blocks)}})).measured

    assert judged([0.5, 0.5, 0.5], [0.1, 0.1, 0.1], [0.5, 0.45, 0.5]) == "yes"
    assert judged([0.1, 0.1], [0.5, 0.5], [0.1, 0.1]) == "no"
    assert judged([0.5, 0.1], [0.2, 0.2], [0.5, 0.5]) == "undecided"
    assert judged([0.5], [0.1]) == "not addressed"


# How many seeds would decide


def test_the_seeds_that_would_decide_are_the_fewest_with_the_asked_power():
    first, second = Sample(88.56, 0.30, 10), Sample(88.08, 0.51, 10)
    seeds = seeds_to_decide(first, second)
    assert seeds is not None
    generator = random.Random(0)

    def decided(runs: int, trials: int = 400) -> float:
        won = 0
        for _ in range(trials):
            sides = [[generator.gauss(side.mean, side.std or 0) for _ in range(runs)] for side in (first, second)]
            won += compare(Sample.of(sides[0]), Sample.of(sides[1])).decision == "ahead"
        return won / trials

    assert decided(seeds) == pytest.approx(0.8, abs=0.08)
    assert decided(max(2, seeds // 3)) < 0.5
    assert seeds_to_decide(first, second, difference=0.048) > 50 * seeds  # type: ignore[operator]
    assert seeds_to_decide(first, Sample(1.0, None, 1)) is None
    assert seeds_to_decide(first, first) is None


def test_a_contrast_of_two_is_welch_s_interval_and_of_four_adds_their_variances():
    samples = [Sample(88.08, 0.51, 10), Sample(88.56, 0.30, 10), Sample(86.67, 0.30, 10), Sample(87.48, 0.40, 10)]
    assert contrast([samples[1]], [samples[0]]) == compare(samples[1], samples[0])
    four = contrast([samples[3], samples[0]], [samples[2], samples[1]])
    assert four.difference == pytest.approx(0.33)
    variance = sum((sample.std or 0) ** 2 / 10 for sample in samples)
    assert four.high is not None
    assert (four.high - four.difference) / variance**0.5 == pytest.approx(2.04, abs=0.03)
    assert contrast(samples[:2], [samples[2], Sample(1.0, None, 1)]).low is None


# At the smoke scale everything is real


@pytest.mark.slow
def test_figure_3_measures_the_iterations_of_trained_runs(tmp_path):
    result = smoke("imixer", "F3", tmp_path)
    found = result["analysis"]
    assert list(found["remaining"]) == ["1", "2", "4"]
    means = [statistics.fmean(shares) for shares in found["remaining"].values()]
    assert means[0] > means[1] > means[2], "the further a contraction is iterated, the less is left"
    assert [entry["id"] for entry in result["quantities"]] == ["n 1, block 1", "n 2, block 1", "n 4, block 1"]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["T1", "T2", "T3", "T4", "F5", "F6", "F7"])
def test_every_exhibit_at_the_smoke_scale(table, tmp_path):
    smoke("imixer", table, tmp_path)
