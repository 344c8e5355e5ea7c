"""The Hyper-SET paper: its studies, its claims on printed and on made-up numbers, and runs at the smoke scale."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.core.protocols import Signature
from isthmus.papers import import_exhibits, load_paper
from isthmus.papers.engine.exhibit import SCALES, Findings, MeasuredPart, Part
from isthmus.papers.engine.networks import Network
from isthmus.papers.hyperset import claims, masked, studies
from isthmus.papers.hyperset.exhibits import TABLES
from isthmus.recipes.recurrent import cifar10_tokenizer
from isthmus.training.counting import cost
from isthmus.training.prepare import prepare
from tests.papers.networks import around, as_printed, classifier, findings, models, parameters, run_ids, smoke

PAPER = load_paper("hyperset")
MAKERS: dict[str, Any] = {
    "T1": studies.data_sets, "F3": studies.extrapolation, "F4": studies.both_tokens, "F6": studies.splits,
    "S4": studies.ablations, "T2": masked.parts,
}  # fmt: skip
PARTS = {(name, scale): make(scale) for name, make in MAKERS.items() for scale in SCALES}


def printed(name: str) -> Findings:
    return as_printed(PARTS[name, "paper"])


def complete(part: Part) -> list[Any]:
    """The candidates as their data would complete them."""
    source, resize = part.study.base.source.name, getattr(part.study.base.task, "resize", None)
    if source.startswith("sudoku"):
        signature = Signature((81,), (81, 9), 10)
    elif source == "tokens":
        signature = Signature((256,), (256, 1024), 1025)
    else:
        signature = Signature((1, 8, 8) if source == "digits" else (3, resize or 32, resize or 32), (10,))
    return [candidate.complete(signature, seed=0) for candidate in part.study.candidates]


def test_every_table_and_figure_is_found_by_name():
    wanted = [
        "T1",
        "T2",
        "T10",
        "T11",
        "T12",
        "F1",
        "F3",
        "F4",
        "F5",
        "F6",
        "F7",
        *(f"F{n}" for n in range(9, 14)),
        "S4",
    ]
    assert list(import_exhibits("hyperset")) == wanted
    assert set(PAPER.claims) <= {name for exhibit in TABLES.values() for name in exhibit.tests}


# The studies


def column(name: str) -> dict[str, Any]:
    return {row["name"]: row["value"] for row in PAPER.tables[name].rows.values()}


def test_the_paper_scale_of_sudoku_is_tables_3_and_4():
    (part,) = PARTS["F3", "paper"]
    train, source = part.study.base.train, part.study.base.source.model_dump()
    found = {
        "epochs": train.epochs, "batch_size": train.batch_size, "train_samples": source["most"],
        "eval_samples": source["most_held_out"], "adamw_beta2": train.betas[1], "weight_decay": train.weight_decay,
        "learning_rate": train.learning_rate, "gradient_clip": train.clip_norm,
    }  # fmt: skip
    assert found == {name: column("T3")[name] for name in found}
    ours, table = models(part)[0], column("T4")
    names = {"iterations": "iterations", "d": "d", "ff_ratio": "ff_ratio", "num_heads": "heads", "layers": "layers"}
    assert {ours_: ours[ours_] for ours_ in names} == {ours_: table[theirs] for ours_, theirs in names.items()}
    assert ours["time_frequencies"] == table["time_embedding_frequency"]
    assert len(part.study.seeds) == 5


@pytest.mark.parametrize("place", range(3))
def test_the_paper_scale_of_images_is_tables_5_to_7(place):
    part = PARTS["T1", "paper"][place]
    train, table = part.study.base.train, column("T5")
    found = {
        "epochs": train.epochs, "batch_size": train.batch_size, "adam_beta2": train.betas[1],
        "weight_decay": train.weight_decay, "learning_rate": train.learning_rate, "gradient_clip": train.clip_norm,
        "input_size": part.study.base.task.model_dump()["resize"],
    }  # fmt: skip
    assert found == {name: table[name] for name in found}
    sizes = {row["size"]: (row["d"], row["heads"]) for row in PAPER.tables["T7"].rows.values()}
    assert sizes == studies.WIDTHS
    small = models(part)[3]
    assert (small["d"], small["num_heads"], small["patch"], small["iterations"], small["ff_ratio"]) == (
        384,
        6,
        16,
        12,
        1,
    )


def test_the_paper_s_models_have_their_counted_sizes_and_the_wide_ones_match():
    *counted, crate = (parameters(model) for model in complete(PARTS["T1", "paper"][0]))
    assert counted == [row.params for row in PARTS["T1", "paper"][0].printed.values()]
    assert counted == [2_070_154, 599_050, 746_890, 1_238_858, 1_978_954]
    assert crate == pytest.approx(counted[0], rel=0.01), "the wide CRATE has the Transformer's parameters"
    for scale in ("paper", "cpu"):
        _, theirs, wide = (parameters(model) for model in complete(PARTS["F3", scale][0]))
        assert wide == pytest.approx(theirs, rel=0.04)
    sizes = [parameters(model) for model in complete(PARTS["T1", "cpu"][0])]
    for wide in sizes[4:]:
        assert wide == pytest.approx(sizes[0], rel=0.05), "wide ones have the Transformer's parameters"
    assert 1 - sizes[3] / sizes[0] == pytest.approx(0.4, abs=0.03), "and the narrow one saves as many as in the paper"


@pytest.mark.parametrize(("name", "cells"), [("T1", 5), ("F3", 2)])
def test_every_printed_cell_is_one_network_of_the_paper_s_scale(name, cells):
    for part in PARTS[name, "paper"]:
        assert len(part.printed) == cells
        for row in part.printed.values():
            fits = [
                m for m in models(part)
                if m["name"] == row.shape and all(m.get(k) == v for k, v in row.model.items())
            ]  # fmt: skip
            assert len(fits) == 1, row.id


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_network_fits_its_data_and_every_split_its_depth(name, scale):
    for part in PARTS[name, scale]:
        for model in complete(part):
            if part.study.base.task.name == "classification":
                assert model.layers * model.iterations == studies.DEPTH[scale]


def test_the_cpu_scale_shares_its_runs_and_says_what_differs():
    def runs(name: str) -> set[str]:
        return run_ids(PARTS[name, "cpu"])

    assert runs("F4") < runs("F3") | runs("T1"), "energies need no training of their own"
    assert len(runs("S4") & runs("F3")) == 3
    assert len(runs("F6") & runs("T1")) == 4
    assert [len(runs(name)) for name in ("S4", "T1", "F6")] == [18, 18, 8]
    (boards,) = PARTS["F3", "cpu"]
    assert (boards.study.rates, boards.study.rates_on) == (studies.SUDOKU_RATES, "first_seed"), "rivals alike"
    said = "\n".join(PARTS["F3", "cpu"][0].differences)
    for words in ("generated Sudoku instead of hard Sudoku", "60 givens instead of 17 to 34", "3 seeds instead of 5"):
        assert words in said


# The claims


def test_table_1_as_printed_has_no_spread():
    for claim in (claims.c5, claims.c7):
        assert claim(printed("T1")).published == "undecided"
    saved = claims.c6(printed("T1"))
    assert (saved.measured, saved.published) == ("yes", "yes")
    assert "40.2% fewer" in saved.because
    assert "1.24 instead of 2.07 M parameters, 40.1% fewer" in saved.printed_because
    assert claims.c1(printed("F3")).published == "undecided"


def images(ours: float, wide: float, theirs: float = 40.0, crate: float = 30.0, times: int = 4) -> list[Network]:
    """With the paper's widths, or a quarter of them."""
    means = {("recurrent_transformer", 96): theirs, ("crate", 96): crate, ("crate_t", 96): crate, ("crate", 176): crate}
    means |= {("hyper_set", 96): ours, ("hyper_set", 128): wide}
    sizes = {"recurrent_transformer": 130e3, "hyper_set": 79e3}
    return [
        classifier(shape, around(mean, 0.1), params=sizes.get(shape, 40e3) * (d / 96), d=d * times)
        for (shape, d), mean in means.items()
    ]


