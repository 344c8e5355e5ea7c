"""A super-network's slices are the candidates, and its ranking decides what a study trains alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from isthmus.cli.complete import complete_study
from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.core.protocols import ModelConfig
from isthmus.core.registry import catalogue, component, find
from isthmus.studies import shared
from isthmus.studies.complete import Watcher
from isthmus.studies.complete import complete_study as complete
from isthmus.studies.estimate import Pace, estimate, estimate_ranking
from isthmus.studies.plan import Plan
from isthmus.studies.shared import (
    Group,
    Ranking,
    Slice,
    _describe,
    group_candidates,
    list_untrained,
    measure_agreement,
    order_candidates,
    rank_candidates,
    read_ranking_seconds,
)
from isthmus.training.listener import Listener
from isthmus.training.prepare import Options
from tests.command_line import call
from tests.studies.drivers import settings

SPACE: dict[str, Any] = {"model": {"name": "hourglass_mlp"}, "vary": {"d_z": [65, 80], "d_h": [4, 8], "depth": [1, 2]}}
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


@pytest.mark.parametrize(
    ("model", "sizes", "stream", "rows"),
    [
        (MLP, [{"d_z": 16, "d_h": 4, "depth": 2}, {"d_z": 24, "d_h": 6, "depth": 4}], "W_in.weight", (3, 12)),
        (
            ViT,
            [{"d_z": 16, "d_h": 4, "depth": 2, "num_heads": 2}, {"d_z": 24, "d_h": 6, "depth": 4, "num_heads": 3}],
            "stem.linear.weight",
            (3, 1, 8, 8),
        ),
    ],
    ids=["mlp", "vit"],
)
@pytest.mark.parametrize("pathway", [name for name in catalogue("pathways") if name != "none"])
def test_pathways_are_sliced_with_the_stream_and_the_depth(
    pathway: str, model: dict[str, Any], sizes: list[dict[str, Any]], stream: str, rows: tuple[int, ...]
) -> None:
    """A narrow, shallow slice changes no number of the super-network beyond its own, and gets a gradient."""
    fields = {"pathway": pathway} | ({"init": "pytorch"} if model is MLP else {})
    small, large = (cast("ModelConfig", component("models", model | fields | size)) for size in sizes)
    torch.manual_seed(0)
    whole = find("models", small.name)(type(small).cover([small, large])).double()
    part = Slice(small, whole)
    part(torch.randn(rows, dtype=torch.float64)).square().sum().backward()
    gradient = whole.get_parameter(stream).grad
    assert gradient[:16].abs().min() > 0
    assert gradient[16:].abs().max() == 0
    assert all(parameter.grad is None for parameter in list(whole.blocks[2].parameters()))


@pytest.mark.parametrize(
    ("pathway", "name", "split"),
    [
        ({"name": "injected", "how": "concatenation"}, "blocks.pathway.W.1", (2,)),
        ("streams/mhc-4", "blocks.pathway.Phi.1", (4,)),
    ],
)
def test_a_pathway_that_reads_several_streams_takes_the_first_part_of_each(
    pathway: Any, name: str, split: tuple[int, ...]
) -> None:
    sizes = [{"d_z": 16, "d_h": 4, "depth": 2}, {"d_z": 24, "d_h": 4, "depth": 3}]
    small, large = (component("models", MLP | {"pathway": pathway, "init": "pytorch"} | size) for size in sizes)
    whole = find("models", "hourglass_mlp")(large)
    own = whole.get_parameter(name)
    torch.nn.init.normal_(own)
    taken = Slice(cast("ModelConfig", small), whole).take()[name]
    expected = own.unflatten(1, (*split, 24))[: len(taken), :, :16]
    torch.testing.assert_close(taken.unflatten(1, (*split, 16)), expected)


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
    again, before = (json.loads(each) for each in (path.read_text(), text))
    assert {name for name in before if before[name] != again[name]} <= {"seconds", "checksum"}
    assert list(first) == [proposal.key for proposal in replace(plan, inherited=first).candidates]
    path.write_text(text.replace('"slices": 3', '"slices": 5'))
    with pytest.raises(UserError, match="checksum"):
        rank_candidates(plan)


def test_vits_of_several_heads_share_one_super_network() -> None:
    base = {"source": {"name": "digits"}, "task": {"name": "classification"}, "train": {"epochs": 1}, "threads": 1}
    vary = {"d_z": [12, 24], "d_h": [8, 16], "num_heads": [2, 3], "depth": [1, 2]}
    plan = make_plan(name="vits", base=base, spaces=[{"model": {"name": "vit", "patch": 4}, "vary": vary}])
    (group,) = group_candidates(plan)
    assert len(group.keys) == 16
    assert (group.run.model.num_heads, group.run.model.attention_width) == (3, 36)  # type: ignore[attr-defined]
    ranked = rank_candidates(plan)
    assert sorted(ranked) == sorted(proposal.key for proposal in plan.candidates)
    assert len(set(ranked.values())) > 1


class Announced(Watcher):
    def __init__(self) -> None:
        self.said: list[str] = []

    def announce(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.slow
def test_super_networks_are_estimated_until_they_are_on_record() -> None:
    plan = make_plan(name="estimated")
    pace = Pace(per_step=1e-3, per_flop=0.0)
    paces = {"hourglass_mlp": pace}
    a_slice = pace.of_run(plan, plan.candidates[0]) / plan.config.base.train.epochs
    assert estimate_ranking(plan, paces) == pytest.approx(3 * a_slice)
    assert estimate(plan, paces, 1).seconds == pytest.approx(3 * a_slice + 8 * pace.of_run(plan, plan.candidates[0]))
    watcher = Announced()
    complete(plan, Options(), watcher=watcher)
    assert "1 super-network to rank 8 candidates, about" in watcher.said[0]
    assert estimate_ranking(plan, paces) == 0
    again = Announced()
    complete(plan, Options(), watcher=again)
    assert again.said == []


@pytest.mark.slow
def test_only_missing_super_networks_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    space = SPACE | {"vary": SPACE["vary"] | {"init": ["zero_w2", "pytorch"], "d_z": [65], "depth": [1]}}
    plan = make_plan(name="groups", spaces=[space])
    ranked = rank_candidates(plan)
    paths = sorted((home() / "studies" / "groups").glob("shared-*.json"))
    assert len(paths) == 2
    seconds = read_ranking_seconds(plan)
    assert seconds is not None
    assert seconds > 0
    paths[0].unlink()
    assert read_ranking_seconds(plan) is None
    assert len(list_untrained(plan)) == 1
    trained: list[Group] = []
    train = shared.train_group

    def count(plan: Plan, group: Group, listener: Listener) -> Ranking:
        trained.append(group)
        return train(plan, group, listener)

    monkeypatch.setattr(shared, "train_group", count)
    assert rank_candidates(plan) == ranked
    assert len(trained) == 1


@pytest.mark.slow
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


def test_the_command_says_in_one_line_what_cannot_be_sliced(tmp_path: Path) -> None:
    space = {"model": {"name": "mlp_mixer", "patch": 2, "C": 8, "gamma": 2}, "vary": {"depth": [1, 2]}}
    (tmp_path / "study.json").write_text(json.dumps(settings(spaces=[space])))
    answer = call("study", tmp_path / "study.json", "--shared")
    assert (answer.code, answer.err.count("\n")) == (2, 1), answer
    assert "--shared cannot slice mlp_mixer (it declares no sizes to slice)" in answer.err


def test_order_is_by_hypervolume() -> None:
    points = {"small": (1.0, 20.0), "best": (2.0, 22.0), "dominated": (3.0, 21.0), "worst": (8.0, 19.0)}
    assert order_candidates(points, maximise=True)[0] == "best"
    assert sorted(order_candidates(points, maximise=True)) == sorted(points)
    near = {"first": (1.0, 10.0), "near it": (1.01, 10.01), "far": (10.0, 12.0), "worst": (20.0, 0.0)}
    for unit in (2.0**-60, 1.0, 2.0**60):  # of errors in small units, all gains are below 1e-12
        scaled = {name: (cost, unit * quality) for name, (cost, quality) in near.items()}
        assert order_candidates(scaled, maximise=True) == ["first", "far", "near it", "worst"]
    assert measure_agreement([(1, 1), (2, 2), (3, 3)]) == 1
    assert measure_agreement([(1, 1), (2, 2)]) is None


def test_the_costliest_candidate_is_in_the_order_where_it_is_best() -> None:
    """Not last, as if the front ended at its cost."""
    points = {"small": (1.0, 20.0), "middle": (4.0, 21.0), "costliest": (8.0, 23.0), "as costly": (8.0, 22.0)}
    assert order_candidates(points, maximise=True) == ["costliest", "middle", "as costly", "small"]
    errors = {name: (cost, -quality) for name, (cost, quality) in points.items()}
    assert order_candidates(errors, maximise=False) == order_candidates(points, maximise=True)


def test_a_ranking_by_an_older_metric_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan()
    (group,) = group_candidates(plan)[:1]
    before = _describe(plan, group)[0]
    monkeypatch.setattr(type(plan.task), "metric_versions", {plan.quality: 2})
    assert _describe(plan, group)[0] != before
