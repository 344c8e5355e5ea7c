"""`isthmus reproduce` from end to end: on records that nobody trained, and at the smoke scale."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus.cli import terminal
from isthmus.cli.complete import complete_study
from isthmus.cli.main import app
from isthmus.cli.reproduce import print_result
from isthmus.core.errors import UserError
from isthmus.core.files import read_json
from isthmus.papers import import_exhibits, list_papers, load_paper
from isthmus.papers.engine.reproduce import find_exhibit, judge_below, list_exhibits, reproduce
from isthmus.papers.hourglass.exhibits import TABLES
from tests.papers.networks import Fabricated, fabricating

PAPER = load_paper("hourglass")


def psnr(model: dict[str, Any], rate: float, seed: int) -> float:
    """The Hourglass gains with d_h, conventional networks stay where they are; the larger rate is better."""
    gain = model["d_h"] / 1000 if model["name"] == "hourglass_mlp" else 0.1
    return 21.5 + gain + 100 * rate + 0.001 * seed


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The page needs run folders; here are none. What it was asked for is kept."""
    asked: list[dict[str, Any]] = []

    def write_report(folders: Any, out: Path, title: str, command: str, published: Any) -> None:
        asked.append({"folders": folders, "title": title, "command": command, "published": list(published)})

    monkeypatch.setattr("isthmus.reports.write_report", write_report)
    return asked


def fabricated(table: str, scale: str, out: Path, **more: Any) -> dict[str, Any]:
    return reproduce("hourglass", table, scale, out, carry_out=fabricating(psnr), **more)


@pytest.mark.parametrize("table", ["T8", "T9"])
def test_a_stored_result_is_judged_again_from_its_own_values(table, tmp_path, no_page):
    result = fabricated(table, "cpu", tmp_path / "result")
    path = tmp_path / "result" / "result.json"
    stored, tables = path.read_text(), (tmp_path / "result" / "table.md").read_text()
    content = json.loads(stored)
    content["claims"] = [claim | {"measured": "by another rule"} for claim in content["claims"]]
    path.write_text(json.dumps(content))
    assert list(judge_below(tmp_path)) == [tmp_path / "result"]
    assert json.loads(path.read_text())["claims"] == json.loads(json.dumps(result["claims"]))
    assert (path.read_text(), (tmp_path / "result" / "table.md").read_text()) == (stored, tables)
    with pytest.raises(UserError, match="no result"):
        list(judge_below(tmp_path / "elsewhere"))


@pytest.mark.slow
def test_every_stored_result_can_be_judged_again(tmp_path):
    stored = Path(__file__).parents[2] / "results" / "reproductions"
    shutil.copytree(stored, tmp_path, dirs_exist_ok=True)
    assert len(list(judge_below(tmp_path))) == len(list(stored.iterdir()))
    for path in stored.glob("*/result.json"):
        before, after = (read_json(folder / path.parent.name / "result.json") for folder in (stored, tmp_path))
        answers = [[(claim["id"], claim["measured"]) for claim in result["claims"]] for result in (before, after)]
        assert answers[0] == answers[1], path.parent.name


def test_every_printed_row_is_there_and_only_what_was_trained_is_measured(tmp_path, no_page):
    result = fabricated("T8", "cpu", tmp_path)
    rows = {row["id"]: row for row in result["rows"]}
    assert [name for name in rows if name.startswith("T8.")] == [f"T8.{number}" for number in range(1, 28)]
    trained = {name for name, row in rows.items() if row["measured"]}
    assert trained == {"T8.7", "T8.8", "T8.9", "T8.10", "T8.12", *(f"extra.{number}" for number in range(1, 6))}
    assert rows["T8.1"]["measured"] is None
    assert rows["T8.1"]["published"]["printed"]["psnr_dB"] == 21.408
    published = {"mean": 21.506, "std": 0.0014, "runs": 5, "decimals": [3, 4]}
    assert rows["T8.7"]["published"] == published | {"printed": dict(PAPER.row("T8.7"))}
    assert rows["T8.7"]["seeds"] == [0, 1, 2]
    assert len(set(rows["T8.7"]["runs"])) == 3
    assert rows["T8.7"]["config"]["train"]["learning_rate"] == 3e-4, "the better rate on validation data"
    assert rows["T8.7"]["measured"]["values"] == pytest.approx([21.538, 21.539, 21.540])
    assert rows["T8.7"]["verdict"] == {"word": "other set-up", "interval": None}
    assert rows["extra.1"]["verdict"]["word"] == "not in the paper"
    assert no_page[0]["published"] == ["hourglass/T8"]
    assert no_page[0]["command"] == "isthmus reproduce hourglass T8 --scale cpu"


