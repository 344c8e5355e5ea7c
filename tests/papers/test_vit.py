"""The Transformers of the Hourglass paper: their studies, their claims on printed and on made-up numbers, Table 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isthmus.cli.complete import complete_study
from isthmus.core.protocols import Signature
from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import SCALES, Findings, MeasuredPart, Scale
from isthmus.papers.engine.reproduce import reproduce
from isthmus.papers.hourglass import recipes, vit
from isthmus.papers.hourglass.exhibits import TABLES
from isthmus.recipes.classifiers import cifar10_vit_shapes
from isthmus.studies.proposals import Judge
from isthmus.training.counting import cost
from tests.papers.networks import around, classifier, completed, parameters, run_ids

PAPER = load_paper("hourglass")
MAKERS = {name: TABLES[name].parts for name in ("T3", "T4", "F10", "F11", "F12", "F13", "S4V")}
PARTS = {(name, scale): make(scale) for name, make in MAKERS.items() for scale in SCALES}


@pytest.mark.parametrize("size", vit.SIZES)
@pytest.mark.parametrize("shape", vit.SHAPES)
def test_the_recipe_is_table_11(size, shape):
    table = {row["name"]: row["value"] for row in PAPER.tables["T11"].rows.values()}
    if size == "large":  # the caption: both are halved
        table |= {name: table[name] / 2 for name in ("learning_rate", "batch_size")}
    config = recipes.from_scratch(size, shape)
    train, task, model = config.train, config.task.model_dump(), config.model.model_dump()
    augment = task["augment"]
    found = {
        "epochs": train.epochs, "learning_rate": train.learning_rate, "batch_size": train.batch_size,
        "warmup_epochs": train.warmup_epochs, "weight_decay": train.weight_decay, "resolution": task["resize"],
        "label_smoothing": task["label_smoothing"], "drop_path": model["drop_path"],
        "rand_augment_magnitude": augment["magnitude"], "rand_augment_std_or_prob": augment["magnitude_std"],
        "mixup": augment["mixup"], "cutmix": augment["cutmix"], "random_erasing": augment["erasing"],
    }  # fmt: skip
    assert found == {name: pytest.approx(value) for name, value in table.items()}
    assert (train.optimizer, train.schedule, train.momentum, train.nesterov) == ("sgd", "cosine", 0.9, True)
    scale = train.batch_size / 512
    assert train.warmup_learning_rate == pytest.approx(1e-6 * scale)
    assert train.final_learning_rate == pytest.approx(1e-5 * scale)
    assert (train.decayed, train.select) == ("matrices", "last")
    assert augment == augment | {
        "policy": "rand_augment", "layers": 2, "resized_crop": (0.08, 1.0), "flip": True, "cutmix_share": 0.5,
        "color_jitter": (0.0, 0.0, 0.0, 0.0), "crop_padding": 0, "cutout": 0,
    }  # fmt: skip
    assert train.batch_size / train.accumulate == 96
    assert train.learning_rate / train.batch_size == pytest.approx(0.03 / 512)
    row = next(r for r in PAPER.tables["T2"].rows.values() if (r["d_z"], r["d_h"]) == (model["d_z"], model["d_h"]))
    assert (row["architecture"], row["L"], row["heads"]) == (shape, model["depth"], model["num_heads"])


@pytest.mark.parametrize(
    ("shape", "refused"),
    [((180, 84, 2), None), ((180, 108, 2), "params above 380000"), ((96, 36, 8), "training_flops above 39000000")],
)
def test_the_study_of_shapes_has_two_budgets_that_bind(shape, refused):
    judge = Judge(cifar10_vit_shapes(), Signature((3, 32, 32), (10,)))
    sizes = dict(zip(("d_z", "d_h", "depth"), shape, strict=True))
    judge.judge({"name": "hourglass_vit", "patch": 8, "num_heads": 3, **sizes}, 0)
    assert list(judge.refused) == ([refused] if refused else [])


def test_printed_sizes_follow_from_those_with_196_classes():
    for part in [*PARTS["T3", "paper"], *PARTS["T4", "paper"]]:
        classes = (vit.CLASSES | {"flowers102": 102})[part.study.base.source.name]
        counted = {
            (model.name, model.model_dump()["d_z"]): parameters(model.complete(Signature((3, 224, 224), (classes,)), 0))
            for model in part.study.candidates
        }
        for row in part.printed.values():
            assert counted[row.shape, row.model["d_z"]] == row.params
    assert len(PARTS["T3", "paper"]) == 5
    assert len(PARTS["T4", "paper"]) == 6


def test_every_cell_of_tables_3_and_4_is_there_but_the_quoted_row():
    for name, left_out in (("T3", {"T3.1"}), ("T4", set())):
        cells = {identity for part in PARTS[name, "paper"] for identity in part.printed}
        assert {identity.rsplit(".", 1)[0] if name == "T3" else identity[:4] for identity in cells} == set(
            PAPER.tables[name].rows
        ) - left_out
    values = {i: row.quality.mean for part in PARTS["T3", "paper"] for i, row in part.printed.items()}
    assert (values["T3.2.cars"], values["T3.3.flowers"], len(values)) == (12.3, 81.5, 10)
    values = {i: row.quality.mean for part in PARTS["T4", "paper"] for i, row in part.printed.items()}
    assert (values["T4.1.large.hourglass"], values["T4.2.small.conventional"], len(values)) == (21.3, 79.7, 12)


@pytest.mark.slow
def test_both_shapes_have_equal_budgets():
    for part in [*PARTS["T3", "cpu"], *PARTS["T4", "cpu"]]:
        conventional, hourglass = (cost(config) for config in completed(part))
        assert 0.9 < hourglass.params / conventional.params <= 1.01
        assert 0.9 < hourglass.training_flops / conventional.training_flops <= 1.05


@pytest.mark.parametrize("name", MAKERS)
def test_every_network_fits_its_data(name):
    for part in [*PARTS[name, "smoke"], *PARTS[name, "cpu"]]:
        assert len(completed(part)) == len(part.study.candidates) > 0


def test_figures_share_the_runs_of_tables():
    def runs(name: str) -> set[str]:
        return run_ids(PARTS[name, "cpu"])

    assert runs("F10") == runs("T3")
    assert runs("F11") | runs("F12") < runs("T4")
    assert runs("F13") < runs("T4")


def findings(*parts: tuple[str, list[float], list[float]], name: str = "T3") -> Findings:
    """Parts of the paper's scale on the data sets named, with accuracies of the Hourglass and of its rival."""
    made = {part.study.base.source.name: part for part in PARTS[name, "paper"]}
    large = {"d_z": 1536, "d_h": 768, "depth": 25}
    return Findings(
        [
            MeasuredPart(
                made[source],
                [],
                [
                    classifier("hourglass_vit", first, params=297e6, **large),
                    classifier("conventional_vit", second, params=303e6, d_z=1024, d_h=4096, depth=24),
                ],
                [],
            )
            for source, first, second in parts
        ]
    )


