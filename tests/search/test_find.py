"""`isthmus find`: a table in, an answer out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import isthmus
from isthmus.cli.main import app
from isthmus.core.record import read_record, runs_folder
from isthmus.reports.figures import answer_figure
from isthmus.search.answer import Answer
from isthmus.search.engine import sample_rows
from tests.search.houses import write_houses

QUICK: dict[str, Any] = {
    "budget": "400",
    "within": "10m",
    "workers": 1,
    "settings": ["train.epochs=3"],
    "progress": False,
}


def write_halves(path: Path, rows: int) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["size", "half"])
        writer.writerows([i / rows, "upper" if 2 * i >= rows else "lower"] for i in range(rows))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("finder")


@pytest.fixture(scope="module")
def found(home: Path) -> Answer:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(home / "isthmus"))
        return isthmus.find(write_houses(home / "houses.csv"), **QUICK)


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(home / "isthmus"))


def test_it_says_what_it_predicts_and_what_it_did_with_the_columns(found: Answer) -> None:
    words, advice = found.content["words"]
    assert "for a forecast, give the latest rows by `sold`" in advice
    assert "`price`" in words
    assert "regression" in words
    findings = " ".join(found.content["findings"])
    assert all(f"`{name}`" in findings for name in ("id", "age", "colour", "sold"))


def test_the_answer_is_a_refit_on_all_rows_but_the_test_rows(found: Answer) -> None:
    record = read_record(runs_folder() / found.run)
    rows = record.data["rows"]
    assert rows["validation"] == 0
    assert rows["train"] + rows["test"] == 60
    assert record.config["train"]["select"] == "last"
    assert [read_record(runs_folder() / run).seed for run in found.content["refits"]] == [0, 1, 2]
    assert len(found.content["test"]["values"]) == 3
    assert found.content["test"]["low"] <= found.content["test"]["high"]


def test_the_answer_keeps_what_its_page_shows_of_the_test_rows(found: Answer) -> None:
    points = found.content["test"]["points"]
    assert len(points["true"]) == len(points["predicted"]) == found.content["rows"]["test"]
    assert 0 < found.content["latency"] < 1_000
    labels = np.array([0, 0, 1, 2, 2, 2])
    confusion = sample_rows(np.array([0, 1, 1, 2, 2, 0]), labels, ["a", "<b>"])["confusion"]
    assert confusion == {"classes": ["a", "<b>", "2"], "counts": [[1, 1, 0], [0, 1, 0], [1, 0, 2]], "omitted": 0}
    assert len(sample_rows(np.arange(30), np.arange(30), [])["confusion"]["classes"]) == 20
    values = np.arange(2000.0).reshape(1000, 2)
    assert len(sample_rows(values, values, [])["points"]["true"]) == 500


def test_networks_from_linear_to_the_budget_compete_with_references(found: Answer) -> None:
    networks = found.content["networks"]
    assert 0 in [each["model"].get("depth") for each in networks]
    assert max(each["params"] for each in networks) <= 400
    assert [each["title"] for each in found.content["references"]] == [
        "the mean", "ridge regression", "our default estimator", "gradient boosting",
    ]  # fmt: skip
    assert max(each["looks"] for each in networks) == 5, "one for each fold"
    assert min(each["looks"] for each in networks) == 2
    assert len(found.table()) == len(networks) + 4
    assert [each["params"] for each in found.content["belief"]] == sorted(
        each["params"] for each in found.content["belief"]
    )
    assert answer_figure(found.content).band[-1][0] == max(each["params"] for each in networks)
    assert len(found.runs()) == len(found.run_ids)


@pytest.mark.slow
def test_references_are_tested_on_the_rows_of_the_refits(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_halves(home / "halves.csv", 100)
    settings = QUICK | {"budget": "12", "settings": ["train.epochs=1"]}
    for delivered in ("refits", "a fold"):
        if delivered == "a fold":
            monkeypatch.setattr("isthmus.search.engine._Search._refit", lambda *given: [])
        answer = isthmus.find(home / "halves.csv", target="half", **settings)
        assert bool(answer.content["refits"]) == (delivered == "refits")
        figures = {each["title"]: each["test"] for each in answer.content["references"]}
        assert figures["logistic regression"] >= 0.9, "the order of test rows differs between a fold and a refit"


def test_the_best_so_far_is_the_answer_if_no_network_can_be_tried_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_halves(home / "short.csv", 90)
    monkeypatch.setattr("isthmus.search.race.Race._expect", lambda race, network, run: 1e9 * (run.config.seed >= 2))
    settings = QUICK | {"budget": "12", "settings": ["train.epochs=1"]}
    answer = isthmus.find(home / "short.csv", target="half", **settings)
    assert answer.content["best"]["looks"] == 2
    assert len(answer.content["refits"]) == 2


def test_a_reference_that_wins_is_named_first(found: Answer) -> None:
    ridge = next(each for each in found.content["references"] if each["title"] == "ridge regression")
    assert found.compare(ridge).decision == "behind", "three epochs are too few"
    assert "ridge regression" in found.sentences()[0]


def test_the_same_search_again_trains_nothing(found: Answer, home: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in runs_folder().glob("*/record.json")}
    again = isthmus.find(home / "houses.csv", **QUICK)
    assert {path.name: path.stat().st_mtime_ns for path in runs_folder().glob("*/record.json")} == before
    timed = {"seconds", "references", "command", "latency"}
    assert {k: v for k, v in again.content.items() if k not in timed} == {
        k: v for k, v in found.content.items() if k not in timed
    }


def test_the_network_takes_raw_rows_and_so_does_its_export(home: Path, found: Answer, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(home / "houses.csv")
    predicted = found.predict(frame)
    assert predicted.name == "price"
    np.testing.assert_allclose(found.best.predict(home / "houses.csv"), predicted, rtol=1e-5)
    exported = isthmus.load(found.export(tmp_path / "model", to="torch"))
    np.testing.assert_allclose(exported.predict(frame), predicted, rtol=1e-4, atol=1e-5)


def test_a_frame_gives_the_same_networks_as_its_file(home: Path, found: Answer) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(home / "houses.csv")
    answer = isthmus.find(frame, target="price", **QUICK)
    assert answer.content["best"]["title"] == found.content["best"]["title"]
    assert answer.content["best"]["values"] == pytest.approx(found.content["best"]["values"], abs=1e-5)


def test_the_command_ends_with_an_answer_and_a_page(home: Path, found: Answer) -> None:
    words = ["find", str(home / "houses.csv"), "--budget", "400", "--within", "10m", "--workers", "1", "train.epochs=3"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    page = next(line for line in result.output.splitlines() if line.startswith("page: "))
    text = Path(page.removeprefix("page: ")).read_text(encoding="utf-8")
    assert text.index('<div class="box"') < text.index("<table")
    assert "3 refits" in text
    assert "failed" not in text[: text.index("<main>")]
    assert "regression of price on houses.csv" in text
    assert all(command.replace('"', "&quot;") in text for command in found.commands().values())
    content = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)
    assert content["best"]["run"] == found.run


def test_the_front_holds_the_best_network_of_each_size(found: Answer) -> None:
    front, table = found.front(), found.table()
    assert front["params"].is_monotonic_increasing
    assert front["validation r2"].is_monotonic_increasing
    networks = table[table["kind"] == "network"]
    assert front["validation r2"].max() == networks["validation r2"].max()
    for _, each in networks.iterrows():
        smaller = front[front["params"] <= each["params"]]
        assert smaller["validation r2"].max() >= each["validation r2"]


def test_an_answer_is_drawn_with_its_references(found: Answer, tmp_path: Path) -> None:
    figure = found.plot()
    (axis,) = figure.axes
    assert axis.get_title(loc="left") == "regression on houses"
    assert axis.get_ylabel().startswith("Validation R²")
    labels = [text.get_text() for text in axis.texts]
    assert [
        title for title in ("ridge regression", "gradient boosting") if not any(title in each for each in labels)
    ] == []
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert isthmus.plot(found).axes[0].get_ylabel() == axis.get_ylabel()
    assert isthmus.report(found, tmp_path / "page") == tmp_path / "page" / "index.html"


def test_an_answer_is_short_in_a_terminal_and_escaped_in_a_notebook(found: Answer) -> None:
    assert repr(found).startswith("<find houses: ")
    assert found.run in repr(found)
    assert len(repr(found)) < 200
    evil = "<script>alert(1)</script>"
    networks = [each | {"title": evil} for each in found.content["networks"]]
    references = [each | {"title": evil} for each in found.content["references"]]
    changed = {"best": found.content["best"] | {"title": evil}, "networks": networks, "references": references}
    shown = Answer({**found.content, **changed})._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "<svg" in shown


def test_an_answer_is_compared_by_its_folds(found: Answer) -> None:
    networks = [each for each in found.content["networks"] if each["looks"] > 1]
    worst = min(networks, key=lambda each: each["mean"])
    other = Answer({**found.content, "best": found.content["best"] | worst})
    difference = isthmus.compare(found, other)
    assert difference.split == "validation"
    assert difference.evidence == f"{min(worst['looks'], found.content['best']['looks'])} paired folds"


def test_a_polars_frame_is_a_table(home: Path, found: Answer) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.read_csv(home / "houses.csv")
    np.testing.assert_allclose(isthmus.load(found.run).predict(frame), found.predict(home / "houses.csv"), rtol=1e-5)
    answer = isthmus.find(frame, target="price", **QUICK)
    assert answer.content["findings"] == found.content["findings"]
    assert len(answer.predict(frame)) == len(frame)
