"""A super-network's slices are the candidates, and its ranking decides what a study trains alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from isthmus.cli.complete import complete_study
from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.registry import component, find
from isthmus.studies.plan import Plan
from isthmus.studies.shared import Slice, group_candidates, measure_agreement, order_candidates, rank_candidates
from isthmus.training.run import Options
from tests.studies.drivers import settings

SPACE = {"model": {"name": "hourglass_mlp"}, "vary": {"d_z": [65, 80], "d_h": [4, 8], "depth": [1, 2]}}
SHARED: dict[str, Any] = {"epochs": 1, "first": 3, "keep": 0.5}
ViT = {"name": "vit", "input_shape": [1, 8, 8], "output_shape": [10], "patch": 4}
MLP = {"name": "hourglass_mlp", "d_in": 12, "d_out": 5}


def make_plan(**changes: Any) -> Plan:
    return Plan.of(study_config(settings(spaces=[SPACE], shared=SHARED) | changes), Options())


@pytest.mark.parametrize(
    ("small", "large", "shape"),
    [
        (MLP | {"d_z": 16, "d_h": 4, "depth": 1}, MLP | {"d_z": 20, "d_h": 6, "depth": 3}, (3, 12)),
        (
            ViT | {"d_z": 12, "d_h": 8, "depth": 1, "num_heads": 2},
            ViT | {"d_z": 24, "d_h": 16, "depth": 2, "num_heads": 3},
            (3, 1, 8, 8),
        ),
    ],
)
def test_slice_equals_small_network_with_copied_weights(small: Any, large: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    configs: list[Any] = [component("models", settings) for settings in (small, large)]
    covering = type(configs[0]).cover(configs)
    whole = find("models", covering.name)(covering).double()
    for parameter in whole.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    part = Slice(configs[0], whole)
    alone = find("models", configs[0].name)(configs[0]).double()
    alone.load_state_dict(part.take())
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(part(x), alone(x), rtol=0, atol=1e-12)
    if small["name"] == "vit":  # the first 6 of 8 numbers of the first 2 of 3 heads
        wide = whole.blocks[0].attention.qkv.weight.view(3, 3, 8, 24)
        torch.testing.assert_close(alone.blocks[0].attention.qkv.weight.view(3, 2, 6, 12), wide[:, :2, :6, :12])


@pytest.mark.parametrize("kind", ["uniform", "gaussian", "orthogonal"])
def test_frozen_projections_keep_their_scale(kind: str) -> None:
    sizes = [(16, 4), (64, 8)]
    fields = {"w_in": kind, "w_in_seed": 1, "depth": 1}
    configs: list[Any] = [component("models", MLP | fields | {"d_z": d_z, "d_h": d_h}) for d_z, d_h in sizes]
    whole = find("models", "hourglass_mlp")(configs[1])
    own = find("models", "hourglass_mlp")(configs[0]).W_in.weight
    torch.testing.assert_close(Slice(configs[0], whole).take()["W_in.weight"].norm(), own.norm())


def test_ranking_is_deterministic_and_checked_when_read() -> None:
    plan = make_plan()
    first = rank_candidates(plan)
    path = next((home() / "studies" / "small").glob("shared-*.json"))
    text = path.read_text()
    path.unlink()
    assert rank_candidates(plan) == first
    assert path.read_text() == text
    assert list(first) == [proposal.key for proposal in replace(plan, inherited=first).candidates]
    path.write_text(text.replace('"slices": 4', '"slices": 5'))
    with pytest.raises(UserError, match="checksum"):
        rank_candidates(plan)


def test_study_trains_the_promising_or_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    study = complete_study(make_plan(), Options())
    assert study.is_complete
    assert len(study.trials) == (8 if study.has_fallen_back else 4)
    inherited = study.plan.inherited
    assert inherited is not None
    by_quality = {trial.key: trial.quality or 0.0 for trial in study.trials}
    for sign, number in ((1, 4), (-1, 8)):
        keys = list(inherited)
        ranking = {key: sign * by_quality.get(key, place / 1e6) for place, key in enumerate(keys)}
        monkeypatch.setattr("isthmus.studies.complete.rank_candidates", lambda plan, tell, known=ranking: known)
        plan = make_plan(name=f"sign{number}")
        again = complete_study(plan, Options())
        assert (len(again.trials), again.has_fallen_back) == (number, number == 8)
        assert again.is_complete


def test_shared_is_part_of_the_identity_only_where_it_is_given() -> None:
    without = study_config(settings(spaces=[SPACE]))
    assert "shared" not in without.model_dump(mode="json")
    assert make_plan().identity["shared"] == SHARED


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": {"name": "tpe"}}, "sampling.name=grid"),
        ({"spaces": [SPACE | {"vary": {"d_z": [65], "d_h": [4], "depth": [1]}}]}, "has one"),
        ({"spaces": [SPACE | {"model": {"name": "hourglass_mlp", "w_in": "hadamard"}}]}, "w_in=hadamard"),
    ],
)
def test_what_cannot_be_ranked_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        group_candidates(make_plan(**changes))
    assert "\n" not in str(caught.value)


def test_order_is_by_hypervolume() -> None:
    points = {"small": (1.0, 20.0), "best": (2.0, 22.0), "dominated": (3.0, 21.0), "worst": (8.0, 19.0)}
    assert order_candidates(points, maximise=True)[0] == "best"
    assert sorted(order_candidates(points, maximise=True)) == sorted(points)
    assert measure_agreement([(1, 1), (2, 2), (3, 3)]) == 1
    assert measure_agreement([(1, 1), (2, 2)]) is None
