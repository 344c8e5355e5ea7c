"""The studies say what they should: the paper's own, the ones that fit two cores, and what sets the two apart."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.config import StudyConfig, run_config
from isthmus.core.registry import find
from isthmus.core.space import condition
from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import SCALES, Part
from isthmus.papers.hourglass import studies
from isthmus.papers.hourglass.exhibits import TABLES
from isthmus.training.prepare import Options, load_data, prepare
from tests.papers.networks import size

PAPER = load_paper("hourglass")
PARTS = {(name, scale): exhibit.parts(scale) for name, exhibit in TABLES.items() for scale in SCALES}
FRONTS = {"T6": 25, "T7": 25, "T8": 27, "T9": 27}
SIZES = {"denoise": (3072, 3072), "super_resolution": (768, 3072)}


def _shapes(study: StudyConfig) -> list[tuple[str, int, int, int]]:
    models = [candidate.model_dump() for candidate in study.candidates]
    return [(model["name"][0], model["d_z"], model["d_h"], model["depth"]) for model in models]


# The studies that other people have trained: a config that changed by a hair would train them again.

MNIST = [
    ("h", 785, 16, 3), ("h", 785, 64, 4), ("h", 785, 128, 5), ("h", 785, 256, 4), ("h", 1000, 256, 6),
    ("c", 392, 784, 1), ("c", 588, 785, 1), ("c", 784, 785, 1), ("c", 784, 785, 2), ("c", 784, 1176, 2),
]  # fmt: skip
CIFAR = [("c", 1536, 2304, 1), ("c", 2048, 2304, 1), ("c", 1536, 2304, 2), ("c", 1024, 2048, 4), ("c", 1536, 3072, 2)]
TRAINED: list[tuple[Any, str, dict[str, Any], int, tuple[float, float], list[tuple[str, int, int, int]], str]] = [
    (partial(studies.mnist, "denoise"), "mnist", {"name": "denoise"}, 5, (5e-4, 1e-3), MNIST, "cb3054beaf768fb9"),
    (
        partial(studies.mnist, "super_resolution"), "mnist", {"name": "super_resolution", "flips": True}, 1,
        (5e-4, 1e-3), MNIST, "f665a102813962d9",
    ),
    (
        partial(studies.colour, "T8"), "cifar10", {"name": "denoise"}, 2, (1e-4, 3e-4),
        [("h", 3546, 8, 5), ("h", 3546, 16, 5), ("h", 3546, 64, 5), ("h", 3546, 128, 5), ("h", 3075, 765, 2), *CIFAR],
        "d17002724dae6985",
    ),
    (
        partial(studies.colour, "T9"), "cifar10", {"name": "super_resolution"}, 2, (1e-4, 3e-4),
        [
            ("h", 1024, 32, 5), ("h", 1024, 128, 5), ("h", 1536, 128, 5), ("h", 2048, 115, 5), ("h", 3546, 16, 5),
            ("c", 512, 768, 1), ("c", 768, 1152, 1), ("c", 768, 1152, 2), ("c", 1024, 1536, 2), ("c", 1536, 2304, 1),
        ],
        "bf22418c51fff2e9",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("part", "source", "task", "epochs", "rates", "shapes", "identity"), TRAINED)
def test_runs_at_the_cpu_scale_are_those_that_exist(part, source, task, epochs, rates, shapes, identity):
    study = part("cpu")[0].study
    assert _shapes(study) == shapes
    assert (study.rates, study.rates_on, study.seeds) == (rates, "first_seed", (0, 1, 2))
    for candidate, (letter, d_z, d_h, depth) in zip(study.candidates, shapes, strict=True):
        name = {"h": "hourglass_mlp", "c": "conventional_mlp"}[letter]
        for rate in rates:
            meant = {
                "source": {"name": source},
                "task": task,
                "model": {"name": name, "d_z": d_z, "d_h": d_h, "depth": depth},
                "seed": 2,
                "threads": 1,
                "train": {"epochs": epochs, "batch_size": 128, "learning_rate": rate},
            }
            assert study.run(candidate, rate, 2).run_id("data") == run_config(meant).run_id("data")


@pytest.mark.slow
@pytest.mark.parametrize(("part", "source", "task", "epochs", "rates", "shapes", "identity"), TRAINED)
def test_the_first_run_has_its_id_on_the_real_data(
    part, source, task, epochs, rates, shapes, identity, shared_data: Path
):
    study = part("cpu")[0].study
    run = study.run(study.candidates[0], rates[0], 0)
    assert prepare(run, Options(data_dir=shared_data)).id == identity


@pytest.mark.parametrize("name", FRONTS)
def test_the_paper_scale_trains_every_printed_network_at_its_printed_size(name):
    (part,) = PARTS[name, "paper"]
    table, study = PAPER.tables[name], part.study
    assert len(study.candidates) == len(table.rows) == FRONTS[name]
    for candidate, row in zip(study.candidates, table.rows.values(), strict=True):
        d_in, d_out = SIZES[study.base.task.name]
        counted = size(candidate.model_dump(), d_in, d_out)
        assert counted / 1e6 == pytest.approx(row["params_M"], abs=0.0056)  # two sizes of Table 9 were rounded twice
        assert candidate.name == f"{row['architecture']}_mlp"


@pytest.mark.parametrize(
    ("name", "source", "epochs", "flips"),
    [("T6", "imagenet224", 1, False), ("T7", "imagenet224", 1, False), ("T8", "imagenet32", 2, True),
     ("T9", "imagenet32", 2, True), ("T1", "imagenet32", 2, True)],
)  # fmt: skip
def test_the_paper_scale_is_appendix_a(name, source, epochs, flips):
    (part,) = PARTS[name, "paper"]
    study = part.study
    assert (study.base.source.name, study.base.train.epochs, study.base.train.batch_size) == (source, epochs, 512)
    assert study.base.task.flips is flips  # type: ignore[attr-defined]
    assert study.rates == (1e-4, 3e-4, 5e-4, 7e-4)
    assert (study.seeds, study.rates_on) == ((0, 1, 2, 3, 4), "every_seed")
    assert part.same_setup


@pytest.mark.parametrize(("name", "place"), [("F6", 0), ("F7", 0), ("F8", 0)])
def test_mnist_is_searched_over_the_stated_ranges(name, place):
    study = PARTS[name, "paper"][place].study
    assert study.rates == (1e-4, 5e-4, 1e-3, 5e-3)
    assert (study.base.train.epochs, study.base.train.batch_size) == (50, 128)
    for space in study.spaces:
        grid = list(space.grid())
        assert {model["d_z"] for model in grid} >= {785, 4500}
        assert {model["d_h"] for model in grid} >= {4, 2500}
        assert {model["depth"] for model in grid} >= {1, 40}
        kept = [m for m in grid if all(condition(text)(m | {"d_in": 784}) for text in space.where)]
        assert len(kept) >= 20
        for model in kept:
            find("models", model["name"]).Config(**model)


def test_the_frozen_projection_is_studied_with_the_same_networks():
    (part,) = PARTS["F4", "cpu"]
    models = [candidate.model_dump() for candidate in part.study.candidates]
    shapes = {
        kind: [_plain(model) for model in models if model["w_in"] == kind]
        for kind in ("trainable", "uniform", "orthogonal")
    }
    assert len(models) == 12
    assert all(group == shapes["trainable"] for group in shapes.values())
    assert {model["d_z"] for model in models if model["name"] == "conventional_mlp"} == {784}, "equal dimension"
    denoising, enlarging = PARTS["F4", "paper"]
    assert len(denoising.study.candidates) == 2 * 25
    assert len(enlarging.study.candidates) == 25 + 19, "in super-resolution no conventional network keeps the dimension"


def _plain(model: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(model[name] for name in ("name", "d_z", "d_h", "depth"))


def test_the_ablation_varies_one_thing_at_a_time():
    (part,) = PARTS["F9", "cpu"]
    shapes = _shapes(part.study)
    assert {d_z for _, d_z, _, _ in shapes} == {1000}
    assert sorted(d_h for _, _, d_h, depth in shapes if depth == 5) == [16, 64, 128, 512]
    assert sorted(depth for _, _, d_h, depth in shapes if d_h == 64) == [2, 5, 9]
    assert len(part.printed) == 11


def test_the_ranks_compare_two_networks_of_one_size_with_the_printed_ratios():
    for scale in SCALES:
        (part,) = PARTS["T1", scale]
        sizes = {c.name: size(c.model_dump(), 768, 3072) for c in part.study.candidates}
        assert sizes["hourglass_mlp"] == pytest.approx(sizes["conventional_mlp"], rel=0.025)
    (part,) = PARTS["T1", "cpu"]
    ratios = {c.name: c.model_dump()["d_h"] / c.model_dump()["d_z"] for c in part.study.candidates}
    assert ratios == pytest.approx({"hourglass_mlp": 1146 / 3075, "conventional_mlp": 3546 / 3072}, rel=0.002)


def test_every_norm_activation_and_initialisation_is_tried_with_both_shapes():
    (part,) = PARTS["S4", "cpu"]
    models = [candidate.model_dump() for candidate in part.study.candidates]
    cells = {(model["name"], model["norm"], model["activation"], model["init"]) for model in models}
    assert len(cells) == len(models) == 2 * 3 * 3 * 5
    sizes = {size(model, 64, 64) for model in models}
    assert max(sizes) <= 1.02 * min(sizes)


def test_the_search_of_shapes_has_a_choice_at_each_of_five_budgets():
    (part,) = PARTS["SC2", "cpu"]
    models = [candidate.model_dump() for candidate in part.study.candidates]
    assert all(64 < model["d_z"] > model["d_h"] for model in models), "as the paper's search"
    sizes = sorted(size(model, 64, 64) for model in models)
    starts = [number for number, before in zip(sizes[1:], sizes, strict=False) if number > 1.02 * before]
    assert [sizes[0], *starts] == pytest.approx([22_000, 35_000, 55_000, 88_000, 140_000], rel=0.02)
    for start in (sizes[0], *starts):
        group = [model for model in models if start <= size(model, 64, 64) <= 1.02 * start]
        assert len(group) >= 8
        assert {model["depth"] for model in group} == {1, 2, 4, 8, 16}
    (search,) = PARTS["SC2", "paper"]
    assert search.study == PARTS["F7", "paper"][0].study


ROWS = {"mnist": 50_000, "cifar10": 45_000}
INPUTS = {"mnist": 784, "cifar10": 3072}


def _minutes(part: Part) -> float:
    """By the figures in the studies' docstring."""
    study, train = part.study, part.study.base.train
    source, task = study.base.source.name, study.base.task
    rows = (getattr(study.base.source, "rows", None) or ROWS[source]) * (4 if task.flips else 1)  # type: ignore[attr-defined]
    d_out = INPUTS[source]
    d_in = d_out // 4 if task.name == "super_resolution" else d_out
    params = sum(size(c.model_dump(), d_in, d_out) for c in study.candidates)
    steps = -(-rows // train.batch_size)
    seconds = params * train.epochs * (6 * rows / 70e9 + 28 * steps / 6e9)
    return seconds * (len(study.rates) + len(study.seeds) - 1) / 2 / 60


@pytest.mark.parametrize(("name", "minutes"), [("T1", 3), ("F4", 7), ("F6", 6), ("F9", 5), ("T8", 90), ("T9", 40)])
def test_the_cpu_scale_takes_about_an_hour_on_two_cores(name, minutes):
    assert minutes / 2 < sum(map(_minutes, PARTS[name, "cpu"])) < minutes


def test_stand_ins_are_shared_and_therefore_trained_once():
    def names(*exhibits: str) -> list[list[str]]:
        return [[part.study.name for part in PARTS[exhibit, "cpu"]] for exhibit in exhibits]

    (t6,), (t8,), f3, f7 = names("T6", "T8", "F3", "F7")
    assert t6 == t8 == f3[0] == f7[1]
    for scale in SCALES:
        named: dict[str, StudyConfig] = {}
        for exhibit in TABLES:
            for part in PARTS[exhibit, scale]:
                assert named.setdefault(part.study.name, part.study) == part.study, "one name, one study"


def test_what_differs_is_said_in_full():
    (part,) = PARTS["T8", "cpu"]
    said = "\n".join(part.differences)
    for words in (
        "other data: CIFAR-10 instead of ImageNet-32",
        "no fourfold flips",
        "batches of 128 instead of 512",
        "704 optimiser steps instead of 20,020",
        "learning rates: 0.0001, 0.0003 instead of 0.0001, 0.0003, 0.0005, 0.0007",
        "selected on the first seed alone",
        "3 seeds instead of 5",
        "5 of the 27 networks of the paper's scale are trained, and 5 others",
        "conventional networks with d_z below d_x are added",
        "LayerNorm without parameters, GELU",
        "afresh, unclipped",
    ):
        assert words in said
    stand_in = "\n".join(PARTS["T6", "cpu"][0].differences)
    assert "CIFAR-10 instead of ImageNet-224 patches" in stand_in
    assert "704 optimiser steps instead of 22,521" in stand_in
    assert "2 epochs instead of 1" in stand_in
    fewer = "\n".join(PARTS["T1", "cpu"][0].differences)
    assert "15,000 images; both networks are a quarter as wide" in fewer
    assert "354 optimiser steps instead of 20,020" in fewer
    mnist = "\n".join(PARTS["F7", "cpu"][0].differences)
    assert "5 epochs instead of 50" in mnist
    assert "1,955 optimiser steps instead of 19,550" in mnist


@pytest.mark.parametrize(("name", "scale"), list(PARTS))
def test_every_part_says_what_the_paper_leaves_open(name, scale):
    parts = PARTS[name, scale]
    assert len({part.title for part in parts}) == len(parts), "a result tells its parts apart by their titles"
    for part in parts:
        assert any("the paper" in line for line in part.differences)
        held_out = name in ("F10", "F11", "F12", "F13") and part.source == "cars"
        assert part.same_setup == (scale == "paper" and name not in ("S4", "S4V") and not held_out)
        assert all(row.id == identity for identity, row in part.printed.items())


@pytest.mark.parametrize("name", TABLES)
def test_the_smoke_scale_needs_no_data_files(name, tmp_path):
    for part in PARTS[name, "smoke"]:
        assert len(load_data(part.study.base.source, tmp_path).train) > 0
