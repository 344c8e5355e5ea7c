"""The page of a search: its answer first, references in the front, refits apart from failures."""

from __future__ import annotations

import json
import math
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.reports import write_report
from isthmus.reports.axes import fit_axis
from isthmus.reports.contributions import list_contributions
from isthmus.reports.drawing import draw_network
from isthmus.reports.figures import Curve, CurvesFigure, answer_figure, curve_figures, front_figure
from isthmus.reports.markup import mark_code
from isthmus.reports.pictures import draw_curves
from isthmus.reports.plots import plotly_contributions, plotly_curves, plotly_fit, plotly_front
from isthmus.reports.sections import gather
from isthmus.reports.tables import columns
from isthmus.reports.text import answer
from isthmus.search.answer import Answer
from tests.browser import browse
from tests.command_line import call
from tests.unit.fabricated_runs import HOURGLASS, model_config, write_run

EVIL = '</script><script>alert("x")</script>'
FOLDED = {"name": "table", "path": "/data/houses.csv", "targets": ["price"], "folds": 5}


def write_search(root: Path) -> Path:
    """A network over folds with two penalties, and its refits."""
    for penalty in (0.1, 1.0):
        for fold in range(3):
            source, quality = FOLDED | {"fold": fold}, 0.7 + 0.02 * fold + 0.1 * penalty
            write_one(root, source, fold, quality, {"weight_decay": penalty})
    for seed in range(2):
        write_refit(root, seed)
    return root


def write_refit(root: Path, seed: int) -> str:
    whole = {name: value for name, value in FOLDED.items() if name != "folds"} | {"validation": 0}
    return write_one(root, whole, seed, 0.75, {"weight_decay": 1.0, "select": "last"}, refit=True)


def write_one(root: Path, source: Any, seed: int, quality: float, train: Any, refit: bool = False) -> str:
    model = model_config("hourglass_mlp", (64, 16, 2), seed)
    options = {"settings": source, "train": train, "refit": refit, "task": {"name": "classification"}}
    return write_run(root, model, 1e-2, seed, objective="accuracy", test=quality, epochs=2, **options).id


with tempfile.TemporaryDirectory() as _folder:
    RUN = write_refit(Path(_folder), 0)  # ids depend on configs only
FOUND: dict[str, Any] = {
    "sentences": ["Ridge regression is better on these data.", "The best network has 832 parameters."],
    "commands": {
        "Predict": f"isthmus predict {RUN} NEW.csv",
        "Python": f'isthmus.load("{RUN}").predict(rows)',
        "Export": f"isthmus export {RUN} --to onnx",
    },
    "words": ["predicting `price`, the last column"],
    "findings": [f"`{EVIL}`: 3 categories"],
    "objective": "accuracy",
    "budget": 50_000,
    "folds": 5,
    "rows": {"train": 3180, "validation": 795, "test": 442},
    "best": {
        "run": RUN,
        "title": "hourglass_mlp d_z=64 d_h=16 depth=2",
        "params": 832,
        "model": model_config("hourglass_mlp", (64, 16, 2), 0),
    },
    "latency": 0.123,
    "test": {"values": [0.5, 0.6], "low": 0.4, "high": 0.7, "points": {"true": [1.0, 2.0], "predicted": [1.5, 1.0]}},
    "references": [
        {"title": "ridge regression", "test": 0.77, "low": 0.6, "high": 0.9},
        {"title": "the mean", "test": -9.0, "fitted_rows": 1000},
        {"title": "a failure", "test": float("nan")},
    ],
}


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_search(tmp_path_factory.mktemp("search"))


