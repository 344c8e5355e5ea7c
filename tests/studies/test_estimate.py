"""Before a study starts it says what it will take; a limit makes it fit, and what cannot fit is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.studies import estimate as module
from isthmus.studies.estimate import Pace, check_room, estimate, fit, measure_paces
from isthmus.studies.plan import Plan
from isthmus.training.prepare import Options
from tests.studies.spaces import BASE, HOURGLASS

CONVENTIONAL = {"model": {"name": "conventional_mlp", "depth": 1}, "vary": {"d_z": [8, 16, 32], "d_h": [64, 128]}}


def alike(per_step: float) -> dict[str, Pace]:
    return dict.fromkeys(("hourglass_mlp", "conventional_mlp"), Pace(per_step, per_flop=0.0))


def plan(**more: Any) -> Plan:
    settings = {"name": "test", "base": BASE, "spaces": [HOURGLASS, CONVENTIONAL]} | more
    return Plan.of(study_config(settings), Options())


def test_the_estimate_is_the_arithmetic_of_all_runs() -> None:
    whole = plan(seeds=[0, 1, 2], learning_rates=[1e-3, 3e-3], rates_on="first_seed")
    assert whole.runs_per_candidate == 4
    found = estimate(whole, alike(0.5), workers=2)
    rows, epochs = len(whole.data.train), 4
    assert found.seconds == pytest.approx(len(whole.candidates) * 4 * epochs * -(-rows // 128) * 0.5 / 2 + 5)
    flops = sum(item.cost["training_flops"] for item in whole.candidates)
    assert found.work == flops * rows * epochs * 4
    weights = sum(item.cost["checkpoint_bytes"] for item in whole.candidates) * 4
    assert weights < found.disk_bytes < weights + 4 * len(whole.candidates) * 1e6


def test_rates_on_every_seed_cost_more() -> None:
    assert plan(seeds=[0, 1, 2], learning_rates=[1e-3, 3e-3]).runs_per_candidate == 6
    assert plan(seeds=[0, 1, 2]).runs_per_candidate == 3


def test_a_measured_step_takes_time_and_leaves_nothing_behind() -> None:
    study = plan()
    paces = measure_paces(study)
    assert set(paces) == {"hourglass_mlp", "conventional_mlp"}
    pace = paces[study.candidates[0].architecture]
    assert pace.per_flop > 0
    assert pace.per_step >= 0
    assert 0 < pace.of_run(study, study.candidates[0]) < math.inf
    run = study.run(study.candidates[0].model, 1e-3, 0)
    assert not run.folder.exists()


def test_an_architecture_with_slow_operations_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"hourglass_mlp": 0.001, "conventional_mlp": 0.1}
    monkeypatch.setattr(module, "_step_seconds", lambda run, options: seconds[run.config.model.name])
    study = plan()
    found = estimate(study, measure_paces(study), 1).seconds
    steps = 4 * -(-len(study.data.train) // 128)
    slowest = max(item.cost["training_flops"] for item in study.candidates if item.architecture == "conventional_mlp")
    shares = [
        item.cost["training_flops"] / slowest for item in study.candidates if item.architecture == "conventional_mlp"
    ]
    assert found == pytest.approx(steps * 0.1 * sum(shares), rel=0.2), "held-out rows and the other shape are the rest"


def test_a_time_budget_thins_the_candidates_and_keeps_both_architectures() -> None:
    whole, pace = plan(), alike(0.1)
    everything = estimate(whole, pace, 1).seconds
    smaller = fit(whole, pace, 1, everything / 2)
    assert estimate(smaller, pace, 1).seconds <= everything / 2
    assert len(smaller.candidates) == len(whole.candidates) // 2
    assert {item.architecture for item in smaller.candidates} == {"hourglass_mlp", "conventional_mlp"}
    assert fit(whole, pace, 1, everything) is whole
    with pytest.raises(UserError, match=r"one candidate takes about \d+ s .* time budget is 1 s"):
        fit(whole, pace, 1, 1.0)


def test_a_sampled_study_is_estimated_from_random_candidates() -> None:
    drawn = plan(sampling={"name": "tpe", "candidates": 50})
    assert len(drawn.preview) == 50
    assert drawn.quotas == [25, 25]
    smaller = fit(drawn, alike(0.1), 1, estimate(drawn, alike(0.1), 1).seconds / 5)
    assert smaller.config.sampling.candidates == 10


def test_a_space_that_no_draw_fits_says_why() -> None:
    with pytest.raises(UserError, match=r"no candidate .* above 10"):
        _ = plan(sampling={"name": "random"}, budget={"params": 10}).preview


def test_too_little_disk_or_memory_is_one_line_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = estimate(plan(), alike(0.1), 2)
    check_room(needed, 2)
    monkeypatch.setattr(module, "memory_bytes", lambda: 1000)
    with pytest.raises(UserError, match=r"2 workers need about .* of memory"):
        check_room(needed, 2)
    monkeypatch.setattr("shutil.disk_usage", lambda place: type("Usage", (), {"free": 1000}))
    with pytest.raises(UserError, match="of disk"):
        check_room(needed, 2)