def on_all_data(*networks: list[Network]) -> Findings:
    """Networks on CIFAR-10, on CIFAR-100 and on ImageNet-100."""
    return Findings(
        [MeasuredPart(part, [], some, []) for part, some in zip(PARTS["T1", "paper"], networks, strict=True)]
    )


@pytest.mark.parametrize(
    ("ours", "wide", "c5", "c7"), [(45, 50, "yes", "yes"), (35, 50, "no", "yes"), (40, 35, "undecided", "no")]
)
def test_c5_and_c7_compare_widths_and_parameters(ours, wide, c5, c7):
    found = on_all_data(images(ours, wide), images(35, 50), images(35, 40))
    assert (claims.c5(found).measured, claims.c7(found).measured) == (c5, c7)


def test_one_data_set_cannot_show_what_is_claimed_of_three():
    for wide, answer in ((50, "undecided"), (35, "no")):
        found = findings(PARTS["T1", "cpu"][0], images(45, wide, times=1))
        judged = claims.c7(found)
        assert judged.measured == answer
        assert "other data: trained at the paper's scale alone" in judged.because
    smaller = claims.c5(found)
    assert smaller.measured == "not addressed"
    assert "the claim is about d = 384, and d is 96; here yes" in smaller.because
    assert claims.c6(found).measured == "yes", "counted at the paper's size"


