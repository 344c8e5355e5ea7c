"""Contributions against networks written out: what is added, its gradient, and the loss without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus.analysis.contributions import (
    applies,
    draw,
    measure_lengths,
    measure_lesions,
    measure_swaps,
    of_run,
    summary,
    variation,
)
from isthmus.analysis.places import unroll
from isthmus.core.config import run_config
from isthmus.core.registry import create_model
from isthmus.training.run import run
from tests.equivalence.pathway_stacks import D, stack


def loss(stream: torch.Tensor) -> torch.Tensor:
    return stream.square().mean()


def three() -> tuple[Any, list[Any], torch.Tensor]:
    network = stack("plain", (1, 1, 1))
    branches = [block.branches()[0].update for block in network]
    return network, branches, torch.randn(4, D, dtype=torch.float64)


@torch.no_grad()
def test_a_lesion_leaves_out_one_update_and_a_swap_exchanges_two() -> None:
    network, (f, g, h), x = three()

    def after(*branches: Any) -> float:
        z = x
        for branch in branches:
            z = z + branch(z)
        return float(loss(z))

    assert measure_lesions(unroll(network), x, loss) == pytest.approx(
        [after(g, h), after(f, h), after(f, g)], rel=1e-12
    )
    assert measure_swaps(unroll(network), x, loss) == pytest.approx([after(g, f, h), after(f, h, g)], rel=1e-12)


def test_lengths_directions_and_gradients_are_those_of_the_formulas() -> None:
    network, (f, g, h), x = three()
    found = measure_lengths(unroll(network), x, loss)
    with torch.no_grad():
        u = f(x)
        second = x + u
        v = g(second)
        third = second + v
    last = third.clone().requires_grad_()
    w = h(last)
    of_w = 2 * (last + w) / x.numel()
    (of_v,) = torch.autograd.grad(loss(last + w), last)
    reads, updates = [x, second, third], [u, v, w.detach()]
    for place, (read, update) in enumerate(zip(reads, updates, strict=True)):
        assert float(found["update"][place]) == pytest.approx(float(update.norm(dim=1).mean()))
        assert float(found["dilution"][place]) == pytest.approx(float((update.norm(dim=1) / read.norm(dim=1)).mean()))
        cosine = torch.nn.functional.cosine_similarity(read, update).mean()
        assert float(found["cosine"][place]) == pytest.approx(float(cosine))
    for place, gradient in ((1, of_v), (2, of_w.detach())):
        assert float(found["gradient"][place]) == pytest.approx(4 * float(gradient.norm(dim=1).mean()))


@pytest.mark.parametrize(
    "case", ["delayed/ladder", "attended", "delta", "reversible/recomputed", "streams/mhc-2", "none"]
)
def test_it_works_with_any_pathway(case: str) -> None:
    network, x = stack(case, (1, 2, 1)), torch.randn(4, D, dtype=torch.float64)
    with torch.no_grad():
        intact = float(loss(network(x)))
    assert all(abs(value - intact) > 1e-9 for value in measure_lesions(unroll(network), x, loss))
    assert len(measure_swaps(unroll(network), x, loss)) == 3
    assert all(torch.stack(values).isfinite().all() for values in measure_lengths(unroll(network), x, loss).values())


def test_updates_of_zero_have_no_direction_and_no_lesion() -> None:
    model: Any = create_model("hourglass_mlp", d_in=4, d_out=2, d_z=5, d_h=3, depth=2)
    found = measure_lengths(unroll(model.blocks), torch.randn(3, 5), loss)
    assert torch.stack(found["cosine"]).isnan().all()
    assert torch.stack(found["update"]).tolist() == [0, 0]
    assert variation([None, None]) != variation([None, None])  # NaN
    assert variation([1.0, 3.0]) == 0.5


def test_a_run_is_measured_and_drawn(tmp_path: Path) -> None:
    config = {
        "source": {"name": "digits"}, "task": {"name": "classification"}, "threads": 1,
        "train": {"epochs": 1, "batch_size": 300},
        "model": {"name": "vit", "patch": 4, "d_z": 8, "d_h": 8, "num_heads": 2, "depth": 2, "pathway": "ladder"},
    }  # fmt: skip
    found = of_run(run(run_config(config)).id)
    assert len(found["places"]) == len(found["lesion"]) == len(found["swap"]) + 1 == 4
    assert found["pathway"] == "delayed"
    assert "attention_" in str(summary(found)["largest rise of the loss by a swap"])
    assert draw(found, tmp_path) == [tmp_path / "contributions.png"]
    assert applies(torch.nn.Linear(2, 2), "regression") == "it has no residual branches"