@pytest.mark.parametrize(("gain", "answer"), [(0.5, "yes"), (-0.5, "no"), (0.01, "undecided")])
def test_ahead_everywhere(gain, answer):
    won = ("cars", around(16, 0.05), around(12, 0.05))
    flowers = ("flowers102", around(80 + gain, 0.05), around(80, 0.05))
    assert vit.c9(findings(won, flowers)).measured == answer
    assert vit.c9(findings(won)).measured == "undecided", "Flowers is missing"
    assert vit.c9(findings(("cifar10", *won[1:]))).measured == "not addressed"


@pytest.mark.parametrize(("gain", "answer"), [(5.0, "yes"), (3.0, "no"), (3.76, "undecided")])
def test_c7_is_about_the_gain_on_cars(gain, answer):
    judged = vit.c7(findings(("cars", around(12 + gain, 0.05), around(12, 0.05))))
    assert judged.measured == answer
    assert vit.c7(findings(("cifar10", [80.0], [70.0]))).measured == "not addressed"


def test_c8_needs_the_mean_and_both_data_sets():
    def judged(cars: float, flowers: float, others: float) -> str:
        gains = {"cars": cars, "flowers102": flowers} | dict.fromkeys(("cifar10", "cifar100", "imagenet100"), others)
        parts = [(name, around(50 + gain, 0.01), around(50, 0.01)) for name, gain in gains.items()]
        return vit.c8(findings(*parts)).measured

    assert judged(5, 6, 3) == "yes"
    assert judged(5, 6, -3) == "no"
    assert judged(3.8, 6, 3) == "no"
    assert judged(5, 4.2, 3) == "no"
    assert vit.c8(findings(("cifar10", [80.0], [70.0]))).measured == "not addressed"


def test_c10_is_about_the_largest_on_cars():
    won = ("cars", around(21, 0.05), around(19, 0.05))
    lost = ("cars", around(19, 0.05), around(21, 0.05))
    assert vit.c10(findings(won, name="T4")).measured == "yes"
    assert vit.c10(findings(lost, name="T4")).measured == "no"
    assert vit.c10(findings(("flowers102", *won[1:]), name="T4")).measured == "not addressed"


def test_printed_accuracies_have_no_spread_and_decide_nothing():
    parts = PARTS["T4", "paper"]
    found = Findings([MeasuredPart(part, [], list(part.printed.values()), []) for part in parts])
    assert vit.c9(found).published == "undecided"
    assert "+3.800 points (no spread, 1 seed)" in vit.c9(found).printed_because