def test_a_crate_of_the_same_parameters_is_a_question_of_its_own():
    for crate, answer in ((30.0, "yes"), (50.0, "undecided"), (60.0, "no")):
        networks = [item for item in images(45, 50) if item.model["d"] != 704]
        networks.append(classifier("crate", around(crate, 0.1), params=131e3, d=704))
        found = findings(PARTS["T1", "cpu"][0], networks)
        assert claims.matched_crate(found).measured == answer
    assert claims.matched_crate(found).published == "not printed"


def test_c5_wants_the_opposite_on_other_data():
    def judged(*ours: float) -> str:
        return claims.c5(on_all_data(*(images(value, 50.0) for value in ours))).measured

    assert judged(45, 35, 35) == "yes"
    assert judged(45, 45, 35) == "no"
    assert judged(45, 40, 35) == "undecided"


def curve(at: float, twice: float) -> list[list[float]]:
    return [[0.0, 0.0, at + step, 0.0, twice + 2 * step] for step in (-0.1, 0.0, 0.1)]


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("hyper_set", dict(claims.CHOSEN)),
    "sines": ("hyper_set", {**claims.CHOSEN, "positions": "sinusoidal"}),
    "theirs": ("recurrent_transformer", {}),
}


def boards(name: str, **ends: tuple[float, float]) -> Findings:
    """Models by their solved boards as trained and at twice the iterations."""
    networks = [
        classifier(KINDS[kind][0], around(at, 0.1), d=64, **KINDS[kind][1]) for kind, (at, _) in ends.items()
    ]  # fmt: skip
    found = {
        network.id: {"trained": 2, "runs": curve(*both)} for network, both in zip(networks, ends.values(), strict=True)
    }
    return findings(PARTS[name, "cpu"][0], networks, extrapolation=found)


def test_gains_of_more_iterations_are_compared_over_seeds():
    assert claims.c1(boards("F3", ours=(50, 55), theirs=(45, 45))).measured == "yes"
    assert claims.c2(boards("F3", ours=(50, 55), theirs=(45, 45))).measured == "yes"
    assert claims.c2(boards("F3", ours=(50, 50), theirs=(45, 49))).measured == "no"
    assert claims.c2(boards("F3", ours=(50, 50), theirs=(45, 45))).measured == "undecided"
    assert claims.c11(boards("S4", ours=(50, 55), sines=(45, 40))).measured == "yes"
    assert claims.c11(boards("S4", ours=(50, 40), sines=(45, 45))).measured == "no"


def run_of(energy: list[float], rank: list[float], angle: list[float]) -> dict[str, Any]:
    return {
        "attention_energy": [[value, value] for value in energy], "feed_forward_energy": [-1.0, -2.0, -3.0, 9.0],
        "effective_rank": [[value, value] for value in rank], "full_rank": [[8.0, 8.0]] * 4,
        "angle": [[value, value] for value in angle],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("energies", "ranks", "c3", "c4"),
    [
        ([[3, 2, 1, 9]] * 2, [[4, 5, 6, 0]] * 2, "yes", "yes"),
        ([[3, 4, 1, 0]] * 2, [[4, 5, 3, 9]] * 2, "no", "no"),
        ([[3, 2, 1, 9], [3, 4, 1, 0]], [[4, 5, 6, 0], [4, 5, 3, 9]], "undecided", "undecided"),
    ],
)
def test_energies_ranks_and_angles_are_read_up_to_the_trained_iterations(energies, ranks, c3, c4):
    runs = [run_of(energy, rank, [70, 80, 90, 10]) for energy, rank in zip(energies, ranks, strict=True)]
    found = Findings([], {"tokens": {"Sudoku": {"trained": 2, "runs": runs}}})
    assert (claims.c3(found).measured, claims.c4(found).measured) == (c3, c4)
    assert "angle: from 70 to 90, +20.000" in claims.c4(found).because


@pytest.mark.parametrize(
    ("base", "size", "answer"), [(50, 1e5, "yes"), (35, 1e5, "no"), (50, 9e5, "no"), (40, 1e5, "undecided")]
)
def test_c10_asks_the_base_width_at_every_split(base, size, answer):
    networks = [classifier("recurrent_transformer", around(40.0, 0.1), 5e5, d=96, layers=n) for n in (1, 2, 6)]
    networks += [classifier("hyper_set", around(base, 0.1), size, d=192, layers=n) for n in (1, 2, 6)]
    networks += [classifier("hyper_set", around(30.0, 0.1), 1e5, d=128, layers=n) for n in (1, 2, 6)]
    assert claims.c10(findings(PARTS["F6", "cpu"][0], networks)).measured == answer


