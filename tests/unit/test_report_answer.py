"""The page of a search: its answer first, references in the front, refits apart from failures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from isthmus.reports import write_report
from isthmus.reports.drawing import draw_network
from isthmus.reports.figures import curve_figures, fit_axis, front_figure
from isthmus.reports.plots import plotly_front
from isthmus.reports.sections import gather
from isthmus.reports.tables import columns
from isthmus.reports.text import answer
from tests.browser import browse
from tests.unit.fabricated_runs import HOURGLASS, model_config, write_run

EVIL = '</script><script>alert("x")</script>'
RUN = "4c3b948c21e831ec"
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
    "references": [{"title": "ridge regression", "test": 0.77}, {"title": "the mean", "test": -9.0}],
}
FOLDED = {"name": "table", "path": "/data/houses.csv", "targets": ["price"], "folds": 5}


def write_search(root: Path) -> Path:
    """A network over folds with two penalties, and its refits."""
    for penalty in (0.1, 1.0):
        for fold in range(3):
            source, quality = FOLDED | {"fold": fold}, 0.7 + 0.02 * fold + 0.1 * penalty
            write_one(root, source, fold, quality, {"weight_decay": penalty})
    whole = {name: value for name, value in FOLDED.items() if name != "folds"} | {"validation": 0}
    for seed in range(2):
        write_one(root, whole, seed, 0.75, {"weight_decay": 1.0, "select": "last"}, refit=True)
    return root


def write_one(root: Path, source: Any, seed: int, quality: float, train: Any, refit: bool = False) -> None:
    model = model_config("hourglass_mlp", (64, 16, 2), seed)
    options = {"settings": source, "train": train, "refit": refit, "task": {"name": "classification"}}
    write_run(root, model, 1e-2, seed, objective="accuracy", test=quality, epochs=2, **options)


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_search(tmp_path_factory.mktemp("search"))


@pytest.fixture(scope="module")
def page(search: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([search], tmp_path_factory.mktemp("page"), "Search", answer=FOUND)


def test_the_page_begins_with_the_answer(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    box = text[text.index('<section class="box"') : text.index("</section>")]
    assert text.index('<section class="box"') < text.index('<section id="section-1"')
    facts = ["Ridge regression is better", "Test accuracy", "<b>0.55</b>", "95 % interval 0.4 to 0.7", "442 test rows",
             "2 seeds", "<b>832</b>", "0.12 ms", "3,180 training, 795 validation, 442 test"]  # fmt: skip
    assert [fact for fact in facts if fact not in box] == []
    assert box.index(FOUND["sentences"][0]) < box.index(FOUND["sentences"][1])
    assert box.count('class="copy"') == 4, "three commands and the run"
    assert f'data-copy="isthmus predict {RUN} NEW.csv"' in box
    assert "<svg" in box


def test_what_was_found_in_the_data_is_escaped(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<code>price</code>" in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_confusion_matrix_is_a_table(search: Path, tmp_path: Path) -> None:
    confusion = {"classes": [EVIL, "b"], "counts": [[5, 1], [0, 7]], "omitted": 3}
    found = FOUND | {"test": {"values": [0.9], "confusion": confusion}}
    text = write_report([search], tmp_path, "Classes", answer=found).read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<td style='--share: 0.833'>5</td><td style='--share: 0.167'>1</td>" in text
    assert "3 rarer classes are left out" in text
    assert '"fit":' not in text


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
