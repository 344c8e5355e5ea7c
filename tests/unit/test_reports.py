"""Reports: from run folders to tables, figures and the page."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.errors import UserError
from isthmus.core.files import write_json
from isthmus.core.record import CONFIG, RECORD, SAMPLES, runs_folder
from isthmus.reports import table, write_report
from isthmus.reports.figures import curve_figures, front_figure, gap_figure
from isthmus.reports.measures import measure
from isthmus.reports.plots import COLOURS, plotly_curves, plotly_front, plotly_gap
from isthmus.reports.sections import gather
from isthmus.reports.text import answer, magnitude
from isthmus.studies.fronts import summarise
from tests.command_line import call, train
from tests.fuzz.files import contents, without_drawings
from tests.unit.fabricated_runs import CONVENTIONAL, HOURGLASS, metric_values, model_config, write_run, write_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("runs"), samples=True)


@pytest.fixture(scope="module")
def report(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([study], tmp_path_factory.mktemp("report"), "Shapes", "isthmus study shapes.yaml")


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_report_writes_its_six_files_and_every_run_is_in_the_tables(report: Path, study: Path):
    folder = report.parent
    assert {path.name for path in folder.iterdir()} == {
        "index.html",
        "front.png",
        "curves.png",
        "gap.png",
        "candidates.csv",
        "runs.csv",
    }
    for name in ("front.png", "curves.png", "gap.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    runs = rows(folder / "runs.csv")
    assert len(runs) == len(list(study.iterdir())) == 144
    assert sum(run["status"] == "failed" for run in runs) == 1
    assert all(json.loads(run["config"])["seed"] == int(run["seed"]) for run in runs)
    candidates = rows(folder / "candidates.csv")
    assert len(candidates) == 16
    assert {row["architecture"] for row in candidates if row["on_front"] == "False"} == {
        "hourglass_mlp",
        "conventional_mlp",
    }
    assert [row["failed_runs"] for row in candidates].count("1") == 1
    for row in candidates:
        assert float(row["test_5sigma"]) == pytest.approx(5 * float(row["test_std"]))
    assert ">5 σ</button>" in report.read_text(encoding="utf-8")


def test_the_front_figure_shows_every_candidate_with_its_spread(study: Path):
    (section,), unfinished = gather([study])
    assert unfinished == 0
    figure = front_figure(section)
    assert (figure.x_title, figure.y_title) == ("Parameters", "Test PSNR (dB)")
    assert [series.title for series in figure.series] == ["Hourglass", "Conventional"]
    points = [point for series in figure.series for point in series.points]
    assert {(point.x, point.y, point.spread) for point in points} == {
        (candidate.params, candidate.mean, candidate.std) for candidate in section.candidates
    }
    assert sum(point.on_front for point in points) == len(section.front_ids) == 12
    details = "\n".join(figure.series[0].points[0].details)
    for text in ("d_z 785", "d_h 8", "depth 3", "MACs", "learning rate 0.001", "3 seeds", "run "):
        assert text in details
    by_loss = front_figure(section, "macs", "loss")
    assert (by_loss.x_title, by_loss.y_title) == ("MACs per row", "Test Loss")
    assert sum(point.on_front for series in by_loss.series for point in series.points) == 12


def test_members_are_chosen_on_validation_and_drawn_with_test_values_whatever_metric_is_shown(tmp_path: Path):
    # By test PSNR the members would be the first and the third, by test loss too.
    for shape, validation, test in zip(HOURGLASS[:4], (20.0, 21.0, 20.5, 22.0), (20.4, 20.0, 21.0, 20.2), strict=True):
        write_run(tmp_path, model_config("sw_mlp", shape, 0), 1e-3, 0, validation=validation, test=test)
    (section,), _ = gather([tmp_path])
    for metric in ("psnr", "ssim", "loss"):
        figure = front_figure(section, "params", metric)
        assert [point.on_front for point in figure.series[0].points] == [True, True, False, True]
        _, members = plotly_front(figure)["data"]
        assert members["x"] == sorted(members["x"])
        assert members["y"] == [metric_values("psnr", test)[metric] for test in (20.4, 20.0, 20.2)]
    assert [row[""] for row in table(section.candidates)] == ["●", "●", "", "●"]
    verdict = answer(section)[0].replace("\N{NO-BREAK SPACE}", " ")
    for fact in ("Only sw_mlp was tried", "2.72 M parameters", "PSNR 20.200 dB"):
        assert fact in verdict
    assert "chosen on validation data" in write_report([tmp_path], tmp_path / "out", "One").read_text(encoding="utf-8")


def test_curves_are_one_per_finished_run_with_the_kept_epoch_marked_and_never_too_many_points(
    study: Path, tmp_path: Path
):
    (section,), _ = gather([study])
    validation, training = curve_figures(section)
    assert len(validation.curves) == len(training.curves) == 143
    shown = [curve for curve in validation.curves if curve.shown]
    assert len(shown) == 6, "the rest is drawn on request"
    assert {curve.title for curve in shown} == {"Hourglass", "Conventional"}
    assert [curve.shown for curve in training.curves].count(True) == 6
    best = max(section.candidates, key=lambda candidate: candidate.validation)
    assert any(identity in curve.details[0] for curve in shown for identity in best.run_ids)
    hidden = [trace for trace in plotly_curves(validation)["data"] if trace.get("visible") is False]
    assert len(hidden) == 2
    assert {curve.mark[0] for curve in validation.curves if curve.mark} == {10}
    assert training.logarithmic
    write_run(tmp_path, model_config("hourglass_mlp", HOURGLASS[0], 0), 1e-3, 0, epochs=1001)
    (long,), _ = gather([tmp_path])
    (curve,) = curve_figures(long)[0].curves
    assert len(curve.x) <= 201
    assert (curve.x[0], curve.x[-1]) == (1, 1001)


def test_plotly_accepts_the_drawings(study: Path):
    from plotly.graph_objects import Figure

    (section,), _ = gather([study], ["hourglass/T8"])
    measures = measure(section)
    gap = gap_figure(measures) if measures else None
    assert gap
    shapes = [f"shape-{place}" for place in range(len(COLOURS))]
    for figure in (plotly_front(front_figure(section)), plotly_gap(gap), *map(plotly_curves, curve_figures(section))):
        text = json.dumps(figure)
        for name in ("ink", "paper", "quiet", "rule", *shapes, *(f"{shape}-faint" for shape in shapes)):
            text = text.replace(f'"@{name}"', '"#123456"')
        assert '"@' not in text
        Figure(json.loads(text))


def test_the_answer_says_who_leads_where_and_what_is_undecided(study: Path):
    (section,), _ = gather([study])
    verdict, limits = (text.replace("\N{NO-BREAK SPACE}", " ") for text in answer(section))
    assert all(fact in verdict for fact in ("Hourglass leads", "1.27–1.45 M", "4.34–7.65 M", "0.48 dB at 1.27 M"))
    assert "conventional shape leads" not in verdict, "where the noise explains a difference, nobody leads"
    for part in ("133 k–1.27 M", "7.63–8.61 M", "only the conventional shape"):
        assert part in limits
    assert "MACs per row" in answer(section, "macs")[0]


def two_runs(root: Path, hourglass: tuple[int, int, int], conventional: tuple[int, int, int], **options: Any):
    write_run(root, model_config("hourglass_mlp", hourglass, 0), 1e-3, 0, **options)
    write_run(root, model_config("conventional_mlp", conventional, 0), 1e-3, 0, **options)
    return plain_answer(root)


def plain_answer(root: Path) -> list[str]:
    (section,), _ = gather([root])
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in answer(section)]


def test_the_answer_where_there_is_little_to_say(tmp_path: Path):
    verdict, _ = two_runs(tmp_path / "apart", HOURGLASS[0], CONVENTIONAL[0])
    assert verdict.startswith("The Hourglass and the conventional shape cannot be compared")
    verdict, limits = two_runs(tmp_path / "same", HOURGLASS[0], HOURGLASS[0], objective="accuracy")
    assert "one seed" in verdict
    assert limits == ""
    for place, seed, test in ((1, 0, 0.5), (1, 1, 0.501), (2, 0, 0.6), (2, 1, 0.62)):
        model = model_config("hourglass_mlp", HOURGLASS[place], 0)
        write_run(tmp_path / "same", model, 1e-3, seed, objective="accuracy", test=test)
    assert "one seed only" in plain_answer(tmp_path / "same")[1]


def test_terminal_table_has_one_row_per_candidate(study: Path):
    (section,), _ = gather([study])
    shown = table(section.candidates)
    assert len(shown) == 16
    assert [row[""] for row in shown].count("●") == 12
    assert shown[0]["Test PSNR (dB)"].count("±") == 1
    assert list(shown[0])[:6] == ["", "Shape", "d_z", "d_h", "depth", "Params"]
    assert table(summarise([])) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (785, "785"),
        (999.6e3, "1.00 M"),
        (1.3e6, "1.30 M"),
        (9.996e6, "10.0 M"),
        (123456, "123 k"),
        (0, "0"),
        (2.5e12, "2.50 T"),
    ],
)
def test_magnitudes_have_three_digits(value: float, text: str):
    assert magnitude(value).replace("\N{NO-BREAK SPACE}", " ") == text


def test_page_escapes_what_records_and_users_say_and_loads_nothing(tmp_path: Path):
    evil = '</script><script>alert("x")</script>'
    model = model_config("hourglass_mlp", HOURGLASS[0], 0) | {"norm": evil}
    write_run(tmp_path / "runs", model, 1e-3, 0, command=evil, source=evil)
    write_run(tmp_path / "runs", model | {"norm": "layer"}, 1e-3, 1, command=evil, source=evil)
    text = write_report([tmp_path / "runs"], tmp_path / "out", evil, evil).read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "default-src 'none'" in text
    assert "<link" not in text


def test_sections_keep_different_problems_apart_and_unfinished_runs_are_counted(tmp_path: Path):
    shape = model_config("hourglass_mlp", HOURGLASS[0], 0)
    write_run(tmp_path / "runs", shape, 1e-3, 0)
    write_run(tmp_path / "runs", shape, 1e-3, 0, task={"name": "denoise", "noise_std": 0.5})
    write_run(tmp_path / "runs", shape, 1e-3, 0, source="digits", objective="accuracy")
    write_run(tmp_path / "runs", shape, 5e-3, 0, source="photos", status="failed")
    write_json(tmp_path / "runs" / "unfinished" / CONFIG, {})
    sections, unfinished = gather([tmp_path / "runs", tmp_path / "runs"])
    assert [section.name for section in sections] == [
        "denoise on digits",
        "denoise on mnist5k, noise_std 0.25",
        "denoise on mnist5k, noise_std 0.5",
        "denoise on photos",
    ]
    assert unfinished == 1
    text = write_report([tmp_path / "runs"], tmp_path / "out", "Mixed").read_text(encoding="utf-8")
    assert "4 runs · 3 candidates · 1 failed · 1 unfinished" in text
    assert "No run has finished" in text
    assert "the training loss is not finite at step 96" in text
    assert text.count("<section ") == 4


def test_a_single_run_folder_and_its_record_are_accepted(tmp_path: Path):
    record = write_run(tmp_path, model_config("hourglass_mlp", HOURGLASS[0], 0), 1e-3, 0)
    for path in (tmp_path / record.id, tmp_path / record.id / RECORD):
        (section,), _ = gather([path])
        assert section.first == record


def test_bad_input_is_one_clear_line(tmp_path: Path):
    def message(*paths: Path) -> str:
        with pytest.raises(UserError) as caught:
            write_report(list(paths), tmp_path / "out", "Nothing")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()
        return str(caught.value)

    (tmp_path / "empty").mkdir()
    assert "there are no runs in" in message(tmp_path / "empty")
    assert "there are no runs" in message()
    assert "there is no folder" in message(tmp_path / "absent")
    write_json(tmp_path / "runs" / "one" / CONFIG, {})
    assert "the run has not ended" in message(tmp_path / "runs")
    record = write_run(tmp_path / "runs", model_config("hourglass_mlp", HOURGLASS[0], 0), 1e-3, 0, samples=True)
    (tmp_path / "runs" / record.id / SAMPLES).write_bytes(b"cut")
    assert "samples.png is damaged" in message(tmp_path / "runs")
    path = tmp_path / "runs" / record.id / RECORD
    path.write_text(path.read_text(encoding="utf-8").replace("mnist5k", "mnist6k"), encoding="utf-8")
    assert "is damaged or was altered" in message(tmp_path / "runs")


def test_reports_need_no_torch(tmp_path: Path):
    write_run(tmp_path / "runs", model_config("hourglass_mlp", HOURGLASS[0], 0), 1e-3, 0)
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path; from isthmus.papers import load_paper; from isthmus.reports import write_report\n"
        "load_paper('hourglass'); write_report([Path(sys.argv[1])], Path(sys.argv[2]), 'Without torch')"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "runs", tmp_path / "out"], check=True, timeout=240)
    assert (tmp_path / "out" / "index.html").is_file()


def test_a_run_whose_record_is_removed_is_left_out_and_trained_again_gives_the_same_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = (train(tmp_path, f"seed={seed}")["id"] for seed in (0, 1))

    def report_again() -> dict[str, Any]:
        with without_drawings():
            assert call("report", "--out", "page").code == 0
        return contents("page")

    whole = report_again()
    (runs_folder() / first / RECORD).unlink()
    lacking = report_again()
    assert [row["id"] for row in lacking["page/runs.csv"]] == [second]
    assert "1 unfinished" in Path("page/index.html").read_text(encoding="utf-8")
    train(tmp_path, "seed=0")
    assert report_again() == whole, "but for the times"
