"""Depth mixing against the matrix A of every pathway, written out in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus.analysis.depth_mixing import applies, compute_mixing, describe, draw, of_run, summary
from isthmus.analysis.places import embed, read_out, unroll, unroll_model, walk
from isthmus.core.config import run_config
from isthmus.core.registry import component, create_model
from isthmus.training.run import run
from tests.conformance.small_models import SMALL, TOKENS, build, inputs
from tests.equivalence.pathway_stacks import BLOCKS, D, every_case, stack
from tests.equivalence.slow_pathways import SLOW, delta_channels


@every_case
def test_it_is_the_matrix_of_the_pathway(case: Any) -> None:
    """Of an operator, the component along the update; the others are compared as they are."""
    network = stack(case, move=0.3)
    config: Any = component("pathways", case)
    x = torch.randn(3, D, dtype=torch.float64)
    found = compute_mixing(unroll(network), x)
    with torch.no_grad():
        steps = list(network.steps(x))
        slow = delta_channels if config.name == "delta" and config.channels > 1 else SLOW[config.name]
        for row in range(len(x)):
            u = [x[row], *(step.update[row] for step in steps)]
            A = slow(network.pathway, config, [step.read[row] for step in steps], u, BLOCKS)
            for place, operators in enumerate(A):
                wanted = torch.stack([u[i] @ operator @ u[i] / (u[i] @ u[i]) for i, operator in enumerate(operators)])
                torch.testing.assert_close(found[place, : place + 1, row], wanted, rtol=1e-11, atol=1e-11)
                assert not found[place, place + 1 :, row].any()


def test_entropy_reach_and_share_of_plain_are_those_of_equal_weights() -> None:
    found = describe(torch.ones(4, 4, dtype=torch.float64).tril())
    assert found["entropy"].exp().tolist() == pytest.approx([1, 2, 3, 4])
    assert found["reach"].tolist() == pytest.approx([0, 0.5, 1, 1.5])
    assert found["input_share"].tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def test_an_update_of_zero_has_no_entries() -> None:
    model: Any = create_model("hourglass_mlp", d_in=4, d_out=2, d_z=5, d_h=3, depth=2)
    found = compute_mixing(unroll(model.blocks), torch.randn(3, 5))
    assert found[:, 0].isfinite().all()
    assert found[:, 1:].isnan().all()


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [("hourglass_mlp", 0, None), ("vit", 0, None), ("mlp_mixer", 0, None), ("recurrent_transformer", 0, None),
     ("hyper_set", 0, None), ("mlp_mixer", 2, "weights of their own"), ("crate", 0, "replace the stream"),
     ("monarch_mlp", 0, "no residual branches")],
)  # fmt: skip
def test_it_applies_to_additions_and_says_why_not_elsewhere(name: str, number: int, said: str | None) -> None:
    reason = applies(build(name, SMALL[name][number]).eval(), "classification")
    assert reason is None if said is None else said in str(reason)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "pathway"),
    [("recurrent_transformer", "plain"), ("recurrent_transformer", "attended"), ("recurrent_transformer", "parcae"),
     ("recurrent_transformer", "streams/static-2"), ("hyper_set", "plain"), ("hyper_set", "injected")],
)  # fmt: skip
def test_a_recurrent_model_has_places_in_every_iteration(name: str, pathway: str) -> None:
    """Its walk is the model; plain reads each earlier update once, and a descent subtracts it."""
    own: dict[str, Any] = {"step_sizes": "fixed"} if name == "hyper_set" else {"layers": 2}  # learned ones start at 0
    fields = {**TOKENS, "iterations": 3, "pathway": pathway, **own}
    model = build(name, fields).double().eval()
    x = inputs(model)
    stream = embed(model, x)
    unrolled = unroll_model(model, stream)
    torch.testing.assert_close(read_out(model, walk(unrolled, stream).output), model(x))
    assert [place.name for place in unrolled.places] == [step.name for step in model.steps(x)]
    found = compute_mixing(unrolled, stream)
    assert found.shape[:2] == (len(unrolled.places) + 1,) * 2
    if pathway == "plain":
        signs = torch.tensor([1.0] + [place.branch.scale for place in unrolled.places], dtype=torch.float64)
        wanted = (torch.ones_like(found[..., 0, 0]) * signs).tril()
        torch.testing.assert_close(found, wanted[..., None, None].expand_as(found))


def test_a_run_of_any_pathway_is_measured_and_drawn(tmp_path: Path) -> None:
    config = {
        "source": {"name": "tower", "train": 64, "validation": 16, "test": 16}, "task": {"name": "regression"},
        "threads": 1, "train": {"epochs": 1, "batch_size": 32},
        "model": {
            "name": "hourglass_mlp", "d_z": 32, "d_h": 4, "depth": 4, "init": "depth_scaled_w2", "pathway": "attended",
        },
    }  # fmt: skip
    found = of_run(run(run_config(config)).id)
    assert found == of_run(found["run"])
    assert found["places"] == ["block_1", "block_2", "block_3", "block_4", "output"]
    assert found["mixing"][0] == pytest.approx([1, 0, 0, 0, 0], abs=1e-6)
    assert sum(found["mixing"][4]) == pytest.approx(5, rel=1e-4)  # softmax weights times the number of sources
    assert summary(found)["pathway"] == "attended"
    assert draw(found, tmp_path) == [tmp_path / "depth_mixing.png"]
