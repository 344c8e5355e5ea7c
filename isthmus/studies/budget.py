"""The widest MLP that fits a budget of parameters."""

from __future__ import annotations

from bisect import bisect_right


def widest_mlp(budget: int, d_in: int, d_out: int, ratio: float, depth: int) -> tuple[int, int] | None:
    """The largest ``d_z``, with its ``d_h`` = ``ratio`` · ``d_z`` rounded; None if not even ``d_z`` = 1 fits.

    A residual MLP without biases has d_z (d_in + d_out) + 2 depth d_z d_h parameters, which grow with d_z.
    """

    def inner(d_z: int) -> int:
        return max(1, round(ratio * d_z))

    def params(d_z: int) -> int:
        return d_z * (d_in + d_out + 2 * depth * inner(d_z))

    d_z = bisect_right(range(1, budget + 1), budget, key=params)
    return (d_z, inner(d_z)) if d_z else None
