"""What holds for any parameters of a pathway."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isthmus.core.registry import component, find
from isthmus.layers.residual import Layout

D, PLACES = 6, 5
seeds = st.integers(0, 2**31)
sizes = st.floats(0.01, 10)


def make(pathway: Any, seed: int, size: float) -> Any:
    """With random parameters, in float64."""
    config, layout = component("pathways", pathway), Layout(D, (1,) * PLACES)
    made = find("pathways", config.name)(config, layout).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += size * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
    return made


def rows(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=25, deadline=None)
@given(seeds, sizes)
def test_constrained_maps_of_streams_are_doubly_stochastic(seed: int, size: float) -> None:
    for pathway in ("streams/mhc-lite-4", {"name": "mhc", "sinkhorn_iterations": 200}):
        made = make(pathway, seed, min(size, 2.0))
        maps = made.maps(rows(seed, 3, 4), 1)
        assert (maps.res >= 0).all()
        ones = torch.ones(3, 4, dtype=torch.float64)
        torch.testing.assert_close(maps.res.sum(-1), ones, rtol=0, atol=1e-2)
        torch.testing.assert_close(maps.res.sum(-2), ones, rtol=0, atol=1e-4)
        assert float(torch.linalg.matrix_norm(maps.res.detach(), 2).max()) <= 1 + 1e-2
        assert (maps.pre >= 0).all()
        assert (maps.post <= 2).all()


@settings(max_examples=25, deadline=None)
@given(seeds, sizes)
def test_attended_reads_a_convex_combination(seed: int, size: float) -> None:
    made = make({"name": "attended", "blocks": 3, "total": "mean"}, seed, size)
    state = made.start(torch.ones(2, D, dtype=torch.float64))
    for place in range(PLACES):
        _, known = made.read(state, place)
        state = made.write(state, place, known, torch.zeros(2, D, dtype=torch.float64) + (place % 2 == 0), 1.0)
    # Sources are sums of ones, so a convex combination stays between the smallest and the largest of them.
    read = made.finish(state)
    assert (read >= 0.99).all()
    assert (read <= 2.01).all()


@settings(max_examples=25, deadline=None)
@given(seeds, sizes)
def test_delta_changes_the_stream_along_the_update_only(seed: int, size: float) -> None:
    made = make({"name": "delta", "eps": 1e-12}, seed, size)
    x, u = rows(seed, 3), rows(seed + 1, 3)
    k = u / u.norm(dim=-1, keepdim=True)
    new = made.write(x, 0, x, u, 1.0)
    across = (new - x) - ((new - x) * k).sum(-1, keepdim=True) * k
    assert float(across.detach().abs().max()) < 1e-9
    beta, v = made.gates(x, 0)
    assert ((beta >= 0) & (beta <= 2)).all()
    torch.testing.assert_close((new * k).sum(-1, keepdim=True), (1 - beta) * (x * k).sum(-1, keepdim=True) + beta * v)


@settings(max_examples=25, deadline=None)
@given(seeds, st.floats(-50, 50))
def test_injected_never_grows(seed: int, shift: float) -> None:
    made = make("injected", seed, 1.0)
    with torch.no_grad():
        made.delta += shift
    assert all(((decay >= 0) & (decay <= 1)).all() for decay in made.rates().decay)


@settings(max_examples=25, deadline=None)
@given(seeds, st.floats(1e-3, 1e3), st.floats(1e-3, 10))
def test_mobius_stays_in_the_ball(seed: int, length: float, curvature: float) -> None:
    made = make({"name": "mobius", "curvature": curvature}, seed, 0.0)
    inside = made.enter_ball(length * rows(seed, 4))
    assert float(inside.norm(dim=-1).max()) <= (1 - made.config.margin) / curvature**0.5 + 1e-9
    assert made.write(length * rows(seed, 4), 0, None, length * rows(seed + 1, 4), 1.0).isfinite().all()


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(0, PLACES))
def test_delayed_outputs_hold_every_update(seed: int, lag: int) -> None:
    for pathway in ({"name": "delayed", "lag": lag}, {"name": "delayed", "group": max(1, lag)}, "parallel"):
        made = make(pathway, seed, 0.0)
        updates = rows(seed, PLACES + 1, 2)
        state = made.start(updates[0])
        for place in range(PLACES):
            state = made.write(state, place, None, updates[place + 1], 1.0)
        torch.testing.assert_close(made.finish(state), updates.sum(0))
