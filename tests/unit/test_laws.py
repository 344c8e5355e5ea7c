"""Shape laws: known laws are found again, intervals hold what they promise, and stored studies can be read."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from isthmus.core.errors import UserError
from isthmus.reports.laws import check_summary, draw_laws, plain, sentences
from isthmus.reports.sections import Section
from isthmus.reports.tables import candidates_csv
from isthmus.studies.fronts import Candidate
from isthmus.studies.laws import FamilyLaw, Scaling, fit_laws, group_budgets
from isthmus.studies.recorded import read_recorded
from isthmus.training.prepare import Options
from tests.command_line import TINY, call
from tests.unit.candidates import make_candidate

RESULTS = Path(__file__).parents[2] / "results"
COSTS = [10_000, 20_000, 40_000, 80_000, 160_000, 320_000]
MODEL = {"name": "hourglass_mlp", "d_in": 64, "d_out": 64, "d_z": 100, "d_h": 10, "depth": 2}


def saturating(cost: float) -> float:
    return 20.0 - 5.0 * (cost / 10_000) ** -0.7


def make(
    quality: Callable[[float], float], costs: list[int] = COSTS, family: str = "hourglass_mlp", noise: float = 0.0,
    seed: int = 0, **shape: Callable[[float], float],
) -> list[Candidate]:  # fmt: skip
    random, made = np.random.default_rng(seed), []
    for cost in costs:
        candidate = make_candidate(cost, quality(cost), family, f"{family} {cost}")
        fields = {name: max(1, round(law(cost))) for name, law in shape.items()}
        seeds = tuple(float(quality(cost) + noise * each) for each in random.standard_normal(2))
        model = MODEL | {"name": family} | fields
        made.append(replace(candidate, settings={"model": model}, metrics={"psnr": seeds}, validation=sum(seeds) / 2))
    return made


def only(candidates: list[Candidate], **settings: Any) -> Scaling:
    (law,) = fit_laws(candidates, **settings)
    return law


def family(candidates: list[Candidate], **settings: Any) -> FamilyLaw:
    (law,) = only(candidates, **settings).families
    return law


def test_a_power_law_with_an_offset_is_found_again() -> None:
    law = family(make(saturating, noise=0.01), to=3_200_000)
    assert law.exponent.holds(0.7)
    assert law.limit.holds(20.0)
    assert law.quality.holds(saturating(3_200_000))
    assert abs(law.quality.value - saturating(3_200_000)) < 0.3
    assert all(check.is_inside for check in law.checks)


def test_a_logarithmic_law_has_no_limit() -> None:
    law = family(make(lambda cost: 2 * math.log(cost)), to=3_200_000)
    assert law.exponent.low == 0
    assert law.limit.high == math.inf
    assert plain(only(make(lambda cost: 2 * math.log(cost))))["families"][0]["limit"]["high"] is None


def test_the_slopes_are_the_exponents_of_the_widths() -> None:
    law = family(make(saturating, d_z=lambda cost: cost**0.5, d_h=lambda cost: cost**0.25, depth=lambda _: 2))
    assert abs(law.slopes["d_z"].value - 0.5) < 0.02
    assert abs(law.slopes["d_h"].value - 0.25) < 0.03
    assert abs(law.slopes["d_h/d_z"].value + 0.25) < 0.05
    assert law.slopes["depth"] == pytest.approx((0, 0, 0), abs=1e-6)
    assert law.edges == ("d_z", "d_h")
    assert not law.is_searched


def test_a_predicted_network_fits_the_budget() -> None:
    from isthmus.training.counting import cost

    law = family(make(saturating, d_z=lambda cost: cost**0.5), to=2_000_000)
    assert law.network is not None
    assert law.network.followed == 1
    count = cost(cast("Any", MODEL | law.network.fields)).params
    assert 0.98 * 2_000_000 < count <= 2_000_000


def test_a_prediction_stays_within_the_family() -> None:
    """An Hourglass whose hidden layers outgrow the stream would be no Hourglass."""
    law = family(make(saturating, d_z=lambda _: 100, d_h=lambda cost: cost / 4000), to=5_000_000)
    assert law.shape["d_h"].value > law.shape["d_z"].value
    assert law.network is not None
    assert law.network.fields["d_h"] < law.network.fields["d_z"]
    assert law.network.followed < 1


def test_the_left_out_budgets_do_not_reach_the_law_that_predicts_them() -> None:
    usual = make(saturating)
    better = [*usual[:-2], *(replace(each, metrics={"psnr": (29.0, 31.0)}) for each in usual[-2:])]
    first, second = family(usual), family(better)
    assert [check.predicted for check in first.checks] == [check.predicted for check in second.checks]
    assert [check.measured for check in second.checks] == [30.0, 30.0]
    assert not any(check.is_inside for check in second.checks)
    assert first.quality != second.quality


def test_intervals_hold_the_left_out_quality_of_random_laws() -> None:
    random, inside, cases = np.random.default_rng(1), 0, 0
    for number in range(30):
        exponent, gain, noise = random.uniform(0.1, 2), random.uniform(1, 5), random.uniform(0.01, 0.1)

        def quality(cost: float, exponent: float = exponent, gain: float = gain) -> float:
            return 20 - gain * (cost / 1e4) ** -exponent

        law = family(make(quality, COSTS[:5], noise=noise, seed=number))
        inside += sum(check.is_inside for check in law.checks)
        cases += len(law.checks)
    assert inside / cases >= 0.85, (inside, cases)


def test_a_loss_is_the_mirror_image_of_a_quality() -> None:
    up = make(lambda cost: -1 - (cost / 1e4) ** -0.7)
    down = [
        replace(each, maximise=False, validation=-each.validation, metrics={"psnr": tuple(-x for x in each.test)})
        for each in up
    ]
    first, second = family(up), family(down)
    assert second.quality.value == pytest.approx(-first.quality.value, rel=2e-3)
    assert second.quality.low == pytest.approx(-first.quality.high, rel=2e-3)


def test_where_two_families_cross() -> None:
    """20 − 4·b^−0.5 and 19 − 1·b^−0.5 with b = B / 10,000 are equal at b = 9."""
    slow = make(lambda cost: 20 - 4 * (cost / 1e4) ** -0.5, family="hourglass_mlp", noise=0.005)
    early = make(lambda cost: 19 - (cost / 1e4) ** -0.5, family="conventional_mlp", noise=0.005, seed=1)
    early = [replace(each, settings={"model": {**each.settings["model"], "d_h": 200}}) for each in early]
    law = only([*slow, *early], to=1_000_000)
    (crossing,) = law.crossings
    assert (crossing.before, crossing.after) == ("conventional_mlp", "hourglass_mlp")
    assert crossing.budget is not None
    assert crossing.budget.holds(90_000)
    assert crossing.chance > 0.9
    assert crossing.leads["hourglass_mlp"] > 0.9
    assert "the lead passes from Conventional to Hourglass" in " ".join(sentences(law))


def test_one_family_has_no_crossing_and_is_told_so() -> None:
    law = only(make(saturating))
    assert law.crossings == ()
    assert any("One family" in line for line in sentences(law))


def test_candidates_of_one_budget_are_resampled() -> None:
    """Where the second best is far worse, the interval is wider than where it is as good."""

    def with_second(step: float) -> float:
        first = make(saturating, d_z=lambda cost: cost**0.5)
        second = [
            replace(
                each, params=each.params + 1, run_ids=(f"second {each.params}",), validation=each.validation - step,
                metrics={"psnr": tuple(value - step for value in each.test)},
                settings={"model": {**each.settings["model"], "d_h": 20}},
            )
            for each in first
        ]  # fmt: skip
        law = family([*first, *second])
        assert law.is_searched
        assert [point.shapes for point in law.points] == [2] * len(COSTS)
        return law.quality.high - law.quality.low

    assert with_second(2.0) > 1.5 * with_second(0.001)


def test_budgets_are_costs_or_ranges_of_equal_ratio() -> None:
    near = [make_candidate(cost, 1.0, identity=str(cost)) for cost in (100, 101, 102, 110, 200, 400)]
    assert [budget.cost for budget in group_budgets(near)] == [102, 110, 200, 400]
    many = [make_candidate(round(100 * 1.1**step), 1.0, identity=str(step)) for step in range(60)]
    found = group_budgets(many)
    assert len(found) == 8
    assert sum(len(budget.candidates) for budget in found) == 60


def test_the_picture_shows_data_law_band_and_the_left_out() -> None:
    law = only(make(saturating, d_z=lambda cost: cost**0.5), to=1_000_000)
    quality, *shapes = draw_laws([law]).axes
    lines = [(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in quality.lines]
    assert (COSTS[-2:], [saturating(cost) for cost in COSTS[-2:]]) in lines
    assert (COSTS[:-2], [saturating(cost) for cost in COSTS[:-2]]) in lines
    assert any(x and x[-1] == pytest.approx(1_000_000) for x, _ in lines)
    assert len(quality.collections) == 1
    labels = {str(line.get_label()) for line in quality.lines}
    assert {"Hourglass", "law without the left-out budgets"} <= labels
    assert {axis.get_title(loc="left") for axis in shapes} == {"d_z", "d_h", "depth", "d_h/d_z"}


def test_the_picture_gives_each_field_s_slope_with_its_interval() -> None:
    """In a panel for the field: one axis for streams, depths and ratios showed none of them well."""
    law = only(make(saturating, d_z=lambda cost: cost**0.5), to=1_000_000)
    slope = law.families[0].slopes["d_z"]
    (panel,) = [axis for axis in draw_laws([law]).axes if axis.get_title(loc="left") == "d_z"]
    (label,) = [str(line.get_label()) for line in panel.lines if "slope" in str(line.get_label())]
    said = f"{slope.value:.2f}" + ("" if slope.low == slope.high else f" ({slope.low:.2f} to {slope.high:.2f})")
    assert label == f"slope {said}"
    assert law.families[0].is_searched is False  # one shape at each budget
    assert any("with a choice of shapes" in str(line.get_label()) for line in draw_laws([law]).axes[0].lines)


def test_a_report_s_table_can_be_read_back(tmp_path: Path) -> None:
    made = make(saturating, noise=0.1, d_z=lambda cost: cost**0.5)
    section = cast("Section", SimpleNamespace(candidates=made, front_ids={made[0].run_ids}))
    (tmp_path / "candidates.csv").write_text(candidates_csv([section]))
    read = read_recorded(tmp_path, Options())
    assert [each.test for each in read.candidates] == [each.test for each in made]
    assert [each.settings["model"] for each in read.candidates] == [each.settings["model"] for each in made]
    assert fit_laws(read.candidates) == fit_laws(made)


@pytest.mark.parametrize(
    ("study", "networks", "split"),
    [
        ("demo", 8, "test"),
        ("reproductions/hourglass-F7-cpu", 20, "test"),
        ("bench/digits-shapes.json", 240, "validation"),
        ("bench/mnist5k-families.json", 288, "validation"),
    ],
)
def test_recorded_studies_are_read_when_their_records_are_gone(study: str, networks: int, split: str) -> None:
    found = read_recorded(RESULTS / study, Options())
    assert (len(found.candidates), found.split) == (networks, split)


def test_recorded_studies_are_predicted() -> None:
    laws = [
        law
        for study in ("demo", "reproductions/hourglass-F7-cpu", "reproductions/hourglass-F8-cpu")
        for law in fit_laws(read_recorded(RESULTS / study, Options()).candidates)
    ]
    summary = check_summary(laws)
    assert summary["cases"] == 20
    assert summary["inside"] >= 16
    assert summary["median_error"] < summary["median_error_without_a_law"]


def test_the_command_writes_numbers_tables_and_pictures(tmp_path: Path) -> None:
    folder = tmp_path / "laws"
    answer = call("scale", RESULTS / "demo", "--to", "100M", "--out", folder, "--json")
    (law,) = answer.json()
    assert (law["study"], law["to"], len(law["families"])) == ("demo", 100_000_000, 2)
    assert {path.name for path in folder.iterdir()} == {"laws.json", "laws.md", "demo.png"}
    stored = json.loads((folder / "laws.json").read_text())
    assert stored["laws"] == [law]
    assert stored["check"]["cases"] == 4
    assert "| Hourglass | depth | 3 to 4 |" in (folder / "laws.md").read_text()
    shown = call("scale", RESULTS / "demo", "--cross", "hourglass_mlp,conventional_mlp")
    assert "in 4 of 4 cases" in " ".join(shown.out.split())


def test_a_finished_study_is_read_from_its_records(tmp_path: Path) -> None:
    sizes = [{"d_z": 70, "d_h": 4, "depth": 1}, {"d_z": 90, "d_h": 8, "depth": 1}]
    sizes += [{"d_z": 120, "d_h": 16, "depth": 1}, {"d_z": 150, "d_h": 24, "depth": 2}]
    base = {name: TINY[name] for name in ("source", "task", "train", "threads")}
    study = {"name": "sizes", "base": base, "candidates": [{"name": "hourglass_mlp", **size} for size in sizes]}
    (tmp_path / "sizes.json").write_text(json.dumps(study))
    answer = call("scale", tmp_path / "sizes.json")
    assert answer.code == 2
    assert "the study 'sizes' is not finished: 0 of 4 candidates have ended; `isthmus study" in answer.err
    assert call("study", tmp_path / "sizes.json", "--workers", 1, "--json").code == 0
    (law,) = call("scale", tmp_path / "sizes.json", "--json").json()
    assert law["families"][0]["points"][0]["shape"]["d_z"] == 70
    answer = call("scale", tmp_path / "sizes.json", "--cross", "hourglass_mlp,conventional_mlp")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "digits denoise has one family, hourglass_mlp; a crossing needs two" in answer.err


def test_the_command_says_in_one_line_that_budgets_are_too_few(tmp_path: Path) -> None:
    made = make(saturating, COSTS[:3])
    section = cast("Section", SimpleNamespace(candidates=made, front_ids=set()))
    (tmp_path / "candidates.csv").write_text(candidates_csv([section]))
    answer = call("scale", tmp_path)
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer
    assert "hourglass_mlp has 3 budgets; a law needs 4. Train networks of more sizes." in answer.err


def test_too_few_budgets_are_refused() -> None:
    with pytest.raises(UserError, match=r"hourglass_mlp has 3 budgets; a law needs 4\. Train networks of more sizes"):
        fit_laws(make(saturating, COSTS[:3]))
    law = only([*make(saturating), *make(saturating, COSTS[:1], family="conventional_mlp")])
    assert law.skipped == {"conventional_mlp": "1 budget; a law needs 4"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere"),
        ([RESULTS], "has no candidates.csv"),
        ([RESULTS / "bench" / "moasha.json"], "name is required"),
        ([RESULTS / "mnist-denoise" / "runs.csv"], "has no column 'objective'"),
        ([RESULTS / "demo", "--to", "much"], "'much' is no budget; give one such as 500k or 100M"),
        ([RESULTS / "demo", "--to", "1M"], "must be larger than the largest budget tried, 3,691,072"),
        ([RESULTS / "demo", "--cross", "hourglass_mlp"], "must name two families"),
        ([RESULTS / "demo", "--cross", "hourglass_mlp,vit"], "has no family 'vit'"),
        (["mnist5k-denoise"], "is one run"),
    ],
)
def test_bad_input_is_one_line(arguments: list[Any], said: str) -> None:
    answer = call("scale", *arguments)
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer
    assert said in answer.err


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    lines = (RESULTS / "demo" / "candidates.csv").read_text().splitlines()
    table = tmp_path / "candidates.csv"
    for text in ("", lines[0], "\n".join([lines[0], lines[1].replace("1229312", "many")]), lines[0] + "\n1,2"):
        table.write_text(text)
        with pytest.raises(UserError):
            read_recorded(tmp_path, Options())
    grid = tmp_path / "digits-shapes.json"
    damaged: list[Any] = [[{}], [1], [{"model": {}, "cost": 3, "quality": []}]]
    for content in damaged:
        grid.write_text(json.dumps(content))
        with pytest.raises(UserError):
            read_recorded(grid, Options())


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("params", "0"), ("params", "9" * 400), ("trainable_params", "-1"), ("macs", "-1"), ("validation_mean", "nan"),
        ("test_per_seed", "nan 19.1"), ("test_per_seed", "91.171382904052734 19.159530639648438"),
        ("seeds", "0 0"), ("learning_rate", "inf"), ("model.d_z", "1e400"), ("model.depth", "1e-320"),
        ("model.d_h", "-1"),
    ],
)  # fmt: skip
def test_numbers_that_nothing_measures_are_refused(column: str, text: str, tmp_path: Path) -> None:
    rows = list(csv.DictReader((RESULTS / "demo" / "candidates.csv").read_text().splitlines()))
    rows[0][column] = text
    with (tmp_path / "candidates.csv").open("w") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    with pytest.raises(UserError, match=r"is not the candidates\.csv of a report"):
        read_recorded(tmp_path, Options())


@pytest.mark.parametrize("unit", [2.0**-100, 2.0**60])
def test_laws_do_not_depend_on_the_unit_of_an_error(unit: float) -> None:
    """The mean squared error of targets of size 1e-15 is below 1e-18."""

    def of(factor: float) -> FamilyLaw:
        made = make(lambda cost: 3.0 + (cost / 10_000) ** -0.7, noise=0.01, d_z=lambda cost: cost**0.5)
        scaled = [
            replace(each, objective="mse", maximise=False, validation=factor * each.validation,
                    metrics={"mse": tuple(factor * value for value in each.test)})
            for each in made
        ]  # fmt: skip
        return family(scaled)

    plain_law, law = of(1.0), of(unit)
    assert (law.exponent, law.slopes) == (plain_law.exponent, plain_law.slopes)
    assert law.quality == tuple(unit * value for value in plain_law.quality)
