"""The public calls: what they take, what they give back, and how it looks in a terminal and in a notebook."""

from __future__ import annotations

import doctest
import io
import subprocess
import sys
from multiprocessing import spawn
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from rich.console import Console

import isthmus
from isthmus.core.config import RunConfig, StudyConfig, find_settings, override, run_config
from isthmus.core.errors import UserError
from isthmus.core.record import read_record, runs_folder, select_runs
from isthmus.reports.notebook import summarise_answer
from isthmus.search import display
from isthmus.search.display import Bar
from isthmus.studies.executors import hide_main
from isthmus.studies.runs import overview
from tests.unit.fabricated_runs import model_config, write_run

TINY: dict[str, Any] = {
    "source": {"name": "digits"},
    "task": {"name": "classification"},
    "model": {"name": "hourglass_mlp", "d_z": 16, "d_h": 4, "depth": 1},
    "train": {"epochs": 1, "learning_rate": 0.01},
    "threads": 1,
}
STUDY: dict[str, Any] = {
    "name": "tiny",
    "base": {name: value for name, value in TINY.items() if name != "model"},
    "spaces": [{"model": {"name": "hourglass_mlp", "d_z": 16, "depth": 1}, "vary": {"d_h": [2, 8]}}],
}
EVIL = "</table><script>alert(1)</script>"


def write_network(shape: tuple[int, int, int], qualities: list[float], **options: Any) -> list[str]:
    """The runs of a network, one for each seed."""
    return [
        write_run(
            runs_folder(), model_config("hourglass_mlp", shape, seed), 1e-3, seed, test=value, epochs=2, **options
        ).id
        for seed, value in enumerate(qualities)
    ]


def test_completion_shows_the_public_names_only() -> None:
    assert dir(isthmus) == sorted([*isthmus.__all__, "__version__"])
    script = "import isthmus; print([name for name in vars(isthmus) if not name.startswith('_')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "study", "runs", "report", "plot", "compare"])
def test_the_example_of_each_call_is_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    (example,) = [
        each for each in doctest.DocTestFinder().find(getattr(isthmus, name), name, globs={}) if each.examples
    ]
    assert runner.run(example, out=said.write).failed == 0, said.getvalue()


# Configs.


def test_a_run_is_given_as_a_recipe_a_file_a_mapping_or_a_config(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(TINY))
    config = run_config(TINY)
    for given in (TINY, config, tmp_path / "run.yaml", str(tmp_path / "run.yaml")):
        for change in ({"model.d_h": np.int64(8)}, ["model.d_h=8"], "model.d_h=8"):
            assert run_config(find_settings(given, RunConfig, change)).model.model_dump()["d_h"] == 8
    recipe = run_config(find_settings("mnist5k-denoise", RunConfig, {"train.epochs": 3}))
    assert (recipe.source.name, recipe.train.epochs) == ("mnist5k", 3)
    assert TINY["model"]["d_h"] == 4, "what was given is as it was"


def test_the_base_of_a_study_may_be_the_config_of_a_run() -> None:
    base = override(STUDY | {"base": run_config(TINY)})["base"]
    assert base.keys() >= {"source", "task", "train"}
    assert not {"model", "seed"} & base.keys()


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        (3, RunConfig, "got int; give the name of a recipe"),
        ("demo", RunConfig, "`isthmus study demo`"),
        ("mnist5k-denoize", RunConfig, "did you mean 'mnist5k-denoise'"),
        (TINY | {"seed": object()}, RunConfig, "not object"),
        (run_config(TINY), StudyConfig, "got RunConfig"),
    ],
)
def test_a_wrong_config_is_one_line(given: Any, kind: Any, expected: str) -> None:
    with pytest.raises(UserError) as error:
        find_settings(given, kind)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


# Training and studies.


class Watched(display.Silence):
    def __init__(self) -> None:
        self.said, self.news, self.fractions = list[str](), list[str](), list[float]()

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, fraction: float, text: str) -> None:
        self.news.append(text)

    def move(self, fraction: float) -> None:
        self.fractions.append(fraction)