def test_c10_is_not_asked_where_the_base_width_is_not_trained():
    (part,) = PARTS["F6", "cpu"]
    networks = [classifier(model.pop("name"), around(40.0), 1e5, **model) for model in models(part)]
    assert claims.c10(findings(part, networks)).measured == "not addressed"


def test_ablations_are_told_apart_by_their_settings():
    def judged(claim: Any, others: float) -> str:
        """All solve as many boards; of the cells the chosen one has half."""
        ablations = studies.ABLATIONS.values()
        networks = [classifier("hyper_set", around(9.0), **{**claims.CHOSEN, **fields}) for fields in ablations]
        cells: Any = [
            SimpleNamespace(seeds=(0, 1, 2), metrics={"cell_accuracy": around(others if fields else 0.5)})
            for fields in ablations
        ]
        return str(claim(Findings([MeasuredPart(PARTS["S4", "cpu"][0], cells, networks, [])])).measured)

    for claim in (claims.x0_leads, claims.time_layers_help, claims.zero_last_leads):
        assert [judged(claim, others) for others in (0.4, 0.5, 0.6)] == ["yes", "undecided", "no"]
    (item,) = PARTS["S4", "cpu"]
    assert len({str(sorted(model.items())) for model in models(item)}) == len(studies.ABLATIONS)


def restored(ours: float, wide: float) -> Findings:
    rows = {"0": 15.0, "1": ours, "2": wide}
    found = {
        row: {"psnr": {"0.4": around(mean, 0.01)}, "lpips": {"0.4": around(0.3 - (mean - 15) / 10, 0.001)}}
        for row, mean in rows.items()
    }
    found["0"]["psnr"]["0.4"].reverse()  # another order, so that paired differences vary
    return Findings([], {"masked": found})


@pytest.mark.parametrize(("ours", "answer"), [(14.0, "yes"), (15.5, "no"), (15.0, "undecided")])
def test_c8_reads_every_metric_in_its_own_direction(ours, answer):
    judged = masked.c8("T2")(restored(ours, 15.0))
    assert judged.measured == answer
    assert judged.published == "undecided", "printed without a spread"
    gaps = judged.numbers["published"]["Table 2"]
    assert gaps["fid"]["difference"] == pytest.approx(59.841 - 43.428)


@pytest.mark.parametrize(("wide", "answer"), [(15.02, "yes"), (14.0, "no"), (16.0, "no"), (15.1, "undecided")])
def test_c9_wants_both_within_a_tenth_of_a_decibel(wide, answer):
    assert masked.c9(restored(14.0, wide)).measured == answer


def test_the_paper_scale_of_masked_images_is_tables_8_and_9():
    (part,) = PARTS["T2", "paper"]
    train, table = part.study.base.train, column("T8")
    found = {
        "epochs": train.epochs, "batch_size": train.batch_size, "weight_decay": train.weight_decay,
        "learning_rate": train.learning_rate, "gradient_clip": train.clip_norm,
    }  # fmt: skip
    assert found == {name: table[name] for name in found}
    assert train.schedule == "constant"
    printed_sizes = [row["params_M"] for row in PAPER.tables["T2"].rows.values()]
    assert [round(cost(model).params / 1e6, 2) for model in complete(part)] == printed_sizes


def test_the_tokenizer_of_the_smoke_scale_is_the_one_that_is_trained_first():
    (first,) = masked.tokenizers("smoke")
    (model,) = first.candidates
    assert prepare(first.run(model, first.rates[0], 0)).id == masked.SMOKE_TOKENIZER
    (first,) = masked.tokenizers("cpu")
    assert first.run(first.candidates[0], first.rates[0], 0) == cifar10_tokenizer()


# At the smoke scale everything is real


@pytest.mark.slow
def test_figure_3_measures_iterations_beyond_the_trained(tmp_path):
    result = smoke("hyperset", "F3", tmp_path)
    for found in result["analysis"]["extrapolation"].values():
        assert found["trained"] == 3
        assert [len(run) for run in found["runs"]] == [7, 7]
    row = next(row for row in result["rows"] if row["measured"])
    assert row["measured"]["values"] == [run[3] for run in result["analysis"]["extrapolation"][row["id"]]["runs"]]


@pytest.mark.slow
@pytest.mark.parametrize("table", [name for name in TABLES if name != "F3"])
def test_every_exhibit_at_the_smoke_scale(table, tmp_path):
    result = smoke("hyperset", table, tmp_path)
    if "tokens" in result["analysis"]:
        for found in result["analysis"]["tokens"].values():
            assert len(found["runs"][0]["angle"]) == 2 * found["trained"] + 1
    if "extrapolation" in result["analysis"]:
        for found in result["analysis"]["extrapolation"].values():
            assert len(found["runs"][0]) == 2 * found["trained"] + 1
