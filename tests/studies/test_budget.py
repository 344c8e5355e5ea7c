"""The widest MLP within a budget, against a search over every width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.studies.budget import widest_mlp
from isthmus.training.counting import cost

sizes = st.integers(1, 40)


@given(st.integers(1, 4_000), sizes, sizes, st.floats(0.01, 8), st.integers(1, 6))
def test_no_wider_network_fits(budget: int, d_in: int, d_out: int, ratio: float, depth: int) -> None:
    fitting = [
        (d_z, d_h)
        for d_z in range(1, budget + 1)
        for d_h in [max(1, round(ratio * d_z))]
        if d_z * (d_in + d_out) + depth * 2 * d_z * d_h <= budget
    ]
    assert widest_mlp(budget, d_in, d_out, ratio, depth) == max(fitting, default=None)


@given(st.integers(30, 2_000), sizes, sizes, st.sampled_from([0.1, 0.5, 1.25, 4.0]), st.integers(1, 3))
def test_the_budget_is_what_a_network_costs(budget: int, d_in: int, d_out: int, ratio: float, depth: int) -> None:
    if found := widest_mlp(budget, d_in, d_out, ratio, depth):
        model = {"name": "hourglass_mlp", "d_z": found[0], "d_h": found[1], "depth": depth, "allow_any_shape": True}
        assert cost(model | {"d_in": d_in, "d_out": d_out}).params <= budget
