"""Names, presets, run ids, counts and refusals of pathways."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import isthmus
from isthmus.core.config import override, run_config, study_config
from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.core.registry import component, presets
from isthmus.core.titles import model_title
from isthmus.export.narrow_form import narrow
from isthmus.studies.proposals import Judge
from isthmus.training.counting import count_kept
from tests.conformance.small_models import IMAGE, SMALL

D, H, L = 24, 4, 12
MLP: dict[str, Any] = {
    "name": "hourglass_mlp", "d_in": 8, "d_out": 3, "d_z": D, "d_h": H, "depth": L, "init": "pytorch"
}  # fmt: skip
RUN = {"source": {"name": "digits"}, "task": {"name": "classification"}}


def config(pathway: Any, **fields: Any) -> Any:
    return component("models", {**MLP, **fields, "pathway": pathway})


def test_plain_is_the_same_run_and_record_as_none_given() -> None:
    given = [{**MLP}, {**MLP, "pathway": "plain"}, {**MLP, "pathway": {"name": "plain"}}]
    configs = [run_config({**RUN, "model": model}) for model in given]
    assert len({each.run_id("0" * 64) for each in configs}) == 1
    assert (
        configs[0].model_dump(mode="json") == configs[1].model_dump(mode="json") == configs[2].model_dump(mode="json")
    )
    assert "pathway" not in configs[0].model_dump()["model"]
    assert run_config({**RUN, "model": {**MLP, "pathway": "ladder"}}).run_id("0" * 64) != configs[0].run_id("0" * 64)


def test_a_study_varies_the_pathway_and_its_fields() -> None:
    model = {name: value for name, value in MLP.items() if name not in ("d_in", "d_out")}
    spaces = [
        {"model": model, "vary": {"pathway": ["plain", "ladder", "delayed/ladder", "rezero"]}},
        {"model": {**model, "pathway": "streams"}, "vary": {"pathway.count": [2, 4]}},
    ]
    study = study_config({"name": "paths", "base": RUN, "spaces": spaces})
    judge = Judge(study, Signature((8,), (3,)))
    keys: list[str] = []
    for number, space in enumerate(study.spaces):
        for settings in space.grid():
            proposal = judge.judge(settings, number, keys)
            keys += [] if proposal is None else [proposal.key]
    without = judge.judge(model, None)
    assert without is not None
    assert keys[0] == without.key
    assert len(keys) == len(set(keys)) == 5, "ladder is delayed/ladder"
    assert judge.refused["proposed twice"] == 1


def test_overrides_reach_the_fields_of_a_pathway() -> None:
    changed = override({"model": {"name": "vit"}}, ["model.pathway.count=2", "model.pathway=mhc"])
    assert changed["model"]["pathway"] == {"name": "mhc", "count": 2}
    assert config({"name": "mhc", "count": 2}).pathway.constrain == "doubly_stochastic"
    assert override(changed, ["model.pathway=ladder"])["model"]["pathway"] == "ladder"


def test_names_of_papers_are_presets_and_titles_name_the_pathway() -> None:
    names = """
        ladder ladder_residual parallel shallow_again inception inception_resnet rezero skipinit skip_init layerscale
        layer_scale revnet revvit reversible_vit parcae highway_networks ddl deep_delta_learning denseformer
        dense_former depth_weighted_average attnres attention_residuals hyper_connections static_hyper_connections
        dynamic_hyper_connections mhc mhc_lite manifold_constrained_hyper_connections deepnorm deepnet post_ln sandwich
        sandwich_ln peri_ln ngpt poincare poincare_resnet
    """
    assert set(names.split()) == {name for name in presets() if "/" not in name}
    same = {"ddl": "deep_delta_learning", "attnres": "attention_residuals", "layerscale": "layer_scale"}
    same |= {"mhc": "manifold_constrained_hyper_connections", "parallel": "shallow_again", "sandwich": "sandwich_ln"}
    assert all(config(short) == config(full) for short, full in same.items())
    assert config("ddl") == config("delta") == config({"name": "delta", "write": "value"})
    assert model_title(config("mhc").model_dump()).endswith("pathway=streams(constrain=doubly_stochastic)")
    assert "pathway" not in model_title(config("plain").model_dump())


def test_presets_that_differ_have_titles_that_differ() -> None:
    """A study tells the pathways of its candidates apart by them."""
    found = {str(config(name).model_dump()): model_title(config(name).model_dump()) for name in presets()}
    assert len(set(found.values())) == len(found), sorted(found.values())


# Blocks of two places: two products with every finished source and one with the growing one, at all places but the
# first and at the output. Where x_0 is the only finished source, its weighted sum is x_0 itself.
SOURCES = sum(2 * (place // 2 + 1) + place % 2 for place in range(1, L + 1)) - 1
EXTRA: list[tuple[Any, int, int]] = [  # parameters and multiply–adds beyond plain
    *((name, 0, 0) for name in ("none", "scaled", "ladder", "parallel", "reversible", "post_norm", "mobius")),
    ("rezero", L, 0),
    ("layerscale", L * D, 0),
    ("peri_norm", L * D, 0),
    ("spherical", L * D, 0),
    ("highway", 2 * L * D, 0),
    ("highway_networks", L * (D * D + D), L * D * D),
    ("injected", 3 * L * D, 0),
    ("parcae", L * (D * D + 2 * D), L * D * D),
    ("delta", L * (2 * D + 2), 3 * L * D),
    ("delta/erase-and-add", L * (D + 1), 2 * L * D),
    ("denseformer", sum(range(2, L + 2)), D * sum(range(2, L + 2))),
    ("streams/static-2", L * 8, L * D * 6),
    ("streams/static-4", L * 24, L * D * 20),
    ("streams/hyper-4", L * (24 + 6 * D + 2), L * D * 44),
    ("streams/mhc-4", L * (24 + 96 * D + 3), L * D * 116),
    ({"name": "attended", "blocks": 6}, L * D, D * SOURCES),
]


@pytest.mark.parametrize(("pathway", "params", "macs"), EXTRA, ids=[str(case[0]) for case in EXTRA])
def test_counts_are_those_of_the_closed_forms(pathway: Any, params: int, macs: int) -> None:
    plain, found = isthmus.cost(config("plain")), isthmus.cost(config(pathway))
    assert found.params - plain.params == params
    assert found.macs - plain.macs == macs


@pytest.mark.parametrize(
    ("pathway", "streams"),
    [("plain", 1), ("scaled", 1), ("ladder", 2), ("delayed/groups-4", 2), ("reversible", 2), ("injected", 2),
     ("streams/static-4", 4), ("delta", 1), ("delta/value-4", 4), ("denseformer", L + 2)],
)  # fmt: skip
def test_the_streams_that_are_kept(pathway: str, streams: int) -> None:
    assert count_kept(config(pathway)).stream_values == streams * D


@pytest.mark.slow
def test_a_recomputed_reversible_network_keeps_the_same_at_any_depth() -> None:
    shallow, deep = (count_kept(config("reversible/recomputed", depth=depth)).saved_values for depth in (16, 256))
    assert 0 < deep <= 1.1 * shallow
    assert count_kept(config("reversible", depth=64)).saved_values > 20 * deep


REFUSED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("hourglass_mlp", {**MLP, "init": "zero_w2"}, "rezero", "init=zero_w2; use init=depth_scaled_w2"),
    ("hourglass_mlp", {**MLP, "init": "zero_w2"}, "delta", "init=zero_w2; use init=depth_scaled_w2"),
    (
        "hourglass_mlp",
        {**MLP, "init": "zero_w2"},
        "spherical",
        "spherical needs updates that are not zero",
    ),
    ("hourglass_mlp", MLP, {"name": "attended", "blocks": None, "window": 13}, "window=13 exceeds the 12 sources"),
    ("hourglass_mlp", MLP, {"name": "delayed", "group": 13}, "use group=all"),
    ("hourglass_mlp", MLP, {"name": "delayed", "lag": 1, "group": 2}, "either a lag or groups"),
    ("hourglass_mlp", MLP, {"name": "delayed", "from_block": 13}, "exceeds the 12 blocks"),
    ("hourglass_mlp", MLP, {"name": "delta", "write": "update", "channels": 2}, "needs write=value"),
    ("hourglass_mlp", MLP, {"name": "streams", "count": 6, "constrain": "permutations"}, "doubly_stochastic"),
    ("hourglass_mlp", MLP, {"name": "weighted", "period": 13}, "exceeds the 12 blocks"),
    ("hourglass_mlp", MLP, {"name": "streams", "conut": 2}, "unknown field 'conut'"),
    ("hourglass_mlp", MLP, "mch", "unknown pathway 'mch'; did you mean 'mhc'"),
    ("hourglass_mlp", MLP, {"count": 2}, "a pathway is given as"),
    ("vit", SMALL["vit"][0], "reversible/recomputed", "drop_path=0.2 prevents; use recompute=false"),
    ("imixer", SMALL["imixer"][0], "reversible/recomputed", "norm=spectral prevents"),
    ("recurrent_transformer", IMAGE, "weighted", "a fixed number of updates; use attended"),
    ("hourglass_mlp", MLP, {"name": "mobius", "margin": 1e-9}, "lost in float32, so that streams overflow; use margin"),
    ("hourglass_mlp", MLP, {"name": "delta", "channels": 2, "convolution": 3}, "convolution=3 exceeds channels=2"),
    ("hyper_set", IMAGE, "streams", "scaled, gained and injected keep it"),
    ("hyper_set", IMAGE, "rezero", "step_sizes=X_t; use step_sizes=fixed"),
    ("mlp_mixer", SMALL["mlp_mixer"][2], "none", "none leaves out the first skip, which has weights with S=9"),
    ("mlp_mixer", SMALL["mlp_mixer"][2], "revnet", "S=9 prevents"),
    ("crate", IMAGE, "ladder", "plain only"),
]


@pytest.mark.parametrize(("model", "fields", "pathway", "says"), REFUSED)
def test_what_does_not_fit_is_one_line(model: str, fields: dict[str, Any], pathway: Any, says: str) -> None:
    with pytest.raises(UserError) as refused:
        isthmus.create_model(**{"name": model, **fields, "pathway": pathway})
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("pathway", ["scaled", "layerscale", {"name": "gained", "start": -0.7}])
def test_a_factor_is_folded_into_the_narrow_form(pathway: Any) -> None:
    network = isthmus.create_model(**{**MLP, "depth": 4, "pathway": pathway, "residual_scale": 0.8}).double()
    x = torch.randn(5, 8, dtype=torch.float64)
    torch.testing.assert_close(narrow(network, force=True)(x), network(x), rtol=1e-9, atol=1e-9)
    with pytest.raises(UserError, match="fixed weights or by delta; those of attended depend on the row; `--to onnx`"):
        narrow(isthmus.create_model(**{**MLP, "pathway": "attended"}))


@pytest.mark.parametrize("pathway", ["scaled", "gained", "injected", "plain"])
def test_hyper_set_takes_what_keeps_its_energy(pathway: str) -> None:
    network = isthmus.create_model("hyper_set", **IMAGE, pathway=pathway)
    assert network(torch.randn(2, 3, 8, 12)).shape == (2, 5)


def test_a_recurrent_network_may_iterate_longer_than_it_was_configured_to() -> None:
    for pathway in ("attended", "streams", "ladder", "reversible", "injected", "delta"):
        network: Any = isthmus.create_model("recurrent_transformer", **{**IMAGE, "iterations": 1}, pathway=pathway)
        assert network(torch.randn(2, 3, 8, 12), iterations=4).isfinite().all()


def test_mobius_refuses_a_ball_that_half_precision_cannot_hold() -> None:
    """By default it computes in float32, so that half precision does not overflow."""
    x = torch.full((2, 8), 300.0)
    for dtype in (torch.float16, torch.bfloat16):
        network = isthmus.create_model(**MLP, pathway="mobius").to(dtype)
        assert network(x.to(dtype)).isfinite().all()
    large = isthmus.create_model(**MLP, pathway={"name": "mobius", "curvature": 1e-10})
    assert large.bfloat16()(x.bfloat16()).isfinite().all()
    with pytest.raises(
        UserError, match=r"curvature=1e-10 lets streams grow to 3.1e\+05 and float16 ends at 6.6e\+04; use"
    ):
        large.half()(x.half())


def test_a_random_state_is_drawn_in_training_only() -> None:
    pathway = {"name": "injected", "decay": 0.5}
    zero = isthmus.create_model(**MLP, pathway={**pathway, "begin": "zero"}).eval()
    network = isthmus.create_model(**MLP, pathway={**pathway, "begin": "random", "begin_std": 0.1})
    network.load_state_dict(zero.state_dict())
    x = torch.randn(3, 8)
    assert not torch.equal(network(x), network(x))
    assert torch.equal(network.eval()(x), zero(x))


def test_fields_that_papers_leave_open_change_no_run_where_they_are_absent() -> None:
    assert config("injected").pathway.model_dump(exclude_defaults=True) == {"name": "injected"}
    named = config({"name": "delta", "channels": 4}).pathway
    assert named.convolution is None
    assert "kernel" not in " ".join(isthmus.create_model(**MLP, pathway="delta/value-4").state_dict())