def test_each_hourglass_meets_the_best_conventional_network_that_is_not_larger(tmp_path, no_page):
    rows = {row["id"]: row for row in fabricated("T8", "cpu", tmp_path)["rows"]}
    rival = rows["T8.7"]["rival"]["measured"]
    assert rival["params"] <= 1.02 * rows["T8.7"]["params"]
    assert rival["word"] == "behind"
    assert rival["interval"]["difference"] == pytest.approx(-0.092)
    assert rows["T8.10"]["rival"]["measured"]["word"] == "ahead"
    assert rows["T8.7"]["rival"]["published"] == {"word": "no rival so small", "interval": None}
    printed = rows["T8.24"]["rival"]
    assert printed["measured"] is None, "not trained"
    assert (printed["published"]["id"], printed["published"]["word"]) == ("T8.3", "ahead")
    assert rows["extra.1"]["rival"] == {"measured": None, "published": None}, "conventional networks are the rivals"


def test_at_the_paper_s_scale_measured_values_are_judged_against_published_ones(tmp_path, no_page):
    """Five seeds with σ = 0.0016; T8.7 is printed as 21.506 with σ = 0.0014."""

    def quality(model: dict[str, Any], rate: float, seed: int) -> float:
        return {8: 21.504, 16: 21.6, 64: 21.7}.get(model["d_h"], 22.0) + 0.001 * seed + rate - 7e-4

    result = reproduce("hourglass", "T8", "paper", tmp_path, carry_out=fabricating(quality))
    rows = {row["id"]: row for row in result["rows"]}
    assert len(rows) == 27, "no row beyond the printed ones"
    assert [rows[name]["verdict"]["word"] for name in ("T8.7", "T8.8", "T8.9")] == ["agrees", "higher", "lower"]
    assert rows["T8.7"]["verdict"]["interval"]["rule"] == "Welch's t interval"
    claims = {claim["id"]: claim for claim in result["claims"]}
    assert claims["C13"]["measured"] == "yes"
    assert claims["C3"]["measured"] == "undecided", "all larger networks were made equal"


def test_at_the_smoke_scale_no_claim_is_decided(tmp_path, no_page):
    result = fabricated("T8", "smoke", tmp_path)
    assert {claim["measured"] for claim in result["claims"]} == {"not addressed"}
    (front,) = (claim for claim in result["claims"] if claim["id"] == "C3")
    assert front["because"].startswith("the smoke scale shows that everything runs and decides nothing; ")
    assert front["published"] == "yes", "the printed rows do not depend on the scale"


def test_published_numbers_keep_their_own_decimals(tmp_path, no_page):
    fabricated("T9", "cpu", tmp_path)
    assert "| 24.000 ± 0.0004 |" in (tmp_path / "table.md").read_text()
    from isthmus.papers.engine.tables import quantities

    value = {"id": "", "what": "", "published": 17.17, "measured": 1.0, "word": "", "note": "", "decimals": 3}
    assert quantities({"quantities": [value]})[0]["published"] == "17.170"


def test_a_table_without_rows_that_were_trained_says_so(tmp_path, no_page):
    result = fabricated("T6", "cpu", tmp_path)
    assert {row["verdict"]["word"] for row in result["rows"]} == {"not run at this scale", "not in the paper"}
    assert sum(row["measured"] is None for row in result["rows"]) == 25
    assert any("CIFAR-10 instead of ImageNet-224" in line for line in result["differences"])


def test_parts_have_their_own_rows_and_differences(tmp_path, no_page):
    result = fabricated("F3", "cpu", tmp_path)
    names = [row["id"] for row in result["rows"]]
    assert len(set(names)) == len(names) == 25 + 10 + 25 + 10
    assert {"T6.1", "T7.25", "extra.1", "extra.20"} <= set(names)
    assert "super-resolution, CIFAR-10: 704 optimiser steps instead of 22,521" not in result["differences"], "shared"
    assert result["differences"].count("704 optimiser steps instead of 22,521") == 1
    assert any(
        line.startswith("denoising, CIFAR-10: the paper does not say whether noise") for line in result["differences"]
    )
    assert no_page[0]["published"] == ["hourglass/T6", "hourglass/T7"]


def test_the_result_is_one_canonical_text(tmp_path, no_page, capsys):
    terminal.print_json(fabricated("T8", "cpu", tmp_path / "one"), sort_keys=True)
    printed = capsys.readouterr().out
    fabricated("T8", "cpu", tmp_path / "two")
    assert printed == (tmp_path / "one" / "result.json").read_text() == (tmp_path / "two" / "result.json").read_text()
    result = json.loads(printed)
    assert list(result) == sorted(result)
    assert {claim["id"] for claim in result["claims"]} == {"C3", "C11", "C12", "C13"}


def test_the_table_stands_in_markdown_and_csv_and_in_the_terminal(tmp_path, no_page, capsys):
    result = fabricated("T8", "cpu", tmp_path)
    print_result(result, tmp_path)
    said = capsys.readouterr().out
    text = (tmp_path / "table.md").read_text()
    for row in result["rows"]:
        assert f"| {row['id']} |" in text
    for words in ("21.506 ± 0.0014", "other set-up", "## What differs from the paper", "no fourfold flips", "**C3**"):
        assert words in text
    assert "C3: no" in said
    assert "22 published rows are not run at this scale" in said
    lines = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert [line["id"] for line in lines] == [row["id"] for row in result["rows"]]
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_results_go_home_where_no_folder_is_given(no_page, monkeypatch, tmp_path):
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    reproduce("hourglass", "t8", "cpu", carry_out=fabricating(psnr))
    assert (tmp_path / "reproductions" / "hourglass-T8-cpu" / "result.json").is_file()


