"""Areas, gaps, savings and published fronts in the report, and in words."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.errors import UserError
from isthmus.papers import load_paper
from isthmus.reports import write_report
from isthmus.reports.figures import GapFigure, front_figure, gap_figure
from isthmus.reports.measures import measure
from isthmus.reports.plots import plotly_front, plotly_gap
from isthmus.reports.sections import Section, gather
from isthmus.reports.text import answer, difference_text, summary
from isthmus.studies.fronts import noise_of
from isthmus.studies.statistics import Interval
from isthmus.studies.volumes import gap, hypervolume, reference_point
from tests.browser import browse
from tests.unit.fabricated_runs import CONVENTIONAL, HOURGLASS, model_config, write_run, write_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("runs"), epochs=3)


def only(root: Path, **options: Any) -> Section:
    (section,), _ = gather([root], **options)
    return section


def gap_of(section: Section, cost: str = "params") -> GapFigure | None:
    measures = measure(section, cost)
    return gap_figure(measures) if measures else None


def words(section: Section, cost: str = "params") -> list[str]:
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in summary(section, cost)]


def write_shapes(root: Path, runs: Mapping[str, Mapping[int, Sequence[float]]], **options: Any) -> Section:
    """Runs of networks by architecture and place among the shapes, with a test quality per seed."""
    for name, shapes in runs.items():
        for place, values in shapes.items():
            for seed, value in enumerate(values):
                quality = {"test": value, "validation": value}
                write_run(root, model_config(name, HOURGLASS[place], seed), 1e-3, seed, epochs=1, **quality, **options)
    return only(root)


def test_the_summary_states_area_gap_and_saving(study: Path):
    areas, difference, saving = words(only(study))
    assert "8.61 M parameters and 19.825 dB" in areas, "the corner that areas are measured from"
    assert "by 0.127 dB on average (95 % interval 0.095 to 0.159, paired over 3 seeds)" in difference
    assert "29 % of the parameters" in saving
    assert "4.34 M instead of 6.15 M for 22.098 dB" in saving


def test_what_the_noise_can_explain_gets_no_sentence(tmp_path: Path):
    close = {"hourglass_mlp": {1: (20.0, 20.1)}, "conventional_mlp": {1: (20.1, 20.4)}}
    assert len(words(write_shapes(tmp_path / "close", close))) == 1, "the areas alone"
    single = {"hourglass_mlp": {1: (20.0,), 2: (20.6,)}, "conventional_mlp": {2: (20.5,)}}
    assert len(words(write_shapes(tmp_path / "single", single))) == 1
    tied = {"hourglass_mlp": {1: (20.0, 20.1), 2: (21.0, 21.1)}, "conventional_mlp": {1: (20.0, 20.1)}}
    assert not any("saves" in sentence for sentence in words(write_shapes(tmp_path / "tied", tied)))
    lone = write_shapes(tmp_path / "lone", {"hourglass_mlp": {1: (20.0, 20.3)}})
    assert words(lone) == []  # one candidate is its own reference
    (area,) = words(write_shapes(tmp_path / "one", {"hourglass_mlp": {1: (20.0,), 2: (21.0,), 3: (19.0,)}}))
    assert area.endswith("): the Hourglass 1.04 (1.04 on test data).")


def test_a_quality_without_a_unit_is_named(tmp_path: Path):
    runs = {"hourglass_mlp": {1: (0.91, 0.92), 2: (0.95, 0.95)}, "conventional_mlp": {1: (0.8, 0.8), 2: (0.9, 0.91)}}
    areas, difference = words(write_shapes(tmp_path, runs, objective="accuracy"))
    for fact in ("ln(parameters) × accuracy", "1.83 M parameters and accuracy 0.8"):
        assert fact in areas
    assert "0.115 in accuracy" in difference


def test_the_measures_are_those_of_the_fronts_module(study: Path):
    section = only(study)
    for cost in section.costs:
        measures = measure(section, cost)
        assert measures
        assert measures.reference == reference_point(section.candidates, cost)
        for area in measures.areas:
            items = section.candidates_of(area.architecture)
            assert area.validation == hypervolume(items, measures.reference, cost)
            assert area.test == hypervolume(items, measures.reference, cost, "test")
        noise = noise_of(section.candidates)
        expected = gap(section.candidates_of("hourglass_mlp"), section.candidates_of("conventional_mlp"), cost, noise)
        assert measures.gaps == (expected,)
        figure = gap_of(section, cost)
        assert figure
        assert figure.y_title == "Difference in PSNR (dB)"
        (series,) = figure.series
        assert (series.title, series.above, series.below) == ("Hourglass − Conventional", "Hourglass", "Conventional")
        assert [(point.x, point.y, point.interval) for point in series.points] == [
            (point.cost, point.difference.difference, point.difference.bounds) for point in expected.points
        ]


def test_the_band_is_drawn_step_by_step_and_only_where_there_is_an_interval(tmp_path: Path):
    runs = {"hourglass_mlp": {0: (20.0, 20.1), 2: (22.0, 22.2)}, "conventional_mlp": {1: (19.0, 19.4), 3: (20.0, 20.1)}}
    figure = gap_of(write_shapes(tmp_path / "two", runs))
    assert figure
    (series,) = figure.series
    band, line = plotly_gap(figure)["data"]
    low, high = series.points[0].interval or (0, 0)
    assert band["y"] == [high, high, low, low, high, None]
    assert band["x"][:2] == [point.x for point in series.points]
    assert line["y"] == [point.y for point in series.points]
    assert line["error_y"]["array"][0] == 0 < line["error_y"]["array"][1]
    single = {name: {place: values[:1] for place, values in shapes.items()} for name, shapes in runs.items()}
    figure = gap_of(write_shapes(tmp_path / "one", single))
    assert figure
    (line,) = plotly_gap(figure)["data"]
    assert line["error_y"]["array"] == [0, 0]


def test_a_gap_is_drawn_where_two_shapes_overlap_and_an_old_picture_goes(tmp_path: Path):
    apart = {"hourglass_mlp": {0: (20.0,), 1: (20.5,)}, "conventional_mlp": {2: (20.0,), 3: (21.0,)}}
    section = write_shapes(tmp_path / "apart", apart)
    assert gap_of(section) is None
    assert len(summary(section)) == 1
    out = tmp_path / "out"
    out.mkdir()
    (out / "gap.png").write_bytes(b"old")
    text = write_report([tmp_path / "apart"], out, "Apart").read_text(encoding="utf-8")
    assert not (out / "gap.png").exists()
    assert '"gaps":{}' in text
    assert "<div hidden>\n<h3>Gap at equal cost</h3>" in text


def test_three_shapes_are_compared_pair_by_pair(tmp_path: Path):
    values = {1: (20.0, 20.1), 3: (21.0, 21.2)}
    section = write_shapes(tmp_path / "runs", dict.fromkeys(("hourglass_mlp", "conventional_mlp", "sw_mlp"), values))
    figure = gap_of(section)
    assert figure
    assert [series.title for series in figure.series] == [
        "Hourglass − Conventional",
        "Hourglass − sw_mlp",
        "Conventional − sw_mlp",
    ]
    assert len(summary(section)) == 1, "equal shapes differ in nothing"
    assert write_report([tmp_path / "runs"], tmp_path / "out", "Three").is_file()


def test_latency_is_a_cost_where_every_candidate_has_it(study: Path, tmp_path: Path):
    runs = [run.record for run in only(study).runs]
    latencies = {record.id: record.cost["params"] / 1e6 for record in runs}
    section = only(study, costs={"latency": latencies})
    assert section.costs[-1] == "latency"
    verdict = answer(section, "latency")[0]
    assert verdict.startswith("By latency in ms, the Hourglass leads at 1.27–1.45, ")
    assert words(section, "latency")[1].startswith("At equal latency, 1.27–7.65 ms, the Hourglass is better")
    figure = front_figure(section, "latency")
    assert figure.x_title == "Latency (ms per batch)"
    assert plotly_front(figure)["layout"]["xaxis"]["tickformat"] == "~g"
    assert plotly_front(front_figure(section))["layout"]["xaxis"]["tickformat"] == "~s"
    page = write_report([study], tmp_path / "timed", "Timed", costs={"latency": latencies})
    text = page.read_text(encoding="utf-8")
    assert '<option value="latency">' in text
    assert ">Latency (ms)</button>" in text
    with (page.parent / "candidates.csv").open(encoding="utf-8") as lines:
        assert all(
            float(row["latency_ms"]) * 1e6 == pytest.approx(float(row["params"])) for row in csv.DictReader(lines)
        )
    some = {record.id: 1.0 for record in runs if record.config["model"]["name"] == "hourglass_mlp"}
    assert only(study, costs={"latency": some}).costs == ("params", "trainable_params", "macs")
    text = write_report([study], tmp_path / "some", "Some", costs={"latency": some}).read_text(encoding="utf-8")
    assert '<option value="latency">' not in text


@pytest.mark.parametrize(
    ("source", "task", "names"),
    [
        ("imagenet224", "denoise", ["hourglass/T6"]),
        ("imagenet224", "super_resolution", ["hourglass/T7"]),
        ("imagenet32", "denoise", ["hourglass/T8"]),
        ("imagenet32", "super_resolution", ["hourglass/T9"]),
        ("imagenet32", "classification", []),
        ("mnist5k", "denoise", []),
    ],
)
def test_the_papers_own_data_get_their_published_front_unasked(
    tmp_path: Path, source: str, task: str, names: list[str]
):
    write_run(tmp_path, model_config("hourglass_mlp", HOURGLASS[0], 0), 1e-3, 0, source=source, task={"name": task})
    assert [item.name for item in only(tmp_path).published] == names


def test_a_published_front_is_drawn_dashed_in_its_shape_with_every_row(tmp_path: Path):
    write_run(tmp_path / "runs", model_config("conventional_mlp", CONVENTIONAL[0], 0), 1e-3, 0, source="imagenet32")
    section = only(tmp_path / "runs")
    figure = front_figure(section)
    titles = [series.title for series in figure.series]
    assert titles == [
        "Conventional",
        "Conventional, published (Table 8, ImageNet-32)",
        "Hourglass, published (Table 8, ImageNet-32)",
    ]
    assert [series.place for series in figure.series] == [0, 0, 1]
    published = [point for series in figure.series[1:] for point in series.points]
    rows = load_paper("hourglass").tables["T8"].rows
    assert sorted((point.x, point.y) for point in published) == sorted(
        (1e6 * row["params_M"], row["psnr_dB"]) for row in rows.values()
    )
    details = [point.details for point in published if "row T8.12" in point.details]
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in details[0]] == [
        "PSNR 21.960 ± 0.003 dB",
        "d_z 3075, d_h 765, L 2",
        "28.3 M parameters",
        "row T8.12",
    ]
    traces = [trace for trace in plotly_front(figure)["data"] if "published" in trace["name"]]
    assert {trace["line"]["dash"] for trace in traces} == {"4px,3px"}
    assert [(trace["marker"]["symbol"], trace["line"]["color"]) for trace in traces] == [
        ("circle-open", "@shape-0"),
        ("square-open", "@shape-1"),
    ]
    # The table knows no other cost and no other quality.
    for other in (front_figure(section, "macs"), front_figure(section, "params", "ssim")):
        assert [series.title for series in other.series] == ["Conventional"]
    text = write_report([tmp_path / "runs"], tmp_path / "out", "Published").read_text(encoding="utf-8")
    assert "as printed in “Hourglass MLP: Rethinking the Shape of Residual Architectures”" in text
    assert "compare shapes of curves" not in text


def test_a_published_front_over_other_data_says_so_and_keeps_to_its_task(tmp_path: Path):
    model = model_config("hourglass_mlp", HOURGLASS[0], 0)
    write_run(tmp_path / "runs", model, 1e-3, 0, source="cifar10")
    write_run(tmp_path / "runs", model, 1e-3, 0, source="cifar10", task={"name": "super_resolution"})
    names = ["hourglass/T8", "hourglass/T6", "hourglass/T9"]
    sections, _ = gather([tmp_path / "runs"], names)
    assert {section.task: [item.name for item in section.published] for section in sections} == {
        "denoise": ["hourglass/T8", "hourglass/T6"],
        "super_resolution": ["hourglass/T9"],
    }
    assert front_figure(sections[1]).series[1].title == "Hourglass, published (Table 9, ImageNet-32: other data)"
    text = write_report([tmp_path / "runs"], tmp_path / "out", "Other", published=names).read_text(encoding="utf-8")
    assert text.count("other data (cifar10)") == 3
    assert "not drawn" not in text
    denoise = [run.folder for section in sections if section.task == "denoise" for run in section.runs]
    text = write_report(denoise, tmp_path / "out", "Other", published=names).read_text(encoding="utf-8")
    assert "hourglass/T9 not drawn: no section has its task" in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hourglas/T8", "there is no paper 'hourglas'; did you mean 'hourglass'?"),
        ("hourglass/T3", "choose from: hourglass/T6, hourglass/T7, hourglass/T8"),
        ("hourglass", "choose from: hourglass/T6"),
        ("T8", "there is no paper 'T8'"),
    ],
)
def test_a_wrong_name_of_a_published_front_is_one_clear_line(study: Path, tmp_path: Path, name: str, message: str):
    with pytest.raises(UserError, match=re.escape(message)):
        write_report([study], tmp_path / "out", "Wrong", published=[name])
    assert not (tmp_path / "out").exists()


TRY_OUT = """
const shown = () => [...document.querySelectorAll(".measures")].filter((block) => !block.hidden);
const look = () => shown().map((block) => ({
  cost: block.dataset.cost,
  points: block.querySelectorAll(".gap path.point").length,
  fills: block.querySelectorAll(".gap path.js-fill").length,
  tables: block.querySelectorAll("table.small").length,
}));
seen.first = look();
seen.names = document.querySelector(".plot.front").data.map((trace) => trace.name);
const cost = document.querySelector(".cost");
cost.value = "macs";
cost.dispatchEvent(new Event("change"));
seen.second = look();
seen.wide = document.documentElement.scrollWidth - innerWidth;
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1000, 500])
def test_the_browser_draws_the_gap_of_the_chosen_cost(study: Path, tmp_path: Path, width: int):
    page = write_report([study], tmp_path, "Gap", published=["hourglass/T8"])
    seen = browse(page, TRY_OUT, f"--window-size={width},1600")
    assert seen["errors"] == []
    figure = gap_of(only(study))
    assert figure
    drawn = {"points": len(figure.costs), "fills": 1, "tables": 2}
    assert seen["first"] == [{"cost": "params", **drawn}]
    assert seen["second"] == [{"cost": "macs", **drawn}]
    assert "Hourglass, published<br>(Table 8, ImageNet-32: other data)" in seen["names"]
    assert seen["wide"] <= 0


def test_figures_of_a_page_are_strict_json(study: Path, tmp_path: Path):
    text = write_report([study], tmp_path, "JSON").read_text(encoding="utf-8")
    (figures,) = re.findall(r'class="figures">(.*?)</script>', text)
    content = json.loads(figures, parse_constant=pytest.fail)
    assert set(content["gaps"]) == {"params", "trainable_params", "macs"}


@pytest.mark.parametrize(
    ("value", "margin", "words"),
    [(0.1234, 0.012, "0.123"), (-1.5e-12, 3e-13, "−1.5e-12"), (2.5e14, 3e12, "2.5e+14"), (4e-31, None, "4e-31")],
)
def test_a_difference_is_readable_in_small_and_large_units(value: float, margin: float | None, words: str) -> None:
    low, high = (None, None) if margin is None else (value - margin, value + margin)
    assert difference_text(Interval(value, low, high, 4, "paired"), "mse").startswith(f"{words} in MSE")
