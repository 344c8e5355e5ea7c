"""What a paper prints is followed to the letter at its scale, and every contradiction is found from the configs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from isthmus.cli.complete import complete_study
from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.papers import import_exhibits, list_papers, load_paper
from isthmus.papers.engine.exhibit import Part
from isthmus.papers.engine.protocols import Protocol
from isthmus.papers.engine.reproduce import default_folder, reproduce
from isthmus.studies.fronts import summarise
from isthmus.training.prepare import Options
from tests.papers.networks import fabricating

PAPERS = [paper for paper in list_papers() if paper != "pathways"]
PARTS: dict[str, list[Part]] = {}


def parts_of(paper: str) -> list[Part]:
    if paper not in PARTS:
        PARTS[paper] = [part for exhibit in import_exhibits(paper).values() for part in exhibit.parts("paper")]
    return PARTS[paper]


def find_part(paper: str, name: str, place: int = 0) -> Part:
    part: Part = import_exhibits(paper)[name].parts("paper")[place]
    return part


STUDY = study_config(
    {
        "name": "any",
        "base": {"source": {"name": "cifar10"}, "task": {"name": "classification"}, "train": {"betas": [0.9, 0.95]}},
        "candidates": [{"name": "hyper_set", "patch": 8}, {"name": "crate", "patch": 8}],
        "seeds": (0, 1, 2),
    }
)
PROTOCOL = Protocol(
    "Table 9",
    {"train.betas": [0.0, 0.95], "source.validation": 0, "hyper_set.step_init": "zero_all", "model.patch": 4},
    {"train.select": "last"},
    {"train.betas": [0.9, 0.96], "task.label_smoothing": 0.1},
    {"code": ["something that no field expresses"]},
)


def test_contradictions_are_found_from_the_config():
    assert PROTOCOL.contradictions(STUDY, "printed") == [
        "train.betas is [0.9, 0.95]; [0, 0.95] is printed (Table 9)",
        "source.validation is 5000; 0 is printed (Table 9)",
        "hyper_set.step_init is zero_last; zero_all is printed (Table 9)",
        "model.patch is 8; 4 is printed (Table 9)",
    ]
    found = PROTOCOL.contradictions(STUDY, "code")
    assert found[0] == "something that no field expresses"
    assert "train.betas is [0.9, 0.95]; [0.9, 0.96] is in the authors' code" in found
    assert "task.label_smoothing is 0; 0.1 is in the authors' code" in found


def test_a_protocol_removes_its_contradictions_and_leaves_the_rest():
    printed = PROTOCOL.apply(STUDY, "printed")
    assert PROTOCOL.contradictions(printed, "printed") == []
    ours, other = printed.candidates
    assert (ours.step_init, ours.patch, other.patch) == ("zero_all", 4, 4)  # type: ignore[attr-defined]
    assert (printed.name, printed.seeds, printed.base.train.select) == ("any", (0, 1, 2), "last")
    code = PROTOCOL.apply(STUDY, "code")
    assert code.base.train.betas == (0.9, 0.96)
    assert PROTOCOL.contradictions(code, "code") == ["something that no field expresses"]
    assert "the paper does not print train.select; here last" in PROTOCOL.describe_unprinted(printed, "printed")


def test_a_study_that_varies_a_setting_or_does_not_follow_it():
    varied = PROTOCOL.without("hyper_set.")
    assert varied.apply(STUDY, "printed").candidates[0].step_init == "zero_last"  # type: ignore[attr-defined]
    assert not any("step_init" in line for line in varied.contradictions(STUDY, "printed"))
    kept = replace(PROTOCOL, unapplied={"source.validation": "for a reason"})
    study = kept.apply(STUDY, "printed")
    assert kept.contradictions(study, "printed") == ["source.validation is 5000; 0 is printed (Table 9): for a reason"]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_study_of_a_paper_has_a_protocol_and_the_known_contradictions_alone(paper):
    known = {
        "C of Mixer-SS-W is 467, which gives the printed 255 M connections; 487 is printed",
        "γ of Mixer-B-W is 4.095, which gives the printed width of 6.2e5; 4.57 is printed",
    }
    for part in parts_of(paper):
        assert part.protocol is not None
        for line in part.contradictions:
            assert line in known or line.startswith("source.validation is"), line
        assert part.same_setup == (part.comparable and not part.contradictions)


@pytest.mark.parametrize("paper", PAPERS)
def test_under_the_code_s_protocol_only_what_no_field_expresses_is_left(paper):
    for part in parts_of(paper):
        assert part.protocol is not None
        followed = part.follow("code")
        left = [line for line in followed.contradictions if not line.startswith("source.validation is")]
        assert left == list(part.protocol.open.get("code", ()))
        assert followed.study.name != part.study.name


TABLES: dict[tuple[str, str], dict[str, str]] = {
    ("hyperset", "T3"): {
        "epochs": "train.epochs", "batch_size": "train.batch_size", "train_samples": "source.most",
        "eval_samples": "source.most_held_out", "weight_decay": "train.weight_decay",
        "learning_rate": "train.learning_rate", "gradient_clip": "train.clip_norm",
    },
    ("hyperset", "T5"): {
        "epochs": "train.epochs", "batch_size": "train.batch_size", "weight_decay": "train.weight_decay",
        "learning_rate": "train.learning_rate", "gradient_clip": "train.clip_norm", "input_size": "task.resize",
    },
    ("hyperset", "T8"): {
        "epochs": "train.epochs", "batch_size": "train.batch_size", "weight_decay": "train.weight_decay",
        "learning_rate": "train.learning_rate", "gradient_clip": "train.clip_norm", "input_size": "source.images.size",
    },
    ("hourglass", "T11"): {
        "epochs": "train.epochs", "learning_rate": "train.learning_rate", "batch_size": "train.batch_size",
        "warmup_epochs": "train.warmup_epochs", "weight_decay": "train.weight_decay", "resolution": "task.resize",
        "label_smoothing": "task.label_smoothing", "drop_path": "model.drop_path", "mixup": "task.augment.mixup",
        "rand_augment_magnitude": "task.augment.magnitude", "cutmix": "task.augment.cutmix",
        "random_erasing": "task.augment.erasing", "rand_augment_std_or_prob": "task.augment.magnitude_std",
    },
}  # fmt: skip
HOMES = {"T3": ("F3", 0), "T5": ("T1", 0), "T8": ("T2", 0), "T11": ("T3", 0)}


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_a_protocol_repeats_the_published_table(paper, table):
    protocol = find_part(paper, *HOMES[table]).protocol
    assert protocol is not None
    printed = {row["name"]: row["value"] for row in load_paper(paper).tables[table].rows.values()}
    paths = TABLES[paper, table]
    assert {name: protocol.printed[path] for name, path in paths.items()} == {name: printed[name] for name in paths}


def test_imixer_s_protocol_repeats_table_5():
    paths = {
        "batch_size": "train.batch_size", "base_learning_rate": "train.learning_rate", "optimizer_eps": "train.epsilon",
        "weight_decay": "train.weight_decay", "min_learning_rate": "train.final_learning_rate",
        "warmup_epochs": "train.warmup_epochs", "warmup_learning_rate": "train.warmup_learning_rate",
        "cooldown_epochs": "train.cooldown_epochs", "crop_ratio": "task.crop_ratio",
        "rand_augment_magnitude": "task.augment.magnitude", "rand_augment_std": "task.augment.magnitude_std",
        "mixup_alpha": "task.augment.mixup", "cutmix_alpha": "task.augment.cutmix",
        "random_erasing": "task.augment.erasing", "label_smoothing": "task.label_smoothing",
        "stochastic_depth": "model.drop_path",
    }  # fmt: skip
    rows = {row["name"]: row for row in load_paper("imixer").tables["T5"].rows.values()}
    for place, size in enumerate(("small", "base", "large")):
        protocol = find_part("imixer", "T1", place).protocol
        assert protocol is not None
        assert {name: protocol.printed[path] for name, path in paths.items()} == {n: rows[n][size] for n in paths}


def test_hyper_set_as_printed_and_as_in_the_code():
    part = find_part("hyperset", "F3")
    ours, theirs, _ = part.study.candidates
    settings: Any = (ours.step_init, ours.embedding_dropout, theirs.embedding_dropout)  # type: ignore[attr-defined]
    assert settings == ("zero_all", 0.0, 0.0)
    assert (part.study.base.train.betas, part.study.base.train.select) == ((0.0, 0.95), "last")
    code = part.follow("code").study
    assert code.base.train.betas == (0.9, 0.95)
    assert code.candidates[0].time_spacing == "inclusive"  # type: ignore[attr-defined]
    assert code.candidates[1].activation == "relu"  # type: ignore[attr-defined]
    ablations = find_part("hyperset", "S4").study
    assert {model.step_init for model in ablations.candidates} == {"zero_last", "zero_all"}  # type: ignore[attr-defined]


def test_all_training_images_are_used_where_nothing_is_selected():
    for paper, name, place in (("hyperset", "T1", 0), ("imixer", "T4", 1), ("hourglass", "T3", 0)):
        base = find_part(paper, name, place).study.base
        assert (base.source.validation, base.train.select) == (0, "last")  # type: ignore[attr-defined]


def test_a_study_without_validation_rows_is_carried_out_and_summarised():
    """Everything is real: the study trains, and its networks have their test means in the place of validation."""
    study = study_config(
        {
            "name": "all-rows",
            "base": {
                "source": {"name": "digits", "validation": 0}, "task": {"name": "classification"}, "threads": 1,
                "train": {"epochs": 1, "select": "last"},
            },
            "candidates": [{"name": "hourglass_mlp", "d_z": 65, "d_h": 4, "depth": depth} for depth in (1, 2)],
            "seeds": (0, 1),
        }
    )  # fmt: skip
    records = complete_study(study, Options(), 1).records()
    assert summarise(records) == []
    found = summarise(records, refits=True)
    assert [candidate.seeds for candidate in found] == [(0, 1), (0, 1)]
    assert all(candidate.validation == pytest.approx(candidate.mean) for candidate in found)


@pytest.mark.parametrize(
    ("scale", "protocol", "message"),
    [("cpu", "code", "--protocol code applies to --scale paper"), ("paper", "cod", "did you mean 'code'")],
)
def test_a_protocol_that_does_not_apply_is_refused(scale, protocol, message):
    with pytest.raises(UserError, match=message):
        reproduce("hourglass", "T8", scale, carry_out=fabricating(lambda *given: 1.0), protocol=protocol)


def test_results_of_the_two_protocols_do_not_replace_each_other(monkeypatch, tmp_path):
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    assert default_folder("imixer", "t1", "paper").name == "imixer-T1-paper"
    assert default_folder("imixer", "t1", "paper", "code").name == "imixer-T1-paper-code"
    monkeypatch.setattr("isthmus.reports.write_report", lambda *given, **named: None)
    result = reproduce("hourglass", "T8", "paper", carry_out=fabricating(lambda *given: 21.0), protocol="printed")
    assert (result["protocol"], result["contradictions"]) == ("printed", [])
    cpu = reproduce("hourglass", "T8", "cpu", carry_out=fabricating(lambda *given: 21.0))
    assert "other data: CIFAR-10 instead of ImageNet-32" in cpu["contradictions"]
    text = (tmp_path / "reproductions" / "hourglass-T8-cpu" / "table.md").read_text()
    assert "These contradict the paper" in text


def test_data_seeds_and_devices_can_be_changed_and_nothing_else():
    part = find_part("hourglass", "T8")
    changed = part.change(["seeds=2", "train.precision=bfloat16", "source.split_seed=3"])
    assert changed.study.seeds == (0, 1)
    assert (changed.study.base.train.precision, changed.study.base.source.split_seed) == ("bfloat16", 3)  # type: ignore[attr-defined]
    assert changed.study.name != part.study.name
    assert part.change([]) is part
    for wrong in ("train.epochs=1", "source.name=digits", "task.flips=false", "seeds=none"):
        with pytest.raises(UserError, match="cannot be changed in a reproduction"):
            part.change([wrong])


def test_a_changed_number_of_seeds_is_part_of_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr("isthmus.reports.write_report", lambda *given, **named: None)
    given = fabricating(lambda model, rate, seed: 21.0 + seed / 1000)
    result = reproduce("hourglass", "T8", "cpu", tmp_path, carry_out=given, overrides=["seeds=4"])
    assert result["command"] == "isthmus reproduce hourglass T8 --scale cpu seeds=4"
    assert {len(row["seeds"]) for row in result["rows"] if row["measured"]} == {4}
    assert "4 seeds instead of 5" in result["contradictions"]


def test_a_study_of_another_table_is_taken_from_its_stored_result(monkeypatch, tmp_path):
    monkeypatch.setattr("isthmus.reports.write_report", lambda *given, **named: None)
    kept, out = tmp_path / "kept", tmp_path / "out"
    given = fabricating(lambda model, rate, seed: 21.0 + model["d_z"] / 1e5 + seed / 1000)
    first = reproduce("hourglass", "T8", "cpu", kept, carry_out=given)

    def refuse(*given):
        raise AssertionError("trained")

    result = reproduce("hourglass", "T6", "cpu", out, carry_out=refuse, stored=[kept])
    assert result["command"] == "isthmus reproduce hourglass T6 --scale cpu --stored"
    assert "denoising, CIFAR-10: the runs stored with hourglass T8" in result["differences"]
    measured = [[row["measured"] for row in each["rows"] if row["measured"]] for each in (first, result)]
    key = lambda row: (row["params"], row["mean"])  # noqa: E731
    assert sorted(measured[0], key=key) == sorted(measured[1], key=key)
    own = reproduce("hourglass", "T8", "cpu", out, carry_out=refuse, stored=[kept])
    assert own == first, "its own runs are the same runs, by the same command"
    for unlike in (["seeds=4"], []):  # another study: other seeds, or super-resolution
        with pytest.raises(AssertionError, match="trained"):
            reproduce(
                "hourglass", "T6" if unlike else "T7", "cpu", out, carry_out=refuse, stored=[kept], overrides=unlike
            )
