"""The command line as a person uses it: what each command prints, writes and returns."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from PIL import Image
from rich.console import Console

import isthmus
from isthmus.cli import terminal
from isthmus.cli.main import app
from isthmus.core.record import MODEL, RECORD, find_run, read_metrics, read_record
from tests.command_line import TINY, call, tiny, train, write_table

COMMANDS = {
    " ".join(path): command
    for name, group in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    for path, command in [
        *(((name, sub), inner) for sub, inner in getattr(group, "commands", {}).items()),
        ((name,), group),
    ]
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_teaches(name: str) -> None:
    command = COMMANDS[name]
    answer = call(*name.split(), "--help")
    assert answer.code == 0
    assert "Usage: isthmus " + name in answer.out
    assert len(command.help.split()) >= 4
    assert [option.name for option in command.params if option.name != "help" and not option.help] == []


def test_the_design_s_commands_exist() -> None:
    promised = "demo models recipes describe doctor train predict report runs bench"
    assert set(promised.split()) | {"runs list", "runs diff", "runs clean"} <= COMMANDS.keys()


def test_no_arguments_show_help() -> None:
    assert "Usage: isthmus" in call().out


def test_the_version() -> None:
    assert call("--version").out == f"isthmus {isthmus.__version__}\n"


def test_models_and_recipes_are_listed_in_groups() -> None:
    models = call("models", "--json").json()
    assert list(models) == isthmus.list_models()
    assert models["mlp_mixer"]["group"] == models["imixer"]["group"] == "Mixers"
    words = call("models").out
    assert words.index("Mixers") < words.index("imixer") < words.index("mlp_mixer")
    assert "A residual MLP with wide skip connections" in words
    recipes = call("recipes", "--json").json()
    assert recipes["mnist5k-denoise"]["meaning"] == "embedded digits, no download."
    assert recipes["digits-shapes"]["meaning"].startswith("study: ")
    words = call("recipes").out
    assert words.index("The protocols of the Hyper-SET paper") < words.index("hyperset-sudoku")


@pytest.mark.parametrize(
    ("kind", "name", "field"), [("sources", "table", "targets"), ("tasks", "denoise", "noise_std")]
)
def test_sources_and_tasks_and_their_fields_are_listed(kind: str, name: str, field: str) -> None:
    listed = call(kind, "--json").json()
    assert listed[name]["meaning"]
    assert all(each in call(kind).out for each in listed)
    described = call(kind, name, "--json").json()
    (found,) = (each for each in described["fields"] if each["name"] == field)
    assert set(found) == {"name", "meaning", "accepts", "default"}
    words = call(kind, name).out
    assert field in words
    assert found["default"] in words
    answer = call(kind, "qqqq")
    assert (answer.code, answer.out) == (2, "")
    assert f"unknown {kind[:-1]} 'qqqq'" in answer.err


def test_the_fields_of_training_are_listed() -> None:
    assert "Gradient accumulation" in call("describe", "train").out
    assert {each["name"] for each in call("describe", "train", "--json").json()} >= {"epochs", "clip_norm"}


def test_pathways_are_listed() -> None:
    pathways = call("pathways", "--json").json()
    assert {"mhc", "ladder", "attnres"} <= {name for each in pathways.values() for name in each["presets"]}
    assert "Deep Delta Learning" in call("pathways").out
    fields = {field["name"]: field for field in call("pathways", "mhc", "--json").json()["fields"]}
    assert fields["sinkhorn_iterations"]["default"] == "20"
    assert "model.pathway.*" in call("pathways", "delta").out
    assert "did you mean 'delta'" in call("pathways", "detla").err


WIDE = ("hourglass_mlp", "d_in=3072", "d_out=3072", "d_z=3075", "d_h=16", "depth=4")


def test_describe_counts_a_published_model() -> None:
    counted = call("describe", *WIDE, "--json").json()
    assert counted.pop("model")["d_z"] == 3075
    assert counted == {
        "params": 19_286_400,
        "trainable_params": 19_286_400,
        "stored_params": 19_286_400,
        "macs": 19_286_400,
        "training_flops": 6 * 19_286_400 - 2 * 3072 * 3075,  # nobody needs the gradient of the input
        "checkpoint_bytes": 4 * 19_286_400,
        "bytes": 4 * 19_286_400,
        "stream_values": 3075,
        # The stream and its normed form at each block, the hidden layer before and after its activation, two numbers
        # of the norm, and what W_out reads.
        "saved_values": 4 * (2 * 3075 + 2 * 16 + 2) + 3075,
    }
    shown = " ".join(call("describe", *WIDE).out.split())
    assert "19,286,400" in shown
    for meaning in ("Weights that training changes", "between two branches", "autograd keeps", "what an export stores"):
        assert meaning in shown


def test_describe_tells_frozen_from_trained_weights() -> None:
    counted = call("describe", *WIDE, "w_in=gaussian", "--json").json()
    assert counted["params"] == 19_286_400
    assert counted["trainable_params"] == counted["stored_params"] == 19_286_400 - 3072 * 3075


def test_describe_without_fields_lists_them() -> None:
    words = call("describe", "hourglass_mlp").out
    assert "Residual MLPs" in words
    assert all(name in words for name in ("d_z", "d_h", "depth", "w_in", "orthogonal", "required"))
    assert "d_z" in call("describe", "hourglass_mlp", "--json").json()["properties"]


def test_doctor() -> None:
    findings = {line["subject"]: line for line in json.loads(call("doctor", "--json").out)}
    assert findings["torch"]["good"]
    assert findings["ISTHMUS_HOME"]["good"]
    answer = call("doctor")
    assert answer.code == 0
    assert "ISTHMUS_HOME" in answer.out


@pytest.mark.parametrize(
    ("task", "metric"),
    [
        ("denoise", "psnr"),
        ("super_resolution", "psnr"),
        ("generative_classification", "accuracy"),
        ("classification", "accuracy"),
    ],
)
def test_every_task_on_images_trains(task: str, metric: str, tmp_path: Path) -> None:
    answer = call("train", tiny(tmp_path, task={"name": task}))
    assert answer.code == 0
    assert metric in answer.out
    assert "isthmus predict" in answer.out
    assert "validation loss" in answer.err
    record = read_record(find_run(answer.err.split()[1]))
    assert record.status == "finished"
    assert record.metrics["test"][metric] > 0
    assert record.steps == 3
    assert record.cost["params"] > 0
    assert record.command.startswith("isthmus train")
    assert {"config.json", "metrics.jsonl", "task.safetensors", MODEL} <= record.files.keys()


def test_the_second_call_answers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(tmp_path)
    monkeypatch.setattr("isthmus.training.run._train", lambda *arguments: pytest.fail("trained again"))
    assert train(tmp_path) == first


def test_overrides_change_the_run(tmp_path: Path) -> None:
    record = train(tmp_path, "model.d_h=4", "train.learning_rate=1e-2", "seed=3", "model.w_in=hadamard")
    assert (record["config"]["model"]["d_h"], record["seed"]) == (4, 3)
    assert record["config"]["train"]["learning_rate"] == 0.01
    other = train(tmp_path, "model.name=conventional_mlp", "model.d_z=8", "model.d_h=70", "model.depth=1")
    assert other["config"]["model"]["w_in"] == "trainable", "another model's name drops the fields of the old one"


def test_the_written_config_trains_the_same_run(tmp_path: Path) -> None:
    record = train(tmp_path)
    again = call("train", find_run(record["id"]) / "config.json", "--json").json()
    assert again == record


def test_control_c_saves_and_the_same_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = train(tmp_path, "train.epochs=4")
    call("runs", "clean", undisturbed["id"], "--yes")
    with monkeypatch.context() as patch:
        step = terminal.TrainingDisplay.step

        def interrupted(display: terminal.TrainingDisplay, number: int, steps: int) -> None:
            step(display, number, steps)
            if number == 4:
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(terminal.TrainingDisplay, "step", interrupted)
        stopped = call("train", tiny(tmp_path), "train.epochs=4")
    assert stopped.code == 130
    assert "isthmus: stopped" in stopped.err
    assert call("runs", "list", "--json").json()[0]["status"] == "unfinished"
    assert train(tmp_path, "train.epochs=4")["metrics"] == undisturbed["metrics"]


@pytest.mark.parametrize(
    "change",
    [
        {"average": 0.9},
        {"clip_norm": 0.1},
        {"optimizer": "sgd", "momentum": 0.8, "nesterov": True, "learning_rate": 0.1},
        {"schedule": "cosine", "warmup_epochs": 0.5, "final_learning_rate": 1e-5},
        {"select": "last", "evaluate_every": 7},
        {"weight_decay": 0.1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_training_options_train(change: dict[str, Any], tmp_path: Path) -> None:
    plain = train(tmp_path, train={"epochs": 2, "batch_size": 64})
    record = train(tmp_path, train={"epochs": 2, "batch_size": 64} | change)
    assert record["status"] == "finished"
    assert record["id"] != plain["id"]
    assert record["metrics"]["test"]["psnr"] > 5
    assert record["metrics"] != plain["metrics"] or "select" in change, "the option has an effect"


def test_accumulation_changes_nothing_but_memory(tmp_path: Path) -> None:
    whole, parts = train(tmp_path), train(tmp_path, "train.accumulate=7")
    assert whole["id"] != parts["id"]
    assert parts["metrics"]["test"]["loss"] == pytest.approx(whole["metrics"]["test"]["loss"], rel=1e-5)


@pytest.mark.slow
def test_mixed_precision_trains(tmp_path: Path) -> None:
    """In a process of its own: some virtual machines announce AMX and then kill who uses it."""
    plain = train(tmp_path)
    program = [sys.executable, "-m", "isthmus"]
    command = [*program, "train", str(tiny(tmp_path)), "train.precision=bfloat16", "--json"]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert 0 < abs(json.loads(done.stdout)["metrics"]["test"]["loss"] / plain["metrics"]["test"]["loss"] - 1) < 0.05


def test_tensorboard_files(tmp_path: Path) -> None:
    record = train(tmp_path, "--tensorboard")
    (events,) = (find_run(record["id"]) / "tensorboard").glob("events.out.tfevents.*")
    assert b"validation/psnr" in events.read_bytes()


def test_fine_tuning_starts_from_the_weights_of_a_run(tmp_path: Path) -> None:
    long = train(tmp_path, "train.epochs=12", "train.learning_rate=0.01")
    cold = train(tmp_path, "train.learning_rate=1e-5")
    warm = train(tmp_path, "train.learning_rate=1e-5", "--init", long["id"][:8])
    assert warm["config"]["init"] == long["id"]
    assert warm["id"] != cold["id"]
    assert warm["metrics"]["test"]["psnr"] > cold["metrics"]["test"]["psnr"] + 1
    other = train(tmp_path, "--init", long["id"], task={"name": "classification"})
    assert other["selected"]["not_initialised_from_run"] == ["W_out.weight"]


def test_divergence_is_a_failed_run_with_its_reason(tmp_path: Path) -> None:
    absurd = ("train.optimizer=sgd", "train.learning_rate=1000", "model.norm=none", "train.epochs=40")
    answer = call("train", tiny(tmp_path), *absurd, "--save-every", "0")
    assert answer.code == 1
    assert "failed: the training loss is not finite at step" in answer.out
    (line,) = call("runs", "list", "--json").json()
    record = read_record(find_run(line["run"]))
    assert record.status == line["status"] == "failed"
    assert "learning rate" in record.reason
    assert not record.metrics
    assert MODEL not in record.files
    assert call("train", tiny(tmp_path), *absurd).code == 1, "the record answers"
    refused = call("predict", record.id, tmp_path / "x.npy")
    assert refused.code == 2
    assert record.id in refused.err
    assert call("runs", "clean", "--failed", "--yes").code == 0
    assert call("runs", "list", "--json").json() == []


def test_runs_list_diff_and_clean(tmp_path: Path) -> None:
    assert "no runs yet" in call("runs", "list").out
    first, second = train(tmp_path), train(tmp_path, "seed=1", "model.d_h=9")
    lines = call("runs", "list", "--json").json()
    assert {line["run"] for line in lines} == {first["id"], second["id"]}
    assert {line["status"] for line in lines} == {"finished"}
    assert first["id"] in call("runs", "list").out
    differences = call("runs", "diff", first["id"], second["id"], "--json").json()
    assert differences["seed"] == [0, 1]
    assert differences["config.model.d_h"] == [8, 9]
    assert "config.model.d_z" not in differences
    assert "metrics.test.psnr" in differences
    assert "config.model.d_h" in call("runs", "diff", first["id"], second["id"]).out
    assert "nothing to remove" in call("runs", "clean", "--yes").out, "finished runs stay unless they are named"
    assert call("runs", "clean", first["id"], "--yes").code == 0
    assert [line["run"] for line in call("runs", "list", "--json").json()] == [second["id"]]


def test_a_metric_has_its_title_in_lists_and_an_absent_field_a_dash(tmp_path: Path) -> None:
    write_table(tmp_path / "table.csv")
    source = {"name": "arrays", "path": str(tmp_path / "table.csv"), "targets": "y"}
    rows = train(tmp_path, source=source, task={"name": "regression"}, model=TINY["model"] | {"d_z": 16})
    images = train(tmp_path)
    listed = call("runs", "list").out
    assert "R² " in listed
    assert "PSNR " in listed
    assert "r2 " not in listed
    shown = call("runs", "diff", rows["id"], images["id"]).out
    assert "None" not in shown
    assert "–" in shown


def test_ids_stay_whole_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    run, model = "0123456789abcdef", "hourglass_mlp d_z=2 d_h=1 depth=2 rate=0.003"
    for width in (50, 80):
        console = Console(file=io.StringIO(), width=width)
        monkeypatch.setattr(terminal, "out", console)
        terminal.print_table("", ["run", "model", "task", "test"], [[run, model, "classification", "-0.25"]] * 2)
        shown = console.file.getvalue()  # type: ignore[attr-defined]
        assert shown.count(run) == 2
        assert max(map(len, shown.splitlines())) <= width
        assert (shown.count("classification") == 2) == (width == 80)


def test_the_newest_run_is_listed_first_with_its_data_within_100_columns(tmp_path: Path) -> None:
    write_table(tmp_path / "houses.csv")
    source = {"name": "table", "path": str(tmp_path / "houses.csv"), "targets": ["y"]}
    train(tmp_path, "seed=3")
    older = find_run(call("runs", "list", "--json").json()[0]["run"])
    record = json.loads((older / RECORD).read_text())
    train(tmp_path, source=source, task={"name": "regression"}, model=TINY["model"] | {"d_z": 9})
    lines = call("runs", "list", "--json").json()
    assert [line["data"] for line in lines] == ["houses.csv", "digits"]
    assert [line["task"] for line in lines] == ["regression", "denoise"]
    assert record["finished"] == lines[1]["changed"] <= lines[0]["changed"]
    shown = call("runs", "list").out
    assert max(map(len, shown.splitlines())) <= 100
    assert shown.index("houses.csv") < shown.index("digits")
    begun = older.with_name("f" * 16)
    begun.mkdir()
    shutil.copy(older / "config.json", begun)
    os.utime(begun / "config.json", (1, 1))
    assert call("runs", "list", "--json").json()[-1]["run"] == begun.name
    assert "unfinished" in call("runs", "list").out


def test_report_writes_a_page(tmp_path: Path) -> None:
    train(tmp_path)
    train(tmp_path, "model.name=conventional_mlp", "model.d_z=64", "model.d_h=70", "model.depth=1")
    answer = call("report", "--out", tmp_path / "page", "--title", "Two shapes")
    assert answer.code == 0
    assert answer.out.strip() == str(tmp_path / "page" / "index.html")
    assert "Two shapes" in (tmp_path / "page" / "index.html").read_text()
    assert {path.name for path in (tmp_path / "page").iterdir()} >= {"front.png", "candidates.csv", "runs.csv"}


def _picture(path: Path, height: int, width: int, mode: str = "L") -> Path:
    draw = np.random.default_rng(1)
    shape = (height, width) if mode == "L" else (height, width, 3)
    Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)).save(path)
    return path


def _pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture)


def test_images_of_any_size_are_restored_tile_by_tile(tmp_path: Path) -> None:
    record = train(tmp_path)
    large = _picture(tmp_path / "large.png", 21, 13)
    tile = tmp_path / "tile.png"
    Image.fromarray(_pixels(large)[8:16, :8]).save(tile)
    colour, row = _picture(tmp_path / "colour.png", 8, 8, "RGB"), tmp_path / "row.npy"
    np.save(row, _pixels(tile)[None])
    results = call("predict", record["id"], large, tile, colour, row, "--out", tmp_path / "out", "--json").json()
    assert results[str(large)] == str(tmp_path / "out" / "large.png")
    assert _pixels(tmp_path / "out" / "large.png").shape == (21, 13)
    alone = np.load(results[str(row)]).reshape(8, 8)
    assert (_pixels(tmp_path / "out" / "tile.png") == alone).all(), "an image of the model's size is a single tile"


def test_super_resolution_doubles_images_of_any_size(tmp_path: Path) -> None:
    record = train(tmp_path, task={"name": "super_resolution"})
    small = _picture(tmp_path / "small.png", 5, 11)
    call("predict", record["id"], small, "--out", tmp_path / "out", "--json").json()
    assert _pixels(tmp_path / "out" / "small.png").shape == (10, 22)


def test_classes_are_predicted_from_images_and_arrays(tmp_path: Path) -> None:
    record = train(tmp_path, "train.epochs=3", task={"name": "classification"})
    picture = _picture(tmp_path / "digit.png", 8, 8)
    np.savez(tmp_path / "digits.npz", _pixels(picture)[None])
    np.save(tmp_path / "flat.npy", _pixels(picture).reshape(1, 64))
    files = (picture, tmp_path / "digits.npz", tmp_path / "flat.npy")
    results = call("predict", record["id"], *files, "--out", tmp_path / "out", "--json").json()
    (label,) = np.load(results[str(files[1])])
    assert 0 <= label < 10
    assert results[str(picture)] == str(label) == str(np.load(results[str(files[2])])[0])


def test_regression_answers_in_the_units_of_its_targets(tmp_path: Path) -> None:
    x, y = write_table(tmp_path / "table.csv")
    record = train(
        tmp_path,
        source={"name": "arrays", "path": str(tmp_path / "table.csv"), "targets": "y"},
        task={"name": "regression"},
        model=TINY["model"] | {"d_z": 16},
        train={"epochs": 60, "batch_size": 32, "learning_rate": 0.01},
    )
    assert record["metrics"]["test"]["r2"] > 0.95
    np.save(tmp_path / "rows.npy", x)
    np.savez(tmp_path / "rows_z.npz", x.astype(">f4"))
    np.savetxt(tmp_path / "rows_c.csv", x, delimiter=",", header="a,b,c", comments="")
    files = [tmp_path / name for name in ("rows.npy", "rows_z.npz", "rows_c.csv")]
    results = call("predict", record["id"], *files, "--out", tmp_path / "out", "--json").json()
    predicted = np.load(results[str(files[0])])[:, 0]
    assert 1 - ((predicted - y) ** 2).mean() / y.var() > 0.95
    assert np.allclose(np.load(results[str(files[1])])[:, 0], predicted, rtol=1e-5)
    assert np.allclose(np.loadtxt(results[str(files[2])], delimiter=",", skiprows=1)[:, 1], predicted, rtol=1e-5)


def test_predictions_are_in_the_users_words(tmp_path: Path) -> None:
    """A table of classes: columns are found by name, and a class is called as in the file."""
    x, _ = write_table(tmp_path / "table.csv")
    kinds = np.array(["low", "high"])[(x[:, 0] > 0).astype(int)]
    lines = [f"{a!r},{kind},{b!r},{c!r}" for (a, b, c), kind in zip(x.tolist(), kinds, strict=True)]
    (tmp_path / "kinds.csv").write_text("\n".join(["a,kind,b,c", *lines]))
    record = train(
        tmp_path,
        source={"name": "arrays", "path": str(tmp_path / "kinds.csv"), "targets": "kind"},
        task={"name": "classification"},
        model=TINY["model"] | {"d_z": 16},
        train={"epochs": 60, "batch_size": 32, "learning_rate": 0.01},
    )
    assert record["metrics"]["test"]["accuracy"] > 0.8
    turned = np.column_stack([x[:, ::-1], np.zeros(len(x))])
    np.savetxt(tmp_path / "turned.csv", turned, delimiter=",", header="c,b,a,other", comments="")
    np.save(tmp_path / "rows.npy", x)
    files = [tmp_path / name for name in ("kinds.csv", "turned.csv", "rows.npy")]
    results = call("predict", record["id"], *files, "--out", tmp_path / "out", "--json").json()
    tables = [list(csv.DictReader(Path(results[str(file)]).read_text().splitlines())) for file in files[:2]]
    first, second = ([row["kind predicted"] for row in table] for table in tables)
    assert list(tables[0][0]) == ["row", "kind predicted", "p(high)", "p(low)"]
    assert first == second == np.load(results[str(files[2])]).tolist()
    assert np.mean(np.array(first) == kinds) > 0.8
    np.savetxt(tmp_path / "lacking.csv", x[:, :2], delimiter=",", header="a,b", comments="")
    refused = call("predict", record["id"], tmp_path / "lacking.csv", "--out", tmp_path / "out")
    assert refused.code == 2
    assert "has no column 'c'" in refused.err


def test_pictures_of_one_name_are_classified_and_restored(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    pictures = [_picture(tmp_path / folder / "1.png", 8, 8) for folder in ("a", "b")]
    classifier, restorer = (train(tmp_path, task={"name": task})["id"] for task in ("classification", "denoise"))
    out = tmp_path / "out"
    assert set(call("predict", classifier, *pictures, "--out", out, "--json").json().values()) < set("0123456789")
    assert [path.name for path in out.iterdir()] == ["images.predicted.csv"], "one for all of them"
    results = call("predict", restorer, *pictures, "--out", out, "--json").json()
    assert [results[str(picture)] for picture in pictures] == [str(out / "a" / "1.png"), str(out / "b" / "1.png")]
    np.save(tmp_path / "bytes.npy", _pixels(pictures[0])[None])
    np.save(tmp_path / "floats.npy", _pixels(pictures[0])[None] / 255)
    files = [tmp_path / "bytes.npy", tmp_path / "floats.npy"]
    results = call("predict", restorer, *files, "--out", out, "--json").json()
    restored = [np.load(results[str(file)]) for file in files]
    assert (restored[0] == _pixels(out / "a" / "1.png")).all()
    assert np.abs(restored[0].astype(int) - restored[1]).max() <= 1, "floats from 0 to 1 are not darkened again"


def test_load_gives_the_model_that_was_evaluated(tmp_path: Path) -> None:
    record = train(tmp_path, "model.w_in=orthogonal")
    folder = find_run(record["id"])
    for reference in (record["id"], folder, folder / MODEL):
        model = isthmus.load(reference).model
        assert not model.training
        assert isthmus.cost(model).params == record["cost"]["params"]
    assert [line["split"] for line in read_metrics(folder)] == ["train", "validation"]


def test_images_of_many_channels_leave_a_sheet(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 5, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "five.npy", images)
    source = {"name": "arrays", "path": str(tmp_path / "five.npy"), "layout": "channels_first"}
    record = train(tmp_path, source=source, model=TINY["model"] | {"d_z": 330})
    assert "samples.png" in record["files"]


def test_the_program_itself_runs(tmp_path: Path) -> None:
    """As a process: nothing on standard output that is not JSON. A refusal as a process: test_bench.py."""
    command = [sys.executable, "-m", "isthmus", "train", str(tiny(tmp_path)), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "finished")
