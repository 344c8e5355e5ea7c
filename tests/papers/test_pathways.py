"""The experiments on residual pathways: equal budgets, verdicts on made-up numbers, identities, partial results."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.errors import UserError
from isthmus.core.registry import component
from isthmus.papers import import_exhibits, load_paper
from isthmus.papers.engine.exhibit import Findings, MeasuredPart, Part
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.reproduce import judge_below, reproduce
from isthmus.papers.engine.tables import table
from isthmus.papers.pathways import claims, hypotheses, measurements, studies, untrained
from isthmus.papers.pathways.exhibits import TABLES
from isthmus.papers.pathways.laws import extra_macs, extra_params, fit_width, mlp
from isthmus.studies.statistics import Sample, fit_noise
from isthmus.training.counting import cost
from tests.papers.networks import Fabricated, Parts, parameters, smoke

PAPER = load_paper("pathways")
MAKERS: dict[str, Any] = {
    "E2": studies.on_tower, "E3": studies.by_shape, "E4": studies.without_norms, "E5": studies.in_tokens,
    "E6": studies.over_iterations, "E7": studies.at_equal_seconds,
}  # fmt: skip
PARTS = Parts(MAKERS)


def test_every_experiment_is_found_by_name_and_every_claim_has_a_test():
    assert list(import_exhibits("pathways")) == list(TABLES) == [f"E{number}" for number in range(8)]
    tested = {name: {key for key, exhibit in TABLES.items() if name in exhibit.tests} for name in PAPER.claims}
    assert tested == {name: set(claim.figures) for name, claim in PAPER.claims.items()}
    assert all(test.statement for exhibit in TABLES.values() for test in exhibit.tests.values())


# Equal budgets


@pytest.mark.parametrize("pathway", sorted({*untrained.COUNTED} - {"attended/full", "streams/mhc-4"}))
def test_laws_are_what_the_counter_counts(pathway):
    sizes = {"d_in": 6, "d_out": 5, "init": "depth_scaled_w2"}
    plain, ours = (cost(mlp(name, 12, 3, 16, **sizes)) for name in ("plain", pathway))
    assert ours.macs - plain.macs == 12 * extra_macs(pathway, 16)
    assert ours.params - plain.params == extra_params(pathway, 12, 16)


@pytest.mark.parametrize("pathway", studies.ON_TOWER)
def test_every_pathway_gets_the_widest_stream_within_its_budget(pathway):
    def size(width: int) -> int:
        fields = {"d_in": 32, "d_out": 32, "init": "depth_scaled_w2"}
        return parameters(component("models", mlp(pathway, width, 8, 16, **fields)))

    width = fit_width(pathway, 8, 16, 64, 20_480)
    assert size(width) <= 20_480 < size(width + 1)


def test_plain_networks_of_equal_multiply_adds_are_beside_the_narrow_shapes():
    for number, part in enumerate(PARTS["E3", "cpu"]):
        models = [candidate.model_dump() for candidate in part.study.candidates]
        plains = [model for model in models if studies.label(model) == "plain"]
        assert len(plains) == (1 if number < 4 else 3)
        if number < 4:
            continue
        ends = 64 if part.source == "tower" else 128
        d_h, depth = plains[0]["d_h"], plains[0]["depth"]
        for larger, name in zip(plains[1:], ("attended/blocks-8", "streams/static-2"), strict=True):
            history = next(model for model in models if studies.label(model) == name)
            wanted = history["d_z"] * (ends + 2 * depth * d_h + extra_macs(name, depth))
            assert larger["d_z"] * (ends + 2 * depth * d_h) == pytest.approx(wanted, rel=0.02)


def test_the_plan_and_what_was_shrunk_are_said():
    said = "\n".join(PARTS["E2", "cpu"][0].differences)
    for words in ("13 epochs instead of 40", "3 seeds instead of 5", "the plan made before any result"):
        assert words in said
    for parts in (PARTS[name, "cpu"] for name in MAKERS):
        assert len({part.title for part in parts}) == len(parts)
        assert all(part.study.base.threads == 1 for part in parts)


# Verdicts


def network(pathway: str, values: Sequence[float], unit: str = "", params: float = 1e5, **model: Any) -> Network:
    given = {} if pathway == "plain" else {"pathway": component("pathways", pathway).model_dump(mode="json")}
    quality, settings = Sample.of(values, range(len(values))), {"d_z": 64, "d_h": 8, **given, **model}
    name = " ".join(map(str, [pathway, *model.values()]))
    return Network(name, "hourglass_mlp", settings, params, params, quality.mean, quality, unit)


def around(mean: float, spread: float = 0.001, of: str = "") -> list[float]:
    """Three runs that are worse or better with another seed under every pathway, and a little noise."""
    noise = random.Random(f"{of} {mean}")
    return [mean + shift + noise.uniform(-spread, spread) / 3 for shift in (-spread, 0.0, spread)]


def measured(part: Part, qualities: Mapping[str, float], spread: float = 0.001, **more: Any) -> MeasuredPart:
    """Networks by pathway, with the noise of their part."""
    networks = [network(name, around(mean, spread, name), **more) for name, mean in qualities.items()]
    noise = fit_noise(item.quality.by_seed for item in networks)
    return MeasuredPart(part, [], [replace(n, quality=replace(n.quality, noise=noise)) for n in networks], [])


@pytest.mark.parametrize(
    ("gap", "spread", "answer"),
    [(0.0, 0.001, "yes"), (0.003, 0.001, "yes"), (0.05, 0.001, "no"), (-0.05, 0.001, "no"), (0.0, 0.05, "undecided")],
)
def test_level_means_within_the_tolerance_and_not_merely_undecided(gap, spread, answer):
    item = measured(PARTS["E2", "smoke"][0], {"plain": 0.6, "delayed/ladder": 0.6 + gap}, spread)
    judged = claims.ladder_level(Findings([item]))
    assert judged.measured == answer
    assert "delayed/ladder − plain is" in judged.because
    both = measured(
        PARTS["E2", "smoke"][0], {"plain": 0.6, "delayed/ladder": 0.6, "delayed/groups-4": 0.6 + gap}, spread
    )
    assert hypotheses.free_lunch(Findings([both])).measured == answer


def test_the_tolerance_depends_on_the_unit():
    gaps = {"": 0.05, "dB": 0.05, "points": 0.5}
    answers = {}
    for unit, gap in gaps.items():
        item = measured(PARTS["E3", "smoke"][0], {"plain": 0.6, "delayed/ladder": 0.6 + gap}, unit=unit)
        answers[unit] = claims.ladder_level(Findings([item])).measured
    assert answers == {"": "no", "dB": "yes", "points": "yes"}


@pytest.mark.parametrize(
    ("gaps", "answer"), [((0.0, -0.05), "yes"), ((-0.05, -0.05), "no"), ((0.0, 0.05), "no"), ((0.0, 0.0), "undecided")]
)
def test_h3_asks_for_a_loss_exactly_beyond_first_order(gaps, answer):
    parts = [
        measured(part, {"plain": 0.6, "delayed/parallel": 0.6 + gap})
        for part, gap in zip(PARTS["E2", "smoke"], gaps, strict=False)
    ]
    orders = dict(zip((item.part.title for item in parts), (0.01, 1.2), strict=True))
    judged = hypotheses.parallel_loses_beyond_first_order(Findings(parts, {"orders": orders}))
    assert judged.measured == answer
    one_side = hypotheses.parallel_loses_beyond_first_order(Findings(parts[1:], {"orders": orders}))
    assert one_side.measured != "yes", "a partial result lacks the other side"
    begun = measured(parts[0].part, {"plain": 0.6, "weighted": 0.6})
    other = hypotheses.parallel_loses_beyond_first_order(Findings([begun, parts[1]], {"orders": orders}))
    assert other.measured != "yes", "nor does a part that has just begun"


@pytest.mark.parametrize(("lead", "answer"), [(-0.05, "yes"), (0.0, "yes"), (0.05, "no")])
def test_h1_compares_a_history_with_networks_of_as_few_multiply_adds(lead, answer):
    item = measured(PARTS["E3", "smoke"][0], {"plain": 0.6, "attended/blocks-8": 0.7 + lead})
    larger = replace(network("plain", around(0.7), params=2e5), id="larger")
    larger = replace(larger, quality=replace(larger.quality, noise=item.networks[0].quality.noise))
    networks = [*item.networks, larger]
    costs = {each.id: {"macs": macs} for each, macs in zip(networks, (1e5, 1.6e5, 1.6e5), strict=True)}
    judged = hypotheses.histories_cost_too_much(Findings([replace(item, networks=networks)], {"costs": costs}))
    assert judged.measured == answer
    wide = replace(item, networks=[replace(each, model={**each.model, "d_h": 64}) for each in networks])
    assert hypotheses.histories_cost_too_much(Findings([wide], {"costs": costs})).measured == "not addressed"


@pytest.mark.parametrize(("gain", "answer"), [(0.05, "yes"), (-0.05, "no"), (0.0, "undecided")])
def test_h4_asks_for_a_larger_gain_in_the_narrower_stream(gain, answer):
    first, _, second, *_ = PARTS["E3", "smoke"]
    narrow = measured(first, {"plain": 0.6, "delta/erase-and-add": 0.6 + gain}, d_z=32)
    wide = measured(second, {"plain": 0.7, "delta/erase-and-add": 0.7}, d_z=128)
    assert hypotheses.erasing_needs_a_narrow_stream(Findings([wide, narrow])).measured == answer
    alone = hypotheses.erasing_needs_a_narrow_stream(Findings([wide]))
    assert alone.measured == "not addressed"


@pytest.mark.parametrize(
    ("other", "answer"), [({"plain": 0.7, "reversible": 0.8}, "yes"), ({"plain": 0.8, "reversible": 0.7}, "no"),
                          ({"plain": 0.7, "reversible": 0.7002}, "undecided")]
)  # fmt: skip
def test_h5_asks_for_winners_that_change_places(other, answer):
    first, _, second, *_ = PARTS["E3", "smoke"]
    items = [measured(first, {"plain": 0.65, "reversible": 0.6}), measured(second, other)]
    assert hypotheses.shapes_differ_in_their_best(Findings(items)).measured == answer


@pytest.mark.parametrize(("blocks", "answer"), [(0.69, "yes"), (0.61, "no"), (0.65, "undecided")])
def test_a2_asks_for_more_than_half_of_a_decided_gain(blocks, answer):
    part = PARTS["E2", "smoke"][0]
    item = measured(part, {"plain": 0.6, "attended/full": 0.7, "attended/blocks-8": blocks})
    assert claims.blocks_keep_the_gain(Findings([item])).measured == answer
    none = measured(part, {"plain": 0.7, "attended/full": 0.7, "attended/blocks-8": blocks})
    assert claims.blocks_keep_the_gain(Findings([none])).measured == "not addressed"


@pytest.mark.parametrize(("blocks", "answer"), [(0.69, "yes"), (0.61, "no"), (0.65, "undecided")])
def test_a2_is_also_tested_on_the_published_form(blocks, answer):
    part = PARTS["E5", "smoke"][0]
    ours = {"plain": 0.6, "attended/blocks-8": 0.6}
    item = measured(part, ours | {"attended/published-full": 0.7, "attended/published": blocks})
    judged = claims.blocks_keep_the_gain(Findings([item]))
    assert judged.measured == answer
    assert f"{part.title}, attended/published: beyond half" in judged.because
    assert "published" not in claims.blocks_keep_the_gain(Findings([measured(part, ours)])).because
    begun = measured(part, ours | {"attended/published": blocks})
    assert claims.blocks_keep_the_gain(Findings([begun])).measured == "not addressed"


@pytest.mark.parametrize(("published", "answer"), [(0.2, "yes"), (0.8, "no"), (0.5, "undecided")])
def test_a1_must_hold_for_the_published_form_too(published, answer):
    item = measured(PARTS["E5", "smoke"][0], {"plain": 0.6, "attended/blocks-8": 0.6, "attended/published": 0.6})
    found = {
        each.id: {key: around(mean) for key in ("update", "gradient")}
        for each, mean in zip(item.networks, (0.5, 0.2, published), strict=True)
    }
    assert claims.more_uniform(Findings([item], {"uniformity": found})).measured == answer


@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_e5_trains_both_forms_of_attention_over_depth(scale):
    for part in PARTS["E5", scale]:
        names = {studies.label(candidate.model_dump()) for candidate in part.study.candidates}
        assert {"attended/blocks-8", "attended/published", "attended/published-full"} <= names


@pytest.mark.parametrize(("after", "answer"), [(0.2, "yes"), (0.8, "no"), (0.5, "undecided")])
def test_a1_compares_the_variation_over_depth(after, answer):
    item = measured(PARTS["E2", "smoke"][0], {"plain": 0.6, "attended/blocks-8": 0.6})
    found = {
        each.id: {key: around(mean) for key in ("update", "gradient")}
        for each, mean in zip(item.networks, (0.5, after), strict=True)
    }
    assert claims.more_uniform(Findings([item], {"uniformity": found})).measured == answer


def test_equal_seconds_gives_plain_the_steps_of_a_slower_pathway():
    main, *_, twice, four = PARTS["E2", "smoke"]
    first = measured(main, {"plain": 0.6, "delta/value": 0.65, "reversible": 0.6})
    longer = [measured(part, {"plain": mean}) for part, mean in ((twice, 0.7), (four, 0.8))]
    for seconds, answer, steps in ((2.5, "yes", 2), (1.5, "no", 1), (9.0, "yes", 4)):
        costs = dict(
            zip((each.id for each in first.networks), ({"seconds": s} for s in (1.0, seconds, 1.0)), strict=True)
        )
        judged = claims.equal_seconds(Findings([first, *longer], {"costs": costs}))
        assert judged.measured == answer
        assert f"against {steps} times its steps: delta/value" in judged.because
    begun = measured(PARTS["E2", "smoke"][2], {"reversible": 0.9})
    alone = claims.equal_seconds(Findings([first, begun], {"costs": costs}))
    assert "against 1 times its steps: delta/value" in alone.because, "of a partial result"


def test_e7_has_the_studies_of_e3_and_its_plain_networks_for_longer():
    for scale in ("smoke", "cpu", "paper"):
        parts, known = PARTS["E7", scale], PARTS["E3", scale]
        assert [part.study for part in parts[: len(known)]] == [part.study for part in known], "as stored with E3"
        items = [MeasuredPart(part, [], [], []) for part in parts]
        steps = [{*studies.plains_by_steps(item, items)} for item in items[: len(known)]]
        wanted = {1.0, 1.5, 2.0} if scale != "smoke" else {1.0, 2.0}
        deepest = {1.0, 1.5} if scale == "cpu" else wanted
        assert steps == [*[wanted] * (len(known) - 2), deepest, deepest]
        assert len({part.study.name for part in parts}) == len(parts)


@pytest.mark.parametrize(
    ("seconds", "spread", "answer", "steps"),
    [(1.2, 0.001, "no", "1"), (1.7, 0.001, "yes", "1.5"), (2.3, 0.001, "no", "2"), (1.7, 0.05, "undecided", "1.5")],
)
def test_equal_seconds_by_shape_takes_the_plain_of_the_same_shape_and_data(seconds, spread, answer, steps):
    """On the second part plain is far ahead, on the first 1.5 times the steps catch up and twice the steps do not."""
    parts = PARTS["E7", "cpu"]
    means = {1.0: 0.6, 1.5: 0.65, 2.0: 0.6}
    mains = [measured(part, {"plain": mean, "delta/erase-and-add": 0.65, "reversible": 0.8}, spread, depth=depth)
             for part, mean, depth in ((parts[0], 0.6, 4), (parts[2], 0.9, 12))]  # fmt: skip
    longer = []
    for main, lead in zip(mains, (0.0, 0.3), strict=True):
        base = main.part.study.base
        same = [part for part in parts[8:] if part.study.candidates == main.part.study.candidates[:1]]
        longer += [
            measured(part, {"plain": lead + means[part.study.base.train.epochs / base.train.epochs]}, spread)
            for part in same
        ]
    costs = {each.id: {"seconds": seconds} for item in mains for each in item.networks}
    judged = claims.equal_seconds_by_shape(Findings([*mains, *longer], {"costs": costs}))
    assert judged.measured == answer
    assert set(judged.numbers["measured"]) == {f"delta/erase-and-add, {item.part.title}" for item in mains}
    assert judged.because.count(f"against {steps} times its steps: delta/erase-and-add") == 2
    begun = claims.equal_seconds_by_shape(Findings([*mains, *longer[:2]], {"costs": costs}))
    assert begun.measured == answer
    assert "none of more steps" in begun.because, "of a partial result"
    assert claims.equal_seconds_by_shape(Findings(mains, {"costs": costs})).measured == "not addressed"
    assert claims.equal_seconds_by_shape(Findings([*mains, *longer], {"costs": {}})).measured == "not addressed"


def test_e7_takes_what_e3_stored_and_trains_plain_only(tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.reports.write_report", lambda *given, **named: None)
    monkeypatch.setattr(measurements, "measure_costs", lambda parts: {
        n.id: {"macs": 1e5, "seconds": 1.7} for item in parts for n in item.networks
    })  # fmt: skip
    kept, trained = tmp_path / "kept", []
    reproduce("pathways", "E3", "smoke", kept, carry_out=lambda config, *given: Fabricated(config, psnr, (32, 32)))

    def carry_out(config: Any, *given: Any) -> Any:
        trained.append(config.name)
        return Fabricated(config, psnr, (32, 32))

    result = reproduce("pathways", "E7", "smoke", tmp_path / "out", carry_out=carry_out, stored=[kept])
    assert len(trained) == 8
    assert all("-longer-" in name for name in trained)
    assert sum("the runs stored with pathways E3" in line for line in result["differences"]) == 4
    assert result["command"].endswith(" --stored")
    before = result["claims"]
    list(judge_below(tmp_path / "out"))
    assert json.loads((tmp_path / "out" / "result.json").read_text())["claims"] == before
    with pytest.raises(UserError, match="leave out --stored"):
        reproduce("pathways", "E3", "smoke", tmp_path, carry_out=carry_out, stored=[kept])


def curve(growth: Sequence[float], diverged: int, explained: float) -> dict[str, Any]:
    fits = [{"explained": explained}] * len(growth)
    return {"fits": fits, "growth": list(growth), "diverged": diverged, "tried": 9}


@pytest.mark.parametrize(
    ("explained", "grown", "diverged", "answers"),
    [(0.99, 1.0, 0, ("yes", "yes", "yes")), (0.5, 5.0, 9, ("no", "no", "no")),
     (0.99, 2.0, 4, ("yes", "undecided", "undecided"))],
)  # fmt: skip
def test_parcae_s_claims(explained, grown, diverged, answers):
    curves = {
        "plain": curve(around(2.0, 0.01), 4, 0.4), "injected/addition": curve(around(2.0, 0.01), 4, 0.4),
        "injected/parcae": curve(around(grown, 0.01), diverged, explained),
    }  # fmt: skip
    found = Findings([], {"curves": curves})
    tests = (claims.saturates, claims.bounded_state, claims.fewer_diverge)
    assert tuple(test(found).measured for test in tests) == answers
    lost = Findings([], {"curves": {"plain": curves["plain"]}})
    assert {test(lost).measured for test in tests} == {"not addressed"}


def test_a_saturating_curve_is_recognised_and_another_is_not():
    from math import exp, sin

    fit = measurements.fit_saturation([0.3 + 2 * exp(-0.7 * T) for T in range(1, 25)])
    assert fit["explained"] > 0.9999
    assert (fit["a"], fit["c"]) == pytest.approx((0.3, 0.7), rel=0.02)
    assert measurements.fit_saturation([sin(T) for T in range(1, 25)])["explained"] < 0.3
    assert measurements.fit_saturation([1.0, None, 2.0])["explained"] == 0.0


# Without training


def test_identities_hold_and_a_wrong_one_is_refused():
    with untrained.drawn(3):
        found = {**untrained._expansion_errors(), **untrained._delta_errors()}
    assert max(found.values()) < claims.EXACT
    wrong = dict.fromkeys(found, 0.1)
    for test in (claims.expansion, claims.delta_spectrum):
        assert test(Findings([], {"identities": [found, found]})).measured == "yes"
        assert test(Findings([], {"identities": [wrong, wrong]})).measured == "no"


def test_growth_with_depth_is_judged_over_draws():
    small, large = {"16": [1.2, 1.2, 1.3], "64": [1.3, 1.4, 1.4]}, {"16": [9.0, 9.5, 9.0], "64": [50.0, 55.0, 60.0]}
    for plain, scaled, answer in ((large, small, "yes"), (small, small, "no"), (large, {"64": [9.0, 9.5, 9.2]}, "no")):
        growth = {"plain": plain, "scaled/sqrt": scaled, "scaled/depth": small}
        assert claims.growth(Findings([], {"growth": growth})).measured == answer


def test_what_is_not_finite_before_training_is_left_out():
    """A deep network without skip connections and norms ends at zero, and zero has no dilution."""
    assert untrained._mean([1.0, float("nan")]) is None
    values = {"growth": 0.0, "last dilution": untrained._mean([float("nan")]), "first dilution": 0.5}
    (quantity,) = untrained._start_quantities({"none": {"none": {"256": values}}})
    assert (quantity.measured, quantity.note) == (0.0, "first dilution 0.5")


def test_recomputed_memory_must_not_grow():
    def line(saved: float) -> dict[str, Any]:
        return {"plain": {"saved": 10 * saved}, "reversible/recomputed": {"saved": saved}}

    for deep, answer in ((105.0, "yes"), (120.0, "no")):
        costs = {"narrow": {"16": line(100.0), "256": line(deep)}}
        assert claims.reversible_memory(Findings([], {"costs": costs})).measured == answer


# Partial results


def psnr(model: dict[str, Any], rate: float, seed: int) -> float:
    return 20 + 0.01 * seed + model["d_z"] / 100


def test_a_partial_result_says_how_many_runs_have_ended(tmp_path, monkeypatch):
    """Two shapes are complete, of the third one network has one seed, and the others have not begun."""
    monkeypatch.setattr("isthmus.reports.write_report", lambda *given, **named: None)
    monkeypatch.setattr(measurements, "measure_costs", lambda parts: {
        n.id: {"macs": 1e5, "seconds": 1.0} for item in parts for n in item.networks
    })  # fmt: skip
    done = {part.study.name: place for place, part in enumerate(PARTS["E3", "cpu"])}

    class SoFar(Fabricated):
        def records(self) -> list[Any]:
            place = done[self.config.name]
            return super().records() if place < 2 else super().records()[:1] if place == 2 else []

    def carry_out(config: Any, *given: Any) -> Any:
        found = SoFar(config, psnr, (32, 32))
        found.folders = [Path(record.id) for record in found.records()]
        return found

    result = reproduce("pathways", "E3", "cpu", tmp_path, carry_out=carry_out, partial=True)
    assert "conventional, 4 blocks, tower: 32 of 32 runs have ended so far" in result["differences"]
    assert "hourglass 1/4, 12 blocks, tower: 1 of 32 runs have ended so far" in result["differences"]
    assert "hourglass 1/45, 256 blocks, tower: 0 of 40 runs have ended so far" in result["differences"]
    assert all(claim["because"].startswith("so far: ") for claim in result["claims"])
    rows = table(result)
    assert {row["seeds"] for row in rows} == {"1", "3"}
    assert {"plain", "streams(count=2,dynamic=False)"} <= {row["pathway"] for row in rows}
    before = json.loads((tmp_path / "result.json").read_text())["claims"]
    list(judge_below(tmp_path))
    assert json.loads((tmp_path / "result.json").read_text())["claims"] == before
    monkeypatch.setattr(SoFar, "records", lambda self: [])
    with pytest.raises(UserError, match="is on record; train them without --recorded"):
        reproduce("pathways", "E3", "cpu", tmp_path, carry_out=carry_out, partial=True)


# Everything, for real


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TABLES))
def test_the_smoke_scale_measures_everything(name, tmp_path):
    result = smoke("pathways", name, tmp_path)
    assert {claim["measured"] for claim in result["claims"]} == {"not addressed"}, "smoke decides nothing"
    found = {
        claim["id"]: {line["answer"] for line in claim["numbers"]["measured"].values()} for claim in result["claims"]
    }
    if name == "E1":
        assert found["X1"] == found["D1"] == {"yes"}
    if name == "E0":
        assert all(answers == {"yes"} for answers in found.values())


@pytest.mark.slow
def test_steps_are_timed_beside_plain():
    import torch

    from isthmus.core.registry import create_model

    with untrained.drawn(0):
        models = {
            name: create_model(**mlp(name, 32, 4, 16, d_in=8, d_out=8, init="pytorch"))
            for name in ("plain", "weighted")
        }
    ratios = untrained.compare_steps(models, torch.randn(64, 8), 3)
    assert ratios["plain"] == 1.0
    assert ratios["weighted"] > 1.2