def test_train_gives_what_load_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr("isthmus.api.train.Bar", lambda: watched)
    model = isthmus.train(TINY, {"train.epochs": 2})
    assert model.id in watched.said[0]
    assert [news.partition("  ")[0] for news in watched.news] == ["epoch 1", "epoch 2"]
    assert watched.fractions == sorted(watched.fractions)
    assert watched.fractions[-1] == 1.0
    loaded = isthmus.load(model.id)
    assert loaded.record == model.record == read_record(runs_folder() / model.id)
    assert repr(loaded) == f"<{model.id}: hourglass_mlp d_z=16 d_h=4 depth=1, 1,312 parameters, classification>"
    assert repr(model) == repr(loaded)
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(model(x), loaded.model(x))
    assert model.predict(np.zeros((2, 1, 8, 8), np.uint8)).shape == (2,)
    before = (runs_folder() / model.id / "record.json").stat().st_mtime_ns
    assert isthmus.train(TINY, {"train.epochs": 2}, progress=False).metrics == model.metrics
    assert (runs_folder() / model.id / "record.json").stat().st_mtime_ns == before
    assert isthmus.plot(model).axes[0].get_ylabel() == "Validation Accuracy"


def test_a_training_that_diverges_is_one_line() -> None:
    settings = {"train.learning_rate": 1e3, "train.optimizer": "sgd", "task": {"name": "denoise"}}
    with pytest.raises(UserError, match=r"run [0-9a-f]{16} failed: .*not finite"):
        isthmus.train(TINY, settings | {"train.clip_norm": None}, progress=False)


def test_a_study_answers_like_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr("isthmus.api.study.Bar", lambda: watched)
    found = isthmus.study(STUDY, {"seeds": [0, 1]}, workers=1)
    assert "4 runs" in watched.said[0]
    assert watched.news[-1].startswith("4 of 4 runs  hourglass_mlp")
    table = found.table()
    assert list(table["seeds"]) == [2, 2]
    assert table["validation accuracy"].is_monotonic_decreasing
    assert set(found.front()["run"]) <= set(table["run"])
    assert repr(found).startswith("<study tiny: 2 candidates, best hourglass_mlp d_z=16 d_h=")
    assert len(repr(found)) < 160
    assert found.best.id == table["run"][0]
    assert set(isthmus.runs(found)["run"]) == set(found.run_ids) == set(found.runs()["run"])
    assert "<svg" in found._repr_html_()
    assert isthmus.plot(found)._repr_png_().startswith(b"\x89PNG")
    assert isthmus.report(found, tmp_path / "page").is_file()
    one, other = found.candidates
    assert isthmus.compare(one, other).evidence == "2 paired seeds"


# Runs.


def test_runs_are_a_frame_in_the_order_of_the_command() -> None:
    assert list(isthmus.runs().columns[:3]) == ["run", "status", "data"]
    write_network((64, 16, 2), [20.0, 21.0])
    frame = isthmus.runs()
    assert list(frame["run"]) == [line["run"] for line in overview()]
    assert sorted(frame["test"]) == [20.0, 21.0]
    assert frame["params"].dtype == "Int64"
    better = frame[frame["test"] > 20.5]
    assert [folder.name for folder in select_runs(better)] == list(better["run"])


def test_runs_are_selected_by_anything_that_has_runs(tmp_path: Path) -> None:
    ids = write_network((64, 16, 2), [20.0, 21.0])
    folders = [runs_folder() / each for each in ids]
    record = read_record(folders[0])
    assert select_runs() == select_runs(runs_folder()) == sorted(folders)
    for one in (ids[0], folders[0], [ids[0], folders[0]], record, [record], (each for each in ids[:1])):
        assert select_runs(one) == folders[:1]
    for wrong in (3, {"run": 1}, b"x"):
        with pytest.raises(UserError, match="has no runs; give the id"):
            select_runs(wrong)


def test_plots_are_told_apart_by_their_kind() -> None:
    ids = write_network((64, 16, 2), [20.0, 21.0]) + write_network((64, 32, 2), [21.0, 22.0])
    assert len(isthmus.plot(ids).axes) == 1
    assert len(isthmus.plot(ids, "curves").axes) == len(isthmus.plot(ids[0]).axes) == 2
    with pytest.raises(UserError, match="did you mean 'front'"):
        isthmus.plot(ids, "fronts")
    with pytest.raises(UserError, match="no two architectures"):
        isthmus.plot(ids, "gap")


# Comparisons.


def test_networks_are_compared_by_seed() -> None:
    first, second = write_network((64, 32, 2), [21.0, 22.0, 20.0]), write_network((64, 16, 2), [20.5, 21.6, 19.4])
    found = isthmus.compare(first, second)
    assert found.decision == "ahead"
    assert found.difference == pytest.approx(0.5)
    assert repr(found).replace("\N{NO-BREAK SPACE}", " ") == (
        "hourglass_mlp d_z=64 d_h=32 depth=2 is ahead of hourglass_mlp d_z=64 d_h=16 depth=2 "
        "by 0.50 dB (0.25 to 0.75), 3 paired seeds"
    )
    again = isthmus.compare(second, first)
    assert again.decision == "behind"
    assert repr(again) == repr(found)
    frame = isthmus.runs().set_index("run")
    assert repr(isthmus.compare(frame.loc[first].reset_index(), second)) == repr(found)