@pytest.mark.parametrize(
    ("paper", "table", "scale", "message"),
    [
        ("hourglas", "T8", "smoke", "there is no paper 'hourglas'; did you mean 'hourglass'?"),
        ("hourglass", "T88", "smoke", "hourglass has no 'T88' to reproduce; did you mean 'T8'?"),
        ("hourglass", "T8", "smok", "there is no scale 'smok'; did you mean 'smoke'?"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(paper, table, scale, message):
    with pytest.raises(UserError) as error:
        reproduce(paper, table, scale, carry_out=complete_study)
    assert str(error.value) == message


def test_every_exhibit_is_found_by_name():
    assert list(import_exhibits("hourglass")) == list(TABLES)
    tables, figures = ("T1", "T2", "T3", "T4", "T6", "T7", "T8", "T9"), ("F3", "F4", "F6", "F7", "F8", "F9")
    assert set(TABLES) == {*tables, *figures, "F10", "F11", "F12", "F13", "S4", "S4V", "SC2"}
    assert find_exhibit("hourglass", "f9") is TABLES["F9"]


def test_without_a_table_there_is_a_line_for_each():
    lines = list_exhibits("hourglass")
    assert [line["table"] for line in lines] == list(TABLES)
    assert {line["paper"] for line in list_exhibits()} == set(list_papers())
    answer = CliRunner().invoke(app, ["reproduce", "hourglass", "--json"])
    assert json.loads(answer.stdout) == lines
    with pytest.raises(UserError, match="did you mean 'hourglass'"):
        list_exhibits("hourglas")


def test_missing_data_is_one_line_before_anything_is_trained(tmp_path):
    with pytest.raises(UserError, match="cifar10") as error:
        reproduce("hourglass", "F7", "cpu", data_dir=tmp_path, carry_out=lambda *given: pytest.fail("trained"))
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="imagenet32"):
        reproduce("hourglass", "T9", "paper", data_dir=tmp_path, carry_out=complete_study)
    assert not (tmp_path / "isthmus-home" / "runs").exists()


def test_a_study_of_which_nothing_finished_is_no_result(tmp_path):
    class Nothing(Fabricated):
        def records(self) -> list[Any]:
            return []

    with pytest.raises(UserError, match="no run of the study 'hourglass-cifar10-denoise-cpu' finished"):
        reproduce("hourglass", "T8", "cpu", carry_out=lambda config, options, workers: Nothing(config, psnr))


# At the smoke scale everything is real: data, training, page.


def _smoke(table: str, out: Path) -> dict[str, Any]:
    result = reproduce("hourglass", table, "smoke", out, carry_out=complete_study)
    for name in ("result.json", "rows.csv", "table.md", "figure.png", "index.html", "candidates.csv", "runs.csv"):
        assert (out / name).stat().st_size > 100
    tables = PAPER.figures[table].tables if table in PAPER.figures else [table] if table in PAPER.tables else []
    printed = [name for key in tables for name in PAPER.tables[key].rows]
    assert set(printed) <= {row["id"] for row in result["rows"]}
    assert any(row["measured"] for row in result["rows"])
    assert {claim["id"] for claim in result["claims"]} == set(TABLES[table].tests)
    assert {claim["measured"] for claim in result["claims"]} <= {"yes", "no", "undecided", "not addressed"}
    assert result["differences"]
    return result


def test_a_smoke_reproduction_trains_once_and_then_answers_from_records(tmp_path, monkeypatch):
    first = _smoke("F9", tmp_path / "one")
    monkeypatch.setattr("isthmus.training.run._train", lambda *given: pytest.fail("trained again"))
    assert _smoke("F9", tmp_path / "two") == first


@pytest.mark.slow
@pytest.mark.parametrize("table", ["T6", "T7", "T8", "T9", "F3", "F4", "F6", "F7", "F8", "S4", "SC2"])
def test_every_exhibit_at_the_smoke_scale(table, tmp_path):
    _smoke(table, tmp_path)


@pytest.mark.slow
def test_table_1_reports_every_reading_of_the_rank(tmp_path):
    result = _smoke("T1", tmp_path)
    trained = [row for row in result["rows"] if row["measured"]]
    assert len(trained) == 2
    for row in trained:
        ranks = row["measured"]["effective_rank"]
        assert set(ranks) == {"z_L", "z_L_centred", "W_out", "W2W1_mean", "W2W1_last"}
        assert all(1 <= rank <= row["model"]["d_z"] for values in ranks.values() for rank in values)
    said = "\n".join(result["analysis"]["summary"])
    assert "1501.3 of 3075 (0.488)" in said
    assert "is the nearest reading" in said