@pytest.fixture(scope="module")
def page(search: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([search], tmp_path_factory.mktemp("page"), "Search", answers=[FOUND])


def test_the_page_begins_with_the_answer(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    box = text[text.index('<div class="box"') : text.index("Quality over cost")]
    facts = ["Ridge regression is better", "Test accuracy", "<b>0.55</b>", "95 % interval 0.4 to 0.7", "442 test rows",
             "2 seeds", "<b>832</b>", "0.12 ms", "3,180 training, 795 validation, 442 test"]  # fmt: skip
    assert [fact for fact in facts if fact not in box] == []
    assert box.index(FOUND["sentences"][0]) < box.index(FOUND["sentences"][1])
    assert box.count('class="copy"') == 4, "three commands and the run"
    assert f'data-copy="isthmus predict {RUN} NEW.csv"' in box
    assert "<svg" in box


def test_references_have_their_figures_in_a_table_the_best_first(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    table = text[text.index("Beside reference models") : text.index("What was found in the data")]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", table)
    assert cells == [
        "Ridge regression",
        "0.77",
        "0.6 to 0.9",
        "Recommended network",
        "0.55",
        "0.4 to 0.7",
        "Mean (1,000 rows)",
        "-9",
        "–",
    ]


def test_the_note_below_the_front_says_that_references_saw_fewer_rows(page: Path) -> None:
    assert "fitted to training and validation rows, some of them to a part," in page.read_text(encoding="utf-8")


def test_the_page_of_a_search_explains_only_what_it_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<div hidden>\n<p><b>Leads." in text
    assert '<p class="quiet settings">' not in text, "the rows are in the box"
    assert [int(level) for level in re.findall(r"<h([1-6])", text)][:3] == [1, 2, 3]


def test_two_searches_on_one_page_begin_with_their_own_answers(search: Path, tmp_path: Path) -> None:
    flats = FOLDED | {"path": "/data/flats.csv"}
    other = write_one(tmp_path / "runs", flats | {"fold": 0}, 0, 0.5, {})
    for seed in range(2):
        write_refit(tmp_path / "runs", seed)
    best = FOUND["best"] | {"run": other}
    answers = [
        FOUND | {"sentences": ["An earlier answer."]},
        FOUND,
        FOUND | {"best": best, "sentences": ["Use it for flats."], "test": {"values": [None]}, "references": []},
    ]
    paths = [tmp_path / "runs", search]
    text = write_report(paths, tmp_path / "out", "Two", answers=answers).read_text(encoding="utf-8")
    order = [
        text.index(part)
        for part in (
            '<h2 class="kicker">classification of price on flats.csv', "Use it for flats.", "not defined",
            '<h2 class="kicker">classification of price on houses.csv', FOUND["sentences"][0],
        )
    ]  # fmt: skip
    assert order == sorted(order)
    assert text.count('<div class="box">') == 2
    assert "An earlier answer." not in text, "the latest search of the same runs"
    assert not (tmp_path / "out" / "gap.png").exists()


def test_isthmus_report_shows_the_answers_of_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    write_search(tmp_path / "runs")
    best = FOUND["best"] | {"looks": 1, "mean": 0.7, "values": [0.7], "overfits": False, "epoch": 3}
    name = {"name": "houses-12345678", "task": "classification", "maximise": True, "is_whole": True, "command": ""}
    said = {name: value for name, value in FOUND.items() if name not in ("sentences", "commands")}
    Answer(said | name | {"best": best, "references": [], "networks": []}).write()
    answer = call("report", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "Use hourglass_mlp d_z=64 d_h=16 depth=2, 832 parameters" in text
    assert f'data-copy="isthmus predict {RUN} NEW.csv"' in text


def test_every_network_is_shown_with_what_it_contributed(search: Path, tmp_path: Path) -> None:
    (section, *_), _ = gather([search])
    folded = sorted(run.record.id for run in section.runs if "folds" in run.record.config["source"])[:3]
    days = dict(zip(folded, ("2026-01-02", "2026-01-01", "2026-01-03"), strict=True))
    runs = {
        run: replace(section.by_id[run], record=replace(section.by_id[run].record, finished=day))
        for run, day in days.items()
    }
    tried = [
        {"title": "small", "params": 100, "values": [0.6], "runs": [folded[0]]},
        {"title": "large", "params": 1000, "values": [0.9, 0.7], "runs": [folded[1], "unknown"]},
        {"title": "worst", "params": 500, "values": [0.5], "runs": [folded[2]]},
        {"title": "failed", "params": 10, "values": [], "runs": []},
    ]
    listed = list_contributions({"networks": tried, "maximise": True}, runs)
    assert [(each.title, each.runs) for each in listed] == [("large", 1), ("small", 2), ("worst", 3)]
    alone = 0.3 * math.log(2)  # 0.8 above 0.5, from 1,000 to twice as many parameters
    both = alone + 0.1 * math.log(10)
    assert [each.area for each in listed] == pytest.approx([alone, both, both])
    _, marks = plotly_contributions(listed)["data"]
    assert marks["x"] == [1, 2], "the worst network added nothing"
    assert marks["y"][-1] == 100
    best = FOUND["best"] | {"values": [0.6]}
    belief = [{"params": 100, "mean": 0.6, "low": 0.5, "high": 0.7}]
    answer = FOUND | {"networks": tried[:2], "maximise": True, "best": best, "belief": belief, "references": []}
    text = write_report([search], tmp_path, "Search", answers=[answer]).read_text(encoding="utf-8")
    assert text.index("What each network contributed") < text.index("Predicted against true")
    (band, *_) = plotly_front(answer_figure(answer))["data"]
    assert (min(band["x"]), max(band["x"])) == (100, 1000), "from the first expected size to the largest network"
    assert (min(band["y"]), max(band["y"])) == (0.5, 0.7)


def test_what_was_found_in_the_data_is_escaped(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<code>price</code>" in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_confusion_matrix_is_a_table(search: Path, tmp_path: Path) -> None:
    confusion = {"classes": [EVIL, "b"], "counts": [[5, 1], [0, 7]], "omitted": 3}
    found = FOUND | {"test": {"values": [0.9], "confusion": confusion}}
    text = write_report([search], tmp_path, "Classes", answers=[found]).read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<td style='--share: 0.833'>5</td><td style='--share: 0.167'>1</td>" in text
    assert "3 rarer classes are left out" in text
    assert '"fit":' not in text


def test_many_classes_with_long_names_are_numbered(search: Path, tmp_path: Path) -> None:
    classes = [f"class {number} with a name that does not fit into the head of a column" for number in range(20)]
    counts = [[int(row == column) for column in range(20)] for row in range(20)]
    test = {"values": [0.9], "confusion": {"classes": classes, "counts": counts, "omitted": 1}}
    text = write_report([search], tmp_path, "Classes", answers=[FOUND | {"test": test}]).read_text(encoding="utf-8")
    assert f"<th scope='col'><span title='{classes[1]}'>2</span></th>" in text
    assert "<span class='quiet'>2</span> <span title=" in text
    assert "<div class='wide'>" in text
    assert "1 rarer class is left out" in text


def test_a_fit_names_its_target_and_has_one_range(tmp_path: Path) -> None:
    source = FOLDED | {"targets": ["price", "rent", EVIL]}
    run = write_one(tmp_path / "runs", source | {"fold": 0}, 0, 0.5, {})
    found = FOUND | {"best": FOUND["best"] | {"run": run}}
    text = write_report([tmp_path / "runs"], tmp_path / "out", "Three", answers=[found]).read_text(encoding="utf-8")
    assert "2 of 442 test rows, price only (the first of 3 targets)" in text
    assert "Half of the predictions are within 0.75 of the true value." in text
    drawn = plotly_fit(found["test"]["points"], ["price"])["layout"]
    assert drawn["xaxis"]["title"]["text"] == "True price"
    assert drawn["xaxis"]["range"] == drawn["yaxis"]["range"] == pytest.approx([0.96, 2.04])


def test_names_that_look_like_formulas_or_are_long_are_drawn(tmp_path: Path) -> None:
    for name in ("cost $ and $\\frac{", "column " * 40):
        write_one(tmp_path / "runs", FOLDED | {"targets": [name], "fold": 0}, 0, 0.5, {})
    sections, _ = gather([tmp_path / "runs"])
    assert all(len(section.name) < 80 for section in sections)
    draw_curves(sections).savefig(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_text_marks_names_and_options_as_code() -> None:
    assert mark_code("`a<b`: say --target/--task") == (
        "<code>a&lt;b</code>: say <code class=option>--target</code>/<code class=option>--task</code>"
    )
    short = mark_code(f"`{'x' * 100}`")
    assert f'title="{"x" * 100}"' in short
    assert "x" * 50 not in short.replace("x" * 100, "")


def test_the_axis_of_curves_shows_the_best_value(tmp_path: Path) -> None:
    curve = Curve("", 0, tuple(range(20)), (0.5, 0.5, 0.9, *[0.6] * 17), (0, 0.5), (), shown=True)
    low, high = CurvesFigure("", False, (curve,), "accuracy", maximise=True).range
    assert low < 0.5
    assert high > 0.9


def test_the_text_of_a_curve_is_stored_once(search: Path) -> None:
    (section,), _ = gather([search])
    run = section.runs[0]
    text = json.dumps(plotly_curves(curve_figures(section)[1]))
    assert text.count(f"run {run.record.id}") == 1
    assert len(curve_figures(section, hidden=False)[0].curves) < len(curve_figures(section)[0].curves)


def test_a_long_table_scrolls_in_its_own_box(tmp_path: Path) -> None:
    for number in range(41):
        write_run(tmp_path / "runs", model_config("sw_mlp", (64 + number, 8, 1), 0), 1e-3, 0, epochs=1)
    text = write_report([tmp_path / "runs"], tmp_path / "out", "Long").read_text(encoding="utf-8")
    assert '<div class="scroll tall"><table class="sortable">' in text


def test_folds_are_one_candidate_and_penalties_can_be_told_apart(search: Path) -> None:
    (section,), _ = gather([search])
    assert section.name == "classification of price on houses.csv"
    assert [len(candidate.run_ids) for candidate in section.candidates] == [3, 3]
    shown = {column.title: [column.text(each) for each in section.candidates] for column in columns(section.candidates)}
    assert shown["weight_decay"] == ["0.1", "1"]
    assert "Folds" in shown


def test_refits_are_neither_failed_nor_candidates(search: Path, page: Path, tmp_path: Path) -> None:
    (section,), _ = gather([search], quality="loss")
    assert section.failed_runs == []
    assert len(section.refits) == 2
    text = page.read_text(encoding="utf-8")
    assert "8 runs · 2 candidates · 2 refits" in text
    assert "failed run" not in text
    assert "<h3>2 refits</h3>" in text
    alone = write_report([run.folder for run in section.refits], tmp_path, "Refits").read_text(encoding="utf-8")
    assert "These runs had no validation rows, so nothing was selected. Accuracy on test data: 0.75" in alone


def test_references_are_labelled_lines_in_the_front_of_the_objective(search: Path) -> None:
    from dataclasses import replace

    (section,), _ = gather([search])
    section = replace(section, references={"ridge regression": 0.77, "the mean": -9.0})
    figure = front_figure(section)
    assert [series.points[0].y for series in figure.series if series.refit] == [0.75]
    drawn = plotly_front(figure)
    assert [line["y0"] for line in drawn["layout"]["shapes"]] == [0.77]
    assert [label["text"] for label in drawn["layout"]["annotations"]] == ["ridge regression 0.77", "mean −9 ↓"]
    low, high = drawn["layout"]["yaxis"]["range"]
    assert 0.5 < low < 0.75, "a reference that is far away does not stretch the axis"
    assert high <= 1
    assert front_figure(section, "params", "loss").lines == ()


def test_the_name_of_a_section_has_the_file_and_the_target_and_settings_are_no_defaults(tmp_path: Path) -> None:
    for path, target in (("/a/houses.csv", "price"), ("/a/houses.csv", "rent"), ("/b/flats.csv", "price")):
        write_one(tmp_path / "runs", FOLDED | {"path": path, "targets": [target], "split_seed": 0}, 0, 0.5, {})
    sections, _ = gather([tmp_path / "runs"])
    assert [section.name for section in sections] == [
        "classification of price on flats.csv",
        "classification of price on houses.csv",
        "classification of rent on houses.csv",
    ]
    assert "split_seed" not in sections[0].settings, "0 is its default"
    assert sections[0].settings["folds"] == 5
    text = write_report([tmp_path / "runs"], tmp_path / "out", "Three").read_text(encoding="utf-8")
    header = re.findall(r'<p class="quiet settings">(.*?)</p>', text)
    assert header == ["folds&nbsp;5"] * 3


@pytest.mark.parametrize(
    ("values", "needed", "metric", "low", "high"),
    [
        ([0.9, 0.99, 1.0], [], "accuracy", 0.85, 1.0),
        ([0.5], [], "r2", 0.4, 0.6),
        ([0.5, 0.51, 0.52, 0.5, 0.51, 0.52, 0.5, -40.0], [], "r2", 0.3, 0.6),
        ([0.5, 0.51, 0.52, 0.5, 0.51, 0.52, 0.5, -40.0], [-40.0], "r2", -45.0, 1.0),
        ([20.0, 22.0], [], "psnr", 19.5, 22.5),
    ],
)
def test_an_axis_fits_its_metric(values: Any, needed: Any, metric: str, low: float, high: float) -> None:
    start, stop = fit_axis(values, needed, metric)
    assert low <= start <= min([*needed, sorted(values)[len(values) // 4]])
    assert max(values) <= stop <= high


def test_one_point_gets_less_than_a_decade_and_error_bars_end_at_one(tmp_path: Path) -> None:
    for seed, quality in enumerate((0.98, 1.0)):
        write_run(tmp_path, model_config("sw_mlp", HOURGLASS[0], seed), 1e-3, seed, objective="accuracy", test=quality)
    (section,), _ = gather([tmp_path])
    figure = front_figure(section)
    drawn = plotly_front(figure)
    start, stop = drawn["layout"]["xaxis"]["range"]
    assert stop - start < 1
    (trace,) = drawn["data"]
    assert trace["y"][0] + trace["error_y"]["array"][0] <= 1
    assert drawn["layout"]["yaxis"]["range"][1] == 1
    assert curve_figures(section)[0].range[1] <= 1
    assert answer(section)


@pytest.mark.parametrize(("shape", "parts"), [((64, 16, 2), 7), ((16, 64, 1), 6), ((2, 1, 0), 5), ((64, 8, 40), 17)])
def test_a_network_is_drawn_to_scale(shape: tuple[int, int, int], parts: int) -> None:
    model = {"d_in": 32, "d_out": 1} | dict(zip(("d_z", "d_h", "depth"), shape, strict=True))
    drawing = draw_network(model)
    assert drawing.count("<polygon") == parts, "ends and their projections, the stream, and a part per block"
    heights = [
        max(y) - min(y)
        for points in re.findall(r'points="([^"]*)"', drawing)
        if (y := [float(corner.partition(",")[2]) for corner in points.split()])
    ]
    widest = max(shape[0], shape[1] if shape[2] else 0, 32)
    assert max(heights) == pytest.approx(140, abs=0.2)
    assert heights[1] == pytest.approx(140 * 32 / widest, abs=0.2), "the input"
    assert ("linear" in drawing) == (shape[2] == 0)
    assert ("12 drawn" in drawing) == (shape[2] == 40)


def test_other_models_have_no_drawing() -> None:
    assert draw_network({"name": "mlp_mixer", "C": 8}) == ""
    assert draw_network({"d_z": EVIL, "d_h": 1, "depth": 1}) == ""
    assert "input" not in draw_network({"d_z": 8, "d_h": 1, "depth": 1}).partition("aria-label")[0]


TRY_OUT = """
seen.lines = document.querySelectorAll(".plot.front .shapelayer path").length;
seen.fit = document.querySelectorAll(".plot.fit path.point").length;
const table = document.querySelector("table.sortable").parentElement;
document.querySelector(".more.columns").click();
seen.cut = table.scrollWidth - table.clientWidth;
seen.wide = document.documentElement.scrollWidth - innerWidth;
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 500])
def test_the_browser_draws_references_and_predictions(page: Path, width: int) -> None:
    seen = browse(page, TRY_OUT, f"--window-size={width},1600")
    assert seen["errors"] == []
    assert seen["refused"] == []
    assert (seen["lines"], seen["fit"]) == (1, 2)
    assert seen["wide"] <= 0
    assert width < 1400 or seen["cut"] <= 0, "all columns fit"