def lines(halfway: float, **fields: Any) -> dict[str, Any]:
    curves = [[(1, 10.0), (2, halfway + shift), (3, 40.0), (4, 50.0)] for shift in (-0.1, 0.0, 0.1)]
    return {"part": "ViT-Tiny, any", "source": "any", "curves": curves, **fields}


@pytest.mark.parametrize(("halfway", "answer"), [(32.0, "yes"), (28.0, "no"), (30.0, "undecided")])
def test_faster_is_judged_halfway(halfway, answer):
    pair = [lines(halfway, shape="hourglass_vit"), lines(30.0, shape="conventional_vit")]
    assert vit.faster(Findings([], {"curves": pair})).measured == answer


@pytest.mark.parametrize(("halves", "answer"), [((30.0, 49.0), "yes"), ((49.0, 30.0), "no"), ((30, 30), "undecided")])
def test_sooner_is_the_first_epoch_near_the_last_value(halves, answer):
    sizes = [lines(halves[0], part="small", params=1), lines(halves[1], part="large", params=2)]
    assert vit.sooner(Findings([], {"curves": sizes})).measured == answer


# At the smoke scale everything is real.


@pytest.mark.slow  # the counts alone: tests/papers/test_vit_counts.py
def test_table_2_is_counted_exactly_and_timed_here(tmp_path):
    result = reproduce("hourglass", "T2", "smoke", tmp_path, carry_out=complete_study)
    values = {item["id"]: item for item in result["quantities"]}
    counted = [item for name, item in values.items() if name.endswith((" params", " gflops"))]
    assert len(counted) == 12
    assert {item["word"] for item in counted} == {"agrees"}
    assert "4,927,732" in {item["note"] for item in counted}
    assert values["T2 tiny hourglass ms"]["measured"] > 0
    answers = {claim["id"]: (claim["measured"], claim["published"]) for claim in result["claims"]}
    assert answers["2.T"] == ("not addressed", "yes"), "smoke decides nothing"
    (counts,) = (claim["numbers"]["measured"] for claim in result["claims"] if claim["id"] == "2.T")
    assert {size: line["answer"] for size, line in counts.items()} == dict.fromkeys(("tiny", "small", "large"), "yes")
    assert answers["2.L"][1] == "no", "printed: ViT-Small is slower as an Hourglass"
    assert (tmp_path / "figure.png").stat().st_size > 100


@pytest.mark.slow
@pytest.mark.parametrize("table", ["T3", "T4", "F10", "F13"])
def test_exhibits_at_the_smoke_scale(table: str, tmp_path: Path) -> None:
    result = reproduce("hourglass", table, "smoke", tmp_path, carry_out=complete_study)
    for name in ("result.json", "rows.csv", "table.md", "figure.png", "index.html"):
        assert (tmp_path / name).stat().st_size > 100
    assert any(row["measured"] for row in result["rows"])
    assert {claim["id"] for claim in result["claims"]} == set(TABLES[table].tests)
    assert {claim["measured"] for claim in result["claims"]} <= {"yes", "no", "undecided", "not addressed"}


def test_the_future_work_has_the_parameters_of_the_smallest_hourglass():
    bounds: dict[Scale, float] = {"cpu": 1.03, "paper": 1.08}
    for scale, bound in bounds.items():
        (part,) = PARTS["S4V", scale]
        sizes = [cost(config).params for config in completed(part)]
        assert len(sizes) == 4
        assert max(sizes) < bound * min(sizes)
    assert run_ids(PARTS["S4V", "cpu"]) & run_ids(PARTS["T4", "cpu"]), "the plain network is that of Table 4"
    said = PARTS["S4V", "cpu"][0].differences
    assert "8,000 training images instead of all" in said
    assert "378 optimiser steps instead of 66,000" in said


def test_each_change_of_the_future_work_is_compared_with_the_plain_hourglass():
    (part,) = PARTS["S4V", "cpu"]

    def judged(stacked: float, iterated: float, latent: float) -> list[str]:
        changes = [{}, {"ffn_blocks": 2}, {"ffn_blocks": 2, "tied_ffn": True}, {"latent_width": 24}]
        networks = [
            classifier("hourglass_vit", around(mean, 0.1), d_z=72, d_h=36, **change)
            for mean, change in zip((50.0, stacked, iterated, latent), changes, strict=True)
        ]
        given = Findings([MeasuredPart(part, [], networks, [])])
        return [str(test(given).measured) for test in (vit.stacked, vit.iterated, vit.latent)]

    assert judged(51.0, 49.0, 50.0) == ["yes", "no", "undecided"]
    assert judged(49.0, 51.0, 52.0) == ["no", "yes", "yes"]
