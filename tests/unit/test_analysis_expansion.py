"""The expansion: its orders are the λ-derivatives of the network, and the paper's sums over paths."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus.analysis.expansion import (
    applies,
    compute_scaled,
    draw,
    expand,
    has_fixed_weights,
    of_run,
    shares_beyond,
    summary,
)
from isthmus.analysis.places import differentiate_forward, embed, unroll, unroll_model
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.registry import create_model
from isthmus.training.run import run
from tests.conformance.small_models import SMALL, build, inputs
from tests.equivalence.pathway_stacks import D, stack

FIXED: list[Any] = [
    "plain", "scaled/sqrt", {"name": "gained", "per": "channel"}, "ladder", "delayed/groups-4", "parallel",
    "reversible", "weighted", "injected", "injected/addition", "streams/static-2", "streams/static-4",
]  # fmt: skip
GATED = ["attended", "delta", "post_norm", "peri_norm", "spherical", "highway", "mobius", "streams/hyper-2"]


def rows() -> torch.Tensor:
    return torch.randn(3, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_the_orders_of_plain_are_sums_over_paths() -> None:
    network, x = stack("plain", (1, 1, 2, 1)), rows()
    f = [branch.update for block in network for branch in block.branches()]
    second = torch.zeros_like(x)
    with differentiate_forward():
        for i, j in combinations(range(len(f)), 2):
            second += torch.func.jvp(f[j], (x,), (f[i](x),))[1]
    for found, wanted in zip(expand(unroll(network), x), (x, sum(each(x) for each in f), second), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-13)


@torch.no_grad()
@pytest.mark.parametrize("case", FIXED, ids=str)
def test_the_orders_are_derivatives_by_the_factor_of_all_updates(case: Any) -> None:
    network, x = stack(case, move=0.3), rows()
    assert has_fixed_weights(unroll(network), x)
    zero, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)

    def output(by: Any) -> torch.Tensor:
        return compute_scaled(unroll(network), x, by)

    def slope(by: Any) -> torch.Tensor:
        return torch.func.jvp(output, (by,), (one,))[1]

    with differentiate_forward():
        derivatives = output(zero), slope(zero), torch.func.jvp(slope, (zero,), (one,))[1] / 2
    for found, wanted in zip(expand(unroll(network), x), derivatives, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_the_rest_is_of_third_order() -> None:
    network, x = stack("plain"), rows()
    orders = expand(unroll(network), x)
    rests = [
        float((compute_scaled(unroll(network), x, by) - orders[0] - by * orders[1] - by**2 * orders[2]).norm())
        for by in (0.02, 0.01)
    ]
    assert rests[0] / rests[1] == pytest.approx(8, rel=0.05)


@torch.no_grad()
def test_a_parallel_network_is_its_first_order() -> None:
    network, x = stack("parallel"), rows()
    assert shares_beyond(expand(unroll(network), x), network(x), 1.0).tolist() == pytest.approx([1, 0, 0], abs=1e-28)


@pytest.mark.parametrize("case", GATED)
def test_weights_that_depend_on_the_row_are_recognised(case: str) -> None:
    assert not has_fixed_weights(unroll(stack(case, move=0.3)), rows())


@pytest.mark.parametrize(("case", "said"), [("delta", "depend on the row"), ("none", "no skip"), ("ladder", None)])
def test_it_refuses_in_one_line_where_it_has_no_meaning(case: str, said: str | None) -> None:
    model = create_model("hourglass_mlp", d_in=4, d_out=2, d_z=5, d_h=3, depth=2, init="pytorch", pathway=case)
    reason = applies(model.eval(), "regression")
    assert reason is None if said is None else said in str(reason)


@pytest.mark.parametrize("name", list(SMALL))
def test_every_model_is_expanded_or_refused(name: str) -> None:
    model = build(name, SMALL[name][0]).eval()
    reason = applies(model, "")
    if name in {"hourglass_mlp", "conventional_mlp", "vit", "recurrent_transformer"}:
        assert reason is None
    if reason is None:
        with torch.no_grad():
            stream = embed(model, inputs(model))
            assert all(order.isfinite().all() for order in expand(unroll_model(model, stream), stream))
    else:
        assert "\n" not in reason


def test_a_run_is_measured_and_drawn(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "source": {"name": "tower", "train": 64, "validation": 16, "test": 16}, "task": {"name": "regression"},
        "threads": 1, "train": {"epochs": 1, "batch_size": 32},
        "model": {"name": "hourglass_mlp", "d_z": 32, "d_h": 4, "depth": 4, "init": "depth_scaled_w2"},
    }  # fmt: skip
    found = of_run(run(run_config(config)).id)
    assert found["share"][0] == 1
    assert found["share"][2] < found["share"][1] < 1
    assert found["shares"][found["scales"].index(1.0)] == pytest.approx(found["share"])
    assert str(summary(found)["share beyond orders 0 / 1 / 2"]).startswith("1 / ")
    assert draw(found, tmp_path) == [tmp_path / "expansion.png"]
    config["model"] |= {"pathway": "delta"}
    with pytest.raises(UserError, match=r"expansion does not apply to run .* depend on the row"):
        of_run(run(run_config(config)).id)