def test_what_is_not_decided_says_so() -> None:
    first, second = write_network((64, 32, 2), [21.0, 20.0]), write_network((64, 16, 2), [20.5, 20.7])
    assert repr(isthmus.compare(first, second)).startswith("undecided: hourglass_mlp d_z=64 d_h=16")
    assert "2 paired seeds" in repr(isthmus.compare(first, second))
    single = isthmus.compare(first[0], second[0])
    assert single.decision == "undecided"
    assert repr(single).endswith("with one run each, which shows no spread")
    assert repr(isthmus.compare(first, second[0])).endswith("2 and 1 runs")


def test_folds_are_compared_on_validation_rows() -> None:
    sides = []
    for shape, lead in (((64, 32, 2), 0.0), ((64, 16, 2), -0.1)):
        model, records = model_config("hourglass_mlp", shape, 0), []
        for fold in range(3):
            source = {"name": "table", "path": "/data/houses.csv", "folds": 5, "fold": fold}
            quality = 0.8 + lead + 0.01 * fold * (1 + lead)
            options = {"settings": source, "objective": "accuracy", "validation": quality}
            data = {"rows": {"train": 80, "validation": 20, "test": 10}}
            records.append(write_run(runs_folder(), model, 1e-3, fold, data=data, **options))
        sides.append(records)
    found = isthmus.compare(*sides)
    assert found.split == "validation"
    assert found.decision == "ahead"
    assert repr(found).endswith("3 paired folds")


def test_what_cannot_be_compared_is_one_line() -> None:
    first, second = write_network((64, 32, 2), [21.0]), write_network((64, 16, 2), [20.5])
    elsewhere = write_network((64, 8, 2), [0.5], objective="accuracy", task={"name": "classification"})
    failed = write_network((64, 4, 2), [0.5], status="failed")
    for sides, expected in (
        ((first, elsewhere), "they differ in task and objective"),
        ((first + second, first), "runs of 2 different networks"),
        ((first, failed), "has no result to compare"),
        ((first, []), "has no runs"),
    ):
        with pytest.raises(UserError, match=expected) as error:
            isthmus.compare(*sides)
        assert "\n" not in str(error.value)


# Notebooks and scripts.


class Area:
    """What IPython's display returns: it keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, html: str) -> None:
        self.shown.append(html)


def test_a_bar_in_a_notebook_needs_no_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    area, package, module = Area(), ModuleType("IPython"), ModuleType("IPython.display")

    def show(html: str, display_id: bool) -> Area:
        area.update(html)
        return area

    module.HTML, module.display = str, show  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    with Bar(Console(force_jupyter=True)) as bar:
        bar.say(EVIL)
        for step in range(1000):
            bar.move(step / 1000)
        bar.bar.shown -= 1  # type: ignore[union-attr]
        bar.advance(0.5, EVIL)
    assert len(area.shown) < 20, "a notebook keeps every update"
    assert not [html for html in area.shown if "<script" in html]
    assert "value='0.500'" in area.shown[-2]
    assert area.shown[-1] == "<div>&lt;/table&gt;&lt;script&gt;alert(1)&lt;/script&gt;</div>"


def test_an_answer_in_a_notebook_is_escaped() -> None:
    shown = summarise_answer([EVIL, EVIL], {"name": EVIL}, [{EVIL: EVIL, "params": 1234, "best": True}])
    assert "<script" not in shown
    assert "1,234" in shown
    assert "●" in shown


def test_a_worker_does_not_import_the_script_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/somewhere/script.py", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert "init_main_from_path" in spawn.get_preparation_data("worker")
    main = sys.modules["__main__"]
    with hide_main():
        assert not {"init_main_from_path", "init_main_from_name"} & spawn.get_preparation_data("worker").keys()
    assert sys.modules["__main__"] is main


@pytest.mark.slow
def test_a_script_without_a_main_guard_may_use_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import isthmus\nprint(isthmus.study({STUDY!r}, workers=2, progress=False))\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<study tiny: 2 candidates")
    assert done.stdout.count("\n") == 1
